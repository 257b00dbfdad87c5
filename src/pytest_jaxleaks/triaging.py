"""pytest's side of triage: choose leaking tests, run each again alone, and say what that means."""

from __future__ import annotations

import json
import os
import shlex
import sys
import traceback
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from pytest_jaxleaks import triage
from pytest_jaxleaks.guarding import guarded
from pytest_jaxleaks.jax_errors import error_of_checker
from pytest_jaxleaks.report_files import write_atomically

if TYPE_CHECKING:
    from collections.abc import Generator, Sequence

    from _pytest.terminal import TerminalReporter

__all__ = ["Child", "Triage"]

_MOST_TESTS = 10
_ADDOPTS = "PYTEST_ADDOPTS"
_MOST_BEFORE = 200
_ENDED_BY_FAULT = "it ended early: see the warning of pytest-jaxleaks"
_BEGINS = "triage: leaking tests are run again, each alone in fresh processes (Ctrl-C ends it)"


class Triage:
    """Runs leaking tests again at the end of a run, and says what that means.

    Attributes:
        results: one entry per holder: ``nodeid``, ``holder`` and the lines of the ``verdict``.
    """

    def __init__(self, config: pytest.Config) -> None:
        self._config = config
        # By holder: the first test in which it showed.
        self._first: dict[str, str] = {}
        self._order: dict[str, list[str]] = {}
        self._worker_of: dict[str, str] = {}
        self._left_out = ""
        self.results: list[dict[str, Any]] = []

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Note the first test of each holder, and what ran before it in its process."""
        worker = str(getattr(report, "worker_id", ""))
        order = self._order.setdefault(worker, [])
        if report.when == "setup":
            order.append(report.nodeid)
        for leak in getattr(report, "jax_leaks", []):
            if leak["holder"] not in self._first:
                self._first[leak["holder"]] = report.nodeid
                self._worker_of[report.nodeid] = worker

    def pytest_keyboard_interrupt(self) -> None:
        """Start nothing new: who interrupts a run, or calls ``pytest.exit``, wants its end."""
        self._left_out = "the run was interrupted: no test was run again"

    def pytest_sessionfinish(self) -> None:
        """Run the tests again, before the JSON report is written and the run summed up."""
        reporter = self._config.pluginmanager.get_plugin("terminalreporter")
        in_json = self._config.getoption("jax_leaks_report", None) is not None
        if not self._first or not (reporter or in_json):
            return
        if self._left_out:
            return
        if reporter is not None:
            reporter.write_line(_BEGINS)
        self._left_out = guarded("run leaking tests again", self._run_again, _ENDED_BY_FAULT)

    def _run_again(self) -> str:
        """Fill in the results; return what is to be said of tests that were not run again."""
        by_test: dict[str, list[str]] = {}
        for holder, nodeid in self._first.items():
            by_test.setdefault(nodeid, []).append(holder)
        chosen = list(by_test.items())[:_MOST_TESTS]
        for done, (nodeid, holders) in enumerate(chosen):
            try:
                found = self._triage(nodeid, holders)
            except KeyboardInterrupt:  # enough of it; what the run itself found is still to be told
                return f"interrupted; tests that were not run again: {len(by_test) - done}"
            for holder, lines in found.items():
                self.results.append({"nodeid": nodeid, "holder": holder, "verdict": lines})
        more = len(by_test) - len(chosen)
        return f"... {more} more tests were not run again" if more else ""

    @pytest.hookimpl(trylast=True)
    def pytest_terminal_summary(self, terminalreporter: TerminalReporter) -> None:
        """Say what came of it."""
        if not self._first:
            return
        terminalreporter.section("triage of tracer leaks")
        for result in self.results:
            terminalreporter.line(f"{result['nodeid']}, {result['holder']}:")
            for line in result["verdict"]:
                terminalreporter.line(f"  {line}")
        if self._left_out:
            terminalreporter.line(self._left_out)

    def _triage(self, nodeid: str, holders: Sequence[str]) -> dict[str, list[str]]:
        phases: dict[str, list[dict[str, Any]] | str] = {}

        def outcome(holder: str, mode: str) -> triage.Outcome:
            if mode not in phases:
                phases[mode] = self._run([nodeid], mode)
            return triage.outcome_of(phases[mode], holder, mode)

        found = {}
        for holder in holders:
            outcomes = {"alone": outcome(holder, "alone")}
            for mode in triage.next_modes(outcomes["alone"]):
                outcomes[mode] = outcome(holder, mode)
            clean = outcomes["alone"].kind == "clean"
            before = self._culprit(nodeid, holder) if clean else None
            found[holder] = triage.verdict(outcomes, before)
        return found

    def _culprit(self, nodeid: str, holder: str) -> str | None:
        order = self._order[self._worker_of[nodeid]]
        before = order[: order.index(nodeid)][-_MOST_BEFORE:]

        def leaks_after(tests: Sequence[str]) -> bool:
            phases = self._run([*tests, nodeid], "alone")
            if not isinstance(phases, str):
                phases = [phase for phase in phases if phase["nodeid"] == nodeid]
            return triage.outcome_of(phases, holder, "alone").kind == "leaks"

        return triage.culprit(before, leaks_after)

    def _run(self, nodeids: Sequence[str], mode: str) -> list[dict[str, Any]] | str:
        arguments = [*self._arguments(), *self._overrides(mode)]
        tests = [self._address(nodeid) for nodeid in nodeids]
        return triage.run([*arguments, *tests], self._config.invocation_params.dir, mode)

    def _address(self, nodeid: str) -> str:
        path, separator, rest = nodeid.partition("::")
        return f"{self._config.rootpath / path}{separator}{rest}"

    def _arguments(self) -> list[str]:
        """Return this run's arguments without the tests that were chosen."""
        given = [str(each) for each in self._config.invocation_params.args]
        options = [*self._config.getini("addopts"), *shlex.split(os.environ.get(_ADDOPTS, ""))]
        arguments = [part for each in (*options, *given) for part in _from_file(each)]
        for chosen in reversed(self._config.option.file_or_dir or []):
            found = [i for i, each in enumerate(arguments) if each == chosen]
            rests = [arguments[:i] + arguments[i + 1 :] for i in reversed(found)]
            # ``models -k models``: one of the two is the value of an option.
            likely = [rest for rest in rests if self._options(rest) == self._options(arguments)]
            arguments = next(iter(likely or rests), arguments)
        return arguments

    def _options(self, arguments: Sequence[str]) -> dict[str, Any] | None:
        """Return what pytest makes of arguments, but for the tests; None if it takes none of it."""
        try:
            options = vars(self._config._parser.parse_known_args(list(arguments)))
        except Exception:  # pytest's own complaints, and a parser that has changed
            return None
        return {name: value for name, value in options.items() if name != "file_or_dir"}

    def _overrides(self, mode: str) -> list[str]:
        manager = self._config.pluginmanager
        # What ``addopts`` says is among the arguments already, without the tests that it names.
        found = [f"--rootdir={self._config.rootpath}", "-o", "addopts=", "-k", "", "-m", ""]
        if manager.has_plugin("junitxml"):
            found.append("--junitxml=")
        if manager.has_plugin("xdist"):
            found.append("-n0")
        if manager.has_plugin("_cov") or manager.has_plugin("pytest_cov"):
            found.append("--no-cov")
        return found if mode == "checker" else [*found, "--jax-leaks"]


