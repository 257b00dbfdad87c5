"""A fault of our own machinery is a warning, never a failed test."""

from __future__ import annotations

import traceback
import warnings
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["guarded"]

T = TypeVar("T")


def guarded(what: str, work: Callable[[], T], otherwise: T) -> T:
    """Do some work of the checker's own.

    Args:
        what: the work, for the warning.
        work: does it. The user's exceptions are its own business: it catches those it expects.
        otherwise: what to return if it raises.
    """
    try:
        return work()
    except Exception:
        with warnings.catch_warnings():
            warnings.simplefilter("always")
            warnings.warn(
                f"pytest-jaxleaks: {what} failed, which is a fault of pytest-jaxleaks and not of "
                f"the function under test\n{traceback.format_exc()}",
                RuntimeWarning,
                stacklevel=2,
            )
        return otherwise
