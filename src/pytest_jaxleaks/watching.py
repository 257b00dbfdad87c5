"""Watch a stretch of code for tracers that outlive it: the engine's parts put together."""

from __future__ import annotations

import threading
import weakref
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from pytest_jaxleaks import collector as gc
from pytest_jaxleaks.census import Census
from pytest_jaxleaks.holders import find_holders
from pytest_jaxleaks.jax_internals import trace_of, tracer_types
from pytest_jaxleaks.leaks import (
    CodeUnderTest,
    Leak,
    is_jaxpr_of_a_library,
    leaks_from,
)
from pytest_jaxleaks.opting_out import OptedOut
from pytest_jaxleaks.thread_look import running_traces

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from pytest_jaxleaks.roots import Surroundings

__all__ = ["Sighting", "Watch", "innermost"]

# A test's fixtures are torn down one by one, with a look after each.
_LOOKS_FOR_KEPT = 16
_MOST_KEPT = 100


@dataclass(frozen=True)
class Sighting:
    """What one look found.

    Attributes:
        leaks: values that user code can still reach.
        wanted: such values that came up in a block of ``jax.check_tracer_leaks(False)``.
        kept_by_machinery: how many values only the test machinery keeps (log capture).
        held_by_jax: how many values are alive where user code reaches none at all: JAX's trace
            caches hold them.
    """

    leaks: tuple[Leak, ...] = ()
    wanted: tuple[Leak, ...] = ()
    kept_by_machinery: int = 0
    held_by_jax: int = 0