def _from_file(argument: str) -> list[str]:
    """Return the arguments in the file that ``@file`` names, else the argument itself."""
    path = Path(argument[1:])
    if not argument.startswith("@") or not path.is_file():
        return [argument]
    return path.read_text("utf-8").splitlines()


class Child:
    """Writes what became of each phase, for the process that asked."""

    def __init__(self, target: Path, mode: str) -> None:
        self._target = target
        self._mode = mode
        self._phases: list[dict[str, Any]] = []

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_call(self) -> None:
        """Clear JAX's caches, if it is that mode."""
        jax = sys.modules.get("jax")
        if self._mode == "fresh" and jax is not None:
            jax.clear_caches()

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_makereport(
        self, item: pytest.Item, call: pytest.CallInfo[None]
    ) -> Generator[None, pytest.TestReport, pytest.TestReport]:
        """Take down how a phase ended, and where."""
        report = yield
        error = call.excinfo.value if call.excinfo is not None else None
        message = _first_line(error)
        if self._mode == "checker" and (of_checker := error_of_checker(error)) is not None:
            error, message = of_checker, "Leaked trace"
        place, source = _where(error, item.config.rootpath)
        leaks = getattr(report, "jax_leaks", []) + getattr(report, "jax_leaks_accepted", [])
        self._phases.append(
            {
                "nodeid": item.nodeid,
                "when": call.when,
                "outcome": report.outcome,
                "holders": [leak["holder"] for leak in leaks],
                "error": type(error).__name__ if error is not None else "",
                "message": message,
                "place": place,
                "source": source,
            }
        )
        return report

    @pytest.hookimpl(trylast=True)
    def pytest_sessionfinish(self) -> None:
        """Write them."""
        write_atomically(self._target, json.dumps(self._phases))


def _first_line(error: BaseException | None) -> str:
    try:
        text = str(error) if error is not None else ""
    except Exception:
        return "its message cannot be read"
    return text.partition("\n")[0]


def _where(error: BaseException | None, root: Path) -> tuple[str, str]:
    """Return the innermost line of user code of an error, as ``path:line`` and source."""
    if error is None or "jax" not in sys.modules:
        return "", ""
    from pytest_jaxleaks.jax_internals import is_internal_file

    for entry in reversed(traceback.extract_tb(error.__traceback__)):
        if not is_internal_file(entry.filename):
            path = Path(entry.filename)
            shown = path.relative_to(root) if path.is_relative_to(root) else path
            return f"{shown.as_posix()}:{entry.lineno}", (entry.line or "").strip()
    return "", ""
