"""From what the caller gives to what each order is given: one example, a batch, and its rows.

A caller gives either batches (with ``in_axes``) or a single example, of which a batch is made.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np

from pytest_jaxleaks.errors import InvalidArgumentError
from pytest_jaxleaks.leaves import (
    dtype_of,
    is_array_like,
    is_inexact,
    is_key,
    short_type,
    weak_type_of,
)

if TYPE_CHECKING:
    from pytest_jaxleaks.signature import Arguments

__all__ = ["MAX_ROWS", "Batch", "axes_by_argument", "batch_of_copies", "canonical", "take_rows"]

MAX_ROWS = 8
"""A longer batch is checked on this many of its rows, evenly spaced, the first and the last among
them."""

Axis = int | None


@dataclass(frozen=True)
class Batch:
    """What the orders are called with.

    Attributes:
        args: the arguments with their batch axes.
        axes: per argument, a prefix pytree of axes as ``jax.vmap`` takes it.
        leaf_axes: per argument and leaf, the axis that is mapped, or None.
        rows: the arguments of each single example.
        example: the arguments for orders without vmap; zeros where the batch has no rows.
        kept: the numbers that the rows have in the caller's batch, where some were left out.
    """

    args: tuple[Any, ...]
    axes: tuple[Any, ...]
    leaf_axes: tuple[tuple[Axis, ...], ...]
    rows: tuple[tuple[Any, ...], ...]
    example: tuple[Any, ...]
    kept: tuple[int, ...] | None = None

    @property
    def numbers(self) -> tuple[int, ...]:
        """Return the number of each row in the caller's batch."""
        return tuple(range(len(self.rows))) if self.kept is None else self.kept

    @property
    def mapped(self) -> bool:
        """Tell whether anything is mapped at all."""
        return any(axis is not None for axes in self.leaf_axes for axis in axes)

    @property
    def shares_example(self) -> bool:
        """Tell whether the first row is the example, so that what is compiled for one serves
        all."""
        return bool(self.rows) and self.rows[0] is self.example

    def choose(self, rows: list[int]) -> tuple[Any, ...]:
        """Return the batched arguments with other rows, or the same ones in another order."""
        chosen = np.asarray(rows)
        return _over_leaves(self.args, self.leaf_axes, lambda leaf, axis: _take(leaf, axis, chosen))


def canonical(value: Any) -> Any:
    """Give NumPy leaves the dtypes that JAX would give them, as ``jax.jit`` does on entry.

    Floating-point NumPy arrays stay NumPy arrays, because functions may treat them differently;
    integer ones become JAX arrays, whose means are not float64.
    """

    def convert(leaf: Any) -> Any:
        if not isinstance(leaf, np.ndarray | np.generic) or not is_array_like(leaf):
            return leaf
        if not is_inexact(leaf):
            return jnp.asarray(leaf)
        dtype = jax.dtypes.canonicalize_dtype(leaf.dtype)
        return leaf if dtype == leaf.dtype else leaf.astype(dtype)

    leaves = jax.tree.leaves(value)
    if not any(isinstance(leaf, np.ndarray | np.generic) for leaf in leaves):
        return value  # the very object, which a pytree round trip would replace
    return jax.tree.map(convert, value)


def axes_by_argument(
    arguments: Arguments, in_axes: Any, static: tuple[int, ...]
) -> tuple[Any, ...]:
    """Return a prefix pytree of axes for each argument, as ``jax.vmap`` would understand
    ``in_axes``.

    A dict at the top names arguments; those it does not name are mapped over axis 0 if they hold
    arrays.
    """
    count = len(arguments.values)
    positional = count - len(arguments.keywords)
    if isinstance(in_axes, Mapping):
        given = {arguments.position(name, "in_axes"): axis for name, axis in in_axes.items()}
    elif isinstance(in_axes, tuple | list):
        if len(in_axes) not in (positional, count):
            raise InvalidArgumentError(
                f"in_axes={in_axes!r}: expected one entry per positional argument "
                f"({', '.join(arguments.names[:positional])}), got {len(in_axes)}"
            )
        given = dict(enumerate(in_axes))
    else:
        given = dict.fromkeys(range(positional), in_axes)
    axes = [given.get(i, _default_axis(arguments.values[i])) for i in range(count)]
    return tuple(None if i in static else axis for i, axis in enumerate(axes))


