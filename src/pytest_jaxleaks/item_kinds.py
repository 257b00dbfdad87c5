"""What is kept of a test that runs, whatever kind of test it is, so that its locals can be named.

A function's frame is kept while it runs. A doctest's names would be cleared and a property test
has a frame per example: those are kept in their own ways. Nothing here loads the search: a run
may have no use for it.
"""

from __future__ import annotations

import contextlib
import functools
import inspect
import sys
import types
from typing import TYPE_CHECKING, Any

from pytest_jaxleaks.frame_keeping import FrameKeeper
from pytest_jaxleaks.frames import frame_locals
from pytest_jaxleaks.tested_code import codes_of_item

if TYPE_CHECKING:
    from collections.abc import Generator, Iterator

    import pytest

    from pytest_jaxleaks.property_examples import Examples
    from pytest_jaxleaks.roots import Root
    from pytest_jaxleaks.state_machines import Machines

__all__ = ["Scene"]


class Scene:
    """What was kept of a test: complete when the test has ended."""

    def __init__(self) -> None:
        self._keeper: FrameKeeper | None = None
        self._examples: Examples | Machines | None = None
        self._doctest: tuple[str, dict[str, Any]] = "", {}

    def frames(self) -> tuple[types.FrameType, ...]:
        """Return the finished frames of the test.

        Whoever has shown a traceback (pytest does for a subtest that fails) has had Python 3.12
        and older plant a dict of the variables as they were then: it is emptied.
        """
        frames = tuple(self._keeper.frames) if self._keeper is not None else ()
        for frame in frames:
            frame_locals(frame)
        return frames

    def traceback(self) -> types.TracebackType | None:
        """Return a traceback that leads a debugger to the end of the test."""
        frame = next(iter(self._keeper.frames if self._keeper is not None else ()), None)
        if frame is None:
            return None
        return types.TracebackType(None, frame, max(frame.f_lasti, 0), frame.f_lineno or 1)

    def roots(self) -> dict[int, Root]:
        """Return the names of a doctest or the examples of a property test, by ``id``."""
        from pytest_jaxleaks.roots import Root

        roots = self._examples.roots() if self._examples is not None else {}
        test, names = self._doctest
        for name, value in _own_names(names):
            roots[id(value)] = Root("local", f"name '{name}' of doctest {test}", f"{test}.{name}")
        return roots

    @contextlib.contextmanager
    def keep(self, item: pytest.Item) -> Iterator[Scene]:
        """Keep what a test leaves while a block runs.

        Args:
            item: the test.
        """
        with contextlib.ExitStack() as stack:
            handle, machine = _property_test(item), _state_machine(item)
            if machine is not None:
                from pytest_jaxleaks.state_machines import Machines

                self._examples = stack.enter_context(Machines(machine))
            elif handle is not None:
                from pytest_jaxleaks.property_examples import Examples

                self._examples = stack.enter_context(Examples(handle))
            elif hasattr(item, "dtest"):
                self._doctest = item.name, stack.enter_context(_kept_names(item))
            else:
                self._keeper = stack.enter_context(FrameKeeper(codes_of_item(item)))
            yield self


# -- doctests -------------------------------------------------------------------------------


@contextlib.contextmanager
def _kept_names(item: Any) -> Generator[dict[str, Any], None, None]:
    """Let a doctest's runner leave the names alone, and clear them at the end as it would."""
    names = item.dtest.globs
    runner = item.runner
    runner.run = functools.partial(runner.run, clear_globs=False)
    try:
        yield names
    finally:
        del runner.run
        names.clear()


def _own_names(names: dict[str, Any]) -> Iterator[tuple[str, Any]]:
    """Yield the names that the doctest has bound, and not its module."""
    module = sys.modules.get(str(names.get("__name__")))
    of_module = getattr(module, "__dict__", {})
    for name, value in list(names.items()):
        if of_module.get(name) is not value and not name.startswith("__"):
            yield name, value


# -- property tests -------------------------------------------------------------------------


def _state_machine(item: pytest.Item) -> Any:
    """Return the class of the machines that a stateful test of hypothesis runs, or None."""
    if "hypothesis.stateful" not in sys.modules:
        return None
    from pytest_jaxleaks.state_machines import machine_class

    return machine_class(_function(item))


def _function(item: pytest.Item) -> Any:
    function = getattr(item, "obj", None)
    return getattr(function, "__func__", function)


def _property_test(item: pytest.Item) -> Any:
    """Return hypothesis' handle of a test, by which others may wrap its inner function."""
    handle = getattr(_function(item), "hypothesis", None)
    inner = getattr(handle, "inner_test", None)
    if not isinstance(inner, types.FunctionType) or inspect.iscoroutinefunction(inner):
        return None
    return handle
