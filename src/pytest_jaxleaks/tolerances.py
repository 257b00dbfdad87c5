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

__all__ = ["NUMERIC_RTOL", "Tolerance", "Tolerances", "machine_epsilon"]

WIDE_ULPS = 64
"""float32 and float64: XLA's fusion and vectorised sums move results by some ulps; sums of n terms
err by about sqrt(n) ulps (Higham, Accuracy and Stability of Numerical Algorithms, section 4.2), so
64 covers 4096 terms."""

NARROW_ULPS = 8
"""bfloat16 and float16: XLA keeps float32 inside a fusion and rounds once, where single operations
round each time; 8 roundings of half an ulp with some growth."""

NUMERIC_RTOL = 1e-2
"""Analytic against numeric derivative, per element. Solvers that stop at a tolerance (1e-3 is
common) have derivatives that differ from differences of their results by about that tolerance;
wrong rules are off by more."""


def machine_epsilon(dtype: Any) -> float:
    """Return the epsilon of a real or complex floating-point dtype, 0 for every other dtype."""
    if not jnp.issubdtype(dtype, jnp.inexact):
        return 0.0
    info: Any = jnp.finfo(dtype)  # type: ignore[no-untyped-call]
    return float(info.eps)


@dataclass(frozen=True)
class Tolerance:
    """``abs(actual - expected) <= atol + rtol * abs(expected) + floor * scale``, per element."""

    rtol: float
    atol: float
    floor: float
    source: str

    def bound(self, expected: np.ndarray[Any, Any], scale: float) -> np.ndarray[Any, Any]:
        """Return the largest deviation allowed at each element."""
        with np.errstate(all="ignore"):
            magnitude = np.where(np.isfinite(expected), np.abs(expected), 0.0)
        return np.asarray(self.atol + self.rtol * magnitude + self.floor * scale)

    def __str__(self) -> str:
        """Say what the tolerance is and where it comes from."""
        return f"rtol {self.rtol:.3g}, atol {self.atol:.3g} ({self.source})"


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

    def open_for(self, order: str) -> bool:
        """Tell whether the defaults may be widened for an order: the caller asked for nothing."""
        return all(
            given is None or (isinstance(given, Mapping) and order not in given)
            for given in (self.rtol, self.atol)
        )

    def of(self, dtype: Any, order: str) -> Tolerance:
        """Return the tolerance for a leaf of ``dtype`` in the result of ``order``."""
        rtol, atol = _pick(self.rtol, dtype, order), _pick(self.atol, dtype, order)
        if rtol is not None or atol is not None:
            return Tolerance(rtol or 0.0, atol or 0.0, 0.0, "given by the caller")
        eps = machine_epsilon(dtype)
        if eps == 0.0:
            return Tolerance(0.0, 0.0, 0.0, f"{dtype} is exact")
        ulps = NARROW_ULPS if eps > 1e-5 else WIDE_ULPS
        size = ulps * eps
        return Tolerance(size, 0.0, size, f"{ulps} eps of {dtype}, of the leaf's scale")


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


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
