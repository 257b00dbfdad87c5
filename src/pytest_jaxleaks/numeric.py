"""Judge a gradient by differences of the function's values.

A central difference along one random direction looks at every element at once. Only where it does
not fit is the culprit looked for, by halving the set of elements, and then judged on its own: per
element, not per array.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from pytest_jaxleaks.orders import draw
from pytest_jaxleaks.tolerances import NUMERIC_RTOL

if TYPE_CHECKING:
    from collections.abc import Callable

    from pytest_jaxleaks.worlds import Point, World

__all__ = [
    "FINE",
    "STEPS",
    "Deviation",
    "Prober",
    "Promise",
    "Slope",
    "by_gradient",
    "by_pushforward",
    "direction",
    "dot",
    "judge",
    "spread",
]

STEPS = tuple(2.0**-k for k in (5, 8, 11, 14, 17))
"""Relative steps. In float64 the best one for a central difference is about eps ** (1/3) = 2 **
-17; for float32 inside the function it is 2 ** -8, for bfloat16 2 ** -3 (Press et al., Numerical
Recipes, section 5.7)."""

FINE = 1e-6
"""A direction whose difference fits this well, relative to the root of the sum of the squared
terms, is not looked at again."""

NOISE = 8.0
"""Rounding noise of one evaluation, in eps of the coarsest precision in the function times the size
of its value."""


@dataclass(frozen=True)
class Slope:
    """A numeric directional derivative and how far it can be trusted."""

    value: float
    error: float
    step: float


@dataclass(frozen=True)
class Deviation:
    """An analytic derivative that is not the numeric one.

    Attributes:
        leaf: number of the leaf, None where no single element is to blame.
        index: index of the element in it.
        expected: the numeric derivative.
        actual: the analytic one.
        bound: the deviation that would have been allowed.
        step: the relative step of the difference.
    """

    leaf: int | None
    index: tuple[int, ...]
    expected: float
    actual: float
    bound: float
    step: float


def direction(point: Point, seed: int) -> Point:
    """Draw a direction: each element moves in proportion to its own magnitude, none much less than
    the rest."""
    random = np.random.default_rng(seed)
    found = []
    for leaf in point:
        size = np.abs(leaf)
        typical = float(np.sqrt(np.mean(size**2))) if size.size and size.any() else 1.0
        found.append(
            draw(random, leaf.shape, np.iscomplexobj(leaf)) * np.where(size > 0, size, typical)
        )
    return found


def dot(gradient: Point, tangent: Point) -> float:
    """Return ``Re(sum(g * v))``: the derivative that a gradient promises along a tangent."""
    return float(sum(np.sum(np.real(g * v)) for g, v in zip(gradient, tangent, strict=True)))


def spread(gradient: Point, tangent: Point) -> float:
    """Return the root of the sum of squares of the terms of :func:`dot`: the size of a random sum
    of them."""
    terms = (np.sum(np.real(g * v) ** 2) for g, v in zip(gradient, tangent, strict=True))
    return float(np.sqrt(sum(terms)))


@dataclass(frozen=True)
class Promise:
    """What JAX says the derivative is.

    Attributes:
        along: from a tangent to the derivative along it.
        size: from a tangent to the size that a sum of such terms with random signs has.
    """

    along: Callable[[Point], float]
    size: Callable[[Point], float]


def by_gradient(gradient: Point) -> Promise:
    """Return what a gradient promises."""
    return Promise(
        lambda tangent: dot(gradient, tangent), lambda tangent: spread(gradient, tangent)
    )


def by_pushforward(push: Callable[[Point], float]) -> Promise:
    """Return what forward mode promises, which gives no more than the sum of all terms."""
    return Promise(push, lambda tangent: abs(push(tangent)))


class Prober:
    """Differences of one world's function. Remembers nothing but the value at the point."""

    def __init__(self, world: World, precision: Callable[[], float]) -> None:
        self.world = world
        self._precision = precision
        self.center = world.value(world.point)

    def scale(self) -> float:
        """Return the size of the numbers that rounding acts on: the value, or the inputs that
        cancel in it."""
        inputs = float(np.sqrt(sum(np.sum(np.abs(x) ** 2) for x in self.world.point)))
        return abs(self.center) if abs(self.center) > 1e-6 * inputs else inputs

    def is_rough(self, tangent: Point) -> bool:
        """Tell whether differences still change a lot below the smallest step: a chaotic
        function."""
        if self._precision() > 1e-12:
            return False
        fine, finer = (self.central(tangent, step) for step in (STEPS[-1], STEPS[-1] / 128))
        return abs(fine - finer) > max(abs(fine), abs(finer)) / 2 and abs(finer) > abs(fine)

    def move(self, tangent: Point, step: float) -> float:
        """Return the function's value one step along a tangent."""
        pairs = zip(self.world.point, tangent, strict=True)
        return self.world.value([x + step * v for x, v in pairs])

    def central(self, tangent: Point, step: float) -> float:
        """Return the central difference quotient."""
        return (self.move(tangent, step) - self.move(tangent, -step)) / (2 * step)

    def slope(self, tangent: Point) -> Slope | None:
        """Return the best numeric derivative over all steps; None where the function is not finite.

        The error of a step is its distance to the next one plus rounding noise, so that a function
        that rounds inside (or is a staircase) is judged with steps that see beyond its rounding.
        """
        values = [self.central(tangent, step) for step in STEPS]
        noise = NOISE * self._precision() * self.scale()
        best: Slope | None = None
        for i, step in enumerate(STEPS):
            near = [abs(values[i] - values[j]) for j in (i - 1, i + 1) if 0 <= j < len(values)]
            error = min(near) + noise / step
            if np.isfinite(error) and (best is None or error < best.error):
                best = Slope(values[i], error, step)
        return best

    def sides(self, tangent: Point, step: float) -> tuple[float, float]:
        """Return the difference quotients to the left and to the right."""
        left = (self.center - self.move(tangent, -step)) / step
        right = (self.move(tangent, step) - self.center) / step
        return left, right

    def one_sided(self, tangent: Point, step: float) -> tuple[float, float]:
        """Return the smaller and the larger of the two one-sided difference quotients."""
        left, right = self.sides(tangent, step)
        return min(left, right), max(left, right)

    def has_kink(self, tangent: Point) -> bool:
        """Tell whether the derivatives from both sides stay apart however small the step."""
        gaps = []
        for step in (2.0**-11, 2.0**-14):
            low, high = self.one_sided(tangent, step)
            gaps.append((high - low) / max(abs(low), abs(high), 1e-300))
        return min(gaps) > self._least_gap() and gaps[1] > gaps[0] / 2

    def _least_gap(self) -> float:
        """Return the gap that rounding cannot make: one kink among many elements is a small one."""
        return 1e-5 if self._precision() < 1e-12 else 0.05


