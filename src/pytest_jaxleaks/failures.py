"""What a check of transformations found: one record per failing order, and the whole report."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

__all__ = ["PLAIN", "Failure", "TransformReport"]

PLAIN = "plain call"
"""Stands in for the name of an order where the function itself, untransformed, is at fault."""


@dataclass(frozen=True)
class Failure:
    """One way in which one order of transformations fails.

    Attributes:
        order: the order, such as ``jit(vmap(grad))``, or ``plain call`` for the function itself.
        kind: ``value``, ``shape``, ``dtype``, ``weak type``, ``treedef``, ``leak``, ``retrace``,
            ``impure``, ``nondeterministic``, ``stale global``, ``exception``, ``gradient``,
            ``zero gradient``, ``nan gradient``, ``nonlinear jvp``, ``nonlinear vjp``,
            ``rule value``.
        message: the diagnosis in one line.
        detail: facts, a line each.
        path: key path of the leaf, or the name of the object that changed.
        index: index of the worst element in its leaf.
        expected: the reference's value there.
        actual: the order's value there.
        tolerance: the tolerance that was used and where it comes from.
        hint: what usually mends it.
        exception: what JAX raised, or the leak error.
    """

    order: str
    kind: str
    message: str
    detail: tuple[str, ...] = ()
    path: str = ""
    index: tuple[int, ...] | None = None
    expected: Any = None
    actual: Any = None
    tolerance: str = ""
    hint: str = ""
    exception: BaseException | None = field(default=None, compare=False)

    @property
    def signature(self) -> tuple[str, str, str]:
        """Failures with the same signature fail "the same way"."""
        return self.kind, self.path, type(self.exception).__name__ if self.exception else ""


@dataclass(frozen=True)
class TransformReport:
    """What :func:`pytest_jaxleaks.check_transforms` looked at.

    Attributes:
        orders: the orders that were run.
        not_applicable: order to the reason why it says nothing about this function.
        notes: what a reader should know about how the check was made.
        failures: every failure; empty in a report that was returned and not raised.
    """

    orders: tuple[str, ...]
    not_applicable: dict[str, str]
    notes: tuple[str, ...] = ()
    failures: tuple[Failure, ...] = ()
