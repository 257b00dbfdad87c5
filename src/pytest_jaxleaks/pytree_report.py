"""The text of a pytree report: findings by cause, broken ones before limits, with their mends."""

from __future__ import annotations

import dataclasses
import textwrap
from typing import TYPE_CHECKING

from pytest_jaxleaks.pytree_findings import CONTRACTS

if TYPE_CHECKING:
    from pytest_jaxleaks.pytree_findings import PytreeFinding

__all__ = ["PytreeReport"]

_MOST_SYMPTOMS = 6


@dataclasses.dataclass(frozen=True)
class PytreeReport:
    """What ``check_pytree`` found.

    Attributes:
        name: the type of the object.
        findings: one per cause, broken ones first.
        skipped: what was not checked, and why.
    """

    name: str
    findings: tuple[PytreeFinding, ...]
    skipped: tuple[str, ...]

    @property
    def broken(self) -> tuple[PytreeFinding, ...]:
        """The findings that break the contract."""
        return tuple(finding for finding in self.findings if finding.kind == "broken")

    @property
    def limits(self) -> tuple[PytreeFinding, ...]:
        """The findings that only rare transformations run into."""
        return tuple(finding for finding in self.findings if finding.kind == "limit")

    def __str__(self) -> str:
        """Write the report, one paragraph per finding."""
        if not self.findings:
            parts = [f"{self.name} keeps the pytree contract."]
        else:
            count = len(self.broken)
            causes = "1 cause" if count == 1 else f"{count} causes"
            verdict = f"breaks the pytree contract: {causes}" if count else "has limits as a pytree"
            parts = [f"{self.name} {verdict}.", *map(_paragraph, self.findings)]
        if self.skipped:
            parts.append("skipped:\n" + textwrap.indent("\n".join(self.skipped), "    "))
        return "\n\n".join(parts)


def _paragraph(finding: PytreeFinding) -> str:
    lines = [f"{finding.kind} [{finding.contract}] {finding.cause}"]
    lines.append(f"    contract: {CONTRACTS[finding.contract]}")
    lines += [f"    - {text}" for text in finding.symptoms[:_MOST_SYMPTOMS]]
    if len(finding.symptoms) > _MOST_SYMPTOMS:
        lines.append(f"    - and {len(finding.symptoms) - _MOST_SYMPTOMS} more")
    if finding.hint:
        lines += ["    mend:", textwrap.indent(finding.hint, " " * 8)]
    return "\n".join(lines)
