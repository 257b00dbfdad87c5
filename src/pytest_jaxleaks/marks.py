"""The markers of the leak check: one pure function per marker, from its arguments to a record."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pytest_jaxleaks.errors import InvalidArgumentError
from pytest_jaxleaks.patterns import check_patterns

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    import pytest

__all__ = ["DESCRIPTIONS", "NAMES", "AllowTracerLeak", "NoTracerLeak", "leak_mark"]

DESCRIPTIONS = (
    "no_tracer_leak(ignore=()): check this test for tracer leaks, with or without --jax-leaks; "
    "leaks of a holder that one of the patterns names are accepted.",
    "allow_tracer_leak(reason, strict=False): report tracer leaks of this test without failing; "
    "with strict=True a run without a leak fails.",
)


@dataclass(frozen=True)
class NoTracerLeak:
    """``@pytest.mark.no_tracer_leak``: the test is checked in any case."""

    ignore: tuple[str, ...] = ()


@dataclass(frozen=True)
class AllowTracerLeak:
    """``@pytest.mark.allow_tracer_leak``: leaks do not fail the test."""

    reason: str
    strict: bool = False


def no_tracer_leak(*, ignore: Any = ()) -> NoTracerLeak:
    """Return what ``@pytest.mark.no_tracer_leak(ignore=...)`` says.

    Raises:
        InvalidArgumentError: ``ignore`` is no sequence of strings.
    """
    return NoTracerLeak(check_patterns("ignore", ignore))


def allow_tracer_leak(reason: Any, strict: Any = False) -> AllowTracerLeak:
    """Return what ``@pytest.mark.allow_tracer_leak(reason=..., strict=...)`` says.

    Raises:
        TypeError: the reason is no text, or ``strict`` no bool.
    """
    if not isinstance(reason, str) or not reason.strip():
        raise TypeError(f"reason must be a text that says why, but was {reason!r}")
    if not isinstance(strict, bool):
        raise TypeError(f"strict must be True or False, but was {strict!r}")
    return AllowTracerLeak(reason, strict)


_READERS: dict[str, Callable[..., NoTracerLeak | AllowTracerLeak]] = {
    "no_tracer_leak": no_tracer_leak,
    "allow_tracer_leak": allow_tracer_leak,
}
NAMES = tuple(_READERS)


def leak_mark(marks: Iterable[pytest.Mark]) -> NoTracerLeak | AllowTracerLeak | None:
    """Return the closest marker of the leak check.

    Args:
        marks: the markers of a test, the closest first.

    Raises:
        InvalidArgumentError: the marker's arguments are not what it takes; the message names it.
    """
    for mark in marks:
        read = _READERS.get(mark.name)
        if read is not None:
            try:
                return read(*mark.args, **mark.kwargs)
            except (TypeError, InvalidArgumentError) as error:
                raise InvalidArgumentError(f"@pytest.mark.{mark.name}: {error}") from None
    return None