class Watch:
    """Looks for leaks again and again, and reports each leaked value once.

    Args:
        outer: the watch that runs already and whose census is shared; by default there is none.
        repeats: this nested watch looks many times, so that it is worth while to count as old what
            it has seen; a watch without an outer one always does.
    """

    def __init__(self, outer: Watch | None = None, *, repeats: bool = False) -> None:
        self._outer = outer
        self._repeats = repeats
        self._has_frozen = False
        self._census: Census = Census() if outer is None else outer._census
        self._opted_out: OptedOut = (
            OptedOut(self._census.living) if outer is None else outer._opted_out
        )
        self._known_traces: weakref.WeakSet[Any] = weakref.WeakSet()
        self._stays_young = False
        # What only the test machinery held at earlier looks, and how often it is to be looked for.
        self._kept: list[tuple[weakref.ref[Any], int]] = []

    def start(self) -> None:
        """Count what exists now as old."""
        if self._outer is None:
            self._census.start()
            self._opted_out.start()
            _running.append(self)

    def stop(self) -> None:
        """Leave the garbage collector as it was found."""
        if self._outer is None:
            _running.remove(self)
            self._opted_out.stop()
            self._census.stop()
        elif self._has_frozen:
            gc.unfreeze()  # what is young to the outer watch must be young again

    def know_running(self) -> None:
        """Do not report what belongs to a trace of which a tracer is alive now."""
        self._known_traces.update(filter(None, map(trace_of, self._census.living())))

    def look(self, surroundings: Callable[[], Surroundings], code: CodeUnderTest) -> Sighting:
        """Report the leaks that came up since the last look.

        Args:
            surroundings: returns what the caller knows about the program; asked for only when a
                tracer is alive.
            code: what belongs to the project.
        """
        with gc.busy():
            return self._look(surroundings, code)

    def _look(self, surroundings: Callable[[], Surroundings], code: CodeUnderTest) -> Sighting:
        self._stays_young = False
        young = self._census.look()
        kept = self._kept_alive()
        if young is None and kept:
            young = []
        found = None
        if young is not None:
            ids = set(map(id, young))
            young += (obj for obj in kept if id(obj) not in ids)
            kept.clear()  # references are counted
            found = self._search(young, surroundings(), code)
            self._leave_old_ones_to_the_past(young)
            young.clear()  # should it outlive this function, it must not hold the test's objects
        self._settle(searched=found is not None)
        return found or Sighting()

    def _settle(self, *, searched: bool) -> None:
        """Count what was looked at as old, so that the next look is cheap."""
        if self._stays_young:
            return  # what a trace has made that still runs may be a leak at the next look
        if self._outer is None:
            self._census.settle(now=searched)
        elif self._repeats and searched:
            self._census.settle(now=True)
            self._has_frozen = True

    def look_back(self, surroundings: Callable[[], Surroundings], code: CodeUnderTest) -> Sighting:
        """Report the leaks that exist already; for use before the watch starts.

        Args:
            surroundings: returns what the caller knows about the program; asked for only when a
                tracer is alive.
            code: what belongs to the project.
        """
        if not self._census.living():
            return Sighting()
        gc.collect()
        # Of the whole heap only the tracers are mapped: the rest is asked for, step by step.
        tracers = [tracer for tracer in self._census.living() if not self.knows(tracer)]
        with gc.busy():
            return self._search(tracers, surroundings(), code) if tracers else Sighting()

    def _search(self, young: list[Any], around: Surroundings, code: CodeUnderTest) -> Sighting:
        caches = self._census.known_jax_caches()
        around = replace(around, jax_caches=caches)
        # A trace that ends while its tracers are looked for was running at the beginning: the
        # names of what is found would be those of things that are gone.
        running = _running_elsewhere()
        search = find_holders(young, around, settled=_tracers_of(running, young))
        running |= _running_elsewhere()
        self._stays_young = bool(_tracers_of(running, young))
        kept = self._remember_kept(search.kept_by_machinery)
        holdings = [each for each in search.holdings if not is_jaxpr_of_a_library(each, code)]
        fresh = [
            holding
            for holding in holdings
            if not self.knows(holding.tracer) and id(trace_of(holding.tracer)) not in running
        ]
        for holding in fresh:
            self.know(holding.tracer)
        wanted = [holding for holding in fresh if holding.tracer in self._opted_out]
        others = [holding for holding in fresh if holding.tracer not in self._opted_out]
        return Sighting(
            tuple(leaks_from(others, code)),
            tuple(leaks_from(wanted, code)),
            kept,
            0 if holdings else len(search.holdings) + len(search.others),
        )

    def _kept_alive(self) -> list[Any]:
        """Return what only the test machinery held: ``monkeypatch`` may put it back at the end."""
        self._kept = [(each, left - 1) for each, left in self._kept if left and each() is not None]
        return [tracer for each, _ in self._kept if (tracer := each()) is not None]

    def _remember_kept(self, tracers: Iterable[Any]) -> int:
        """Return how many of the values that the test machinery holds are new."""
        ids = {id(each()) for each, _ in self._kept}
        new = [tracer for tracer in tracers if id(tracer) not in ids]
        self._kept += [(weakref.ref(tracer), _LOOKS_FOR_KEPT) for tracer in new[:_MOST_KEPT]]
        return len(new)

    def _leave_old_ones_to_the_past(self, young: list[Any]) -> None:
        """Let the outer watch know the tracers that were old until the search thawed the heap."""
        if self._outer is not None and not self._has_frozen:
            if self._repeats:
                gc.unfreeze()  # at the latest the end of this watch does
            ids = set(map(id, young))
            for tracer in self._census.living():
                if id(tracer) not in ids:
                    self._outer.know(tracer)

    def know(self, tracer: Any) -> None:
        """Do not report ``tracer`` from now on."""
        _reported[id(tracer)] = tracer

    def knows(self, tracer: Any) -> bool:
        """Tell whether ``tracer`` is not to be reported (any more)."""
        return _reported.get(id(tracer)) is tracer or trace_of(tracer) in self._known_traces


def _running_elsewhere() -> dict[int, Any]:
    """Return the traces that other threads are busy with, by ``id``."""
    return {} if threading.active_count() == 1 else running_traces()


def _tracers_of(running: dict[int, Any], young: list[Any]) -> set[int]:
    """Return the ids of the tracers among the young objects whose trace still runs."""
    if not running:
        return set()
    kinds = tracer_types()
    tracers = (obj for obj in young if id(type(obj)) in kinds)
    return {id(tracer) for tracer in tracers if id(trace_of(tracer)) in running}


# The collector's state belongs to the process, and so does the knowledge of who froze the heap: a
# block inside of a watched test must not count the test's own objects as old.
_running: list[Watch] = []
# So do the leaked values: each is reported once, whichever run in this process comes upon it.
_reported: weakref.WeakValueDictionary[int, Any] = weakref.WeakValueDictionary()


def innermost() -> Watch | None:
    """Return the watch that was started last and still runs, if there is one."""
    return _running[-1] if _running else None
