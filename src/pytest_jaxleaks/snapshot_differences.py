"""Compare two snapshots: kind first, then structure, then values."""

from __future__ import annotations

import pickle
import re
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import jax.numpy as jnp
import numpy as np

from pytest_jaxleaks.closeness import comparable, outside, unequal
from pytest_jaxleaks.snapshot_kinds import (
    Array,
    Exact,
    Function,
    Items,
    Node,
    Number,
    Pickled,
    Snapshot,
    Tree,
    Unknown,
)
from pytest_jaxleaks.tolerances import Tolerance, default_tolerance, machine_epsilon

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["Difference", "Manner", "compare_snapshots"]

_ADDRESS = re.compile(r" at 0x[0-9a-fA-F]+")
_LONGEST_TREEDEF = 300
_LONGEST_VALUE = 120


@dataclass(frozen=True)
class Manner:
    """How to compare.

    Attributes:
        exact: whether floating-point numbers have to be equal, as in static data.
        loose: whether 32 and 64 bits are as good as each other.
    """

    exact: bool = False
    loose: bool = False


@dataclass(frozen=True)
class Difference:
    """One difference, or something that cannot be told from a difference.

    Attributes:
        path: where in the value, such as ``['a']``.
        text: what differs.
        known: whether it is one; ``False`` says that only types could be compared there.
    """

    path: str
    text: str
    known: bool = True

    @property
    def line(self) -> str:
        """The difference in one line."""
        return f"{self.path}: {self.text}"


def compare_snapshots(
    one: Snapshot, other: Snapshot, manner: Manner, path: str = ""
) -> Iterator[Difference]:
    """Yield what differs between two snapshots, and what could not be compared."""
    if isinstance(one, Number) or isinstance(other, Number):
        yield from _numbers(one, other, manner, path)
    elif type(one) is not type(other) or _kind(one, manner) != _kind(other, manner):
        yield Difference(path, f"{_shown_kind(one)} and {_shown_kind(other)}")
    elif isinstance(one, Tree) and isinstance(other, Tree):
        yield from _trees(one, other, manner, path)
    elif isinstance(one, Items) and isinstance(other, Items):
        yield from _items(one, other, manner, path)
    elif isinstance(one, Function) and isinstance(other, Function):
        yield from _functions(one, other, manner, path)
    else:
        yield from _wholes(one, other, manner, path)


def _wholes(one: Snapshot, other: Snapshot, manner: Manner, path: str) -> Iterator[Difference]:
    """Compare two snapshots of one kind that have no parts."""
    if isinstance(one, Array) and isinstance(other, Array):
        tolerance = None if manner.exact else _tolerance(one.value.dtype, other.value.dtype)
        text = _value_difference(one.value, other.value, tolerance)
        if text is not None:
            yield Difference(path, text)
    elif isinstance(one, Pickled) and isinstance(other, Pickled):
        yield from _objects(one, other, path)
    elif isinstance(one, Exact) and isinstance(other, Exact):
        if one.value != other.value:
            show = repr if one.is_text else _on_one_line
            yield Difference(path, _different_texts(show(one.value), show(other.value)))
    elif isinstance(one, Unknown):
        yield _unknown(path, one.kind, one.why)


def _unknown(path: str, kind: str, why: str) -> Difference:
    return Difference(path, f"{kind} was compared by type only, since {why}", known=False)


def _kind(snapshot: Snapshot, manner: Manner) -> str:
    """Return the kind to compare: if loose, ``float32[3]`` and ``float64[3]`` are the same."""
    if manner.loose and isinstance(snapshot, Array):
        return _width_free(snapshot.kind)
    return snapshot.kind


def _width_free(kind: str) -> str:
    kind = re.sub(r"^((?:weak )?)complex(64|128)\[", r"\1complex[", kind)
    return re.sub(r"^((?:weak )?)(float|int|uint)(32|64)\[", r"\1\2[", kind)


def _shown_kind(snapshot: Snapshot) -> str:
    if isinstance(snapshot, Array) and snapshot.is_numpy:
        return f"numpy {snapshot.kind}"
    if isinstance(snapshot, Tree):
        return snapshot.root.kind
    return snapshot.kind


