"""``--jax-leaks-fresh``: every test traces afresh, so that blame does not depend on order.

JAX does not trace a function again that it has traced, so a leak shows in whichever test came
first. A user context is part of the key of JAX's caches: with another value, nothing is found in
them, and nothing that others have put there is cleared.
"""

from __future__ import annotations

import contextlib
import itertools
import sys
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from collections.abc import Generator

__all__ = ["FreshTraces", "add_options", "configure", "traces_afresh"]


def add_options(parser: pytest.Parser) -> None:
    """Add the option and the ini value."""
    parser.getgroup("jax-leaks").addoption(
        "--jax-leaks-fresh",
        action="store_true",
        default=None,
        help="Let each test trace its functions afresh (slower), so that each leak shows in "
        "every test that has it.",
    )
    parser.addini(
        "jax_leaks_fresh", "Trace afresh, as --jax-leaks-fresh does.", type="bool", default=False
    )


def configure(config: pytest.Config) -> None:
    """Register the hook if it is asked for."""
    if traces_afresh(config):
        config.pluginmanager.register(FreshTraces(), "jaxleaks-fresh")


def traces_afresh(config: pytest.Config) -> bool:
    """Tell whether each test is to trace afresh: by the command line, else by the ini file."""
    option = config.getoption("jax_leaks_fresh", None)
    return bool(config.getini("jax_leaks_fresh") if option is None else option)


class FreshTraces:
    """Runs each test with a value of its own in a user context of JAX's."""

    def __init__(self) -> None:
        self._context: Any = None
        self._numbers = itertools.count(1)
        self._number = 0

    @pytest.hookimpl(tryfirst=True)
    def pytest_collection_finish(self) -> None:
        """Make the context early: what was traced before it exists is traced once more."""
        self._make_context()

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_setup(self) -> Generator[None, object, object]:
        """Take a value that no test before has had; a test that is run again gets a new one."""
        self._number = next(self._numbers)
        with self._fresh():
            return (yield)

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_call(self) -> Generator[None, object, object]:
        """Trace with the value of this test."""
        with self._fresh():
            return (yield)

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_teardown(self) -> Generator[None, object, object]:
        """Trace with the value of this test."""
        with self._fresh():
            return (yield)

    def _fresh(self) -> contextlib.AbstractContextManager[object]:
        self._make_context()
        if self._context is None:
            return contextlib.nullcontext()  # what nobody has imported has traced nothing
        fresh: contextlib.AbstractContextManager[object] = self._context(self._number)
        return fresh

    def _make_context(self) -> None:
        make = getattr(sys.modules.get("jax"), "make_user_context", None)
        if self._context is None and make is not None:
            self._context = make(None)
