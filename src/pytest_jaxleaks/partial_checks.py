"""pytest's side of runs that ask for a report of leaks and check few tests, or none.

Without ``--jax-leaks`` only marked tests are checked. Who asks for a triage or an output then may
take its silence for a clean suite: the run says so at its start, and at its end if nothing at all
was checked.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pytest
    from _pytest.terminal import TerminalReporter

__all__ = ["add_options", "checks_everything", "configure"]

_ASKING = (
    "--jax-leaks-report",
    "--jax-leaks-sarif",
    "--jax-leaks-html",
    "--jax-leaks-triage",
    "--jax-leaks-write-baseline",
    "--jax-leaks-fresh",
)


def add_options(_parser: pytest.Parser) -> None:
    """Add nothing: what is asked for is told by the options of other rooms."""


def configure(config: pytest.Config) -> None:
    """Register the hooks where reports come together."""
    asked = [name for name in _ASKING if config.getoption(_destination(name), None)]
    if asked and not checks_everything(config) and not hasattr(config, "workerinput"):
        config.pluginmanager.register(_PartialChecks(asked), "jaxleaks-partial-checks")


def _destination(option: str) -> str:
    return option.lstrip("-").replace("-", "_")


def checks_everything(config: pytest.Config) -> bool:
    """Tell whether every test is checked: by the command line, else by the ini file."""
    option = config.getoption("jax_leaks", None)
    return bool(config.getini("jax_leaks") if option is None else option)


class _PartialChecks:
    def __init__(self, asked: list[str]) -> None:
        self._asked = ", ".join(asked)
        self._ran = 0
        self._checked = 0

    def pytest_report_header(self) -> str:
        """Say what is checked."""
        return (
            f"jax-leaks: {self._asked} without --jax-leaks: only tests marked no_tracer_leak are "
            "checked"
        )

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Count tests, and those that were checked."""
        if report.when == "setup":
            self._ran += 1
            self._checked += getattr(report, "jax_leaks_checked", False)

    def pytest_terminal_summary(self, terminalreporter: TerminalReporter) -> None:
        """Say that there is nothing to go by."""
        if self._ran and not self._checked:
            terminalreporter.section("tracer leaks")
            terminalreporter.line(
                f"No test was checked for tracer leaks, and {self._asked} cannot say anything: "
                "add --jax-leaks to check every test."
            )
