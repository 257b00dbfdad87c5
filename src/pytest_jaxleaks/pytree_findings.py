"""What the pytree check records: symptoms, and findings that group symptoms by their cause."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Literal, TypeVar

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

__all__ = ["CONTRACTS", "Cause", "Contract", "PytreeFinding", "Symptom", "group_by_cause"]

_T = TypeVar("_T")

Contract = Literal[
    "round-trip",
    "nothing-hides",
    "treedef",
    "placeholders",
    "key-paths",
    "construction",
    "through",
    "copies",
]

CONTRACTS: dict[Contract, str] = {
    "round-trip": "flatten then unflatten gives an equal object",
    "nothing-hides": "every array that can be reached from the object is a leaf",
    "treedef": "objects that are built alike have equal treedefs",
    "placeholders": "unflatten takes all that JAX puts in place of leaves, and computes nothing",
    "key-paths": "each leaf has a key path of its own that leads to it",
    "construction": "building the object inside a traced function leaks nothing",
    "through": "the object works as before once it has passed a transformation",
    "copies": "copy, deepcopy and pickle keep leaves and treedef",
}
"""The contracts, those first that explain the failure of later ones."""


@dataclasses.dataclass(frozen=True)
class Cause:
    """Why something fails, so that failures with one cause become one finding.

    Attributes:
        key: symptoms with equal keys have the same cause.
        line: one line for the report.
        hint: code that mends it, or None.
    """

    key: str
    line: str
    hint: str | None = None


@dataclasses.dataclass(frozen=True)
class Symptom:
    """One observation that breaks the contract.

    Attributes:
        contract: the name of the part of the contract (see ``CONTRACTS``).
        text: what was done and what came of it.
        cause: what is to blame.
        broken: False for a limit, which only rare transformations run into.
        implied_by: what else explains it: contracts with a broken finding, or keys of causes.
        raises: whether static data cannot be compared at all.
    """

    contract: Contract
    text: str
    cause: Cause
    broken: bool = True
    implied_by: frozenset[str] = frozenset()
    raises: bool = False


@dataclasses.dataclass(frozen=True)
class PytreeFinding:
    """One cause, with everything it breaks.

    Attributes:
        kind: ``"broken"``, or ``"limit"`` when only rare transformations or tools run into it.
        contract: the part of the contract that names the finding (see ``CONTRACTS``).
        contracts: every part of the contract that the cause breaks.
        cause: one line that says what is to blame.
        symptoms: what was done and what came of it, one line each.
        hint: code that mends it, or None.
    """

    kind: Literal["broken", "limit"]
    contract: Contract
    contracts: tuple[Contract, ...]
    cause: str
    symptoms: tuple[str, ...]
    hint: str | None


def group_by_cause(symptoms: Iterable[Symptom]) -> tuple[PytreeFinding, ...]:
    """Return one finding per cause, the broken ones first, deeper causes before shallower ones."""
    by_cause: dict[str, list[Symptom]] = {}
    for symptom in sorted(symptoms, key=_depth):
        key = _explained_by(symptom, by_cause) or symptom.cause.key
        by_cause.setdefault(key, []).append(symptom)
    findings = [_finding(group) for group in by_cause.values()]
    return tuple(sorted(findings, key=lambda finding: finding.kind != "broken"))


def _depth(symptom: Symptom) -> int:
    return list(CONTRACTS).index(symptom.contract)


def _explained_by(symptom: Symptom, by_cause: dict[str, list[Symptom]]) -> str | None:
    if symptom.cause.key in by_cause:
        return symptom.cause.key
    for key in by_cause:
        if key in symptom.implied_by:
            return key
    for key, group in by_cause.items():
        if group[0].contract in symptom.implied_by and any(other.broken for other in group):
            return key
    return None


def _finding(group: list[Symptom]) -> PytreeFinding:
    first = group[0]
    return PytreeFinding(
        kind="broken" if any(symptom.broken for symptom in group) else "limit",
        contract=first.contract,
        contracts=tuple(_unique(symptom.contract for symptom in group)),
        cause=first.cause.line,
        symptoms=tuple(_unique(symptom.text for symptom in group)),
        hint=next((symptom.cause.hint for symptom in group if symptom.cause.hint), None),
    )


def _unique(items: Iterable[_T]) -> Iterator[_T]:
    return iter(dict.fromkeys(items))