def _default_axis(value: Any) -> Axis:
    leaves = jax.tree.leaves(value)
    return 0 if leaves and all(is_array_like(leaf) and np.ndim(leaf) for leaf in leaves) else None


def _spread(axes: Any, value: Any, name: str, room: int = 0) -> tuple[Axis, ...]:
    """Return one axis per leaf, given a prefix pytree of axes; ``room`` is 1 if the axis is yet to
    come."""
    found: list[Axis] = []

    def visit(axis: Any, part: Any) -> None:
        for leaf in jax.tree.leaves(part):
            chosen = axis(leaf) if callable(axis) else axis
            found.append(_checked_axis(chosen, leaf, name, room) if chosen is not None else None)

    try:
        jax.tree.map(visit, axes, value, is_leaf=lambda node: node is None)
    except (ValueError, TypeError) as error:
        if isinstance(error, InvalidArgumentError):
            raise
        raise InvalidArgumentError(
            f"in_axes for argument {name!r} is {axes!r}, which is no prefix of it: {error}"
        ) from None
    return tuple(found)


def _checked_axis(axis: Any, leaf: Any, name: str, room: int) -> Axis:
    if not isinstance(axis, int) or isinstance(axis, bool):
        raise InvalidArgumentError(
            f"in_axes for argument {name!r} holds {axis!r}; expected an int or None"
        )
    if not is_array_like(leaf):
        return None  # a leaf that is no array cannot be mapped, and equinox does not try
    ndim = np.ndim(leaf) + room
    if not -ndim <= axis < ndim:
        raise InvalidArgumentError(
            f"in_axes asks for axis {axis} of argument {name!r}, which holds {short_type(leaf)}; "
            "give None for what is shared by all examples"
        )
    return axis % ndim


def take_rows(arguments: Arguments, axes: tuple[Any, ...]) -> Batch:
    """Split arguments that have batch axes into single examples.

    Raises:
        InvalidArgumentError: the mapped axes have different sizes, or an axis does not exist.
    """
    values = tuple(canonical(value) for value in arguments.values)
    leaf_axes = tuple(
        _spread(axis, value, name)
        for axis, value, name in zip(axes, values, arguments.names, strict=True)
    )
    size = _common_size(values, leaf_axes, arguments.names)
    if size is None:
        return Batch(values, axes, leaf_axes, (values,), values)
    kept: tuple[int, ...] | None = None
    if size > MAX_ROWS:
        chosen = np.unique(np.linspace(0, size - 1, MAX_ROWS).round().astype(int))
        values = _over_leaves(values, leaf_axes, lambda leaf, axis: _take(leaf, axis, chosen))
        size, kept = len(chosen), tuple(chosen.tolist())
    rows = tuple(
        _over_leaves(values, leaf_axes, functools.partial(_take, rows=row)) for row in range(size)
    )
    example = rows[0] if rows else _over_leaves(values, leaf_axes, _blank)
    return Batch(values, axes, leaf_axes, rows, example, kept)


def _common_size(
    values: tuple[Any, ...], leaf_axes: tuple[tuple[Axis, ...], ...], names: tuple[str, ...]
) -> int | None:
    sizes: dict[int, str] = {}
    for value, axes, name in zip(values, leaf_axes, names, strict=True):
        for (path, leaf), axis in zip(
            jax.tree_util.tree_leaves_with_path(value), axes, strict=True
        ):
            if axis is not None:
                where = f"{name}{jax.tree_util.keystr(path)}: {short_type(leaf)}, axis {axis}"
                sizes.setdefault(np.shape(leaf)[axis], where)
    if len(sizes) > 1:
        listed = "; ".join(f"{where} has {size} rows" for size, where in sizes.items())
        raise InvalidArgumentError(
            f"in_axes maps axes of different sizes: {listed}. "
            "Every mapped axis needs the same size; give None for what is shared by all examples"
        )
    return next(iter(sizes), None)


def _over_leaves(
    values: tuple[Any, ...],
    leaf_axes: tuple[tuple[Axis, ...], ...],
    change: Callable[[Any, int], Any],
) -> tuple[Any, ...]:
    """Change the mapped leaves; an argument with none of them stays the very object it was."""
    changed = []
    for value, axes in zip(values, leaf_axes, strict=True):
        if all(axis is None for axis in axes):
            changed.append(value)
            continue
        leaves, treedef = jax.tree.flatten(value)
        new = [
            leaf if axis is None else change(leaf, axis)
            for leaf, axis in zip(leaves, axes, strict=True)
        ]
        changed.append(jax.tree.unflatten(treedef, new))
    return tuple(changed)


