"""How far apart two results may be, per element, and where each number comes from.

Two numbers rule everything. ``eps`` is the machine epsilon of the leaf's dtype. The *scale* of a
leaf is its largest finite magnitude: a reordered sum errs in proportion to what was summed, so an
element that cancelled to almost nothing may be off by an amount that is large against itself.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import jax.numpy as jnp
import numpy as np

from pytest_jaxleaks.errors import InvalidArgumentError
from pytest_jaxleaks.failures import PLAIN
from pytest_jaxleaks.order_names import ORDERS

__all__ = [
    "NUMERIC_RTOL",
    "Spacing",
    "Tolerance",
    "Tolerances",
    "default_tolerance",
    "machine_epsilon",
]

WIDE_ULPS = 64
"""float32 and float64: XLA's fusion and vectorised sums move results by some ulps; sums of n terms
err by about sqrt(n) ulps (Higham, Accuracy and Stability of Numerical Algorithms, section 4.2), so
64 covers 4096 terms."""

NARROW_ULPS = 8
"""bfloat16 and float16: XLA keeps float32 inside a fusion and rounds once, where single operations
round each time; 8 roundings of half an ulp with some growth."""

STORAGE_EPS = 0.05
"""Types with a larger epsilon (float8, float6, float4) hold what was computed in a wider type, and
eight of their epsilons are as large as the values. The two computations round once each; where the
exact results lie on either side of a midpoint, the rounded ones are neighbours. So the bound is one
representable value, which follows from rounding to nearest (Higham, theorem 2.2)."""

NUMERIC_RTOL = 1e-2
"""Analytic against numeric derivative, per element. Solvers that stop at a tolerance (1e-3 is
common) have derivatives that differ from differences of their results by about that tolerance;
wrong rules are off by more."""


def machine_epsilon(dtype: Any) -> float:
    """Return the epsilon of a real or complex floating-point dtype, 0 for every other dtype."""
    if not jnp.issubdtype(dtype, jnp.inexact):
        return 0.0
    return float(_finfo(dtype).eps)


def _finfo(dtype: Any) -> Any:
    return jnp.finfo(dtype)  # type: ignore[no-untyped-call]


@dataclass(frozen=True)
class Spacing:
    """How far apart the values of a floating-point type lie.

    Attributes:
        eps: the distance from 1 to the next larger value.
        smallest: the smallest positive normal number; below it the distance shrinks no further.
    """

    eps: float
    smallest: float

    def above(self, magnitude: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        """Return the distance from each value to the next one that is farther from zero."""
        _, exponent = np.frexp(np.maximum(magnitude, self.smallest))
        return np.asarray(np.ldexp(self.eps, exponent - 1))


@dataclass(frozen=True)
class Tolerance:
    """``abs(actual - expected) <= atol + rtol * abs(expected) + floor * scale``, per element.

    Attributes:
        rtol: relative to the element.
        atol: in any case.
        floor: relative to the scale of the leaf.
        source: where the numbers come from.
        spacing: of the type, if neighbouring values of it agree in any case.
    """

    rtol: float
    atol: float
    floor: float
    source: str
    spacing: Spacing | None = None

    def bound(
        self, expected: np.ndarray[Any, Any], actual: np.ndarray[Any, Any]
    ) -> np.ndarray[Any, Any]:
        """Return the largest deviation allowed at each element."""
        magnitude = _finite_magnitude(expected)
        scale = magnitude.max(initial=0.0)
        bound = self.atol + self.rtol * magnitude + self.floor * scale
        if self.spacing is not None:
            smaller = np.minimum(magnitude, _finite_magnitude(actual))
            bound = np.maximum(bound, self.spacing.above(smaller))
        return np.asarray(bound)

    def __str__(self) -> str:
        """Say what the tolerance is and where it comes from."""
        if self.spacing is not None:
            return self.source
        return f"rtol {self.rtol:.3g}, atol {self.atol:.3g} ({self.source})"


def _finite_magnitude(value: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    with np.errstate(all="ignore"):
        return np.where(np.isfinite(value), np.abs(value), 0.0)


def default_tolerance(dtype: Any) -> Tolerance:
    """Return the tolerance for values of ``dtype`` that two orders of the same operations made."""
    eps = machine_epsilon(dtype)
    if eps == 0.0:
        return Tolerance(0.0, 0.0, 0.0, f"{dtype} is exact")
    if eps > STORAGE_EPS:
        spacing = Spacing(eps, float(_finfo(dtype).smallest_normal))
        return Tolerance(0.0, 0.0, 0.0, f"one representable value of {dtype}", spacing)
    ulps = NARROW_ULPS if eps > 1e-5 else WIDE_ULPS
    size = ulps * eps
    return Tolerance(size, 0.0, size, f"{ulps} eps of {dtype}, of the leaf's scale")


@dataclass(frozen=True)
class Tolerances:
    """The user's wishes: a number, or a mapping whose keys are dtypes or orders."""

    rtol: float | Mapping[Any, float] | None = None
    atol: float | Mapping[Any, float] | None = None

    def __post_init__(self) -> None:
        """Refuse what is neither a non-negative number nor a mapping to such numbers."""
        for name, given in (("rtol", self.rtol), ("atol", self.atol)):
            values = given.values() if isinstance(given, Mapping) else [given]
            for value in values:
                if value is not None and not (_is_number(value) and value >= 0):
                    raise InvalidArgumentError(
                        f"{name}={given!r}: expected a non-negative number, or a mapping from "
                        "dtypes or orders to such numbers"
                    )
            for key in given if isinstance(given, Mapping) else ():
                if key not in (*ORDERS, PLAIN) and not _is_dtype(key):
                    raise InvalidArgumentError(
                        f"{name}={given!r}: {key!r} is neither a dtype nor an order"
                    )

    def open_for(self, order: str) -> bool:
        """Tell whether the defaults may be widened for an order: the caller asked for nothing."""
        return all(
            given is None or (isinstance(given, Mapping) and order not in given)
            for given in (self.rtol, self.atol)
        )

    def relative(self, order: str) -> float | None:
        """Return the relative tolerance that the caller gave for an order, whatever the dtype."""
        if isinstance(self.rtol, Mapping):
            return float(self.rtol[order]) if order in self.rtol else None
        return None if self.rtol is None else float(self.rtol)

    def of(self, dtype: Any, order: str) -> Tolerance:
        """Return the tolerance for a leaf of ``dtype`` in the result of ``order``."""
        rtol, atol = _pick(self.rtol, dtype, order), _pick(self.atol, dtype, order)
        if rtol is not None or atol is not None:
            return Tolerance(rtol or 0.0, atol or 0.0, 0.0, "given by the caller")
        return default_tolerance(dtype)


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float | np.integer | np.floating) and not isinstance(value, bool)


def _is_dtype(key: Any) -> bool:
    try:
        return key is not None and jnp.dtype(key) is not None
    except TypeError:
        return False


def _pick(given: float | Mapping[Any, float] | None, dtype: Any, order: str) -> float | None:
    if not isinstance(given, Mapping):
        return None if given is None else float(given)
    for key, value in given.items():
        if key == order:
            return float(value)
    for key, value in given.items():
        try:
            if jnp.dtype(key) == dtype:
                return float(value)
        except TypeError:
            continue  # the name of another order
    return None
