"""Nothing hides: a walk from an object to every array that can be reached and is no leaf.

The walk follows attributes, slots, containers, closures, defaults, partials, bound methods and the
aux data, but not the globals of a function's module. A value counts as hidden when two objects
rebuilt from different leaves both hold the very same array: the treedef carried it there, so no
transformation can replace it. Arrays that an object drops and computes again are not hidden.
"""

from __future__ import annotations

import collections
import sys
import types
from typing import TYPE_CHECKING, Any, NamedTuple

import jax
import numpy as np

from pytest_jaxleaks import pytree_hints as hints
from pytest_jaxleaks.links import links
from pytest_jaxleaks.pytree_causes import describe
from pytest_jaxleaks.pytree_findings import Cause, Symptom
from pytest_jaxleaks.pytree_subject import nodes, type_name

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pytest_jaxleaks.pytree_subject import Subject

__all__ = ["Hidden", "hidden_symptoms", "reachable_arrays", "tracer_symptoms"]

_MOST_OBJECTS = 100_000


class Hidden(NamedTuple):
    """An array that the walk met, and the way to it.

    Attributes:
        value: the array or tracer.
        path: the links that lead to it, in the user's words.
        holder: the first link where JAX cannot follow (a function, a bound method), else the last.
        owner: the innermost object with attributes of its own on the way there, or None.
    """

    value: Any
    path: tuple[str, ...]
    holder: str
    owner: Any = None

    @property
    def text(self) -> str:
        """The path as one line."""
        return " -> ".join(self.path)


def reachable_arrays(obj: Any) -> dict[int, Hidden]:
    """Return every array that can be reached from ``obj``, by id, each with its shortest path.

    Args:
        obj: any object; no code of its own is run.
    """
    found: dict[int, Hidden] = {}
    queue: collections.deque[tuple[Any, tuple[str, ...], str, Any]] = collections.deque(
        [(obj, (), "", None)]
    )
    seen = {id(obj)}
    kept = [obj]  # an id stays taken while its object lives
    while queue and len(seen) < _MOST_OBJECTS:
        value, path, holder, owner = queue.popleft()
        if not holder and path and _is_opaque(value):
            holder = path[-1]
        if _is_array(value):
            found[id(value)] = Hidden(value, path, holder or " ".join(path[-1:]), owner)
            if not (isinstance(value, np.ndarray) and value.dtype.hasobject):
                continue
        if not holder and not _is_opaque(value) and type(value) not in _CONTAINERS:
            owner = value
        for label, child in _followed(value):
            if id(child) not in seen and not isinstance(child, _ATOMS):
                seen.add(id(child))
                kept.append(child)
                queue.append((child, (*path, label), holder, owner))
    return found


def _is_opaque(value: Any) -> bool:
    """Whether JAX cannot follow: functions, bound methods, partials, cached functions."""
    return callable(value) and jax.tree_util.all_leaves([value])


_CONTAINERS = (dict, list, tuple, set, frozenset, np.ndarray, jax.tree_util.PyTreeDef)

_ATOMS = (str, bytes, int, float, complex, type(None), type, types.ModuleType, types.CodeType)


def _is_array(value: Any) -> bool:
    return isinstance(value, (jax.Array, np.ndarray))


def _followed(value: Any) -> Iterator[tuple[str, Any]]:
    if _is_importable(value) or isinstance(value, types.FrameType):
        return
    if type(value).__name__ == "PyTreeDef":
        yield from _aux_data(value)
        return
    inside_jax = _belongs_to_jax(value)
    for link in links(value):
        if not inside_jax or callable(link.child) or _is_array(link.child):
            yield link.label, link.child


def _aux_data(treedef: Any) -> Iterator[tuple[str, Any]]:
    node = treedef.node_data()
    if node is not None:
        yield f"aux data of {node[0].__qualname__.rpartition('<locals>.')[2]}", node[1]
    for child in treedef.children():
        yield from _aux_data(child)


def _belongs_to_jax(value: Any) -> bool:
    """Whether it is one of JAX's own objects, whose caches are none of the user's business."""
    module = str(getattr(type(value), "__module__", "")).partition(".")[0]
    return module in ("jax", "jaxlib") and jax.tree_util.all_leaves([value])


