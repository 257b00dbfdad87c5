"""What an object loses in a round trip: attributes that unflatten forgets or gives other values."""

from __future__ import annotations

import collections
import contextlib
import enum
import types
from typing import TYPE_CHECKING, Any, NamedTuple

import jax
import numpy as np

from pytest_jaxleaks import pytree_hints as hints
from pytest_jaxleaks.links import attributes, dotted_name, key_text
from pytest_jaxleaks.pytree_causes import describe
from pytest_jaxleaks.pytree_findings import Cause, Symptom
from pytest_jaxleaks.pytree_subject import same_value, type_name

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from pytest_jaxleaks.pytree_subject import Subject

__all__ = ["lost_state_symptoms"]

_MISSING = object()
_SCALARS = (bool, int, float, complex, str, bytes, type(None))
_OPAQUE = (types.FunctionType, types.BuiltinFunctionType, types.MethodType, type, types.ModuleType)


class _Lost(NamedTuple):
    """One attribute or item that a round trip changes."""

    owner: Any
    name: str
    before: Any
    after: Any


def lost_state_symptoms(
    subject: Subject, twin: Any, same_use: Callable[[Any], bool]
) -> Iterator[Symptom]:
    """Compare the attributes of the object with those of one that is rebuilt from its leaves.

    Args:
        subject: the object.
        twin: an object that the constructor built from the same arguments, or None. What it lacks
            as well is a cache that fills on use, and may be lost.
        same_use: whether a probe cannot tell the object from a rebuilt one. Then the loss of an
            attribute that a default takes the place of is a limit.
    """
    values = subject.fresh_values()
    try:
        rebuilt = subject.rebuilt_with(values)
    except Exception:  # the round trip reports it
        return
    if type(rebuilt) is not type(subject.obj):
        return
    pairs = zip(subject.data_leaves(), values, strict=True)
    exchanged = {id(old): new for old, new in pairs if isinstance(old, (jax.Array, np.ndarray))}
    for lost in list(_walk(subject.obj, rebuilt, exchanged)):
        verdict = _verdict(lost, subject.obj, twin)
        if verdict is not _Verdict.CACHE:
            doubtful = verdict is _Verdict.DOUBTFUL and same_use(rebuilt)
            yield _symptom(lost, broken=verdict is not _Verdict.EMPTIED and not doubtful)


def _symptom(lost: _Lost, broken: bool) -> Symptom:
    after = "missing" if lost.after is _MISSING else describe(lost.after)
    swapped = isinstance(lost.before, jax.Array) and isinstance(lost.after, jax.Array)
    text = f"{lost.name} was {describe(lost.before)} and is {after} after a round trip"
    if swapped:
        text = f"{lost.name} comes back as another array"
    owner = type_name(lost.owner)
    return Symptom(
        "round-trip",
        text,
        Cause(
            f"lost:{owner}",
            f"{lost.name} of {owner} does not survive flatten and unflatten",
            hints.register_dataclass(lost.owner),
        ),
        broken,
        implied_by=frozenset({"flatten", "swapped", "changed"}),
    )


class _Verdict(enum.Enum):
    """What the loss of an attribute means."""

    CACHE = "it comes back by itself"
    EMPTIED = "a private attribute that looks like an emptied cache"
    DOUBTFUL = "something else takes its place: use decides"
    LOST = "lost"


def _verdict(lost: _Lost, obj: Any, twin: Any) -> _Verdict:
    """Judge by what a freshly built object has there, and by what takes the attribute's place."""
    missing, private = lost.after is _MISSING, lost.name.startswith("_")
    if (missing and _comes_back(lost)) or dotted_name(type(lost.owner)).startswith("jax"):
        return _Verdict.CACHE  # JAX itself puts labels on its own objects
    emptied = missing or lost.after is None or _is_empty(lost.after)
    like_new = lost.owner is obj and _is_like_new(lost, twin)
    if like_new and emptied and (private or not missing):
        return _Verdict.CACHE
    if private and emptied:
        return _Verdict.EMPTIED
    falls_back = missing and hasattr(type(lost.owner), lost.name)
    a_librarys = private and hints.is_installed(type(lost.owner))  # its author knows why
    return _Verdict.DOUBTFUL if like_new or falls_back or a_librarys else _Verdict.LOST


