"""Which elements of two arrays differ, given how far apart each may be."""

from __future__ import annotations

from typing import Any

import numpy as np

__all__ = ["comparable", "outside", "unequal"]


def comparable(value: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Widen to float64 or complex128, since NumPy computes little with bfloat16 and float8.

    What is wider stays as it is; 64-bit integers stay as exact as ``longdouble`` allows.
    """
    if value.dtype in (np.longdouble, np.clongdouble):
        return value
    if value.dtype.kind in "biu" and value.dtype.itemsize == 8:
        return value.astype(np.longdouble)
    return value.astype(np.complex128 if value.dtype.kind == "c" else np.float64)


def outside(
    expected: np.ndarray[Any, Any], actual: np.ndarray[Any, Any], bound: np.ndarray[Any, Any]
) -> np.ndarray[Any, Any]:
    """Tell which elements differ by more than ``bound``.

    Args:
        expected: floating-point or complex, any shape.
        actual: of the same shape.
        bound: the largest deviation allowed, real, of the same shape.

    Returns:
        A boolean array. NaN equals NaN; an infinity equals itself.
    """
    with np.errstate(all="ignore"):
        close = np.abs(actual - expected) <= bound
    same = (actual == expected) | (np.isnan(actual) & np.isnan(expected))
    finite = np.isfinite(actual) & np.isfinite(expected)
    return np.asarray(~(same | (finite & close)))


def unequal(one: np.ndarray[Any, Any], other: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Tell which elements of two arrays of one shape are not equal, in their own dtypes.

    Args:
        one: of any dtype but ``object``: numbers, text, dates, structured.
        other: of the same shape and kind of dtype.

    Returns:
        A boolean array. What is equal to nothing, not even to itself (NaN, NaT), equals its like.
    """
    names = one.dtype.names
    if names is not None:
        fields = [unequal(one[name], other[name]) for name in names]
        wrong = [field.reshape(*one.shape, -1).any(axis=-1) for field in fields]
        return np.asarray(np.any(wrong, axis=0)) if wrong else np.zeros(one.shape, dtype=bool)
    if one.dtype.kind == "V" and one.dtype.type is np.void:  # bytes without a meaning
        same = [a.tobytes() == b.tobytes() for a, b in zip(one.flat, other.flat, strict=True)]
        return ~np.array(same, dtype=bool).reshape(one.shape)
    nothing = (one != one) & (other != other)
    return np.asarray((one != other) & ~nothing)
