"""What it means when a test's variants disagree: outcomes in, a pattern and its meaning out."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

__all__ = ["LEAK_ERRORS", "MISMATCH_ERROR", "Agreement", "Outcome", "Verdict", "judge"]

#: Type names of the exceptions that say: a traced value escaped. The second is JAX's own.
LEAK_ERRORS = frozenset({"TracerLeakError", "UnexpectedTracerError"})

#: Type name of the exception that says: the recorded values differ.
MISMATCH_ERROR = "VariantMismatchError"


@dataclass(frozen=True)
class Outcome:
    """How one variant of a test ended.

    Attributes:
        raised: the type names of the exception and its base classes, the exception's own first;
            empty if the test passed. An expected failure counts as raised.
        detail: the first line of its message.
    """

    raised: tuple[str, ...] = ()
    detail: str = ""

    @property
    def passed(self) -> bool:
        """Whether nothing was raised."""
        return not self.raised

    @property
    def leaked(self) -> bool:
        """Whether it was raised because a traced value escaped."""
        return not LEAK_ERRORS.isdisjoint(self.raised)

    @property
    def objected_to(self) -> bool:
        """Whether JAX's own leak checker raised: a plain exception, told by its message."""
        return self.detail.startswith("Leaked trace")

    @property
    def text(self) -> str:
        """``passed``, or the exception."""
        if self.passed:
            return "passed"
        return f"{self.raised[0]}: {self.detail}" if self.detail else self.raised[0]


@dataclass(frozen=True)
class Verdict:
    """A pattern of disagreement and what it means, one line each."""

    pattern: str
    meaning: str


@dataclass(frozen=True)
class Agreement:
    """Which variants of a test recorded the same.

    Attributes:
        reference: the variant that the others are compared with, if they are.
        pairs: by pair of variants, whether they agree; pairs that were not compared are left out.
    """

    reference: str | None = None
    pairs: Mapping[frozenset[str], bool] = field(default_factory=dict)

    def groups(self, names: Iterable[str]) -> list[list[str]]:
        """Put variants that agree together, each with the first one that it agrees with."""
        groups: list[list[str]] = []
        compared = frozenset().union(*self.pairs)
        for name in names:
            if name not in compared:
                continue
            for group in groups:
                if self.pairs.get(frozenset((group[0], name))):
                    group.append(name)
                    break
            else:
                groups.append([name])
        return groups


def judge(
    outcomes: Mapping[str, Outcome],
    meanings: Mapping[str, str],
    agreement: Agreement | None = None,
) -> Verdict | None:
    """Judge the outcomes of one test.

    Args:
        outcomes: the outcome of each variant that ran, by name, in the order in which they ran.
            Skipped variants are left out.
        meanings: what failing under one variant only tells, by name of variant.
        agreement: which of them recorded the same.

    Returns:
        The verdict, or ``None`` if the variants agree: all passed with equal records, or all raised
        the same type.
    """
    raised = {outcome.raised[:1] for outcome in outcomes.values()}
    if (MISMATCH_ERROR,) in raised:  # in each of them, if they ended at once in two processes
        return Verdict(
            "the recorded results differ" + _who_differs(outcomes, agreement or Agreement()),
            "the runs pass and yet return something else: look at the first difference in the "
            "failing run's message",
        )
    if len(raised) < 2:
        return None
    failing = [name for name, outcome in outcomes.items() if not outcome.passed]
    passing = [name for name, outcome in outcomes.items() if outcome.passed]
    leaking = [name for name, outcome in outcomes.items() if outcome.leaked]
    if leaking:
        leaking = [name for name, each in outcomes.items() if each.leaked or each.objected_to]
        return _leak_verdict(leaking, failing, list(outcomes))
    if not passing:
        return Verdict(
            "fails under every variant, in different ways",
            "the failure itself depends on the mode: start with the one whose message is plainest",
        )
    return _failure_verdict(outcomes, failing, passing, meanings)