def _is_importable(value: Any) -> bool:
    """Whether it is a module-level function: what it closes over was there before any argument."""
    if not callable(value):
        return False
    try:
        module = sys.modules.get(object.__getattribute__(value, "__module__"))
        name = object.__getattribute__(value, "__qualname__")
    except Exception:
        return False
    found: Any = module
    for part in str(name).split("."):
        found = getattr(found, "__dict__", {}).get(part)
    return found is value


def tracer_symptoms(obj: Any, doing: str) -> Iterator[Symptom]:
    """Report each tracer that can be reached from an object outside of its transformation.

    Args:
        obj: an object that left its transformation.
        doing: how it was made.
    """
    try:
        flat, treedef = jax.tree.flatten(obj)
    except Exception:  # the round trip reports it
        return
    leaves = {id(leaf) for leaf in flat}
    for hidden in _reachable(obj, treedef).values():
        if isinstance(hidden.value, jax.core.Tracer) and id(hidden.value) not in leaves:
            text = f"{doing}: {_shown(hidden)} is a tracer of a finished transformation"
            yield Symptom("nothing-hides", text, _cause(obj, hidden))


def hidden_symptoms(subject: Subject) -> Iterator[Symptom]:
    """Report each array that stays where it is when the leaves are exchanged."""
    yield from tracer_symptoms(subject.obj, "as it is")
    try:
        one, other = (subject.rebuilt_with(subject.fresh_values()) for _ in range(2))
        leaves = {id(leaf) for leaf in (*jax.tree.leaves(one), *jax.tree.leaves(other))}
    except Exception:  # the round trip reports it
        return
    static = _static_arrays(subject)
    kept = reachable_arrays(other)
    own_leaves = {id(leaf) for leaf in subject.leaves}
    for key, hidden in _reachable(one, subject.treedef).items():
        stays = key in static or (key in kept and not _is_constant(hidden.value, subject.obj))
        if stays and key not in leaves and _does_harm(hidden.value, own_leaves):
            text = f"new leaves leave {_shown(hidden)} as it was"
            yield Symptom("nothing-hides", text, _cause(subject.obj, hidden))


def _reachable(obj: Any, treedef: Any) -> dict[int, Hidden]:
    """Look in the object first, whose names say more than those of the aux data."""
    return {**reachable_arrays(treedef), **reachable_arrays(obj)}


def _static_arrays(subject: Subject) -> set[int]:
    fixed = [leaf for leaf, data in zip(subject.leaves, subject.data, strict=True) if not data]
    return {*reachable_arrays(subject.treedef), *reachable_arrays(fixed)}


def _does_harm(value: Any, own_leaves: set[int]) -> bool:
    """Whether it could be traced one day: a numpy constant is static data like any other."""
    if isinstance(value, jax.core.Tracer):
        return False  # reported as what it is
    return isinstance(value, jax.Array) or id(value) in own_leaves


def _is_constant(value: Any, obj: Any) -> bool:
    """Whether it is a module variable or a class attribute that unflatten looks up by itself."""
    for cls in type(obj).__mro__:
        if any(held is value for held in list(vars(cls).values())):
            return True
    return any(
        held is value
        for module in list(sys.modules.values())
        for held in list(getattr(module, "__dict__", {}).values())
    )


def _shown(hidden: Hidden) -> str:
    return f"{describe(hidden.value)} at {hidden.text}"


def _cause(obj: Any, hidden: Hidden) -> Cause:
    """Blame what holds it: all arrays behind one closure or bound method have one cause."""
    return Cause(
        f"hidden:{hidden.holder}",
        f"an array hides from JAX behind {hidden.holder}: {hidden.text}",
        _mend(obj, hidden),
    )


def _mend(obj: Any, hidden: Hidden) -> str:
    """Return what to write instead: it depends on whose class the nearest object is of."""
    owner = hidden.owner
    if owner is None:  # a function in plain containers
        return hints.leaf_of_partial(hidden.holder)
    if hints.is_installed(type(owner)):
        outermost = next((node for _, node in nodes(obj)), owner)
        installed = hints.is_installed(type(outermost))
        return hints.build_outside_jit(outermost if installed else owner)
    last = hidden.path[-1].rpartition(".")[2]
    if not hidden.path[-1].startswith((f"{type_name(owner)}.", f"{type_name(owner)}[")):
        return hints.leaf_of_partial(hidden.holder)
    mend = hints.register_container(owner) or hints.register_dataclass(owner, [last])
    return mend or hints.leaf_of_partial(hidden.holder)
