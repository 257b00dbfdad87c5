"""JAX's own caches, and which references to an object they are the reason for."""

from __future__ import annotations

import gc
from typing import TYPE_CHECKING, Any

from pytest_jaxleaks.jax_internals import is_jax_cache, may_be_jax_cache
from pytest_jaxleaks.object_kinds import types_among

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Mapping

__all__ = ["CachesOfJax"]


class CachesOfJax:
    """Caches of JAX's, those first that were the reason for a reference lately.

    A cache can have thousands of entries, and there are a hundred caches: to ask few of them keeps
    the cost of a look from growing with what a long run has traced.

    Args:
        caches: the caches.
    """

    def __init__(self, caches: Iterable[Any] = ()) -> None:
        self._caches = list(caches)

    @classmethod
    def among(cls, heap: list[Any]) -> CachesOfJax:
        """Return those of JAX's caches that are among some objects."""
        kinds = {id(kind) for kind in types_among(heap).values() if may_be_jax_cache(kind)}
        candidates = [obj for obj in heap if id(type(obj)) in kinds]
        return cls(filter(is_jax_cache, candidates))

    def __bool__(self) -> bool:
        return bool(self._caches)

    def ids(self) -> frozenset[int]:
        """Return the ids of the caches."""
        return frozenset(map(id, self._caches))

    def references(self, missing: Mapping[int, int], but: Collection[int]) -> Iterator[int]:
        """Yield an id for each reference of a cache to one of some objects.

        Args:
            missing: how many references to an object are looked for, by its id. The caller counts
                down; when there are none left, no further cache is asked.
            but: ids of caches that are not to be asked.
        """
        helpful = []
        for cache in self._caches:
            if not any(left > 0 for left in missing.values()):
                break
            if id(cache) not in but:
                found = list(filter(missing.__contains__, map(id, gc.get_referents(cache))))
                if found:
                    helpful.append(cache)
                    yield from found
        ids = set(map(id, helpful))
        self._caches[:] = helpful + [cache for cache in self._caches if id(cache) not in ids]
