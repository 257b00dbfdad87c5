"""What ``jax_record`` keeps of a value, and how two records are compared.

A record is plain data (NumPy arrays, strings), so that it can go to another process: under
pytest-xdist the variants of one test may run in different workers.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pytest_jaxleaks.errors import InvalidArgumentError

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy as np

__all__ = ["Leaf", "Record", "differences", "record_of"]

_ADDRESS = re.compile(r"0x[0-9a-fA-F]+")


@dataclass(frozen=True)
class Leaf:
    """One leaf of a recorded value.

    Attributes:
        path: its key path, as ``jax.tree_util.keystr`` writes it.
        kind: ``float32[3]`` and the like with ``weak`` in front for a weak type; the qualified type
            for a leaf that is no array.
        value: the array, for a typed key its key data, or the text of a leaf that is no array.
    """

    path: str
    kind: str
    value: np.ndarray[Any, Any] | str


@dataclass(frozen=True)
class Record:
    """A recorded value: the text of its treedef, with addresses masked, and its leaves."""

    treedef: str
    leaves: tuple[Leaf, ...]


def record_of(value: object) -> Record:
    """Describe a pytree so that it can be compared with another run's.

    Args:
        value: any pytree of arrays, scalars, typed PRNG keys, exceptions and other leaves. A Python
            scalar counts as the weakly typed array that JAX makes of it, since ``jit`` returns one.

    Returns:
        The record; it holds no JAX object.

    Raises:
        InvalidArgumentError: if a leaf is a tracer.
    """
    import jax

    leaves, treedef = jax.tree_util.tree_flatten_with_path(value)
    return Record(
        _ADDRESS.sub("0x...", str(treedef)),
        tuple(_leaf(jax.tree_util.keystr(path), leaf) for path, leaf in leaves),
    )


def _leaf(path: str, value: object) -> Leaf:
    import jax
    import numpy as np

    if isinstance(value, jax.core.Tracer):
        raise InvalidArgumentError(
            f"jax_record: the value{path} is a tracer ({value.aval}); record what the transformed "
            "function returns, outside of it"
        )
    if isinstance(value, BaseException):
        return Leaf(path, _type_name(value), "")
    try:
        aval = jax.typeof(value)
    except (TypeError, OverflowError):
        return Leaf(path, _type_name(value), _ADDRESS.sub("0x...", repr(value)))
    weak = "weak " if getattr(aval, "weak_type", False) else ""
    kind = f"{weak}{aval.dtype}[{','.join(map(str, aval.shape))}]"
    if jax.numpy.issubdtype(aval.dtype, jax.dtypes.prng_key):
        return Leaf(path, kind, np.asarray(jax.random.key_data(value)))  # type: ignore[arg-type]
    try:
        return Leaf(path, kind, np.asarray(value, dtype=aval.dtype))
    except (TypeError, ValueError):
        return Leaf(path, kind, _type_name(value))  # it has a shape but no data: ShapeDtypeStruct


def _type_name(value: object) -> str:
    return f"{type(value).__module__}.{type(value).__qualname__}"


def differences(one: Sequence[Record], other: Sequence[Record], *, loose: bool) -> list[str]:
    """Compare what two runs of a test recorded.

    Args:
        one: the records of one run, in order.
        other: those of the other.
        loose: compare dtypes by kind (float, integer, ...) only, at the coarser tolerance.

    Returns:
        One line per difference; none if the runs agree.
    """
    if len(one) != len(other):
        return [f"number of recorded values: {len(one)} and {len(other)}"]
    found: list[str] = []
    for index, (left, right) in enumerate(zip(one, other, strict=True)):
        name = "value" if len(one) == 1 else f"value {index}"
        found += [name + line for line in _record_differences(left, right, loose=loose)]
    return found


def _record_differences(one: Record, other: Record, *, loose: bool) -> list[str]:
    if one.treedef != other.treedef:
        return [f": treedef {one.treedef} and {other.treedef}"]
    lines = []
    for left, right in zip(one.leaves, other.leaves, strict=True):
        line = _leaf_difference(left, right, loose=loose)
        if line is not None:
            lines.append(f"{left.path}: {line}")
    return lines


def _leaf_difference(one: Leaf, other: Leaf, *, loose: bool) -> str | None:
    kinds = [_width_free(leaf.kind) if loose else leaf.kind for leaf in (one, other)]
    if kinds[0] != kinds[1]:
        return f"{one.kind} and {other.kind}"
    if not isinstance(one.value, str) and not isinstance(other.value, str):
        return _array_difference(one.value, other.value)
    same = isinstance(one.value, str) and isinstance(other.value, str) and one.value == other.value
    return None if same else f"{one.value} and {other.value}"


def _width_free(kind: str) -> str:
    """Drop the width of a dtype: ``float32[3]`` and ``float64[3]`` both read ``float[3]``."""
    return re.sub(r"^((?:weak )?)(float|complex|int|uint)\d+", r"\1\2", kind)


def _array_difference(one: np.ndarray[Any, Any], other: np.ndarray[Any, Any]) -> str | None:
    import numpy as np

    tolerance = max(_tolerance(one.dtype), _tolerance(other.dtype))
    if tolerance == 0:
        unequal = one != other
    else:
        left, right = (_widened(array) for array in (one, other))
        scale = max(float(np.abs(a[np.isfinite(a)]).max(initial=0.0)) for a in (left, right))
        close = np.isclose(left, right, rtol=tolerance, atol=tolerance * scale, equal_nan=True)
        unequal = ~close
    if not np.any(unequal):
        return None
    where = tuple(int(i) for i in np.argwhere(unequal)[0])
    at = f" at {list(where)}" if where else ""
    by = f" by more than {tolerance:.2g} of the largest" if tolerance else ""
    return (
        f"{one[where]} and {other[where]}{at}; {np.count_nonzero(unequal)} of {unequal.size} "
        f"elements differ{by}"
    )


def _tolerance(dtype: np.dtype[Any]) -> float:
    """How far two orders of the same operations may drift apart, relative to the largest element.

    Rounding errors of n operations add up like a random walk, to about sqrt(n) eps. 64 eps cover
    4,096 operations in 32 and 64 bits. XLA accumulates 16-bit and narrower sums in 32 bits, while
    eager operations round each result, so only chains of operations count there: 8 eps cover 64.
    Integers, booleans and key data have to be equal.
    """
    import jax.numpy as jnp

    if not jnp.issubdtype(dtype, jnp.inexact):
        return 0.0
    eps = float(jnp.finfo(dtype).eps)  # type: ignore[no-untyped-call]
    return (64 if eps < 1e-6 else 8) * eps


def _widened(array: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Convert to a dtype in which NumPy can compare: it knows little of bfloat16 and float8."""
    import numpy as np

    return array.astype(np.complex128 if array.dtype.kind == "c" else np.float64)
