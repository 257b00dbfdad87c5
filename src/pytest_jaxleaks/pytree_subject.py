"""The object under test, taken apart once: its leaves, its treedef, and ways to rebuild it."""

from __future__ import annotations

import dataclasses
import re
from typing import TYPE_CHECKING, Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

__all__ = ["Subject", "first_line", "is_data", "nodes", "same_value", "take_apart", "type_name"]

_BUILTIN_NODES = (dict, list, tuple, type(None))


@dataclasses.dataclass(frozen=True)
class Subject:
    """A pytree with its leaves split into data, which JAX transforms, and the rest.

    Attributes:
        obj: the object itself.
        leaves: its leaves, in flattening order.
        treedef: its structure.
        data: for each leaf whether JAX transforms it (arrays, and Python numbers where the whole
            object can be passed to ``jax.jit``). The others (functions, strings) stay fixed, as
            with ``equinox.filter_jit``.
    """

    obj: Any
    leaves: tuple[Any, ...]
    treedef: Any
    data: tuple[bool, ...]

    @property
    def dynamic(self) -> Any:
        """The object with None in the place of leaves that JAX cannot transform."""
        if all(self.data):
            return self.obj
        kept = [leaf if data else None for leaf, data in zip(self.leaves, self.data, strict=True)]
        return jax.tree.unflatten(self.treedef, kept)

    def restored(self, dynamic: Any) -> Any:
        """Put the fixed leaves back into what ``dynamic`` became."""
        if all(self.data):
            return dynamic
        own = jax.tree.leaves(self.obj, is_leaf=_is_none)
        found = jax.tree.leaves(dynamic, is_leaf=_is_none)
        kept = [new for old, new in zip(own, found, strict=True) if old is not None]
        merged = [
            new if data else fixed
            for new, data, fixed in zip(kept, self.data, self.leaves, strict=True)
        ]
        return jax.tree.unflatten(self.treedef, merged)

    def data_leaves(self) -> list[Any]:
        """Return the leaves that JAX transforms."""
        return [leaf for leaf, data in zip(self.leaves, self.data, strict=True) if data]

    def leaves_with(self, values: Sequence[Any]) -> list[Any]:
        """Return all leaves, with ``values`` in the place of the data leaves."""
        remaining = iter(values)
        return [
            next(remaining) if data else leaf
            for leaf, data in zip(self.leaves, self.data, strict=True)
        ]

    def rebuilt_with(self, values: Sequence[Any]) -> Any:
        """Unflatten with ``values`` in the place of the data leaves."""
        return jax.tree.unflatten(self.treedef, self.leaves_with(values))

    def fresh_values(self) -> list[Any]:
        """Return copies of the data leaves: equal values, other objects."""
        return [_copied(leaf) for leaf in self.data_leaves()]


def _is_none(value: Any) -> bool:
    return value is None


def take_apart(obj: Any) -> Subject:
    """Flatten ``obj`` and decide which of its leaves JAX transforms.

    A Python number is data where JAX could take the whole object, and fixed where it could not
    (functions or strings among the leaves) or where a part of it is an ``equinox.Module``, whose
    users expect ``equinox.filter_jit``, which keeps Python numbers fixed.
    """
    leaves, treedef = jax.tree.flatten(obj)
    filtered = not all(map(_is_jax_type, leaves)) or any(
        isinstance(node, eqx.Module) for _, node in nodes(obj)
    )
    data = tuple(is_data(leaf) if filtered else True for leaf in leaves)
    return Subject(obj, tuple(leaves), treedef, data)


def is_data(leaf: Any) -> bool:
    """Whether ``leaf`` is an array that JAX transforms, tracers included."""
    if isinstance(leaf, jax.Array):
        return True
    return isinstance(leaf, (np.ndarray, np.generic)) and _is_jax_type(leaf)


def _is_jax_type(leaf: Any) -> bool:
    if type(leaf) is int:
        return leaf.bit_length() < 8 * _int_size()
    if isinstance(leaf, (jax.Array, bool, int, float, complex)):
        return True
    if not isinstance(leaf, (np.ndarray, np.generic)):
        return False
    try:
        jax.typeof(leaf)
    except Exception:
        return False
    return True


def _int_size() -> int:
    """Return how many bytes an integer of JAX has: a larger Python integer cannot be traced."""
    return int(np.dtype(jax.dtypes.canonicalize_dtype(np.int64)).itemsize)


def nodes(obj: Any, limit: int = 10_000) -> Iterator[tuple[str, Any]]:
    """Yield the key path and the value of every node that is not a builtin container.

    Args:
        obj: a pytree.
        limit: how many nodes are looked at, at most.
    """
    stack = [("", obj)]
    while stack and limit:
        limit -= 1
        path, node = stack.pop()
        if type(node) not in _BUILTIN_NODES and not jax.tree_util.all_leaves([node]):
            yield path, node
        try:
            children, _ = jax.tree_util.tree_flatten_with_path(
                node,
                is_leaf=lambda child, node=node: child is not node,
            )
        except Exception:  # reported by the contract that it breaks
            continue
        stack += [
            (path + jax.tree_util.keystr(keys), child)
            for keys, child in reversed(children)
            if keys and child is not None
        ]


def _copied(leaf: Any) -> Any:
    if isinstance(leaf, np.ndarray):
        return leaf.copy()
    return jnp.array(leaf, copy=True) if isinstance(leaf, jax.Array) else leaf


def same_value(expected: Any, actual: Any) -> bool:
    """Whether two leaves agree in shape, JAX dtype and value; NaN equals NaN.

    Leaves that are no data (functions, strings) agree when they are equal or of the same type.
    """
    if not _is_jax_type(expected):
        if isinstance(expected, (str, bytes)):
            return type(expected) is type(actual) and bool(expected == actual)
        return expected is actual or type(expected) is type(actual)
    if not _is_jax_type(actual):
        return False
    one, other = jnp.asarray(expected), jnp.asarray(actual)
    if one.dtype != other.dtype or one.shape != other.shape:
        return False
    if jnp.issubdtype(one.dtype, jax.dtypes.prng_key):
        one, other = jax.random.key_data(one), jax.random.key_data(other)
    left, right = np.asarray(one), np.asarray(other)
    if left.tobytes() == right.tobytes():
        return True
    with np.errstate(all="ignore"):
        return bool(np.all((left == right) | ((left != left) & (right != right))))


def type_name(obj: Any) -> str:
    """Return the qualified name of the type of ``obj``, without the function that defines it."""
    return type(obj).__qualname__.rpartition("<locals>.")[2]


def first_line(error: BaseException, limit: int = 160) -> str:
    """Return the type and the first line of the message of ``error``."""
    try:
        lines = str(error).strip().splitlines()
    except Exception:  # a message that cannot be made
        lines = []
    text = f"{type(error).__name__}: {lines[0]}" if lines else type(error).__name__
    text = re.sub(r" (object )?at 0x[0-9a-f]+", "", text)  # an address helps nobody
    return text if len(text) <= limit else text[: limit - 3] + "..."
