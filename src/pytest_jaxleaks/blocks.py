"""The leak check of a block of code, with pytest or without it."""

from __future__ import annotations

import contextlib
import inspect
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from pytest_jaxleaks.errors import TracerLeakError
from pytest_jaxleaks.jax_internals import is_internal_file
from pytest_jaxleaks.leak_text import describe_leaks
from pytest_jaxleaks.leaks import CodeUnderTest, not_ignored
from pytest_jaxleaks.patterns import check_patterns
from pytest_jaxleaks.roots import Surroundings
from pytest_jaxleaks.watching import Watch, innermost

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from types import FrameType

__all__ = ["RepeatedLooks", "no_tracer_leaks"]


class no_tracer_leaks(contextlib.ContextDecorator):  # noqa: N801 (used as a statement)
    """Check that no tracer that came up in a block is reachable at its end.

    Works with or without pytest, as a context manager or as a decorator.

    Args:
        ignore: patterns of holders whose leaks are accepted (``*`` and ``?`` as in file names).

    Raises:
        TracerLeakError: at the end of the block; its ``leaks`` say who holds what. An exception
            that leaves the block is not replaced.
        InvalidArgumentError: ``ignore`` is no sequence of strings.

    Example:
        >>> import jax
        >>> with no_tracer_leaks():
        ...     y = jax.jit(lambda x: x + 1)(1.0)
    """

    def __init__(self, *, ignore: Sequence[str] = ()) -> None:
        self._ignore = check_patterns("ignore", ignore)
        self._watches: list[Watch] = []

    def __enter__(self) -> no_tracer_leaks:
        watch = Watch(innermost())
        watch.know_running()
        watch.start()
        self._watches.append(watch)
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        watch = self._watches.pop()
        try:
            if kind is None:
                _raise_for_leaks(watch, sys._getframe(1), self._ignore)
        finally:
            watch.stop()


class RepeatedLooks:
    """Many looks in one block, each at what has happened since :meth:`begin`.

    As good as one ``no_tracer_leaks`` block after the other, and cheaper: what one look has seen
    is old at the next one.
    """

    def __init__(self) -> None:
        self._watch = Watch(innermost(), repeats=True)

    def __enter__(self) -> RepeatedLooks:
        self._watch.know_running()
        self._watch.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._watch.stop()

    def begin(self) -> None:
        """Do not report what is alive now."""
        self._watch.know_running()

    def end(self) -> None:
        """Look.

        Raises:
            TracerLeakError: a tracer that came up since :meth:`begin` is reachable.
        """
        _raise_for_leaks(self._watch, sys._getframe(1), ())


def _raise_for_leaks(watch: Watch, caller: FrameType, ignore: Sequence[str]) -> None:
    frames = tuple(_user_frames(caller))
    package = frames[0].f_globals.get("__name__", "") if frames else ""
    code = CodeUnderTest(Path.cwd(), package.partition(".")[0])
    sighting = watch.look(lambda: Surroundings(running=frames), code)
    leaks = not_ignored(sighting.leaks, ignore)
    if leaks:
        raise TracerLeakError(describe_leaks(leaks, "the block"), leaks)


def _user_frames(frame: FrameType | None) -> Iterator[FrameType]:
    """Yield the frames of functions of user code on the stack, innermost first."""
    while frame is not None:
        is_function = frame.f_code.co_flags & inspect.CO_OPTIMIZED
        if is_function and not is_internal_file(frame.f_code.co_filename):
            yield frame
        frame = frame.f_back
