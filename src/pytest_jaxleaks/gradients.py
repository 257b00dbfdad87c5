"""Is the gradient that JAX computes the gradient of the values?

Looks at one example at a time, without jit and vmap; the other orders are compared with what was
judged here.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from pytest_jaxleaks.failures import Failure
from pytest_jaxleaks.numeric import (
    FINE,
    STEPS,
    Deviation,
    Prober,
    by_gradient,
    direction,
    dot,
    judge,
    spread,
)
from pytest_jaxleaks.pushforwards import LINEARITY_FACTOR, judge_forward
from pytest_jaxleaks.rule_values import wrong_rule_value
from pytest_jaxleaks.tolerances import NUMERIC_RTOL

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from pytest_jaxleaks.worlds import Point, World

__all__ = [
    "GradientCheck",
    "Terms",
    "check_gradient",
    "check_row",
    "is_silent_zero",
    "nan_gradients",
]

ZERO_LEAVES = 8
"""So many leaves with a gradient of exact zeros are looked at for steps at scale."""


@dataclass
class GradientCheck:
    """The outcome for one example: what fails, what could not be said, and which modes there
    are."""

    failures: list[Failure] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    modes: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class Terms:
    """How a gradient is judged.

    Attributes:
        order: the order to blame.
        modes: ``fwd`` and ``rev``, or one of them.
        strict_fwd: whether a function without forward mode (``custom_vjp``) fails.
        seed: for the random directions.
        rtol: per element.
        staircases: whether leaves whose gradient is zero are looked at for steps.
    """

    order: str
    modes: tuple[str, ...] = ("fwd", "rev")
    strict_fwd: bool = False
    seed: int = 0
    rtol: float = NUMERIC_RTOL
    staircases: bool = True


def check_gradient(world: World, terms: Terms) -> GradientCheck:
    """Check reverse and forward mode of one example against differences of its values."""
    check = GradientCheck()
    prober = Prober(world, _once(world.precision))
    tangent = direction(world.point, terms.seed)
    gradient = None
    if "rev" in terms.modes:
        gradient = _reverse(prober, tangent, terms, check)
    if "fwd" in terms.modes and not check.failures:
        judge_forward(prober, tangent, gradient, terms, check)
    wrong = wrong_rule_value(world, check.modes, terms.order, terms.rtol)
    return check if wrong is None else replace(check, failures=[*check.failures, wrong])


def check_row(world: World, terms: Terms) -> GradientCheck:
    """Check another row of a batch: at length only if a quick look at it does not fit.

    ``terms.modes`` are those that worked for the example.
    """
    try:
        fits = _fits(world, terms)
    except Exception:  # what works for one row may raise for another
        fits = False
    if fits:
        return GradientCheck()
    return check_gradient(world, replace(terms, staircases=False, strict_fwd=False))


def _fits(world: World, terms: Terms) -> bool:
    """Tell whether all derivatives of an example agree along one random direction."""
    prober = Prober(world, world.precision)
    tangent = direction(world.point, terms.seed)
    found, size = [prober.central(tangent, STEPS[-2])], 0.0
    if "rev" in terms.modes:
        pull = world.pullback()
        gradient, scaled = pull(1.0), pull(LINEARITY_FACTOR)
        found += [dot(gradient, tangent), dot(scaled, tangent) / LINEARITY_FACTOR]
        size = spread(gradient, tangent)
    if "fwd" in terms.modes:
        found.append(world.pushforward()(tangent))
    with np.errstate(all="ignore"):  # infinities do not fit
        return bool(np.ptp(found) <= FINE * max(size, abs(found[0])))


def _once(compute: Callable[[], float]) -> Callable[[], float]:
    known: list[float] = []

    def cached() -> float:
        if not known:
            known.append(compute())
        return known[0]

    return cached


def _reverse(prober: Prober, tangent: Point, terms: Terms, check: GradientCheck) -> Point | None:
    world = prober.world
    try:
        pull = world.pullback()
        gradient = pull(1.0)
    except Exception as error:  # the order itself raises too and is reported with JAX's own error
        check.notes.append(f"reverse mode was not judged: {type(error).__name__}")
        return None
    check.modes.append("rev")
    if not all(np.isfinite(leaf).all() for leaf in gradient):
        return None
    nonlinear = _nonlinear_pullback(prober, pull, gradient, terms.order)
    if nonlinear is not None:
        check.failures.append(nonlinear)
        return gradient
    for number in range(2):
        along = tangent if number == 0 else direction(world.point, terms.seed + 1)
        outcome = judge(prober, by_gradient(gradient), along, terms.rtol)
        if isinstance(outcome, Deviation) and world.implicit():
            outcome = "a sampler inside has implicit derivatives, which differences do not see"
        if isinstance(outcome, Deviation) and prober.has_kink(along):
            outcome = _away_from_kink(world, terms.seed, terms.rtol)
        if isinstance(outcome, str):
            check.notes.append(f"the gradient was not judged by differences: {outcome}")
            return gradient
        if outcome is not None:
            check.failures.append(_gradient_failure(world, outcome, gradient, terms))
            return gradient
    if terms.staircases:
        check.failures.extend(_silent_zeros(world, prober, gradient, tangent, terms.order))
    return gradient


def _nonlinear_pullback(
    prober: Prober, pull: Callable[[float], Point], gradient: Point, order: str
) -> Failure | None:
    scaled = pull(LINEARITY_FACTOR)
    for name, one, other in zip(prober.world.names, gradient, scaled, strict=True):
        gap = np.abs(other - LINEARITY_FACTOR * one)
        size = float(np.max(np.abs(one), initial=0.0))
        if (
            gap.size
            and gap.max() > 1e-3 * size
            and gap.max() > 64 * prober.world.precision() * max(size, prober.scale())
        ):
            index = tuple(int(i) for i in np.unravel_index(int(gap.argmax()), gap.shape))
            return Failure(
                order,
                "nonlinear vjp",
                "a backward rule is not linear in the cotangent: with the cotangent times "
                f"{LINEARITY_FACTOR:g} the gradient of {name} is {other[index]:.6g}, "
                f"expected {LINEARITY_FACTOR * one[index]:.6g}",
                ("such a rule makes grad(vmap) and vmap(grad) disagree",),
                path=name,
                index=index,
                expected=LINEARITY_FACTOR * one[index],
                actual=other[index],
                hint="in a custom_vjp's bwd multiply the cotangent; do not normalise or clip it",
            )
    return None


def _away_from_kink(world: World, seed: int, rtol: float) -> Deviation | str | None:
    """Judge again near by, where the function has no kink if it is a right one."""
    random = np.random.default_rng(seed + 2)
    moved = [
        leaf + (np.abs(leaf) + (leaf == 0)) * 2.0**-6 * random.uniform(0.5, 1.0, leaf.shape)
        for leaf in world.point
    ]
    near = world.at(moved)
    prober = Prober(near, near.precision)
    promise = by_gradient(near.pullback()(1.0))
    outcome = judge(prober, promise, direction(moved, seed), rtol)
    return outcome or "the function has a kink there (and fits beside it)"


def _gradient_failure(world: World, found: Deviation, gradient: Point, terms: Terms) -> Failure:
    order, rtol = terms.order, terms.rtol
    if found.leaf is None:
        name, where = ", ".join(world.names), "along a random direction the derivative"
    else:
        name = world.names[found.leaf]
        where = f"the gradient of {name}{list(found.index) if found.index else ''}"
    zero = found.leaf is not None and not np.any(gradient[found.leaf])
    kind = "zero gradient" if zero else "gradient"
    message = (
        f"{where} is {found.actual:.6g}, but differences of the values give {found.expected:.6g}"
    )
    if zero:
        message = (
            f"the gradient of {name} is zero everywhere, but the value depends on it: {message}"
        )
    return Failure(
        order, kind, message,
        (f"central difference with relative step {found.step:.2g}, in "
         f"{'float64' if world.double else 'the dtype given'}",),
        name, found.index, found.expected, found.actual,
        f"{found.bound:.2g}: {rtol:g} per element, what solvers that stop at a tolerance need",
        ZERO_HINT if zero else GRADIENT_HINT,
    )  # fmt: skip


GRADIENT_HINT = (
    "look at custom_vjp and custom_jvp rules and at stop_gradient on the way; numeric=False if the "
    "gradient is meant to differ from that of the value"
)

ZERO_HINT = (
    "round, floor, sign, comparisons, casts to integers and stop_gradient have no gradient; "
    "numeric=False if that is wanted"
)


def _silent_zeros(
    world: World, prober: Prober, gradient: Point, tangent: Point, order: str
) -> Iterator[Failure]:
    """Find leaves whose gradient is zero everywhere although the value changes in steps."""
    zeros = [i for i, leaf in enumerate(gradient) if leaf.size and not np.any(leaf)]
    for leaf in zeros[:ZERO_LEAVES]:
        if is_silent_zero(world, prober, tangent, leaf):
            name = world.names[leaf]
            yield Failure(
                order, "zero gradient",
                f"the gradient of {name} is zero everywhere, but the value changes in steps",
                ("the function is a staircase: flat at small steps, different a quarter or half of "
                 "the value away, with a gradient of zero there too",),
                name, hint=ZERO_HINT,
            )  # fmt: skip


def is_silent_zero(world: World, prober: Prober, tangent: Point, leaf: int) -> bool:
    """Tell whether the value changes with a leaf while the gradient is zero wherever one looks."""
    only = [v if i == leaf else np.zeros_like(v) for i, v in enumerate(tangent)]
    changed = []
    noise = max(1e-6 * abs(prober.center), 1e3 * world.precision() * prober.scale())
    for step in (0.25, -0.25, 0.5, -0.5):
        value = prober.move(only, step)
        if np.isfinite(value) and abs(value - prober.center) > noise:
            changed.append(step)
    for step in changed[:2]:
        moved = [x + step * v for x, v in zip(world.point, only, strict=True)]
        if np.any(world.at(moved).pullback()(1.0)[leaf]):
            return False
    return bool(changed)


def nan_gradients(prober: Prober, gradient: Point, order: str) -> Failure | None:
    """Report a gradient that is not finite where the function is finite and has finite slopes."""
    world = prober.world
    if not np.isfinite(prober.center):
        return None
    for leaf, values in enumerate(gradient):
        bad = np.argwhere(~np.isfinite(values))
        if not len(bad):
            continue
        index = tuple(int(i) for i in bad[0])
        trap = bool(np.isnan(values[index]))
        slope, seen = _slope_there(prober, leaf, index, trap)
        if not seen:
            continue
        name = f"{world.names[leaf]}{list(index) if index else ''}"
        return Failure(
            order, "nan gradient",
            f"the gradient of {name} is {values[index]:.3g} where the value is finite and {seen}"
            + (": the where trap" if trap else ""),
            (f"{len(bad)} of {values.size} elements are not finite",
             "a branch that jnp.where or clip discards is differentiated too, and 0 * inf is nan"),
            world.names[leaf], index, slope, values[index],
            hint="make the argument safe before the function that has no derivative there: "
                 "jnp.where(ok, jnp.sqrt(jnp.where(ok, s, 1.0)), 0.0)",
        )  # fmt: skip
    return None


FINEST = 2.0**-30
"""In float64 a guard such as ``norm > 1e-6`` is seen from its inside with this relative step."""


def _slope_there(
    prober: Prober, leaf: int, index: tuple[int, ...], one_side: bool
) -> tuple[float | None, str]:
    """Return the difference quotient in one element and what to say of it; an empty text where the
    function is not finite beside the point, or its slope grows without bound.

    Args:
        prober: the function.
        leaf: the number of the leaf.
        index: the element in it.
        one_side: whether a slope on one side is enough, or a value that is an exception among its
            neighbours: a branch that ``jnp.where`` chose has one, and its gradient is not nan.
    """
    unit: Any = [np.zeros_like(x) for x in prober.world.point]
    unit[leaf][index] = 1.0
    step = FINEST if prober.world.precision() * prober.scale() < 0.1 * FINEST else STEPS[3]
    big, small = prober.sides(unit, STEPS[1]), prober.sides(unit, step)
    if not np.isfinite([*big, *small]).all():
        return None, ""
    largest = max(*map(abs, big), 1.0)
    if max(map(abs, small)) <= 2 * largest:
        return _said(sum(small) / 2)
    bounded = [
        now for before, now in zip(big, small, strict=True) if abs(now) <= 2 * max(abs(before), 1.0)
    ]
    if one_side and bounded:
        return _said(bounded[0])
    jumps = min(map(abs, small)) * step > max(*map(abs, big)) * STEPS[1] / 2
    return None, "jumps right beside the point" if one_side and jumps else ""


def _said(slope: float) -> tuple[float, str]:
    return slope, f"differences give {slope:.6g}"
