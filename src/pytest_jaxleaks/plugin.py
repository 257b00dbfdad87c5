"""The entry point: what pytest sees. Each feature's hooks live in a room of their own.

Nothing heavy is imported here: a run that uses no feature must not pay for one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pytest_jaxleaks import harness
from pytest_jaxleaks.harness import jax_transform

if TYPE_CHECKING:
    import pytest

__all__ = ["jax_transform"]

# Rooms on pytest's side, in the order in which they add options and configure themselves.
# Each one is a module with ``add_options(parser)`` and ``configure(config)``.


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add every option and ini value of the contract."""
    harness.add_options(parser)


def pytest_configure(config: pytest.Config) -> None:
    """Register the markers, then the hooks of the features that are on."""
    harness.configure(config)
