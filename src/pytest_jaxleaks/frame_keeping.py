"""Keep the frame of a function that is about to run, so that its locals outlive its return.

CPython hands the local variables over to a frame object that something still refers to. The frame
is caught when the function starts: with a ``sys.monitoring`` event on that one code object where
Python has it (3.12), else with a profile function that goes away at the first call of interest.

A function that a transformation calls is left alone: its variables are tracers by right, and go
away with it.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

from pytest_jaxleaks.jax_internals import is_tracing

if TYPE_CHECKING:
    from collections.abc import Iterable
    from types import CodeType, FrameType

__all__ = ["FrameKeeper"]


class FrameKeeper:
    """A context manager that keeps the first frame of each of some code objects.

    Attributes:
        frames: the frames that were caught, in the order in which their functions started.

    Example:
        >>> def f():
        ...     model = object()
        >>> with FrameKeeper([f.__code__]) as keeper:
        ...     f()
        >>> list(keeper.frames[0].f_locals)
        ['model']
    """

    def __init__(self, codes: Iterable[CodeType]) -> None:
        self.frames: list[FrameType] = []
        self._waiting = set(codes)
        self._watcher: _Watcher | None = None

    def __enter__(self) -> FrameKeeper:
        if self._waiting:
            self._watcher = _Watcher(self)
            self._watcher.start(self._waiting)
        return self

    def __exit__(self, *_: object) -> None:
        self._stop()

    def catch(self, frame: FrameType) -> None:
        """Keep ``frame`` if it is the first of one of the code objects."""
        if frame.f_code in self._waiting:
            self._waiting.discard(frame.f_code)
            if not is_tracing():
                self.frames.append(frame)
            if not self._waiting:
                self._stop()

    def _stop(self) -> None:
        if self._watcher is not None:
            self._watcher.stop()
            self._watcher = None


if sys.version_info >= (3, 12):
    # Tool ids 0, 1, 2 and 5 are for debuggers, coverage, profilers and optimizers.
    _TOOL_IDS = (4, 3)

    class _Watcher:
        """Hears of the start of each code object; other tools are not disturbed."""

        def __init__(self, keeper: FrameKeeper) -> None:
            self._keeper = keeper
            self._tool: int | None = None
            self._codes: list[CodeType] = []

        def start(self, codes: Iterable[CodeType]) -> None:
            self._tool = next((i for i in _TOOL_IDS if sys.monitoring.get_tool(i) is None), None)
            if self._tool is not None:
                sys.monitoring.use_tool_id(self._tool, "pytest-jaxleaks")
                start = sys.monitoring.events.PY_START
                sys.monitoring.register_callback(self._tool, start, self._started)
                self._codes = list(codes)
                for code in self._codes:
                    sys.monitoring.set_local_events(self._tool, code, start)

        def _started(self, _code: CodeType, _offset: int) -> Any:
            self._keeper.catch(sys._getframe(1))
            return sys.monitoring.DISABLE

        def stop(self) -> None:
            if self._tool is not None:
                for code in self._codes:
                    sys.monitoring.set_local_events(self._tool, code, 0)
                start = sys.monitoring.events.PY_START
                sys.monitoring.register_callback(self._tool, start, None)
                sys.monitoring.free_tool_id(self._tool)
                self._tool = None

else:

    class _Watcher:
        """A profile function that passes everything on to the one that was there before."""

        def __init__(self, keeper: FrameKeeper) -> None:
            self._keeper = keeper
            self._before: Any = None

        def start(self, _codes: Iterable[CodeType]) -> None:
            self._before = sys.getprofile()
            if _is_c_profiler(self._before):
                self._before.disable()
            sys.setprofile(self._profile)

        def _profile(self, frame: FrameType, event: str, arg: Any) -> None:
            before = self._before
            if event == "call":
                self._keeper.catch(frame)
            if before is not None and not _is_c_profiler(before):
                before(frame, event, arg)

        def stop(self) -> None:
            # Another profiler may have been installed in between: that one stays.
            if sys.getprofile() == self._profile:
                sys.setprofile(None if _is_c_profiler(self._before) else self._before)
                if _is_c_profiler(self._before):
                    self._before.enable()


def _is_c_profiler(profiler: Any) -> bool:
    """Tell whether a profiler is cProfile's, which has to be switched by its own methods."""
    return any(base.__module__ == "_lsprof" for base in type(profiler).__mro__)
