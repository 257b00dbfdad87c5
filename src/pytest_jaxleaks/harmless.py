"""pytest's side of values that only JAX's caches hold: told with ``-v``, and no failure."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pytest
    from _pytest.terminal import TerminalReporter

__all__ = ["add_options", "configure"]

_MOST_TESTS = 3


def add_options(_parser: pytest.Parser) -> None:
    """Add nothing: ``-v`` is pytest's."""


def configure(config: pytest.Config) -> None:
    """Register the hooks where reports come together."""
    if config.getoption("verbose", 0) > 0 and not hasattr(config, "workerinput"):
        config.pluginmanager.register(_HarmlessLog(), "jaxleaks-harmless")


class _HarmlessLog:
    def __init__(self) -> None:
        self._values = 0
        self._tests: dict[str, None] = {}

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Count; a failed test's values may be held by its traceback."""
        count = getattr(report, "jax_leaks_held_by_jax", 0)
        if count and report.passed:
            self._values += count
            self._tests[report.nodeid] = None

    def pytest_terminal_summary(self, terminalreporter: TerminalReporter) -> None:
        """Say what is alive, and why it does no harm."""
        if not self._tests:
            return
        from pytest_jaxleaks.checker_verdict import HELD_BY_JAX, REASON

        names = list(self._tests)
        more = f" and {len(names) - _MOST_TESTS} more" if len(names) > _MOST_TESTS else ""
        count = "1 test" if len(names) == 1 else f"{len(names)} tests"
        terminalreporter.section("traced values that are no leaks")
        terminalreporter.line(f"{self._values} traced value(s) alive in {count} are {HELD_BY_JAX}.")
        terminalreporter.line(f"{REASON[0].upper()}{REASON[1:]}.")
        terminalreporter.line(f"Tests: {', '.join(names[:_MOST_TESTS])}{more}")
