"""The exceptions that pytest-jaxleaks raises, and nothing else."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pytest_jaxleaks.failures import Failure, TransformReport
    from pytest_jaxleaks.leaks import Leak
    from pytest_jaxleaks.pytree_findings import PytreeFinding
    from pytest_jaxleaks.pytree_report import PytreeReport

__all__ = [
    "InvalidArgumentError",
    "JaxLeaksError",
    "PytreeCheckError",
    "TracerLeakError",
    "TransformCheckError",
    "VariantMismatchError",
]


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


class PytreeCheckError(JaxLeaksError, AssertionError):
    """An object breaks the pytree contract.

    Attributes:
        report: the whole report, whose text is the message.
        findings: one per cause, in the order in which the message shows them; ``kind`` tells the
            broken ones from mere limits.
    """

    report: PytreeReport
    findings: tuple[PytreeFinding, ...]

    def __init__(self, report: PytreeReport) -> None:
        super().__init__(str(report))
        self.report = report
        self.findings = report.findings

    def __reduce__(self) -> tuple[type[PytreeCheckError], tuple[PytreeReport]]:
        """Pickle with the report rather than with the message, for xdist workers."""
        return type(self), (self.report,)


class TransformCheckError(JaxLeaksError, AssertionError):
    """A function is not the same function under some order of jit, vmap and grad.

    Attributes:
        report: what was run, what did not apply and every failure.
        script: a program that reproduces the smallest failing order.
    """

    report: TransformReport
    script: str

    def __init__(self, message: str, report: TransformReport, script: str = "") -> None:
        super().__init__(message)
        self.report = report
        self.script = script

    @property
    def failures(self) -> tuple[Failure, ...]:
        """Every failure, the smallest failing order first."""
        return self.report.failures

    @property
    def order(self) -> str:
        """The smallest order that fails."""
        return self.failures[0].order

    @property
    def kind(self) -> str:
        """What is wrong with the smallest failing order; see :class:`Failure`."""
        return self.failures[0].kind
