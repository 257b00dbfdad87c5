"""The code of a test function, also behind decorators."""

from __future__ import annotations

import contextlib
import functools
import types
from typing import TYPE_CHECKING, Any

from pytest_jaxleaks.links import instance_dict

if TYPE_CHECKING:
    from collections.abc import Iterator

    import pytest

__all__ = ["codes_of", "codes_of_item"]

_DEEPEST_WRAPPER = 5
_PARTIAL_FUNCTION: Any = functools.partial.__dict__["func"]


def codes_of_item(item: pytest.Item) -> set[types.CodeType]:
    """Return the code of the test function, and of what its decorators wrap.

    A test of a project's own kind (a case in a data file) has no function but its ``runtest``.
    """
    if not hasattr(item, "obj"):
        return codes_of(type(item).runtest, None)
    return codes_of(item.obj, getattr(getattr(item, "module", None), "__file__", None))


def codes_of(function: Any, file: str | None) -> set[types.CodeType]:
    """Return the code of a function, and of what its decorators wrap.

    No code of the program runs: attributes are looked up where they are stored.

    Args:
        function: the function or method; anything else has no code, but may lead to functions.
        file: the source file of what a decorator may have wrapped without saying so.
    """
    found: set[types.CodeType] = set()
    waiting = [(function, 0)]
    while waiting:
        function, depth = waiting.pop()
        if type(function) is types.MethodType:
            function = function.__func__
        if type(function) is types.FunctionType:
            if function.__code__ in found:
                continue
            found.add(function.__code__)
        if depth < _DEEPEST_WRAPPER:
            waiting += [(inner, depth + 1) for inner in _wrapped_by(function, file)]
    return found


def _wrapped_by(function: Any, file: str | None) -> Iterator[Any]:
    """Yield what a decorated function leads to: by convention, or from the same file."""
    stored = instance_dict(function) or {}
    yield stored.get("__wrapped__")
    yield (instance_dict(stored.get("hypothesis")) or {}).get("inner_test")
    for inner in _referred_to(function):
        unwrapped = _PARTIAL_FUNCTION.__get__(inner) if _is_partial(inner) else inner
        for candidate in (unwrapped, *(instance_dict(unwrapped) or {}).values()):
            if type(candidate) is types.MethodType:
                candidate = candidate.__func__
            if type(candidate) is types.FunctionType and candidate.__code__.co_filename == file:
                yield candidate


def _referred_to(function: Any) -> Iterator[Any]:
    """Yield what a function closes over, or else the object itself, which may be a wrapper."""
    if type(function) is not types.FunctionType:
        yield function
        return
    for cell in function.__closure__ or ():
        with contextlib.suppress(ValueError):  # not bound yet
            yield cell.cell_contents


def _is_partial(obj: Any) -> bool:
    return issubclass(type(obj), functools.partial)
