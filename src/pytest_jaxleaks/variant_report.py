"""The verdicts in the terminal summary, gathered from reports, xdist's included."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

from pytest_jaxleaks.verdicts import Outcome, Verdict, judge

if TYPE_CHECKING:
    from collections.abc import Mapping

    import pytest

__all__ = ["VariantReporter", "summary_lines"]


class VariantReporter:
    """Collects the outcomes of all variants and says at the end where they disagree."""

    def __init__(self) -> None:
        self._outcomes: dict[str, dict[str, Outcome]] = {}
        self._meanings: dict[str, str] = {}
        self._plain: dict[str, str] = {}

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Take the note that the runner put on a report."""
        note: dict[str, Any] | None = getattr(report, "jax_variant", None)
        if note is None:
            return
        if "plain" in note:
            self._plain[report.nodeid] = note["plain"]
            return
        self._meanings[note["variant"]] = note["meaning"]
        outcomes = self._outcomes.setdefault(note["test"], {})
        name = note["variant"]
        if report.when == "setup":
            outcomes.pop(name, None)  # a rerun: its last attempt counts
        if report.skipped and not hasattr(report, "wasxfail"):
            outcomes.pop(name, None)
        elif note["raised"] and outcomes.get(name, Outcome()).passed:
            outcomes[name] = Outcome(tuple(note["raised"]), note["detail"])
        elif report.when == "call":
            outcomes.setdefault(name, Outcome())

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        """Write the section on variants, if any test had one."""
        lines = summary_lines(self._outcomes, self._meanings, self._plain)
        if lines:
            terminalreporter.section("JAX variants")
            for line in lines:
                terminalreporter.write_line(line)


def summary_lines(
    outcomes: Mapping[str, Mapping[str, Outcome]],
    meanings: Mapping[str, str],
    plain: Mapping[str, str],
) -> list[str]:
    """Write the summary.

    Args:
        outcomes: by test and variant.
        meanings: of the variants.
        plain: the type of each item that could not be run per variant.

    Returns:
        The lines: each pattern with its meaning and the tests that show it, then the counts.
    """
    found: dict[Verdict, list[str]] = {}
    ran = {test: each for test, each in outcomes.items() if each}
    for test, each in ran.items():
        verdict = judge(each, meanings)
        if verdict is not None:
            how = ", ".join(f"{name} {outcome.text}" for name, outcome in each.items())
            found.setdefault(verdict, []).append(f"  {test} ({how})")
    lines = []
    for verdict, tests in found.items():
        lines += [f"{verdict.pattern}: {verdict.meaning}", *tests]
    if ran:
        count = "1 test" if len(ran) == 1 else f"{len(ran)} tests"
        disagreeing = sum(map(len, found.values()))
        lines.append(
            f"{count} under {', '.join(meanings)}: "
            + (f"{disagreeing} disagree" if disagreeing else "no disagreement")
        )
    if plain:
        kinds = ", ".join(f"{count} {kind}" for kind, count in Counter(plain.values()).items())
        lines.append(f"ran once, as they are, since they cannot be run per variant: {kinds}")
    return lines
