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
# A long chain is climbed one object at a time. After so many passes over the chunks it is cheaper
# to know the parents of each object.
_MOST_PASSES = 64


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
        self._passes = 0
        self._parents: dict[int, list[Any]] = {}
        referents = gc.get_referents
        self._referred_to = [
            frozenset(map(id, referents(*objects[start : start + _CHUNK])))
            for start in range(0, len(objects), _CHUNK)
        ]

    def parents_of(self, wanted: Set[int]) -> Iterator[tuple[Any, list[int]]]:
        """Yield each object that refers to something wanted, and the ids it refers to."""
        self._passes += 1
        if self._passes > _MOST_PASSES:
            yield from self._known_parents_of(wanted)
            return
        for number, ids in enumerate(self._referred_to):
            if not ids.isdisjoint(wanted):
                for obj in self._objects[number * _CHUNK : (number + 1) * _CHUNK]:
                    found = references_to(wanted, obj)
                    if found:
                        yield obj, found

    def _known_parents_of(self, wanted: Set[int]) -> Iterator[tuple[Any, list[int]]]:
        if not self._parents:
            self._learn_parents()
        found = {id(parent): parent for child in wanted for parent in self._parents.get(child, ())}
        for parent in found.values():
            yield parent, references_to(wanted, parent)

    def _learn_parents(self) -> None:
        parents = self._parents
        for obj in self._objects:
            for child in map(id, gc.get_referents(obj)):
                if child in parents:
                    parents[child].append(obj)
                else:
                    parents[child] = [obj]
