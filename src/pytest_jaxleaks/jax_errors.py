"""Which error of JAX's is behind a failure: the failure itself, or one that it was raised over."""

from __future__ import annotations

import sys
import traceback
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["Behind", "error_of_checker", "is_of_checker", "is_of_shape", "jax_error", "message_of"]

_MOST_ERRORS = 20
# TracerBoolConversionError is a ConcretizationTypeError.
_EXPLAINED = (
    "UnexpectedTracerError",
    "ConcretizationTypeError",
    "TracerArrayConversionError",
    "TracerIntegerConversionError",
    "NonConcreteBooleanIndexError",
)
# What JAX says of a traced size, in a TypeError without a class of its own.
_TRACED_SHAPE = "Shapes must be 1D sequences of concrete values"
# How far an error is from the failure that a user sees, and how that is told.
_ITSELF, _CAUSE, _CONTEXT, _HIDDEN = range(4)
_TOLD = {
    _CAUSE: "raised from",
    _CONTEXT: "raised while handling",
    _HIDDEN: "raised over, and hides,",
}


class Behind(NamedTuple):
    """An error, and how a failure came from it.

    Attributes:
        error: the error.
        relation: such as ``raised from``; empty for the failure itself and for a part of it.
    """

    error: BaseException
    relation: str


def jax_error(failure: BaseException | None) -> Behind | None:
    """Return the nearest error of JAX's that is worth explaining.

    What ``raise ... from None`` hides counts, after everything else: the failure is the same
    whether a traceback shows where it came from or not.
    """
    errors = sys.modules.get("jax.errors")
    if errors is None:
        return None
    kinds = tuple(kind for name in _EXPLAINED if isinstance(kind := getattr(errors, name, 0), type))
    for each in _behind(failure):
        if isinstance(each.error, kinds) or is_of_shape(each.error) or is_of_checker(each.error):
            return each
    return None


def error_of_checker(failure: BaseException | None) -> BaseException | None:
    """Return the nearest error of JAX's leak checker."""
    return next((each.error for each in _behind(failure) if is_of_checker(each.error)), None)


def _behind(failure: BaseException | None) -> Iterator[Behind]:
    """Yield a failure, its parts and what it was raised over, nearest first, hidden ones last."""
    waiting = [] if failure is None else [(_ITSELF, failure)]
    seen: set[int] = set()
    while waiting and len(seen) < _MOST_ERRORS:
        waiting.sort(key=lambda each: each[0] == _HIDDEN)
        distance, error = waiting.pop(0)
        if id(error) not in seen:
            seen.add(id(error))
            yield Behind(error, _TOLD.get(distance, ""))
            waiting += [(max(distance, step), inner) for step, inner in _next(error)]


def _next(error: BaseException) -> Iterator[tuple[int, BaseException]]:
    context = _HIDDEN if error.__suppress_context__ else _CONTEXT
    for step, inner in ((_CAUSE, error.__cause__), (context, error.__context__)):
        if inner is not None:
            yield step, inner
    for part in (*getattr(error, "exceptions", ()), *_of_doctest(error)):
        if isinstance(part, BaseException):
            yield _ITSELF, part


def _of_doctest(error: BaseException) -> list[BaseException]:
    """Return what a doctest's error has in its own way, and pytest's error of several of them."""
    failures = getattr(error, "failures", None)
    if type(error).__module__.startswith("_pytest") and isinstance(failures, list):
        return failures
    raised = getattr(error, "exc_info", None) if type(error).__module__ == "doctest" else None
    return [raised[1]] if isinstance(raised, tuple) else []


def is_of_shape(error: BaseException) -> bool:
    """Tell whether JAX was given a traced value as a size."""
    return type(error) is TypeError and message_of(error).startswith(_TRACED_SHAPE)


def is_of_checker(error: BaseException) -> bool:
    """Tell whether JAX's leak checker raised: its report, or its own failure to describe a leak.

    The latter is an IndexError that leaves ``contextlib``'s frame of a context manager of JAX's
    (seen with jax 0.10.2).
    """
    if type(error) is Exception:
        return message_of(error).startswith("Leaked ")
    if type(error) is not IndexError or error.__traceback__ is None:
        return False
    frames = list(traceback.walk_tb(error.__traceback__))
    notes = "".join(map(str, getattr(error, "__notes__", ())))
    last = frames[-1][0].f_code
    return last.co_name == "__exit__" and "contextlib" in last.co_filename and "JAX" in notes


def message_of(error: BaseException) -> str:
    """Return the message, which is a text with JAX's errors; no user's ``__str__`` is run."""
    return error.args[0] if error.args and isinstance(error.args[0], str) else ""
