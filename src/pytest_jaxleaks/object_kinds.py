"""Which objects a search for holders passes through."""

from __future__ import annotations

import functools
import itertools
import types
from enum import IntEnum
from typing import TYPE_CHECKING, Any

from pytest_jaxleaks.jax_internals import is_book_keeping, is_jax_type, tracer_types
from pytest_jaxleaks.links import module_name

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator

__all__ = ["EXCEPTIONAL_TYPES", "Kind", "Kinds", "types_among"]


EXCEPTIONAL_TYPES = (BaseException, types.TracebackType, types.FrameType)


class Kind(IntEnum):
    """What an object is to the search."""

    OPAQUE = 0  # JAX's book-keeping and tracers: nothing is followed through it
    PLAIN = 1  # the program's: everything is
    ASK = 2  # depends on the single object or reference
    EXCEPTIONAL = 3  # frames, tracebacks, exceptions: only at the second attempt
    MACHINERY = 4  # objects of the test run, such as pytest's log handler


def types_among(objects: list[Any]) -> dict[int, type]:
    """Return the types of some objects by their ids: no code of a metaclass runs."""
    types_: list[type] = list(map(type, objects))
    return dict(zip(map(id, types_), types_, strict=True))


class Kinds:
    """The kind of each type, found out once per type and search."""

    def __init__(self, machinery: Collection[str]) -> None:
        self._machinery = machinery
        self._tracers = tracer_types()
        self._kinds: dict[int, Kind] = {}

    def of(self, obj: Any) -> Kind:
        """Return the kind of an object's type."""
        cls = type(obj)
        kind = self._kinds.get(id(cls))
        if kind is None:
            kind = self._kinds[id(cls)] = self._kind(cls)
        return kind

    def of_all(self, objects: list[Any]) -> Iterator[Kind]:
        """Return the kind of each of many objects."""
        for type_id, cls in types_among(objects).items():
            if type_id not in self._kinds:
                self._kinds[type_id] = self._kind(cls)
        return map(self._kinds.__getitem__, map(id, map(type, objects)))

    def tracers(self, objects: list[Any]) -> Iterator[Any]:
        """Return the tracers among some objects."""
        are_tracers = map(self._tracers.__contains__, map(id, map(type, objects)))
        return itertools.compress(objects, are_tracers)

    def _kind(self, cls: type) -> Kind:
        if id(cls) in self._tracers or is_book_keeping(cls):
            return Kind.OPAQUE
        if cls is functools._lru_cache_wrapper or is_jax_type(cls):
            return Kind.ASK
        if issubclass(cls, EXCEPTIONAL_TYPES):
            return Kind.EXCEPTIONAL
        if module_name(cls).partition(".")[0] in self._machinery and not issubclass(cls, type):
            return Kind.MACHINERY
        return Kind.PLAIN
