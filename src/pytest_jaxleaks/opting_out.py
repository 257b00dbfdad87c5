"""Values whose leak is wanted: what comes up in a block of ``jax.check_tracer_leaks(False)``.

That is how JAX itself is told that a block leaks on purpose, and suites that are run under JAX's
own checker say so already. Such leaks are reported as accepted ones.
"""

from __future__ import annotations

import threading
import weakref
from typing import TYPE_CHECKING, Any

from pytest_jaxleaks.guarding import guarded
from pytest_jaxleaks.jax_internals import hear_of_leak_checking

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

__all__ = ["OptedOut"]


class OptedOut:
    """Knows the tracers that came up in such blocks, in whatever thread.

    Args:
        living: returns the tracers that are alive.
    """

    def __init__(self, living: Callable[[], Iterable[Any]]) -> None:
        self._living = living
        self._known: dict[int, weakref.ref[Any]] = {}
        self._block = threading.local()
        self._stop_hearing: Callable[[], None] | None = None

    def start(self) -> None:
        """Listen to JAX's setting."""
        self._stop_hearing = hear_of_leak_checking(self._hear)

    def stop(self) -> None:
        """Do not listen any more."""
        if self._stop_hearing is not None:
            self._stop_hearing()

    def __contains__(self, tracer: Any) -> bool:
        known = self._known.get(id(tracer))
        return known is not None and known() is tracer

    def _hear(self, value: bool | None) -> None:
        guarded("learn what is leaked on purpose", lambda: self._change(value), None)

    def _change(self, value: bool | None) -> None:
        before: dict[int, weakref.ref[Any]] | None = getattr(self._block, "before", None)
        if value is False and before is None:
            self._block.before = {id(each): weakref.ref(each) for each in self._living()}
        elif value is not False and before is not None:
            self._block.before = None
            for tracer in self._living():
                old = before.get(id(tracer))
                if old is None or old() is not tracer:
                    self._known[id(tracer)] = weakref.ref(tracer)
