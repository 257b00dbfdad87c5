"""The exceptions that pytest-jaxleaks raises, and nothing else."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pytest_jaxleaks.leaks import Leak

__all__ = ["InvalidArgumentError", "JaxLeaksError", "TracerLeakError", "VariantMismatchError"]


class JaxLeaksError(Exception):
    """Base class of everything that pytest-jaxleaks raises on purpose."""


class InvalidArgumentError(JaxLeaksError, ValueError):
    """An argument of a public function cannot be used.

    The message names the argument, says what it was and what was expected.
    """


class TracerLeakError(JaxLeaksError):
    """A tracer outlived its transformation and user code can still reach it.

    Attributes:
        leaks: one record per leak, in the order in which the message shows them.
    """

    leaks: tuple[Leak, ...]

    def __init__(self, message: str, leaks: Sequence[Leak] = ()) -> None:
        super().__init__(message)
        self.leaks = tuple(leaks)


class VariantMismatchError(JaxLeaksError, AssertionError):
    """Two variants of a test recorded different values with ``jax_record``."""
