"""Which of many objects refer to a few others, with the work done at the speed of C.

The objects are taken by the hundred: the set of ids that a hundred of them refer to is made by
``gc.get_referents`` and ``map`` alone, and only where that set meets the wanted ids are the objects
looked at one by one.
"""

from __future__ import annotations

import gc
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator, Set

__all__ = ["ReferenceMap", "parents_among", "references_to"]

_CHUNK = 250


def references_to(wanted: Set[int], obj: Any) -> list[int]:
    """Return the wanted ids that ``obj`` refers to, once per reference."""
    return list(filter(wanted.__contains__, map(id, gc.get_referents(obj))))


def parents_among(objects: list[Any], wanted: Set[int]) -> Iterator[tuple[Any, list[int]]]:
    """Yield each of the objects that refers to something wanted, and the ids it refers to."""
    referents = gc.get_referents
    for start in range(0, len(objects), _CHUNK):
        chunk = objects[start : start + _CHUNK]
        if not wanted.isdisjoint(map(id, referents(*chunk))):
            for obj in chunk:
                found = references_to(wanted, obj)
                if found:
                    yield obj, found


class ReferenceMap:
    """Finds the parents of objects among a fixed list of objects, again and again."""

    def __init__(self, objects: list[Any]) -> None:
        self._objects = objects
        referents = gc.get_referents
        self._referred_to = [
            frozenset(map(id, referents(*objects[start : start + _CHUNK])))
            for start in range(0, len(objects), _CHUNK)
        ]

    def parents_of(self, wanted: Set[int]) -> Iterator[tuple[Any, list[int]]]:
        """Yield each object that refers to something wanted, and the ids it refers to."""
        for number, ids in enumerate(self._referred_to):
            if not ids.isdisjoint(wanted):
                for obj in self._objects[number * _CHUNK : (number + 1) * _CHUNK]:
                    found = references_to(wanted, obj)
                    if found:
                        yield obj, found
