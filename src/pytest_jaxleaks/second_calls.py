"""Arguments for a second call: new values of the same types, and static arguments made anew."""

from __future__ import annotations

import copy
import functools
import types
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np

from pytest_jaxleaks.leaves import is_inexact, is_key, weak_type_of

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["LIKE", "new_static", "new_values", "unhashable"]

LIKE = 15 / 16
"""New values are this many times the old ones: of the same sign and order, and in most domains."""


def new_values(args: Sequence[Any], static: Sequence[int], filtered: bool) -> tuple[Any, ...]:
    """Rebuild the arguments of a call as another call would have them.

    Floating-point arrays and numbers get other values, keys other bits, and every container is
    unflattened anew. Integers keep their values, for they may be indices or sizes. To equinox's
    transformations Python numbers are static data, so they stay.

    Args:
        args: the arguments.
        static: positions of static arguments; see :func:`new_static`.
        filtered: whether equinox's transformations are used.
    """

    def renew(leaf: Any) -> Any:
        return leaf if filtered and isinstance(leaf, float | complex) else _renewed(leaf)

    return tuple(
        new_static(arg) if position in static else jax.tree.map(renew, arg)
        for position, arg in enumerate(args)
    )


def _renewed(leaf: Any) -> Any:
    if is_key(leaf):
        bits = np.asarray(jax.random.key_data(leaf)) ^ np.uint32(1)
        return jax.random.wrap_key_data(jnp.asarray(bits), impl=jax.random.key_impl(leaf))
    if isinstance(leaf, np.generic | np.ndarray):
        number: Any = leaf
        return number * leaf.dtype.type(LIKE) if is_inexact(leaf) else leaf.copy()
    if isinstance(leaf, float | complex):
        return leaf * LIKE
    if not isinstance(leaf, jax.Array):
        return leaf
    if weak_type_of(leaf):  # only an operation of JAX's keeps it
        return leaf * LIKE if is_inexact(leaf) else leaf
    value = np.asarray(leaf)
    if is_inexact(leaf):
        value = np.asarray(value * value.dtype.type(LIKE))
    return jnp.asarray(value)


def new_static(value: Any) -> Any:
    """Make a static argument anew, as a caller does that writes it at each call.

    That is a lambda with the same code, a partial of the same function, a copy of an object that
    has no ``__eq__``. Named functions, classes and what has an ``__eq__`` stay.
    """
    if isinstance(value, types.FunctionType):
        return _same_lambda(value) if value.__name__ == "<lambda>" else value
    if isinstance(value, functools.partial):
        return functools.partial(value.func, *value.args, **value.keywords)
    kind: Any = type(value)
    foreign = kind.__module__.partition(".")[0] in ("builtins", "jax", "jaxlib", "numpy", "types")
    if foreign or isinstance(value, type) or kind.__eq__ is not object.__eq__:
        return value
    try:
        return copy.copy(value)
    except Exception:  # made to be one of its kind
        return value


def _same_lambda(fn: types.FunctionType) -> types.FunctionType:
    made = types.FunctionType(
        fn.__code__, fn.__globals__, fn.__name__, fn.__defaults__, fn.__closure__
    )
    made.__kwdefaults__ = fn.__kwdefaults__
    return made


def unhashable(args: Sequence[Any], names: Sequence[str], static: Sequence[int]) -> list[str]:
    """Say which static arguments have no hash, and what would have one."""
    found = []
    for position in static:
        value = args[position]
        try:
            hash(value)
        except TypeError as error:
            found.append(
                f"argument {names[position]!r} is static and has no hash ({error}): {_mend(value)}"
            )
    return found


def _mend(value: Any) -> str:
    if isinstance(value, jax.Array | np.ndarray):
        return "an array is data: take it out of static_argnums"
    if isinstance(value, list | set | dict | bytearray):
        frozen = {list: "a tuple", set: "a frozenset", dict: "a tuple of its items"}
        return f"pass {frozen.get(type(value), 'something immutable')}"
    if hasattr(type(value), "__dataclass_fields__"):
        return "make its class @dataclass(frozen=True)"
    if isinstance(value, tuple):
        return "something in the tuple has none"
    return "give its class a __hash__ beside its __eq__"
