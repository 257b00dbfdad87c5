"""A fault of our own machinery is a warning, never a failed test."""

from __future__ import annotations

import traceback
import warnings
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["JaxLeaksWarning", "guarded", "warn_of_own_fault"]

T = TypeVar("T")


class JaxLeaksWarning(UserWarning):
    """Something inside of pytest-jaxleaks went wrong; the test's outcome is not touched."""


def warn_of_own_fault(failed: str) -> None:
    """Warn with the traceback of the exception that is being handled.

    Not even ``-W error`` makes a failed test of it.

    Args:
        failed: what could not be done, as the end of "pytest-jaxleaks could not ...".
    """
    with warnings.catch_warnings():
        warnings.simplefilter("always", JaxLeaksWarning)
        warnings.warn(
            f"pytest-jaxleaks could not {failed} because of an error of its own. No outcome "
            f"depends on it. Please report it.\n{traceback.format_exc()}",
            JaxLeaksWarning,
            stacklevel=3,
        )


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
        warn_of_own_fault(f"do this: {what},")
        return otherwise
