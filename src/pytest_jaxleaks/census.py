"""Which tracers are still alive, looked up cheaply enough to do it after every test.

Objects that survive a look are frozen (``gc.freeze``), so that the next look sees only what came
since, and so that collecting costs next to nothing. When the heap has grown enough, everything is
thawed and collected, as CPython does of its own accord: no garbage stays for ever. Where the
program itself asks the collector in between, it is answered as if nothing were frozen.
"""

from __future__ import annotations

import itertools
import threading
import time
import weakref
from typing import TYPE_CHECKING, Any

from pytest_jaxleaks import collector as gc
from pytest_jaxleaks.caches_of_jax import CachesOfJax
from pytest_jaxleaks.jax_internals import jax_is_imported, tracer_types

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["Census"]

# With so few young objects a look takes some ten microseconds; one test has several looks.
_YOUNG_ENOUGH = 200
# A full collection is due when the heap has doubled (and has grown by this much at least), or grown
# by half where that takes no more than this share of the time. CPython's own rule says a quarter;
# tests leave less garbage behind, since each look collects what is young.
_FULL_AT_LEAST = 100_000
_SHARE_OF_TIME = 0.02


class _Witness:
    """An object that is young unless somebody else freezes the heap."""


class Census:
    """Looks at the objects that came into being since the last look.

    Example:
        >>> census = Census()
        >>> census.start()
        >>> census.look() is None  # no tracer is alive
        True
        >>> census.stop()
    """

    def __init__(self) -> None:
        self._jax_caches = CachesOfJax()
        self._running = False
        self._frozen_before = False
        self._young = 0
        self._collected = False
        self._since_full = 0
        self._size_at_full = 0
        self._full_at = self._full_took = 0.0
        self._witness: _Witness | None = None
        self._asked = gc.Asked(self._thaw)
        # Young tracers that were frozen between two looks.
        self._aside: list[weakref.ref[Any]] = []

    def start(self) -> None:
        """Count what exists now as old."""
        self._running = True
        self._frozen_before = gc.get_freeze_count() > 0
        self._size_at_full = len(gc.get_objects())
        self._freeze()
        self._asked.start()

    def stop(self) -> None:
        """Leave the collector as it was found."""
        if self._running:
            self._running = False
            self._asked.stop()
            self._aside.clear()
            self._jax_caches = CachesOfJax()
            if not self._frozen_before:
                gc.unfreeze()

    def look(self) -> list[Any] | None:
        """Return the young objects if a tracer is among them, else None.

        Cyclic garbage is collected before a tracer counts as alive.
        """
        if not jax_is_imported():
            return None
        self._collected = False
        young = self._young_objects()
        if young is None and not self._set_aside():
            return None
        del young
        gc.collect()
        self._collected = True
        young = self._young_objects()
        aside = self._set_aside()
        if aside:
            young = gc.get_objects() if young is None else young
            ids = set(map(id, young))
            young += (tracer for tracer in aside if id(tracer) not in ids)
        return young

    def living(self) -> list[Any]:
        """Return the tracers that are young, garbage included."""
        found = _tracers_among(gc.get_objects())
        aside = self._set_aside()
        if aside:
            ids = set(map(id, found))
            found += (tracer for tracer in aside if id(tracer) not in ids)
        return found

    def _set_aside(self) -> list[Any]:
        return [tracer for reference in self._aside if (tracer := reference()) is not None]

    def _thaw(self) -> Callable[[], None]:
        """Let the program ask the collector; return what makes the next look cheap again."""
        self._aside = [weakref.ref(tracer) for tracer in self.living()]
        gc.unfreeze()
        return self._freeze_again

    def _freeze_again(self) -> None:
        if threading.active_count() > 1:  # another one may have gone on tracing in the meantime
            for generation in (0, 1):
                newest = _tracers_among(gc.get_objects(generation=generation))
                self._aside += map(weakref.ref, newest)
            # References to one object are one object.
            self._aside = list({id(reference): reference for reference in self._aside}.values())
        self._freeze()

    def settle(self, *, now: bool = False) -> None:
        """Count what is alive as old, if there is much of it or if it is asked for."""
        if now or self._young > _YOUNG_ENOUGH:
            self._since_full += self._young
            if self._full_collection_is_due():
                self._collect_fully()
            elif not self._collected:
                gc.collect()
            self._freeze()
            self._aside.clear()

    def known_jax_caches(self) -> CachesOfJax:
        """Return JAX's caches, looked up once among all objects, frozen ones included."""
        if not self._jax_caches:
            gc.unfreeze()
            self._jax_caches = CachesOfJax.among(gc.get_objects())
        return self._jax_caches

    def _young_objects(self) -> list[Any] | None:
        young = gc.get_objects()
        types = set(map(id, map(type, young)))
        if self._witness is not None and id(_Witness) not in types:
            # Somebody froze the heap since: nothing is known to be old any more.
            gc.unfreeze()
            young = gc.get_objects()
            types = set(map(id, map(type, young)))
        self._young = len(young)
        return None if types.isdisjoint(tracer_types()) else young

    def _full_collection_is_due(self) -> bool:
        spent = time.perf_counter() - self._full_at
        is_cheap = 0 < self._full_took < _SHARE_OF_TIME * spent
        limit = self._size_at_full // 2 if is_cheap else self._size_at_full
        return self._since_full > max(_FULL_AT_LEAST, limit)

    def _collect_fully(self) -> None:
        started = time.perf_counter()
        gc.unfreeze()
        gc.collect()
        self._full_at = time.perf_counter()
        self._full_took = self._full_at - started
        self._size_at_full = len(gc.get_objects())
        self._since_full = 0

    def _freeze(self) -> None:
        gc.freeze()
        self._witness = _Witness()


def _tracers_among(objects: list[Any]) -> list[Any]:
    if not jax_is_imported():
        return []
    are_tracers = map(tracer_types().__contains__, map(id, map(type, objects)))
    return list(itertools.compress(objects, are_tracers))
