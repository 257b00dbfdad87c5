"""Results as flat lists of leaves with key paths, and the algebra that references need.

Leaves are stacked and summed without ever unflattening them, because a node may refuse what it did
not make.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import jax
import numpy as np

from pytest_jaxleaks.leaves import dtype_of, is_array_like, is_key, key_path, weak_type_of

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

__all__ = ["Leaf", "Result", "empty_batch", "flatten", "stack_rows", "sum_rows"]


@dataclass(frozen=True)
class Leaf:
    """One leaf of a result.

    Attributes:
        path: its key path, such as ``.layers[0].weight``.
        value: a NumPy array, keys as their data; anything that is no array as it is.
        dtype: its dtype as JAX sees it, None for what is no array.
        weak: whether it is weakly typed; None where that is unknown and must not be compared.
    """

    path: str
    value: Any
    dtype: Any = None
    weak: bool | None = None

    @property
    def is_array(self) -> bool:
        """Tell whether the leaf is an array or a number."""
        return self.dtype is not None


@dataclass(frozen=True)
class Result:
    """The leaves of a result, and its treedef."""

    leaves: tuple[Leaf, ...]
    treedef: Any


def flatten(tree: Any) -> Result:
    """Take a result apart, with its arrays on the host."""
    with_paths, treedef = jax.tree_util.tree_flatten_with_path(_without_codes(tree))
    return Result(tuple(_leaf(key_path(path), value) for path, value in with_paths), treedef)


def _without_codes(tree: Any) -> Any:
    """Replace each error of checkify by what it says: whether there is one, and its payload.

    Its codes are numbers that JAX gives out anew at each trace, as is what it keeps by them.
    """
    checkify = sys.modules.get("jax.experimental.checkify")
    kind = getattr(checkify, "Error", None)
    if kind is None or not any(isinstance(one, kind) for one in _shallow(tree, kind)):
        return tree

    def said(node: Any) -> Any:
        if not isinstance(node, kind):
            return node
        parts = jax.tree.leaves(node, is_leaf=lambda part: part is not node)
        return [part for number, part in enumerate(parts) if number != CODES]

    return jax.tree.map(said, tree, is_leaf=lambda node: isinstance(node, kind))


def _shallow(tree: Any, kind: type) -> list[Any]:
    return jax.tree.leaves(tree, is_leaf=lambda node: isinstance(node, kind))


CODES = 1
"""The child of a ``checkify.Error`` with its codes, in jax 0.10.2 and 0.12."""


def _leaf(path: str, value: Any) -> Leaf:
    if not is_array_like(value):
        return Leaf(path, value)
    if is_key(value):
        return Leaf(path, np.asarray(jax.random.key_data(value)), value.dtype, False)
    return Leaf(path, np.asarray(value), dtype_of(value), weak_type_of(value))


def stack_rows(rows: Sequence[Result]) -> Result:
    """Stack per-example results along a new first axis, as ``jax.vmap`` does.

    Leaves that are no arrays stay as they are: equinox passes them through.
    """
    first = rows[0]

    def join(leaf: Leaf, others: tuple[Leaf, ...]) -> Leaf:
        if not leaf.is_array:
            return leaf
        return replace(leaf, value=np.stack([other.value for other in others]))

    return _over(rows, join) if len(first.leaves) else first


def sum_rows(rows: Sequence[Result], axes: Sequence[int | None]) -> Result:
    """Turn per-example gradients into the gradient of the sum over the batch.

    Args:
        rows: the gradient of each example.
        axes: per leaf, the axis over which that argument is mapped; None for one that all examples
            share.
    """
    wanted = iter(axes)

    def join(leaf: Leaf, others: tuple[Leaf, ...]) -> Leaf:
        axis = next(wanted)
        if not leaf.is_array:
            return leaf
        if axis is not None:
            return replace(leaf, value=np.stack([other.value for other in others], axis))
        wide = np.sum([_wide(other.value) for other in others], axis=0)
        return replace(leaf, value=np.asarray(wide).astype(leaf.dtype))

    return _over(rows, join)


def empty_batch(row: Result, axes: Sequence[int | None] | None) -> Result:
    """Return what a batch without rows gives, from the structure of one row's result.

    Args:
        row: the result of one row, whose values do not matter.
        axes: per leaf, the mapped axis, None for a sum over the batch; None for axis 0 everywhere.
    """

    def empty(leaf: Leaf, axis: int | None) -> Leaf:
        if not leaf.is_array:
            return leaf
        if axis is None:
            return replace(leaf, value=np.zeros_like(leaf.value))
        return replace(leaf, value=np.expand_dims(leaf.value, axis).repeat(0, axis))

    along = axes if axes is not None else [0] * len(row.leaves)
    pairs = zip(row.leaves, along, strict=True)
    return Result(tuple(empty(leaf, axis) for leaf, axis in pairs), row.treedef)


def _wide(value: Any) -> Any:
    kind = np.complex128 if np.iscomplexobj(value) else np.float64
    return np.asarray(value).astype(kind)


def _over(rows: Sequence[Result], join: Callable[[Leaf, tuple[Leaf, ...]], Leaf]) -> Result:
    columns = zip(*(row.leaves for row in rows), strict=True)
    return Result(tuple(join(column[0], column) for column in columns), rows[0].treedef)
