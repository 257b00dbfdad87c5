"""Blame the same variant for a mismatch, whichever of the runs ended last.

The reference may end after a run that differs from it: in another worker of pytest-xdist, or in
another order. That run has then been reported as passed. So the mismatch is reported for it once
more, as an error of its teardown, by the process that has all reports.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from pytest_jaxleaks.errors import VariantMismatchError
from pytest_jaxleaks.variant_items import sibling_nodeid
from pytest_jaxleaks.verdicts import MISMATCH_ERROR

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pytest_jaxleaks.verdicts import Outcome

__all__ = ["LateMismatches"]

# Where --lf finds what failed and --sw where to go on; both are written at the end of a run.
_CACHE_OF_LF = "cache/lastfailed"
_CACHE_OF_STEPWISE = "cache/stepwise"


class LateMismatches:
    """Makes the reports of runs that turned out to differ after they had ended."""

    def __init__(self) -> None:
        self._waiting: dict[tuple[str, str], pytest.TestReport] = {}
        self._ended: dict[tuple[str, str], bool] = {}
        self._references: dict[str, str] = {}
        self._earlier: dict[str, str] = {}

    def after(
        self, report: pytest.TestReport, note: Mapping[str, Any], outcomes: Mapping[str, Outcome]
    ) -> list[pytest.TestReport]:
        """Return the reports that are due.

        Args:
            report: the report that has just been taken.
            note: the runner's note on it.
            outcomes: of the test's variants.
        """
        test, name = note["test"], note["variant"]
        if MISMATCH_ERROR in note["raised"][:1] and note["reference"] is not None:
            reference = sibling_nodeid(report.nodeid, name, note["reference"])
            self._references[report.nodeid] = reference
            if report.when == "call":  # else the reference ended last
                self._earlier[report.nodeid] = reference
        for other, text in note.get("late", {}).items():
            self._waiting[test, other] = _late_report(report, note, other, text)
        if report.when == "teardown":
            self._ended[test, name] = "xfail" in report.keywords
        due = []
        for key in [key for key in self._waiting if key[0] == test and key in self._ended]:
            late = self._waiting.pop(key)
            known = outcomes.get(key[1])  # it may have seen the difference itself
            if known is not None and known.passed and not self._ended[key]:
                due.append(late)
        return due

    def remember_references(self, config: pytest.Config) -> None:
        """Let ``--lf`` and ``--sw`` run the references of tests that differ, too."""
        cache = getattr(config, "cache", None)
        if not self._references or cache is None or hasattr(config, "workerinput"):
            return
        failed = cache.get(_CACHE_OF_LF, {})
        if failed:
            references = dict.fromkeys(sorted(self._references.values()), True)
            cache.set(_CACHE_OF_LF, {**failed, **references})
        step = cache.get(_CACHE_OF_STEPWISE, None)
        if isinstance(step, dict) and step.get("last_failed") in self._earlier:
            step = {**step, "last_failed": self._earlier[step["last_failed"]]}
            cache.set(_CACHE_OF_STEPWISE, step)
        elif isinstance(step, str) and step in self._earlier:  # until pytest 8.3
            cache.set(_CACHE_OF_STEPWISE, self._earlier[step])


def _late_report(
    report: pytest.TestReport, note: Mapping[str, Any], other: str, text: str
) -> pytest.TestReport:
    """Make the report of a run under ``other`` from that of the reference."""
    path, line, domain = report.location
    late = pytest.TestReport(
        nodeid=sibling_nodeid(report.nodeid, note["variant"], other),
        location=(path, line, sibling_nodeid(domain, note["variant"], other)),
        keywords={},
        outcome="failed",
        longrepr=_shown(text, note["variant"]),
        when="teardown",
    )
    late.__dict__["jax_variant"] = {
        **{key: note[key] for key in ("test", "names", "reference")},
        "variant": other,
        "meaning": "",
        "raised": [base.__name__ for base in VariantMismatchError.__mro__[:-1]],
        "detail": text.splitlines()[0][:120],
    }
    return late


def _shown(text: str, reference: str) -> Any:
    """Show the mismatch as pytest shows an exception without a traceback."""
    ended = f"(found when {reference} ended; this run had ended before it, and passed)"
    try:
        raise VariantMismatchError(f"{text}\n{ended}")
    except VariantMismatchError as error:
        return pytest.ExceptionInfo.from_exception(error).getrepr(style="value")
