"""A bounded look downwards: is a traced value among these values, or close below them?

The census looks at everything and says who holds what. This is for the moments in between at which
something is about to go away: an example of a property test, a local variable of another thread.
"""

from __future__ import annotations

import gc
import types
from collections import deque
from typing import TYPE_CHECKING, Any

from pytest_jaxleaks.jax_internals import is_book_keeping, jax_is_imported, tracer_types

if TYPE_CHECKING:
    from collections.abc import Iterable

__all__ = ["ways_to_tracers"]

_MOST_OBJECTS = 500
_OPAQUE = (type, types.ModuleType, types.FrameType, types.TracebackType, types.CodeType)


def ways_to_tracers(values: Iterable[Any], most: int = _MOST_OBJECTS) -> list[tuple[Any, ...]]:
    """Return the ways from some values to the tracers close below them.

    No code of the program runs: attributes are not read, references are followed.

    Args:
        values: where to begin.
        most: how many objects to pass at the most.

    Returns:
        One tuple per tracer: a value, what is between, the tracer.
    """
    if not jax_is_imported():
        return []
    tracers = tracer_types()
    ways: list[tuple[Any, ...]] = []
    seen: set[int] = set()
    waiting: deque[tuple[Any, ...]] = deque((value,) for value in values)
    while waiting and len(seen) < most:
        way = waiting.popleft()
        obj = way[-1]
        if id(obj) in seen or not (id(type(obj)) in tracers or gc.is_tracked(obj)):
            continue
        seen.add(id(obj))
        if id(type(obj)) in tracers:
            ways.append(way)
        else:
            waiting.extend((*way, child) for child in _held_by(obj))
    return ways


def _held_by(obj: Any) -> Iterable[Any]:
    cls = type(obj)
    if issubclass(cls, _OPAQUE) or is_book_keeping(cls):
        return ()
    if cls is types.FunctionType:  # not its globals
        return [part for part in (obj.__closure__, obj.__defaults__, obj.__dict__) if part]
    return gc.get_referents(obj)
