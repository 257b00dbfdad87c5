"""What tells two functions apart that two runs made by the same code.

Each run makes its own lambda, so identity tells nothing. Where a function stands and the plain
values that it closes over tell it from another one.
"""

from __future__ import annotations

import enum
import functools
import types
from typing import TYPE_CHECKING, Any

import jax
import numpy as np

from pytest_jaxleaks.jax_internals import is_jax_function, is_jaxpr
from pytest_jaxleaks.leaves import SCALARS

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["closed_over", "is_traced_function", "place_of"]

_MOST_WRAPPERS = 100  # more than this, and it wraps itself


def place_of(value: Any) -> str | None:
    """Name the Python function behind ``value``, inside ``jit``, ``wraps`` and the like, by place.

    Args:
        value: anything; most callable objects are no function.

    Returns:
        Its module, name, line and column; ``None`` if there is no such function.
    """
    inner = _wrapped(value)[-1]
    if not isinstance(inner, types.FunctionType):
        return None
    code = inner.__code__
    place = f"{inner.__module__}.{inner.__qualname__}, line {code.co_firstlineno}"
    if inner.__name__ == "<lambda>":  # two may share a line
        columns = [start for *_, start, end in code.co_positions() if start is not None and end]
        place += f", column {min(columns, default=0)}"
    return place


def _wrapped(value: Any) -> list[Any]:
    """Return ``value`` and what it wraps, to the innermost."""
    chain = [value]
    while hasattr(chain[-1], "__wrapped__") and len(chain) < _MOST_WRAPPERS:
        chain.append(chain[-1].__wrapped__)
    return chain


def closed_over(function: Any) -> list[tuple[str, Any]]:
    """List the plain values that a function closes over or has as defaults.

    Functions and tuples among them are looked into: an optimizer of optax is a tuple of functions
    that close over its hyperparameters, by way of other functions. Lists, dicts and objects are
    left out, since they may change while the program runs; so are the functions of JAX.

    Args:
        function: a Python function, maybe wrapped.

    Returns:
        The values by path, such as ``update_fn.b1``, in an order that is the same for every
        function that the same code made.
    """
    found: list[tuple[str, Any]] = []
    seen = {id(function)}
    todo = [(path.removeprefix("."), each) for path, each in _inside(function)][::-1]
    while todo:
        name, value = todo.pop()
        if _is_plain(value):
            found.append((name, value))
        elif id(value) not in seen:
            seen.add(id(value))
            todo += [(f"{name}{path}", each) for path, each in _inside(value)][::-1]
    return found


def _variables(function: types.FunctionType) -> Iterator[tuple[str, Any]]:
    cells = function.__closure__ or ()
    for name, cell in zip(function.__code__.co_freevars, cells, strict=True):
        try:
            yield name, cell.cell_contents
        except ValueError:
            continue  # a variable that has no value yet
    for index, value in enumerate(function.__defaults__ or ()):
        yield f"default {index}", value
    yield from (function.__kwdefaults__ or {}).items()


def _inside(value: Any) -> Iterator[tuple[str, Any]]:
    """Yield the parts of a tuple, and the variables of a function."""
    if isinstance(value, tuple):
        names = getattr(value, "_fields", range(len(value)))
        yield from ((f"[{name}]", each) for name, each in zip(names, value, strict=False))
    elif type(value) is functools.partial:
        yield ".func", value.func
        yield ".args", value.args
        yield from ((f".{name}", each) for name, each in value.keywords.items())
    elif callable(value) and not isinstance(value, type):
        for function in _wrapped(getattr(value, "__func__", value)):
            if isinstance(function, types.FunctionType) and not is_jax_function(function):
                yield from ((f".{name}", each) for name, each in _variables(function))


def _is_plain(value: Any) -> bool:
    """Say whether a value is one that nobody changes: a number, text, an array."""
    if value is None or type(value) in (str, bytes):
        return True
    if isinstance(value, jax.core.Tracer):
        return False  # an array to ``isinstance``
    if isinstance(value, np.ndarray):
        return bool(value.dtype != object)
    return isinstance(value, (*SCALARS, np.generic, jax.Array, enum.Enum))


def is_traced_function(value: Any) -> bool:
    """Say whether a value is a pytree that JAX made of a function by tracing it.

    Such are the results of ``jax.vjp`` and ``jax.linearize``: their static data have the program
    (a jaxpr), and their leaves what it needs. equinox's ``filter_closure_convert`` keeps its
    program as a leaf. It is another program with another ``jit`` inside.

    Args:
        value: a part of a pytree.
    """
    if not callable(value) or isinstance(value, type | types.FunctionType):
        return False
    try:
        flat: Any = jax.tree_util.tree_flatten(value, is_leaf=lambda each: each is not value)
        parts, data = flat[0], flat[1].node_data()
    except Exception:
        return False  # a class that refuses to be flattened
    return data is not None and (any(map(is_jaxpr, parts)) or _has_jaxpr(data[1], 6))


def _has_jaxpr(data: Any, depth: int) -> bool:
    """Look for a jaxpr in static data, not far down: ``fun`` is where JAX's wrapper has its own."""
    if is_jaxpr(data):
        return True
    if depth == 0:
        return False
    parts: list[Any] = []
    if isinstance(data, (tuple, list)):
        parts = list(data)
    elif isinstance(data, functools.partial):
        parts = [data.func, data.args, data.keywords]
    elif isinstance(data, dict):
        parts = list(data.values())
    elif is_jax_function(data):
        parts = [value for _, value in _variables(data)]
    elif hasattr(data, "__dict__") and callable(data):
        parts = [vars(data).get("fun")]
    return any(_has_jaxpr(part, depth - 1) for part in parts)
