"""What a whole run found: the terminal section and the JSON report."""

from __future__ import annotations

import itertools
import json
import platform
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from pytest_jaxleaks.fresh import traces_afresh
from pytest_jaxleaks.report_files import check_targets, writable, write_report
from pytest_jaxleaks.triage_child import is_triage_child

if TYPE_CHECKING:
    from _pytest.terminal import TerminalReporter

__all__ = ["LeakLog", "add_options", "configure"]

_MOST_HOLDERS = 50
_MOST_TESTS = 3
_FORMAT = 1


def add_options(parser: pytest.Parser) -> None:
    """Add the options that say where to write."""
    parser.getgroup("jax-leaks").addoption(
        "--jax-leaks-report",
        metavar="PATH",
        default=None,
        help="Write the tracer leaks as JSON to PATH.",
    )


def configure(config: pytest.Config) -> None:
    """Collect reports where they come together: not in an xdist worker."""
    check_targets(config)
    path = config.getoption("jax_leaks_report", None)
    if is_triage_child():
        path = None
    if not hasattr(config, "workerinput"):
        folder = config.invocation_params.dir
        target = None if path is None else writable("--jax-leaks-report", folder / path)
        config.pluginmanager.register(LeakLog(target), "jaxleaks-log")


class _Seen:
    """In which tests a holder showed: the first leak and, of all tests, no more than their ids."""

    def __init__(self, leak: dict[str, Any]) -> None:
        self._leak = leak
        self._tests: dict[str, None] = {}
        self.times = 0

    def add(self, nodeid: str) -> None:
        """Count one leak of a test."""
        self._tests[nodeid] = None
        self.times += 1

    def text(self) -> str:
        """Return what is kept, in how many tests, and the names of some."""
        named = ", ".join(itertools.islice(self._tests, _MOST_TESTS))
        total = len(self._tests)
        more = f" and {total - _MOST_TESTS} more" if total > _MOST_TESTS else ""
        count = "1 test" if total == 1 else f"{total} tests"
        return f"{self._leak['value']} of {self._leak['transform']}, in {count}: {named}{more}"


class LeakLog:
    """Gathers the leaks from test reports, xdist workers' included."""

    def __init__(self, target: Path | None) -> None:
        self._target = target
        self._tests: list[dict[str, Any]] = []
        self._failing: dict[str, _Seen] = {}
        self._accepted: dict[str, _Seen] = {}
        self._before_tests: list[dict[str, Any]] = []

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Take the leaks of one phase of one test."""
        failing = getattr(report, "jax_leaks", [])
        accepted = getattr(report, "jax_leaks_accepted", [])
        for leaks, by_holder in ((failing, self._failing), (accepted, self._accepted)):
            for leak in leaks:
                by_holder.setdefault(leak["holder"], _Seen(leak)).add(report.nodeid)
        if self._target is not None and (failing or accepted):
            self._tests.append(_entry(report, failing + accepted))
        for entry in getattr(report, "jax_leaks_collection", []):
            self._take_before_tests(dict(entry))

    def _take_before_tests(self, entry: dict[str, Any]) -> None:
        """Take what importing the tests has leaked, once: each xdist worker reports it."""
        if entry in self._before_tests:
            return
        self._before_tests.append(entry)
        by_holder = self._accepted if entry["accepted"] else self._failing
        for leak in entry["leaks"]:
            seen = by_holder.setdefault(leak["holder"], _Seen(leak))
            seen.add(f"{entry['nodeid']} (before the first test)".strip())

    @pytest.hookimpl(tryfirst=True, specname="pytest_sessionfinish")
    def pytest_jaxleaks_fail_for_imports(self, session: pytest.Session) -> None:
        """Fail a run in which all went well but the imports: no test can be blamed for them."""
        failing = any(not entry["accepted"] for entry in self._before_tests)
        if failing and session.exitstatus == pytest.ExitCode.OK:
            session.exitstatus = pytest.ExitCode.TESTS_FAILED

    @pytest.hookimpl(trylast=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        """Write the JSON report."""
        if self._target is not None:
            document: dict[str, Any] = {
                "version": _FORMAT,
                "jax": _jax_version(),
                "python": platform.python_version(),
                "tests": sorted([*map(_contract, self._before_tests), *self._tests], key=_order),
            }
            triage = session.config.pluginmanager.get_plugin("jaxleaks-triage")
            if triage is not None:
                document["triage"] = triage.results
            text = json.dumps(document, indent=1, ensure_ascii=False)
            write_report(session, "--jax-leaks-report", self._target, text)

    def pytest_terminal_summary(self, terminalreporter: TerminalReporter) -> None:
        """Sum up by holder: one thing to mend, however many tests it shows in."""
        if not self._failing and not self._accepted:
            return
        for entry in self._before_tests:
            terminalreporter.section(
                f"tracer leaks before the first test {entry['nodeid']}".strip()
            )
            terminalreporter.line(entry["text"])
        terminalreporter.section("tracer leaks by holder")
        for title, by_holder in (("", self._failing), (" (accepted)", self._accepted)):
            ranked = sorted(by_holder.items(), key=lambda entry: (-entry[1].times, entry[0]))
            for holder, seen in ranked[:_MOST_HOLDERS]:
                terminalreporter.line(f"{holder}{title}: {seen.text()}")
            if len(ranked) > _MOST_HOLDERS:
                terminalreporter.line(f"... and {len(ranked) - _MOST_HOLDERS} more holders{title}")
        if not traces_afresh(terminalreporter.config):
            terminalreporter.line(
                "JAX traces a function once: other tests may share the traces of these. "
                "--jax-leaks-fresh shows each leak in every test that has it."
            )


_PHASES = ("collection", "setup", "call", "teardown")


def _order(entry: dict[str, Any]) -> tuple[Any, ...]:
    """Order entries by where the test stands: with xdist, tests end in any order."""
    phase = entry["phase"]
    rank = _PHASES.index(phase) if phase in _PHASES else len(_PHASES)
    return entry["path"], entry["line"], entry["nodeid"], rank


def _contract(entry: dict[str, Any]) -> dict[str, Any]:
    """Return an entry without what is no part of the format."""
    return {key: value for key, value in entry.items() if key not in ("accepted", "known", "text")}


def _entry(report: pytest.TestReport, leaks: list[dict[str, Any]]) -> dict[str, Any]:
    path, line, _ = report.location
    return {
        "nodeid": report.nodeid,
        "path": Path(path).as_posix(),
        "line": (line or 0) + 1,
        "phase": report.when,
        "outcome": report.outcome,
        "leaks": leaks,
    }


def _jax_version() -> str | None:
    try:
        return version("jax")
    except PackageNotFoundError:
        return None
