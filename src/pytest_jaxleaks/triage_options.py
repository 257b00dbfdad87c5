"""The option of triage, and what it registers."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

from pytest_jaxleaks.triage_child import CHILD, CHILD_MODE, is_triage_child

if TYPE_CHECKING:
    import pytest

__all__ = ["add_options", "configure"]


def add_options(parser: pytest.Parser) -> None:
    """Add the option."""
    parser.getgroup("jax-leaks").addoption(
        "--jax-leaks-triage",
        action="store_true",
        default=None,
        help="Run leaking tests again alone, in other modes, and say what the differences mean.",
    )


def configure(config: pytest.Config) -> None:
    """Register what triages, or what answers it."""
    if is_triage_child():
        from pytest_jaxleaks.triaging import Child

        target, mode = Path(os.environ[CHILD]), os.environ.get(CHILD_MODE, "")
        config.pluginmanager.register(Child(target, mode), "jaxleaks-triage-child")
    elif config.getoption("jax_leaks_triage", None) and not hasattr(config, "workerinput"):
        from pytest_jaxleaks.triaging import Triage

        config.pluginmanager.register(Triage(config), "jaxleaks-triage")