def _who_differs(outcomes: Mapping[str, Outcome], agreement: Agreement) -> str:
    """Say which of three or more variants agree with each other."""
    groups = agreement.groups(outcomes)
    count = sum(map(len, groups))
    if count < 3:
        return ""
    if len(groups) == count:
        return f", no two of {_and([name for group in groups for name in group])} agree"
    largest = max(groups, key=len)
    odd = [name for group in groups if group is not largest for name in group]
    together = f"{_and(largest)} agree"
    if len(groups) > 2 or len(largest) == len(odd):
        rest = [f"{_and(group)} agree" for group in groups if len(group) > 1]
        return f": {'; '.join(rest)}"
    if agreement.reference in odd:
        return f": only {_and(odd)} differs, with which the others were compared; {together}"
    return f": only {_and(odd)} {'differs' if len(odd) == 1 else 'differ'}; {together}"


def _leak_verdict(leaking: Sequence[str], failing: Sequence[str], names: Sequence[str]) -> Verdict:
    pattern = f"leak only under {_and(leaking)}"
    if len(leaking) == len(names):
        return Verdict(
            "leak under every variant, noticed in different ways",
            "a traced value escapes, in one run found where it is kept, in the other where it is "
            "used",
        )
    if "nojit" in names and "nojit" not in leaking:
        if "nojit" in failing:
            return Verdict(
                f"{pattern}, another error under nojit",
                "the traced value escapes under jit; with JIT off the test fails for a reason of "
                "its own",
            )
        return Verdict(pattern, "the traced value escapes; with JIT off it is an ordinary array")
    if "nojit" in leaking and "jit" in names and "jit" not in leaking:
        return Verdict(
            pattern,
            "a vmap or grad tracer escapes where the Python code runs; under jit it did not run, "
            "since the function had been traced before",
        )
    return Verdict(pattern, "the traced value escapes in that mode only")


def _failure_verdict(
    outcomes: Mapping[str, Outcome],
    failing: Sequence[str],
    passing: Sequence[str],
    meanings: Mapping[str, str],
) -> Verdict:
    if "jit" in failing and "nojit" in passing:
        only = "fails only under jit" if failing == ["jit"] else "passes only under nojit"
        if failing == ["jit"] or passing == ["nojit"]:
            return Verdict(only, _tracing_meaning(outcomes["jit"]))
    if len(passing) == 1 and "jit" in failing:
        name = passing[0]
        return Verdict(f"passes only under {name}", _PASSES_ONLY.get(name, f"it needs {name}"))
    if len(failing) == 1:
        name = failing[0]
        return Verdict(f"fails only under {name}", meanings.get(name, "see that variant"))
    return Verdict(
        f"fails under {_and(failing)}, passes under {_and(passing)}",
        "look for what the failing modes have in common and the passing ones have not",
    )


def _tracing_meaning(outcome: Outcome) -> str:
    """Say what it means that a test fails while it is traced and passes with JIT off."""
    if not _CONCRETE_ERRORS.isdisjoint(outcome.raised) or "concrete value" in outcome.detail:
        return (
            "the code needs a concrete value of a traced one (Python control flow, a shape, a "
            "NumPy call); with JIT off every value is concrete"
        )
    return (
        "a leaked tracer, a Python side effect or value-dependent control flow; JIT off also hides "
        "a carry whose type changes, value-dependent shapes and unhashable static arguments"
    )


#: Type names of the exceptions with which JAX refuses to make a traced value concrete.
_CONCRETE_ERRORS = frozenset(
    {
        "ConcretizationTypeError",
        "NonConcreteBooleanIndexError",
        "TracerArrayConversionError",
        "TracerIntegerConversionError",
    }
)

_PASSES_ONLY = {
    "x64": "32 bits are too few: overflow, cancellation or a tolerance made for float64",
}


def _and(names: Sequence[str]) -> str:
    if len(names) == 1:
        return names[0]
    return f"{', '.join(names[:-1])} and {names[-1]}"
