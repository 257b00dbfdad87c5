"""What is kept of a property test: a frame of one of its examples, named by the arguments."""

from __future__ import annotations

import functools
import inspect
from typing import TYPE_CHECKING, Any

from pytest_jaxleaks.frame_keeping import FrameKeeper
from pytest_jaxleaks.frames import frame_locals
from pytest_jaxleaks.glance import ways_to_tracers
from pytest_jaxleaks.links import key_text
from pytest_jaxleaks.roots import Root
from pytest_jaxleaks.tested_code import codes_of

if TYPE_CHECKING:
    import types
    from collections.abc import Callable

__all__ = ["Examples"]

_MOST_ARGUMENTS = 4


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