def judge(
    prober: Prober, promise: Promise, tangent: Point, rtol: float = NUMERIC_RTOL
) -> Deviation | str | None:
    """Compare a promised derivative with differences of the function.

    Returns:
        None where they agree, a sentence where nothing can be said, and the deviation otherwise.
    """
    promised, size = promise.along(tangent), promise.size(tangent)
    if not np.isfinite(prober.center):
        return "the function is not finite there"
    quick = [prober.central(tangent, step) for step in STEPS[-2:]]
    if all(abs(q - promised) <= FINE * max(size, abs(promised)) for q in quick):
        return None
    slope = prober.slope(tangent)
    if slope is None:
        return "the function is not finite around the point"
    allowed = 3 * slope.error + FINE * size
    if abs(slope.value - promised) <= allowed:
        return None
    if slope.error > 0.1 * max(abs(slope.value), abs(promised)):
        return "differences of the function's values are too noisy there"
    if prober.is_rough(tangent):
        return "the function is too rough there: differences do not converge"
    found = _blame(prober, promise, tangent, slope.step, rtol)
    if found is not None:
        return found
    if abs(slope.value - promised) > allowed + rtol * max(size, abs(slope.value)):
        return Deviation(None, (), slope.value, promised, rtol * size, slope.step)
    return None


def _blame(
    prober: Prober, promise: Promise, tangent: Point, step: float, rtol: float
) -> Deviation | None:
    """Find the element with most of the deviation, and judge it on its own."""
    low, high = 0, sum(leaf.size for leaf in tangent)
    whole = _residual(prober, promise, tangent, low, high, step)
    while high - low > 1:
        middle = (low + high) // 2
        left = _residual(prober, promise, tangent, low, middle, step)
        right = whole - left
        low, high, whole = (low, middle, left) if abs(left) >= abs(right) else (middle, high, right)
    only = _restrict(tangent, low, high)
    slope = prober.slope(only)
    if slope is None:
        return None
    promised = promise.along(only)
    bound = (
        rtol * max(abs(promised), abs(slope.value)) + 3 * slope.error + FINE * promise.size(tangent)
    )
    if abs(slope.value - promised) <= bound or _within_kink(prober, only, promised, bound):
        return None
    leaf, index, scale = _locate(only, low)
    return Deviation(
        leaf, index, slope.value / scale, promised / scale, bound / abs(scale), slope.step
    )


def _within_kink(prober: Prober, tangent: Point, promised: float, bound: float) -> bool:
    if not prober.has_kink(tangent):
        return False
    low, high = prober.one_sided(tangent, 2.0**-14)
    return low - bound <= promised <= high + bound


def _residual(
    prober: Prober, promise: Promise, tangent: Point, low: int, high: int, step: float
) -> float:
    part = _restrict(tangent, low, high)
    return prober.central(part, step) - promise.along(part)


def _restrict(tangent: Point, low: int, high: int) -> Point:
    """Keep the elements ``low`` to ``high`` of all leaves laid end to end, and put zeros
    elsewhere."""
    kept, start = [], 0
    for leaf in tangent:
        numbers = np.arange(start, start + leaf.size).reshape(leaf.shape)
        kept.append(np.where((numbers >= low) & (numbers < high), leaf, 0))
        start += leaf.size
    return kept


def _locate(only: Point, number: int) -> tuple[int, tuple[int, ...], float]:
    """Return the leaf and the index of an element, and how far the direction moves it.

    A complex element has no single factor, and its derivative is reported along the direction.
    """
    for position, leaf in enumerate(only):
        if number < leaf.size:
            index = tuple(int(i) for i in np.unravel_index(number, leaf.shape))
            moved: Any = leaf[index]
            return position, index, 1.0 if np.iscomplexobj(leaf) else float(moved)
        number -= leaf.size
    raise IndexError(number)