def _on_one_line(value: object) -> str:
    return " ".join(str(value).split())


def _different_texts(one: str, other: str) -> str:
    """Show two texts that differ, from shortly before they do if they are long."""
    if max(len(one), len(other)) <= _LONGEST_VALUE:
        return f"{one} and {other}"
    pairs = enumerate(zip(one, other, strict=False))
    first = next((at for at, (a, b) in pairs if a != b), min(len(one), len(other)))
    start = max(0, first - 20)
    left, right = (f"...{text[start : start + _LONGEST_VALUE]}..." for text in (one, other))
    return f"{left} and {right}"


# -- structure ------------------------------------------------------------------------------


def _trees(one: Tree, other: Tree, manner: Manner, path: str) -> Iterator[Difference]:
    static = list(_nodes(one.root, other.root, manner, ""))
    known = [each for each in static if each.known]
    if known:
        yield Difference(path, _different_treedefs(one.text, other.text, known[0]))
        return
    for each in static:
        yield Difference(path + each.path, each.text, known=False)
    for name, left, right in zip(one.paths, one.leaves, other.leaves, strict=True):
        yield from compare_snapshots(left, right, manner, path + name)


def _different_treedefs(one: str, other: str, first: Difference) -> str:
    """Show the treedefs if they are short and read differently, else where they differ."""
    one, other = (_ADDRESS.sub("", text) for text in (one, other))
    if one != other and max(len(one), len(other)) <= _LONGEST_TREEDEF:
        return f"treedef {one} and {other}"
    return f"treedef{first.line}"


def _nodes(one: Node, other: Node, manner: Manner, path: str) -> Iterator[Difference]:
    """Compare treedefs by type, static data and children; a treedef's own ``==`` tells no more."""
    if one.kind != other.kind:
        yield Difference(path, f"{one.kind} and {other.kind}")
        return
    where = f"{path}, static data of {one.kind}"
    yield from compare_snapshots(one.data, other.data, replace(manner, exact=True), where)
    if len(one.children) != len(other.children):
        numbers = f"{len(one.children)} and {len(other.children)}"
        yield Difference(path, f"{one.kind} with {numbers} children")
        return
    for index, (left, right) in enumerate(zip(one.children, other.children, strict=True)):
        yield from _nodes(left, right, manner, f"{path}, child {index}")


def _items(one: Items, other: Items, manner: Manner, path: str) -> Iterator[Difference]:
    if one.names != other.names:
        missing = sorted(set(one.names) ^ set(other.names))
        text = f"{len(one.names)} and {len(other.names)} parts; in one only: {', '.join(missing)}"
        yield Difference(path, _shortened(text))
        return
    for name, left, right in zip(one.names, one.parts, other.parts, strict=True):
        yield from compare_snapshots(left, right, manner, path + name)


def _functions(one: Function, other: Function, manner: Manner, path: str) -> Iterator[Difference]:
    """Compare by place, and by the values that both close over, rounding allowed.

    A variable that is in one only holds a tracer or something else of which nothing is kept there.
    """
    if one.place != other.place:
        yield Difference(path, _different_texts(one.place, other.place))
        return
    theirs = dict(zip(other.names, other.parts, strict=True))
    for name, part in zip(one.names, one.parts, strict=True):
        if name in theirs:
            where = f"{path} closing over {name}"
            yield from compare_snapshots(part, theirs[name], replace(manner, exact=False), where)


def _shortened(text: str) -> str:
    return text if len(text) <= _LONGEST_VALUE else f"{text[:_LONGEST_VALUE]}..."


# -- values ---------------------------------------------------------------------------------


def _objects(one: Pickled, other: Pickled, path: str) -> Iterator[Difference]:
    """Ask two objects whether they are equal, as ``==`` does."""
    if one.pickle == other.pickle:
        return
    try:
        left, right = pickle.loads(one.pickle), pickle.loads(other.pickle)
    except Exception as error:
        why = f"it cannot be unpickled ({type(error).__name__}: {error})"
        yield _unknown(path, one.kind, why)
        return
    try:
        same = left is right or _truth(left == right)
    except Exception as error:
        why = f"its == raised {type(error).__name__}: {error}"
        yield _unknown(path, one.kind, why)
        return
    if same:
        return
    cls: Any = type(left)
    if cls.__repr__ is object.__repr__:  # which would show addresses only
        yield Difference(path, f"two objects of type {one.kind} that are not equal by ==")
    else:
        yield Difference(path, _different_texts(_repr(left), _repr(right)))


