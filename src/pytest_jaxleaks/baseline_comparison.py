"""A run beside its baseline: what the run accepts, what is gone, and the new file."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from pytest_jaxleaks import baseline
from pytest_jaxleaks.errors import InvalidArgumentError
from pytest_jaxleaks.partial_checks import checks_everything
from pytest_jaxleaks.whole_runs import is_whole

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from _pytest.terminal import TerminalReporter

__all__ = ["Known", "compare"]

_MOST_LINES = 50


class Known:
    """What a run accepts because its baseline lists it; all leaks while the baseline is written."""

    def __init__(self, entries: Sequence[baseline.KnownLeak], *, everything: bool) -> None:
        self._listed = baseline.Listed(entries)
        self._everything = everything

    def __contains__(self, leak: Any) -> bool:
        function = leak.traced.function if leak.traced is not None else ""
        return self._everything or (leak.holder, function) in self._listed


def compare(config: pytest.Config, path: Path, *, writes: bool) -> Known:
    """Register what compares a run with its baseline.

    Args:
        config: of the controller, or of a worker of xdist, which only counts.
        path: the file.
        writes: it is to be written, and need not exist.

    Returns:
        What the run accepts.

    Raises:
        pytest.UsageError: the file cannot be read, or not be written.
    """
    text = _text(path, may_be_missing=writes)
    entries = _entries(path, text)
    if hasattr(config, "workerinput"):
        config.pluginmanager.register(_Worker(config), "jaxleaks-baseline-worker")
    else:
        comparison = _Comparison(config, path, text, entries, writes=writes)
        config.pluginmanager.register(comparison, "jaxleaks-baseline")
    return Known(entries, everything=writes)


def _text(path: Path, *, may_be_missing: bool) -> str:
    if may_be_missing:
        from pytest_jaxleaks.report_files import writable

        writable("--jax-leaks-baseline", path)
        if not path.exists():
            return ""
    elif not path.is_file():
        raise pytest.UsageError(
            f"--jax-leaks-baseline: there is no file {str(path)!r}. "
            "Write it with --jax-leaks-write-baseline."
        )
    try:
        return baseline.text_of(path)
    except InvalidArgumentError as error:
        raise pytest.UsageError(f"--jax-leaks-baseline: {error}") from None


def _entries(path: Path, text: str) -> Sequence[baseline.KnownLeak]:
    try:
        return baseline.parse(text, str(path))
    except InvalidArgumentError as error:
        raise pytest.UsageError(f"--jax-leaks-baseline: {error}") from None


_DESELECTED = "jaxleaks_deselected"


class _Worker:
    """Tells the controller of xdist how many tests a worker has left out."""

    def __init__(self, config: Any) -> None:
        self._config = config
        self._deselected = 0

    def pytest_deselected(self, items: Sequence[pytest.Item]) -> None:
        """Count them."""
        self._deselected += len(items)

    def pytest_sessionfinish(self) -> None:
        """Send the number."""
        self._config.workeroutput[_DESELECTED] = self._deselected


class _Comparison:
    """Gathers which known leaks were seen, and says or writes what that means."""

    def __init__(
        self,
        config: pytest.Config,
        path: Path,
        text: str,
        entries: Sequence[baseline.KnownLeak],
        *,
        writes: bool,
    ) -> None:
        self._config = config
        self._path = path
        self._text = text
        self._entries = entries
        self._writes = writes
        self._known: set[tuple[str, str]] = set()
        self._seen: set[tuple[str, str]] = set()
        self._deselected = 0
        self._unsure = 0
        self._lines: list[str] = []

    def pytest_deselected(self, items: Sequence[pytest.Item]) -> None:
        """Notice that not every test runs."""
        self._deselected += len(items)

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node: Any) -> None:
        """Take what a worker of xdist has left out, or not: it may have crashed."""
        self._deselected += getattr(node, "workeroutput", {}).get(_DESELECTED, 1)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Take the leaks of one phase of one test, xdist workers' included."""
        known: list[dict[str, Any]] = getattr(report, "jax_leaks_known", [])
        failing = getattr(report, "jax_leaks", [])
        others = failing + getattr(report, "jax_leaks_accepted", [])
        for entry in getattr(report, "jax_leaks_collection", ()):
            self._known.update(map(baseline.key_of, entry["known"]))
            self._seen.update(map(baseline.key_of, entry["leaks"]))
        if not report.passed and not failing:
            self._unsure += 1  # who knows what it would have leaked
        self._known.update(map(baseline.key_of, known))
        self._seen.update(map(baseline.key_of, others))

    @pytest.hookimpl(trylast=True)
    def pytest_sessionfinish(self, session: pytest.Session, exitstatus: int) -> None:
        """Write the baseline, or tell which entries are gone."""
        finished = exitstatus in (pytest.ExitCode.OK, pytest.ExitCode.TESTS_FAILED)
        finished = finished and not session.config.option.collectonly
        whole = finished and checks_everything(self._config) and is_whole(session, self._deselected)
        if self._writes:
            self._write(session, finished=finished, whole=whole and not self._unsure)
        elif whole:
            self._tell_gone(session)

    def _write(self, session: pytest.Session, *, finished: bool, whole: bool) -> None:
        if not finished:
            self._lines.append(f"{self._path} was not written: the run did not come to its end")
            return
        from pytest_jaxleaks.baseline_text import rewrite
        from pytest_jaxleaks.report_files import write_report

        entries = baseline.merged(self._entries, self._known, keep_gone=not whole)
        text, comments_kept = rewrite(self._text, entries)
        write_report(session, "--jax-leaks-baseline", self._path, text)
        self._lines.append(f"{self._path}: {len(entries)} known leak(s) written")
        if not comments_kept:
            self._lines.append(
                "its comments were lost: they are kept where each entry is a [[leak]] table"
            )
        if not whole and self._entries:
            self._lines.append("entries not seen were kept: not every test was run to its end")

    def _tell_gone(self, session: pytest.Session) -> None:
        seen = self._known | self._seen
        gone = [entry for entry in self._entries if not entry.among(seen)]
        if gone and self._unsure:
            self._lines.append(
                f"{len(gone)} known leak(s) were not seen, and {self._unsure} test(s) were "
                "skipped or failed: it is not known whether those leaks are mended"
            )
            return
        for entry in gone[:_MOST_LINES]:
            function = f" of {entry.function}" if entry.function.strip("*") else ""
            self._lines.append(
                f"{self._path.name}:{entry.line}: fixed: {entry.holder} keeps no value{function} "
                "any more; remove the entry"
            )
        if len(gone) > _MOST_LINES:
            self._lines.append(f"... and {len(gone) - _MOST_LINES} more")
        if gone and self._config.getini("jax_leaks_baseline_strict"):
            self._lines.append("jax_leaks_baseline_strict: the run fails for the entries above")
            if session.exitstatus == pytest.ExitCode.OK:
                session.exitstatus = pytest.ExitCode.TESTS_FAILED

    def pytest_terminal_summary(self, terminalreporter: TerminalReporter) -> None:
        """Say what was compared."""
        if self._known and not self._writes:
            self._lines.insert(0, f"{len(self._known)} known leak(s) seen, listed in {self._path}")
        if self._lines:
            terminalreporter.section("known tracer leaks")
            for line in self._lines:
                terminalreporter.line(line)
