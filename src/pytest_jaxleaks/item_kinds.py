"""What is kept of a test that runs, whatever kind of test it is, so that its locals can be named.

A function's frame is kept while it runs. A doctest's names would be cleared and a property test
has a frame per example: those are kept here in their own ways.
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
from pytest_jaxleaks.glance import ways_to_tracers
from pytest_jaxleaks.links import key_text
from pytest_jaxleaks.roots import Root
from pytest_jaxleaks.scenes import codes_of, codes_of_item

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterator

    import pytest

__all__ = ["Scene"]

_MOST_ARGUMENTS = 4


class Scene:
    """What was kept of a test: complete when the test has ended."""

    def __init__(self) -> None:
        self._keeper: FrameKeeper | None = None
        self._examples: Examples | None = None
        self._doctest: tuple[str, dict[str, Any]] = "", {}

    def frames(self) -> tuple[types.FrameType, ...]:
        """Return the finished frames of the test."""
        return tuple(self._keeper.frames) if self._keeper is not None else ()

    def traceback(self) -> types.TracebackType | None:
        """Return a traceback that leads a debugger to the end of the test."""
        frame = next(iter(self.frames()), None)
        if frame is None:
            return None
        return types.TracebackType(None, frame, max(frame.f_lasti, 0), frame.f_lineno or 1)

    def roots(self) -> dict[int, Root]:
        """Return the names of a doctest or the examples of a property test, by ``id``."""
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
            handle = _property_test(item)
            if handle is not None:
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


def _property_test(item: pytest.Item) -> Any:
    """Return hypothesis' handle of a test, by which others may wrap its inner function."""
    function = getattr(item, "obj", None)
    handle = getattr(getattr(function, "__func__", function), "hypothesis", None)
    inner = getattr(handle, "inner_test", None)
    if not isinstance(inner, types.FunctionType) or inspect.iscoroutinefunction(inner):
        return None
    return handle


class Examples:
    """Keeps the first example of a property test that seems to hold a traced value, else the last.

    All examples would be too much to keep, a search after each too slow, and a report of each
    would say the same again and again.

    Args:
        handle: the attribute ``hypothesis`` of a test function.
    """

    def __init__(self, handle: Any) -> None:
        self._handle = handle
        self._inner = handle.inner_test
        self._kept: types.FrameType | None = None
        self._is_suspect = False

    def __enter__(self) -> Examples:
        self._handle.inner_test = self._keeping(self._inner)
        return self

    def __exit__(self, *_: object) -> None:
        self._handle.inner_test = self._inner

    def _keeping(self, inner: types.FunctionType) -> Callable[..., Any]:
        codes = codes_of(inner, inner.__code__.co_filename)

        @functools.wraps(inner)
        def example(*args: Any, **kwargs: Any) -> Any:
            with FrameKeeper(codes) as keeper:
                try:
                    return inner(*args, **kwargs)
                finally:
                    self._note(keeper.frames)

        # Hypothesis knows a test by its signature, among other things.
        example.__dict__["__signature__"] = inspect.signature(inner)
        return example

    def _note(self, frames: list[types.FrameType]) -> None:
        if frames and not self._is_suspect:
            self._kept = frames[-1]
            self._is_suspect = bool(ways_to_tracers(frame_locals(self._kept).values()))

    def roots(self) -> dict[int, Root]:
        """Return the kept frame, named by its example."""
        return {} if self._kept is None else {id(self._kept): _example_root(self._kept)}


def _example_root(frame: types.FrameType) -> Root:
    code = frame.f_code
    names = code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]
    values = frame_locals(frame)
    given = [
        f"{name}={key_text(values[name])}" for name in names if name in values and name != "self"
    ]
    more = ", ..." if len(given) > _MOST_ARGUMENTS else ""
    function = code.co_qualname.replace("<locals>.", "")
    text = f"example {function}({', '.join(given[:_MOST_ARGUMENTS])}{more})"
    return Root("local", text, module=frame.f_globals.get("__name__"))