def _blank(leaf: Any, axis: int) -> Any:
    """Return what a row of an empty batch would look like."""
    shape = tuple(size for i, size in enumerate(np.shape(leaf)) if i != axis)
    if is_key(leaf):
        return jnp.broadcast_to(jax.random.key(0, impl=str(jax.random.key_impl(leaf))), shape)
    return jnp.zeros(shape, leaf.dtype)


def _take(leaf: Any, axis: int, rows: Any) -> Any:
    """Take rows, on the host: JAX would compile a program for each shape."""
    where = (slice(None),) * axis + (rows,)
    if not isinstance(leaf, jax.Array) or is_key(leaf) or weak_type_of(leaf):
        return leaf[where]
    return jnp.asarray(np.asarray(leaf)[where])


def batch_of_copies(
    arguments: Arguments,
    axes: tuple[Any, ...] | None,
    static: tuple[int, ...],
    size: int,
    scaled: bool,
) -> Batch:
    """Make a batch out of a single example.

    Copy ``k`` of a floating-point leaf is ``(1 - k / 16)`` times the leaf, which keeps signs, order
    and most domains; a leaf of zeros becomes ``k / 16``. Keys are split. Everything else is
    repeated.

    Args:
        arguments: the single example.
        axes: where each argument's batch axis is to be put, or None for the default: axis 0 of
            every argument but static ones and models (equinox modules and arguments with leaves
            that are no arrays).
        static: the arguments that are no data.
        size: the number of copies.
        scaled: False repeats floating-point leaves too.
    """
    values = tuple(canonical(value) for value in arguments.values)
    if axes is None:
        axes = tuple(None if i in static or _shared(v) else 0 for i, v in enumerate(values))
    leaf_axes = tuple(
        _spread(axis, value, name, room=1)
        for axis, value, name in zip(axes, values, arguments.names, strict=True)
    )
    stacked = _over_leaves(values, leaf_axes, lambda leaf, axis: _stack(leaf, axis, size, scaled))
    rows = [
        _over_leaves(stacked, leaf_axes, functools.partial(_take, rows=row)) for row in range(size)
    ]
    if rows and _types(rows[0]) == _types(values):
        rows[0] = values  # so that one reference serves both
    return Batch(stacked, axes, leaf_axes, tuple(rows), values)


def _shared(value: Any) -> bool:
    import equinox as eqx

    if isinstance(value, eqx.Module):
        return True
    leaves = jax.tree.leaves(value)
    return not leaves or not all(map(is_array_like, leaves))


def _types(values: Any) -> list[Any]:
    leaves = [leaf for leaf in jax.tree.leaves(values) if is_array_like(leaf)]
    return [(type(leaf), dtype_of(leaf), weak_type_of(leaf)) for leaf in leaves]


def _stack(leaf: Any, axis: int, size: int, scaled: bool) -> Any:
    if is_key(leaf):
        return _split(leaf, size, axis)
    value = np.asarray(leaf, dtype=dtype_of(leaf))
    if value.dtype == np.uint32 and value.shape == (2,):  # a legacy key
        return _split(jnp.asarray(leaf), size, axis)
    copies = [_scaled_copy(value, k) if scaled and is_inexact(leaf) else value for k in range(size)]
    stacked = np.stack(copies, axis) if copies else np.zeros((0, *value.shape), value.dtype)
    return stacked if isinstance(leaf, np.ndarray) else jnp.asarray(stacked)


def _split(key: Any, size: int, axis: int) -> Any:
    if size < 2 or key.ndim > (0 if is_key(key) else 1):  # an array of keys is data
        return jnp.stack([key] * size, axis) if size else jnp.expand_dims(key, axis)[:0]
    return jnp.concatenate([key[None], jax.random.split(key, size - 1)])


def _scaled_copy(value: np.ndarray[Any, Any], k: int) -> np.ndarray[Any, Any]:
    if not value.size or np.any(value != 0):
        return np.asarray(value * (1 - k / 16), dtype=value.dtype)
    return np.full_like(value, k / 16)
