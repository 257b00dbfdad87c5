"""Give up on a Python computation that takes too long.

With JIT disabled a loop of a thousand steps is a thousand steps of Python; nobody wants to wait for
the reference then. A profile function raises at the next call once the time is over, which works in
any thread and needs no signals.
"""

from __future__ import annotations

import contextlib
import sys
import time
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["DeadlineError", "deadline"]


class DeadlineError(BaseException):
    """The time is over. A ``BaseException``, so that ``except Exception`` does not swallow it."""


@contextlib.contextmanager
def deadline(seconds: float) -> Iterator[None]:
    """Raise :class:`DeadlineError` in the block once it has used ``seconds`` of processor time.

    Where a profiler is at work already it is left alone, and there is no deadline.
    """
    if sys.getprofile() is not None:
        yield
        return
    end = time.process_time() + seconds

    def watch(_frame: Any, event: str, _arg: Any) -> None:
        if event == "call" and time.process_time() > end:
            sys.setprofile(None)
            raise DeadlineError

    sys.setprofile(watch)
    try:
        yield
    finally:
        sys.setprofile(None)
