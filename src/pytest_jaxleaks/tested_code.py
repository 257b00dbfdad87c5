"""The code of a test function, also behind decorators."""

from __future__ import annotations

import types
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator

    import pytest

__all__ = ["codes_of", "codes_of_item"]

_DEEPEST_WRAPPER = 5


def codes_of_item(item: pytest.Item) -> set[types.CodeType]:
    """Return the code of the test function, and of what its decorators wrap."""
    file = getattr(getattr(item, "module", None), "__file__", None)
    return codes_of(getattr(item, "obj", None), file)


def codes_of(function: Any, file: str | None) -> set[types.CodeType]:
    """Return the code of a function, and of what its decorators wrap.

    Args:
        function: the function or method; anything else has no code.
        file: the source file of what a decorator may have wrapped without saying so.
    """
    found: set[types.CodeType] = set()
    waiting = [(function, 0)]
    while waiting:
        function, depth = waiting.pop()
        function = getattr(function, "__func__", function)
        code = getattr(function, "__code__", None)
        if isinstance(code, types.CodeType) and code not in found and depth <= _DEEPEST_WRAPPER:
            found.add(code)
            waiting += [(inner, depth + 1) for inner in _wrapped_by(function, file)]
    return found


def _wrapped_by(function: Any, file: str | None) -> Iterator[Any]:
    """Yield what a decorated function leads to: by convention, or from the same file by closure."""
    yield getattr(function, "__wrapped__", None)
    yield getattr(getattr(function, "hypothesis", None), "inner_test", None)
    for cell in getattr(function, "__closure__", None) or ():
        try:
            inner = cell.cell_contents
        except ValueError:  # not bound yet
            continue
        inner = getattr(inner, "func", inner)
        if type(inner) is types.FunctionType and inner.__code__.co_filename == file:
            yield inner
