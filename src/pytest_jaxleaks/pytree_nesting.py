"""How deep an object goes: one that contains itself would send JAX's own flatten astray."""

from __future__ import annotations

import sys
import types
from typing import TYPE_CHECKING, Any

import jax
import numpy as np

from pytest_jaxleaks.links import attributes
from pytest_jaxleaks.pytree_findings import Cause, Symptom
from pytest_jaxleaks.pytree_subject import type_name

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

__all__ = ["nesting_symptoms"]

_MOST_NODES = 200_000
_DEEPEST = 10_000
_SUSPICIOUS = 300
_LEAVES = (
    *(jax.Array, np.ndarray, np.generic, str, bytes, int, float, complex, type(None), type),
    *(types.FunctionType, types.BuiltinFunctionType, types.ModuleType),
)
# JAX's C++ code does, with Python's recursion limit.
_OBEYS_THE_LIMIT: bool = sys.version_info < (3, 12)
_FRAMES_OF_OTHERS = 100
"""Left of the recursion limit for whoever calls JAX."""


def nesting_symptoms(obj: Any) -> Iterator[Symptom | str]:
    """Report an object that contains itself, or is nested deeper than JAX can follow.

    Since Python 3.12 JAX can follow some way beyond the recursion limit, and copies cannot: such an
    object is not checked, and the reason (as text) is given.

    Only one level is flattened at a time. On Python 3.11 an endless flatten spoils the
    interpreter's count of the recursion depth, and innocent code fails after it.
    """
    if not _may_be_endless(obj):
        return
    name = type_name(obj)
    try:
        for depth, node, ancestors in _levels(obj, _children):
            if id(node) in ancestors:
                line = f"{name} contains itself: flatten meets {type_name(node)} inside of itself"
                yield Symptom("round-trip", line, Cause("nesting", line))
                return
            if depth > _deepest():
                yield _too_deep(name)
                return
    except Exception:  # a flatten that raises is reported by the round trip
        return


def _deepest() -> int:
    return min(_DEEPEST, sys.getrecursionlimit() - _FRAMES_OF_OTHERS)


def _too_deep(name: str) -> Symptom | str:
    """Before Python 3.12 JAX's C++ code obeys the recursion limit, and cannot go deeper."""
    line = f"{name} is nested more than {_deepest()} deep"
    if not _OBEYS_THE_LIMIT:
        return f"everything: {line}"
    line += ": JAX cannot flatten it"
    return Symptom("round-trip", line, Cause("nesting", line))


def _may_be_endless(obj: Any) -> bool:
    """Whether references form a circle or a long chain.

    Nothing is flattened here: a first flatten can change an object, which another check looks for.
    """
    return any(
        id(value) in ancestors or depth > _SUSPICIOUS
        for depth, value, ancestors in _levels(obj, _held)
    )


def _held(value: Any) -> list[Any] | None:
    if isinstance(value, _LEAVES):
        return None
    base = next((base for base in (dict, list, tuple) if issubclass(type(value), base)), None)
    held = (
        [] if base is None else list(dict.values(value) if base is dict else base.__iter__(value))
    )
    return [*held, *(child for _, child in attributes(value))]


def _levels(
    obj: Any, children: Callable[[Any], list[Any] | None]
) -> Iterator[tuple[int, Any, dict[int, Any]]]:
    """Walk depth first; yield each node with its depth and the nodes that contain it."""
    seen: set[int] = set()
    kept = []  # an id stays taken while its object lives
    ancestors: dict[int, Any] = {}
    stack: list[tuple[int, Any, bool]] = [(0, obj, True)]
    for _ in range(_MOST_NODES):
        if not stack:
            return
        depth, node, enters = stack.pop()
        if not enters:
            del ancestors[id(node)]
            continue
        if id(node) in seen and id(node) not in ancestors:
            continue
        inner = children(node)
        if inner is None:
            continue
        yield depth, node, ancestors
        if id(node) in ancestors:
            return
        seen.add(id(node))
        kept.append(node)
        ancestors[id(node)] = node
        stack.append((depth, node, False))
        stack += [(depth + 1, child, True) for child in reversed(inner)]


def _children(node: Any) -> list[Any] | None:
    """Flatten one level; None for a leaf."""
    asked = iter([False])
    children, treedef = jax.tree.flatten(node, is_leaf=lambda _: next(asked, True))
    return None if jax.tree_util.treedef_is_leaf(treedef) else children
