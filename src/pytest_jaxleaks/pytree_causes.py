"""From an exception or from two treedefs to what is to blame, in the user's own names."""

from __future__ import annotations

import functools
import sys
import types
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from pytest_jaxleaks.links import attributes, function_name, key_text
from pytest_jaxleaks.pytree_findings import Cause
from pytest_jaxleaks.pytree_subject import first_line

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["AuxDifference", "cause_of", "describe", "treedef_difference"]

_NOT_THE_USERS = ("jax", "jaxlib", "equinox", "numpy", "pytest_jaxleaks", "copy", "pickle")


def cause_of(error: BaseException, doing: str, hint: str | None = None) -> Cause:
    """Blame the innermost function of user code in the traceback of ``error``.

    Args:
        error: what was raised.
        doing: what was done, for an error that no user code raised.
        hint: code that mends it.
    """
    frames = _user_frames(error)
    if not frames:
        return Cause(f"raised:{first_line(error)}", f"{doing} raises {first_line(error)}", hint)
    code, line = frames[-1]
    name = code.co_qualname.replace("<locals>.", "")
    where = f"{name} ({Path(code.co_filename).name}:{line})"
    return Cause(f"code:{code.co_filename}:{name}", f"{where} raises {first_line(error)}", hint)


def outermost_code(error: BaseException) -> str:
    """Name the function of user code through which ``error`` came out, or the empty string."""
    frames = _user_frames(error)
    return f"{frames[0][0].co_filename}:{frames[0][0].co_qualname}" if frames else ""


def _user_frames(error: BaseException) -> list[tuple[types.CodeType, int]]:
    """Return the code and line of each frame of user code, from the outermost to the innermost."""
    frames = []
    traceback = error.__traceback__
    while traceback is not None:
        module = str(traceback.tb_frame.f_globals.get("__name__", ""))
        if module.partition(".")[0] not in _NOT_THE_USERS:
            frames.append((traceback.tb_frame.f_code, traceback.tb_lineno))
        traceback = traceback.tb_next
    return frames


_FEW, _SHORT = 8, 60
"""How many parts, and how many letters, a container has that is described by its content."""


class AuxDifference(NamedTuple):
    """The first part in which the static data of two treedefs differs.

    Attributes:
        where: ``aux data of Model[0]``.
        left: that part in the first treedef.
        right: that part in the second.
        reason: why they do not count as equal.
        by_identity: True where only the identity of functions or plain objects differs.
        raises: True where the comparison itself raises.
    """

    where: str
    left: Any
    right: Any
    reason: str
    by_identity: bool = False
    raises: bool = False


def treedef_difference(left: Any, right: Any) -> AuxDifference | None:
    """Return the first part in which two treedefs differ, or None if they are equal."""
    try:
        if left == right:
            return None
    except Exception as error:
        inner = _node_difference(left, right)
        return inner or AuxDifference("the treedef", left, right, first_line(error), raises=True)
    return _node_difference(left, right) or AuxDifference(
        "the treedef", left, right, "they compare unequal"
    )


def _node_difference(left: Any, right: Any) -> AuxDifference | None:
    mine, theirs = left.node_data(), right.node_data()
    if (mine is None) != (theirs is None) or (mine is not None and mine[0] is not theirs[0]):
        return AuxDifference("the structure", left, right, f"{_kind(mine)} against {_kind(theirs)}")
    if mine is not None:
        found = _difference(f"aux data of {mine[0].__qualname__}", mine[1], theirs[1], set())
        if found:
            return found._replace(where=found.where.replace("<locals>.", ""))
    ours, others = left.children(), right.children()
    if len(ours) != len(others):
        reason = f"{len(ours)} against {len(others)} children"
        return AuxDifference("the structure", left, right, reason)
    return next(filter(None, map(_node_difference, ours, others)), None)


def _kind(node: tuple[type, Any] | None) -> str:
    return "a leaf" if node is None else node[0].__name__


