"""pytest's side of JUnit: each leak is a property of the test in which it showed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from collections.abc import Generator

__all__ = ["add_options", "configure"]

_NAME = "tracer_leak"
_MOST = 20


def add_options(_parser: pytest.Parser) -> None:
    """Add nothing: the properties are there whenever a leak is."""


def configure(config: pytest.Config) -> None:
    """Register the hook."""
    config.pluginmanager.register(_Properties(), "jaxleaks-junit")


class _Properties:
    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_makereport(
        self, item: pytest.Item, call: pytest.CallInfo[None]
    ) -> Generator[None, pytest.TestReport, pytest.TestReport]:
        """Add the leaks of a phase; pytest writes the properties that a test's last report has."""
        report = yield
        leaks = getattr(report, "jax_leaks", []) + getattr(report, "jax_leaks_accepted", [])
        for leak in leaks[:_MOST]:
            entry = (_NAME, _text(leak))
            item.user_properties.append(entry)
            if call.when == "teardown":  # this report was made from the item before the wrapper
                report.user_properties.append(entry)
        return report


def _text(leak: dict[str, Any]) -> str:
    place = leak["created"] or leak["traced"]
    made = f", made at {place['path']}:{place['line']}" if place else ""
    return f"{leak['holder']}: {leak['value']} of {leak['transform']}{made}"
