"""The entry point: what pytest sees. Each feature's hooks live in a room of their own.

Nothing heavy is imported here: a run that uses no feature must not pay for one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pytest_jaxleaks import (
    baseline_options,
    checking,
    explaining,
    fresh,
    harmless,
    harness,
    hookspecs,
    junit_properties,
    outputs,
    partial_checks,
    report,
    triage_options,
    variant_plugin,
)
from pytest_jaxleaks.harness import jax_transform

if TYPE_CHECKING:
    import pytest

__all__ = ["jax_transform"]

# Rooms on pytest's side, in the order in which they add options and configure themselves.
_ROOMS = (
    checking,
    baseline_options,
    explaining,
    fresh,
    harmless,
    junit_properties,
    outputs,
    partial_checks,
    report,
    triage_options,
    harness,
    variant_plugin,
)


def pytest_addhooks(pluginmanager: pytest.PytestPluginManager) -> None:
    """Declare the hooks that projects may implement."""
    pluginmanager.add_hookspecs(hookspecs)


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the options and ini values of every room."""
    for room in _ROOMS:
        room.add_options(parser)


def pytest_configure(config: pytest.Config) -> None:
    """Let every room register its markers and hooks."""
    for room in _ROOMS:
        room.configure(config)
