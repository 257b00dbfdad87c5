"""Patterns of holders, as they stand in ``ignore=`` and in ini files."""

from __future__ import annotations

from pytest_jaxleaks.errors import InvalidArgumentError

__all__ = ["check_patterns"]


def check_patterns(argument: str, patterns: object) -> tuple[str, ...]:
    """Return holder patterns as a tuple.

    Args:
        argument: what the patterns are called, for the message.
        patterns: what was given.

    Raises:
        InvalidArgumentError: they are no sequence of strings.
    """
    if not isinstance(patterns, (list, tuple, set, frozenset)):
        raise InvalidArgumentError(
            f"{argument} must be a list of holder patterns (strings), but was {patterns!r}"
        )
    for pattern in patterns:
        if not isinstance(pattern, str) or not pattern:
            raise InvalidArgumentError(
                f"{argument} must hold strings that are not empty, but holds {pattern!r}"
            )
    return tuple(patterns)
