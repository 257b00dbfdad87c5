"""The verdicts in the terminal summary, gathered from reports, xdist's included."""

from __future__ import annotations

import functools
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pytest

from pytest_jaxleaks.guarding import guarded
from pytest_jaxleaks.late_mismatches import LateMismatches
from pytest_jaxleaks.verdicts import Agreement, Outcome, Verdict, judge

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

__all__ = ["TestRuns", "VariantReporter", "summary_lines"]


@dataclass
class TestRuns:
    """What is known of the runs of one test.

    Attributes:
        names: its variants, in the order in which they were asked for.
        reference: the variant that the others are compared with, if they are.
        recorded: whether one of them recorded something.
        outcomes: by variant that ran to an end.
        agreement: by pair of variants, whether they recorded the same.
    """

    __test__ = False

    names: list[str] = field(default_factory=list)
    reference: str | None = None
    recorded: bool = False
    outcomes: dict[str, Outcome] = field(default_factory=dict)
    agreement: dict[frozenset[str], bool] = field(default_factory=dict)

    def in_order(self) -> dict[str, Outcome]:
        """Return the outcomes in the order of the variants: workers end as they please."""
        order = {name: place for place, name in enumerate(self.names)}
        names = sorted(self.outcomes, key=lambda name: order.get(name, len(order)))
        return {name: self.outcomes[name] for name in names}

    def note(self, report: pytest.TestReport, note: Mapping[str, Any]) -> None:
        """Take the note on one report."""
        name = note["variant"]
        self.names, self.reference = note["names"], note["reference"]
        self.recorded |= note.get("recorded", False)
        for other, same in note.get("agrees", {}).items():
            self.agreement[frozenset((name, other))] = same
        if report.when == "setup":
            self.outcomes.pop(name, None)  # a rerun: its last attempt counts
        if report.skipped and not hasattr(report, "wasxfail"):
            self.outcomes.pop(name, None)
        elif note["raised"] and self.outcomes.get(name, Outcome()).passed:
            self.outcomes[name] = Outcome(tuple(note["raised"]), note["detail"])
        elif report.when == "call":
            self.outcomes.setdefault(name, Outcome())


class VariantReporter:
    """Collects the outcomes of all variants and says at the end where they disagree."""

    def __init__(self, config: pytest.Config) -> None:
        self._config = config
        self._runs: dict[str, TestRuns] = {}
        self._meanings: dict[str, str] = {}
        self._plain: dict[str, str] = {}
        self._late = LateMismatches()

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_logreport(self, report: pytest.TestReport) -> Iterator[None]:
        """Take the note that the runner put on a report, and report late mismatches after it."""
        note: dict[str, Any] | None = getattr(report, "jax_variant", None)
        if note is not None and "plain" in note:
            self._plain[report.nodeid] = note["plain"]
        elif note is not None:
            self._meanings.setdefault(note["variant"], note["meaning"])
            self._runs.setdefault(note["test"], TestRuns()).note(report, note)
        result = yield
        if note is not None and "plain" not in note and not hasattr(self._config, "workerinput"):
            outcomes = self._runs[note["test"]].outcomes
            late = functools.partial(self._late.after, report, note, outcomes)
            due: list[pytest.TestReport] = guarded("blame a variant for a mismatch", late, [])
            for each in due:
                self._config.hook.pytest_runtest_logreport(report=each)
        return result

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_sessionfinish(self) -> Iterator[None]:
        """Let ``--lf`` run the reference too: alone, a variant has nothing to differ from."""
        result = yield
        remember = functools.partial(self._late.remember_references, self._config)
        guarded("let --lf run what failed variants were compared with", remember, None)
        return result

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        """Write the section on variants, if any test had one."""
        lines = summary_lines(self._runs, self._meanings, self._plain)
        if lines:
            terminalreporter.write_sep("=", "JAX variants")
            for line in lines:
                terminalreporter.write_line(line)


def summary_lines(
    runs: Mapping[str, TestRuns],
    meanings: Mapping[str, str],
    plain: Mapping[str, str],
) -> list[str]:
    """Write the summary.

    Args:
        runs: by test.
        meanings: of the variants.
        plain: the type of each item that could not be run per variant.

    Returns:
        The lines: each pattern with its meaning and the tests that show it, then the counts.
    """
    found: dict[Verdict, list[str]] = {}
    ran = {test: each for test, each in runs.items() if each.outcomes}
    for test, each in ran.items():
        outcomes = each.in_order()
        verdict = judge(outcomes, meanings, Agreement(each.reference, each.agreement))
        if verdict is not None:
            how = ", ".join(f"{name} {outcome.text}" for name, outcome in outcomes.items())
            found.setdefault(verdict, []).append(f"  {test} ({how})")
    lines = []
    for verdict, tests in found.items():
        lines += [f"{verdict.pattern}: {verdict.meaning}", *tests]
    lines += _not_compared(ran)
    if ran:
        count = "1 test" if len(ran) == 1 else f"{len(ran)} tests"
        disagreeing = sum(map(len, found.values()))
        lines.append(
            f"{count} under {', '.join(_names(ran))}: "
            + (f"{disagreeing} disagree" if disagreeing else "no disagreement")
        )
    if plain:
        kinds = ", ".join(f"{count} {kind}" for kind, count in Counter(plain.values()).items())
        lines.append(f"ran once, as they are, since they cannot be run per variant: {kinds}")
    return lines


def _names(runs: Mapping[str, TestRuns]) -> list[str]:
    """List the variants that ran, as they were asked for: workers end as they please."""
    ran = {name for each in runs.values() for name in each.outcomes}
    asked = (name for each in runs.values() for name in [*each.names, *each.outcomes])
    return [name for name in dict.fromkeys(asked) if name in ran]


def _not_compared(runs: Mapping[str, TestRuns]) -> list[str]:
    """Name the tests that were to be compared with a variant that did not run to an end."""
    tests = [
        f"  {test} ({each.reference} did not run; {', '.join(each.in_order())} did)"
        for test, each in runs.items()
        if each.recorded and each.reference not in each.outcomes
    ]
    return ["not compared, since the variant to compare with did not run:", *tests] if tests else []