def _is_empty(value: Any) -> bool:
    return isinstance(value, (dict, list, set)) and not value


def _comes_back(lost: _Lost) -> bool:
    """Whether the class computes it again on access, as ``cached_property`` and its like do."""
    for cls in type(lost.owner).__mro__:
        found = vars(cls).get(lost.name)
        if isinstance(found, (types.FunctionType, staticmethod, classmethod)):
            return False  # a method that the attribute had replaced
        if hasattr(type(found), "__get__") and not hasattr(type(found), "__set__"):
            return True
    return False


def _is_like_new(lost: _Lost, twin: Any) -> bool:
    """Whether a freshly built object has the same there as what came back."""
    if twin is None:
        return False
    fresh = dict(attributes(twin)).get(lost.name, _MISSING)
    return fresh is lost.after or next(_walk(fresh, lost.after, {}), None) is None


def _walk(before: Any, after: Any, exchanged: dict[int, Any]) -> Iterator[_Lost]:
    """Walk through both objects in step, and yield where they part."""
    queue = collections.deque([_Lost(before, "value", before, after)])
    seen: set[int] = set()
    while queue:
        item = queue.popleft()
        if item.before is item.after or id(item.before) in seen:
            continue
        verdict = _same(item, exchanged)
        if verdict is False:
            yield item
        elif verdict is None:
            seen.add(id(item.before))
            queue.extend(_children(item))


def _same(item: _Lost, exchanged: dict[int, Any]) -> bool | None:
    """Compare two values: True, False, or None where their parts decide."""
    before, after = item.before, item.after
    if id(before) in exchanged:
        new = exchanged[id(before)]
        return after is new or (not _is_leaf_like(after, exchanged) and _equal(before, after))
    if isinstance(before, (jax.Array, np.ndarray, *_SCALARS)):
        return _equal(before, after)
    if type(before) is not type(after):
        return False
    if isinstance(before, _OPAQUE):
        return True
    if _size(before) != _size(after):
        return False
    if issubclass(type(before), dict) and dict.keys(before) != dict.keys(after):
        return False
    return None


def _size(value: Any) -> int:
    """Return the length of a builtin container, also of one whose class has another ``len``."""
    base = next((base for base in (tuple, list, dict) if issubclass(type(value), base)), None)
    return base.__len__(value) if base else 0


def _is_leaf_like(after: Any, exchanged: dict[int, Any]) -> bool:
    return any(after is new for new in exchanged.values())


def _equal(before: Any, after: Any) -> bool:
    if isinstance(before, (jax.Array, np.ndarray, bool, int, float, complex)):
        if not isinstance(after, (jax.Array, np.ndarray, np.generic, bool, int, float, complex)):
            return False
        with contextlib.suppress(Exception):
            return same_value(before, after)
        return True  # an array that cannot be compared: deleted, or of objects
    return type(before) is type(after) and bool(before == after)


def _children(item: _Lost) -> Iterator[_Lost]:
    before, after = item.before, item.after
    # What isinstance says, and what a subclass iterates over, an object can make up.
    base = tuple if issubclass(type(before), tuple) else list
    if issubclass(type(before), base):
        pairs = zip(base.__iter__(before), base.__iter__(after), strict=True)
        for index, pair in enumerate(pairs):
            yield _Lost(item.owner, f"{item.name}[{index}]", *pair)
    elif issubclass(type(before), dict):
        for key, value in dict.items(before):
            name = f"{item.name}[{key_text(key)}]"
            yield _Lost(item.owner, name, value, dict.__getitem__(after, key))
    left = dict(attributes(before))
    right = dict(attributes(after))
    for name, value in left.items():
        yield _Lost(before, name, value, right.get(name, _MISSING))
