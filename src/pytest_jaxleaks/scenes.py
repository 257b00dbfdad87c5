"""What a test's leaks can be reached by: its frame, its fixtures, its instance, its names."""

from __future__ import annotations

import types
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pytest_jaxleaks.leaks import CodeUnderTest
from pytest_jaxleaks.links import class_name, module_name
from pytest_jaxleaks.roots import TEST_MACHINERY, Root, Surroundings

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    import pytest

__all__ = ["code_under_test", "codes_of", "surroundings_of"]

_DEEPEST_WRAPPER = 5


def codes_of(item: pytest.Item) -> set[types.CodeType]:
    """Return the code of the test function, and of what its decorators wrap."""
    module = getattr(item, "module", None)
    file = getattr(module, "__file__", None)
    found: set[types.CodeType] = set()
    waiting = [(getattr(item, "obj", None), 0)]
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


def code_under_test(item: pytest.Item) -> CodeUnderTest:
    """Return what belongs to the project that ``item`` is a test of."""
    module = getattr(getattr(item, "module", None), "__name__", "")
    return CodeUnderTest(Path(item.config.rootpath), module.partition(".")[0])


def surroundings_of(
    item: pytest.Item,
    fixtures: Iterable[pytest.FixtureDef[Any]],
    frames: Iterable[types.FrameType] = (),
) -> Surroundings:
    """Return by what a program can reach values while ``item`` is the current test."""
    roots: dict[int, Root] = {}
    for fixture in fixtures:
        _add_fixture(roots, fixture)
    instance = getattr(item, "instance", None)
    if _is_plain_object(instance):
        module = module_name(type(instance))
        name = class_name(type(instance))
        roots[id(instance)] = Root("local", f"instance of {name}", f"{module}.{name}", module)
    names = getattr(getattr(item, "dtest", None), "globs", None)
    if type(names) is dict:
        roots[id(names)] = Root("local", f"names of doctest {item.name}", item.name)
    return Surroundings(roots=roots, frames=tuple(frames))


def _add_fixture(roots: dict[int, Root], fixture: pytest.FixtureDef[Any]) -> None:
    module = fixture.func.__module__
    text = f"fixture '{fixture.argname}' ({fixture.scope} scope)"
    root = Root("fixture", text, f"{module}.{fixture.argname}", module)
    # The definition leads to a suspended generator; the value is what a test sees.
    roots[id(fixture)] = root
    value = fixture.cached_result[0] if fixture.cached_result else None
    if _is_plain_object(value):
        roots[id(value)] = root


def _is_plain_object(value: Any) -> bool:
    """Tell whether a value can be what keeps a tracer, and is the program's."""
    if value is None or issubclass(type(value), (type, types.ModuleType)):
        return False
    return module_name(type(value)).partition(".")[0] not in TEST_MACHINERY
