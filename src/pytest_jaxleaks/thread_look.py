"""What other threads hold: a trace that still runs there, a value that a worker keeps for a while.

A look at the end of a test cannot see a local variable of a thread that the test joins on its way
out. So another look is taken whenever JAX has compiled something (which it does when tracing is
over): at the local variables of the functions of other threads, and only if there are any.
"""

from __future__ import annotations

import contextlib
import sys
import threading
import weakref
from typing import TYPE_CHECKING, Any

from pytest_jaxleaks import unseen
from pytest_jaxleaks.frames import frame_locals
from pytest_jaxleaks.glance import ways_to_tracers
from pytest_jaxleaks.holders import Holding
from pytest_jaxleaks.jax_internals import is_internal_file, is_jax_module, trace_of, tracer_types
from pytest_jaxleaks.leaks import leaks_from

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pytest_jaxleaks.leaks import CodeUnderTest, Leak
    from pytest_jaxleaks.watching import Watch

__all__ = ["ThreadLook", "running_traces"]

# Sent by the thread that called the compiled function, after the function was traced.
_COMPILED = "/jax/core/compile/backend_compile_duration"


def running_traces() -> dict[int, Any]:
    """Return what may be a trace that still runs, in whatever thread, by ``id``.

    A trace runs as long as a function of JAX refers to it in a local variable, itself or by one
    of its tracers. Everything in such a variable is returned: no id is used again meanwhile.
    """
    tracers = tracer_types()
    running: dict[int, Any] = {}
    for top in (sys._getframe(1), *unseen.top_frames().values()):
        frame: Any = top
        while frame is not None:
            if is_jax_module(frame.f_globals.get("__name__")):
                for value in frame_locals(frame).values():
                    trace = trace_of(value) if id(type(value)) in tracers else value
                    running[id(trace)] = trace
            frame = frame.f_back
    return running


class ThreadLook:
    """Remembers what other threads held in local variables when tracing was over."""

    def __init__(self) -> None:
        self._home = threading.get_ident()
        self._code: CodeUnderTest | None = None
        self._found: list[tuple[weakref.ref[Any], Leak]] = []
        self._fault: Exception | None = None

    def start(self) -> None:
        """Listen to what JAX compiles."""
        sys.modules["jax"].monitoring.register_event_duration_secs_listener(self._hear)

    def stop(self) -> None:
        """Do not listen any more."""
        # A suite may have cleared all listeners, which JAX takes for a programming error.
        with contextlib.suppress(Exception):
            sys.modules["jax"].monitoring.unregister_event_duration_listener(self._hear)

    @contextlib.contextmanager
    def during(self, code: CodeUnderTest) -> Iterator[None]:
        """Look while a block runs.

        Args:
            code: what belongs to the project.
        """
        self._code = code
        try:
            yield
        finally:
            self._code = None

    def _hear(self, event: str, _duration: float, **_: object) -> None:
        if self._code is not None and event == _COMPILED and threading.active_count() > 1:
            try:
                self._glance(self._code)
            except Exception as fault:  # must not reach the function that is being compiled
                self._fault = fault

    def _glance(self, code: CodeUnderTest) -> None:
        known = [reference() for reference, _ in self._found]
        running = running_traces()
        held = [
            holding
            for holding in self._held_by_others()
            if not any(holding.tracer is tracer for tracer in known)
        ]
        if held:
            running |= running_traces()
        for holding in held:
            if id(trace_of(holding.tracer)) not in running:
                leak = leaks_from([holding], code)[0]
                self._found.append((weakref.ref(holding.tracer), leak))

    def _held_by_others(self) -> Iterator[Holding]:
        home = unseen.top_frames().get(self._home)
        for name, stack in unseen.other_threads():
            # The test's own locals are looked at when it ends: it may still tidy them up.
            for frame in stack if stack[0] is not home else ():
                if not is_internal_file(frame.f_code.co_filename):
                    for value, root in unseen.local_values(frame, f" (thread '{name}')"):
                        for way in ways_to_tracers([value]):
                            yield Holding(way[-1], way, root)

    def leaks(self, watch: Watch) -> list[Leak]:
        """Return what was found and ``watch`` has not reported, and count it as reported.

        Raises:
            Exception: a look went wrong.
        """
        found, self._found = self._found, []
        fault, self._fault = self._fault, None
        if fault is not None:
            raise fault
        fresh = []
        for reference, leak in found:
            tracer = reference()
            if tracer is None or not watch.knows(tracer):
                fresh.append(leak)
            if tracer is not None:
                watch.know(tracer)
        return fresh