def _difference(where: str, left: Any, right: Any, seen: set[int]) -> AuxDifference | None:
    """Find the innermost part of two static values that makes them unequal."""
    try:
        if bool(left == right):
            return None
        raised = None
    except Exception as error:
        raised = error
    if id(left) not in seen and type(left) is type(right):
        seen.add(id(left))
        for name, mine, theirs in _parts(left, right):
            found = _difference(where + name, mine, theirs, seen)
            if found:
                return found
    if raised is not None:
        reason = f"their comparison raises {first_line(raised)}"
        return AuxDifference(where, left, right, reason, raises=True)
    by_identity = _differ_by_identity(left, right)
    reason = "equal only to itself" if by_identity else "another value"
    return AuxDifference(where, left, right, reason, by_identity)


def _parts(left: Any, right: Any) -> Iterator[tuple[str, Any, Any]]:
    """Yield the name of each part of two static values of one type, with both its values."""
    if isinstance(left, (tuple, list, dict)):
        yield from _parts_of_containers(left, right)
    elif isinstance(left, functools.partial):
        for name in ("func", "args", "keywords"):
            yield f".{name}", getattr(left, name), getattr(right, name)
    elif isinstance(left, types.MethodType):
        yield ".__func__", left.__func__, right.__func__
    elif type(left).__name__ == "PyTreeDef":
        found = _node_difference(left, right)
        if found:
            yield f" (nested: {found.where})", found.left, found.right
    elif not isinstance(left, (type, types.ModuleType, types.FunctionType)):
        theirs = dict(attributes(right))
        for name, value in attributes(left):
            if name in theirs:
                yield f".{name}", value, theirs[name]


def _parts_of_containers(left: Any, right: Any) -> Iterator[tuple[str, Any, Any]]:
    if len(left) != len(right):
        return
    if isinstance(left, (tuple, list)):
        names = getattr(left, "_fields", None) or range(len(left))
        for name, mine, theirs in zip(names, left, right, strict=True):
            yield f".{name}" if isinstance(name, str) else f"[{name}]", mine, theirs
    elif left.keys() == right.keys():
        for key in left:
            yield f"[{key_text(key)}]", left[key], right[key]


def _differ_by_identity(left: Any, right: Any) -> bool:
    """Whether two values of one type would be equal, were it not for the identity of a part."""
    if type(left) is not type(right):
        return False
    if isinstance(left, (set, frozenset)):
        mine, theirs = left - right, right - left
        kinds = [sorted(str(type(part)) for part in parts) for parts in (mine, theirs)]
        return kinds[0] == kinds[1] and all(map(_compares_by_identity, mine))
    return _compares_by_identity(left)


def _compares_by_identity(value: Any) -> bool:
    if isinstance(value, (types.MethodType, functools.partial)):
        return True
    by_identity: Any = object.__eq__
    return type(value).__eq__ is by_identity


def describe(value: Any) -> str:
    """Describe a static value in a few words, without running its ``__repr__``."""
    if value is None or isinstance(value, (bool, int, float, complex, str, bytes)):
        return key_text(value)
    if isinstance(value, (list, tuple)) and value and len(value) <= _FEW:
        parts = ", ".join(map(describe, value))
        if len(parts) <= _SHORT:
            return f"[{parts}]" if isinstance(value, list) else f"({parts})"
    if isinstance(value, types.FunctionType):
        return f"function {function_name(value)}"
    if isinstance(value, types.MethodType) and isinstance(value.__func__, types.FunctionType):
        owner = type(value.__self__).__qualname__
        return f"bound method {value.__func__.__name__} of {owner}"
    if isinstance(value, np.ndarray):
        return f"a numpy array {value.dtype}{list(value.shape)}"
    if type(value).__module__.partition(".")[0] in ("jax", "jaxlib"):
        return f"a {_short(value)}"
    if isinstance(value, functools.partial):
        return f"partial({describe(value.func)})"
    if isinstance(value, type):
        return f"class {value.__qualname__}"
    return f"a {type(value).__qualname__} object"


def _short(value: Any) -> str:
    jax = sys.modules["jax"]
    if isinstance(value, jax.Array):
        return f"jax array {value.dtype}{list(value.shape)}"
    return type(value).__name__