def _truth(answer: Any) -> bool:
    """Read the answer of ``==``, which array-like objects give element by element."""
    try:
        return bool(answer)
    except Exception:
        return bool(np.asarray(answer).all())


def _repr(value: object) -> str:
    try:
        return repr(value)
    except Exception:
        return f"<{type(value).__qualname__}>"


def _numbers(one: Snapshot, other: Snapshot, manner: Manner, path: str) -> Iterator[Difference]:
    """Compare where one side is a Python number; ``jit`` returns it as a weakly typed array."""
    kinds = [_number_kind(one, other, manner), _number_kind(other, one, manner)]
    if kinds[0] != kinds[1]:
        yield Difference(path, f"{_mixed_kind(one, other)} and {_mixed_kind(other, one)}")
        return
    tolerance = None
    if not manner.exact:
        tolerance = _tolerance(*(_dtype(each) for each in (one, other)))
    left, right = (_as_array(each) for each in (one, other))
    text = _value_difference(left, right, tolerance)
    if text is not None:
        yield Difference(path, text)


def _number_kind(snapshot: Snapshot, other: Snapshot, manner: Manner) -> str:
    """Return what has to be equal: between numbers their type, else the kind of the array."""
    if not isinstance(snapshot, Number):
        kind = _kind(snapshot, manner)
        outgrown = isinstance(other, Number) and other.array_kind is None
        return _width_free(kind) if outgrown else kind
    if isinstance(other, Number):
        return snapshot.kind
    if snapshot.array_kind is None:  # too large for 32 bits
        return f"weak {snapshot.kind.removeprefix('Python ')}[]"
    return _width_free(snapshot.array_kind) if manner.loose else snapshot.array_kind


def _mixed_kind(snapshot: Snapshot, other: Snapshot) -> str:
    if isinstance(snapshot, Number) and isinstance(other, Array):
        return snapshot.array_kind or snapshot.kind
    return _shown_kind(snapshot)


def _dtype(snapshot: Snapshot) -> np.dtype[Any]:
    assert isinstance(snapshot, Number | Array)
    return snapshot.dtype if isinstance(snapshot, Number) else snapshot.value.dtype


def _as_array(snapshot: Snapshot) -> np.ndarray[Any, Any]:
    assert isinstance(snapshot, Number | Array)
    if not isinstance(snapshot, Number):
        return snapshot.value
    if isinstance(snapshot.value, int):  # bool included; as long as it is
        return np.asarray(snapshot.value, dtype=object)
    return np.asarray(snapshot.value)


def _tolerance(one: np.dtype[Any], other: np.dtype[Any]) -> Tolerance | None:
    """Return the tolerance of the coarser of two dtypes; ``None`` if both are exact."""
    coarser = max(one, other, key=machine_epsilon)
    if not jnp.issubdtype(coarser, jnp.inexact):
        return None
    return default_tolerance(coarser)


def _value_difference(
    one: np.ndarray[Any, Any], other: np.ndarray[Any, Any], tolerance: Tolerance | None
) -> str | None:
    if tolerance is None:
        wrong, by = unequal(one, other), ""
    else:
        left, right = comparable(one), comparable(other)
        wrong = outside(left, right, tolerance.bound(left, right))
        by = f" by more than {_size(tolerance)}"
    if not np.any(wrong):
        return None
    where = tuple(int(index) for index in np.argwhere(wrong)[0])
    at = f" at {list(where)}" if where else ""
    texts = _different_texts(_element(one[where]), _element(other[where]))
    return f"{texts}{at}; {np.count_nonzero(wrong)} of {wrong.size} elements differ{by}"


def _size(tolerance: Tolerance) -> str:
    if tolerance.spacing is not None:
        return tolerance.source
    return f"{tolerance.rtol:.2g} of the largest"


def _element(value: Any) -> str:
    return repr(str(value)) if isinstance(value, np.str_) else str(value)
