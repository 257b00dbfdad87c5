"""Which objects a search for holders passes through."""

from __future__ import annotations

import functools
import types
from enum import IntEnum
from typing import TYPE_CHECKING

from pytest_jaxleaks.jax_internals import is_book_keeping, is_jax_type, tracer_types
from pytest_jaxleaks.links import module_name

if TYPE_CHECKING:
    from collections.abc import Collection

__all__ = ["EXCEPTIONAL_TYPES", "Kind", "Kinds"]


EXCEPTIONAL_TYPES = (BaseException, types.TracebackType, types.FrameType)


class Kind(IntEnum):
    """What an object is to the search."""

    OPAQUE = 0  # JAX's book-keeping and tracers: nothing is followed through it
    PLAIN = 1  # the program's: everything is
    ASK = 2  # depends on the single object or reference
    EXCEPTIONAL = 3  # frames, tracebacks, exceptions: only at the second attempt
    MACHINERY = 4  # objects of the test run, such as pytest's log handler


class Kinds(dict[type, Kind]):
    """The kind of each type, found out once per type and search."""

    def __init__(self, machinery: Collection[str]) -> None:
        super().__init__()
        self.machinery = machinery
        self.tracers = tracer_types()

    def __missing__(self, cls: type) -> Kind:
        kind = self[cls] = self._kind(cls)
        return kind

    def _kind(self, cls: type) -> Kind:
        if cls in self.tracers or is_book_keeping(cls):
            return Kind.OPAQUE
        if cls is functools._lru_cache_wrapper or is_jax_type(cls):
            return Kind.ASK
        if issubclass(cls, EXCEPTIONAL_TYPES):
            return Kind.EXCEPTIONAL
        if module_name(cls).partition(".")[0] in self.machinery and not issubclass(cls, type):
            return Kind.MACHINERY
        return Kind.PLAIN
