"""What a test's leaks can be reached by: its frame, its fixtures, its instance, its names."""

from __future__ import annotations

import functools
import gc
import types
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pytest_jaxleaks.leaks import CodeUnderTest
from pytest_jaxleaks.links import class_name, dotted_name, module_name
from pytest_jaxleaks.roots import TEST_MACHINERY, Root, Surroundings
from pytest_jaxleaks.stored_on_pytest import stored_values

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    import pytest

    from pytest_jaxleaks.item_kinds import Scene

__all__ = [
    "code_under_test",
    "fixture_text",
    "project",
    "surroundings_of",
    "surroundings_of_session",
]

_DEEPEST_WRAPPER = 5


def code_under_test(item: pytest.Item) -> CodeUnderTest:
    """Return what belongs to the project that ``item`` is a test of."""
    module = getattr(getattr(item, "module", None), "__name__", "")
    return CodeUnderTest(Path(item.config.rootpath), module.partition(".")[0])


def project(config: pytest.Config) -> CodeUnderTest:
    """Return what belongs to the project, where there is no test to go by."""
    return CodeUnderTest(Path(config.rootpath))


def surroundings_of(
    item: pytest.Item,
    fixtures: Iterable[pytest.FixtureDef[Any]],
    scene: Scene | None = None,
) -> Surroundings:
    """Return by what a program can reach values while ``item`` is the current test."""
    roots = {} if scene is None else scene.roots()
    for fixture in fixtures:
        if not _is_parameter(fixture):
            _add_fixture(roots, fixture)
        elif scene is None:  # a test that was called has it as a local variable
            value = fixture.cached_result[0] if fixture.cached_result else None
            _add_parameter(roots, fixture.argname, value, item)
    _add_plugins(roots, item.config.pluginmanager)
    roots[id(item.user_properties)] = Root(
        "local", "what record_property was given", "record_property"
    )
    for value, root in stored_values(item.config, item.listchain()):
        if _is_plain_object(value):
            roots.setdefault(id(value), root)
    _add_instance(roots, item)
    frames = () if scene is None else scene.frames()
    return Surroundings(roots=roots, frames=frames)


def surroundings_of_session(session: pytest.Session) -> Surroundings:
    """Return by what a program can reach values before the first test."""
    roots: dict[int, Root] = {}
    _add_plugins(roots, session.config.pluginmanager)
    nodes = {node: None for item in session.items for node in item.listchain()}
    for value, root in stored_values(session.config, nodes):
        if _is_plain_object(value):
            roots.setdefault(id(value), root)
    for item in session.items:
        _add_instance(roots, item)
        for name, value in getattr(getattr(item, "callspec", None), "params", {}).items():
            _add_parameter(roots, name, value, item)
    return Surroundings(roots=roots)


def _add_instance(roots: dict[int, Root], item: pytest.Item) -> None:
    # pytest's property would make an instance where there is none (any more).
    instance = vars(item).get("_instance")
    if _is_plain_object(instance):
        module = module_name(type(instance))
        name = class_name(type(instance))
        roots[id(instance)] = Root("local", f"instance of {name}", f"{module}.{name}", module)


def fixture_text(fixture: pytest.FixtureDef[Any]) -> str:
    """Return what a programmer calls a fixture."""
    return f"fixture '{fixture.argname}' ({fixture.scope} scope)"


def _add_fixture(roots: dict[int, Root], fixture: pytest.FixtureDef[Any]) -> None:
    module = getattr(fixture.func, "__module__", "")
    root = Root("fixture", fixture_text(fixture), f"{module}.{fixture.argname}", module)
    for suspended in _suspended(getattr(fixture, "_finalizers", ())):
        roots[id(suspended)] = root
    # The definition leads to a suspended generator; the value is what a test sees.
    roots[id(fixture)] = root
    value = fixture.cached_result[0] if fixture.cached_result else None
    if _is_plain_object(value):
        roots[id(value)] = root


def _is_parameter(fixture: pytest.FixtureDef[Any]) -> bool:
    """Tell whether a fixture is pytest's own way to hand over what ``parametrize`` was given."""
    return getattr(fixture.func, "__module__", None) == "_pytest.python"


def _add_parameter(roots: dict[int, Root], name: str, value: Any, item: pytest.Item) -> None:
    if _is_plain_object(value):
        module = getattr(getattr(item, "module", None), "__name__", "")
        function = getattr(item, "originalname", item.name)
        text = f"parameter '{name}' of {function}"
        roots.setdefault(id(value), Root("local", text, f"{module}.{function}.{name}", module))


def _add_plugins(roots: dict[int, Root], manager: pytest.PytestPluginManager) -> None:
    """Count objects that were registered as plugins: nothing else need refer to them."""
    for name, plugin in manager.list_name_plugin():
        if _is_plain_object(plugin):
            cls = type(plugin)
            text = f"plugin {class_name(cls)}" if name.isdigit() else f"plugin '{name}'"
            roots[id(plugin)] = Root("plugin", text, dotted_name(cls), module_name(cls))


_WRAPPERS = (list, tuple, functools.partial, types.FunctionType, types.CellType, types.MethodType)
_SUSPENDED = (types.GeneratorType, types.AsyncGeneratorType, types.CoroutineType)


def _suspended(finalizers: Any) -> Iterator[Any]:
    """Yield the generators of ``yield`` fixtures: pytest and its plugins wrap them differently."""
    waiting = [(finalizer, 0) for finalizer in finalizers]
    while waiting:
        obj, depth = waiting.pop()
        if isinstance(obj, _SUSPENDED):
            yield obj
        elif isinstance(obj, _WRAPPERS) and depth < _DEEPEST_WRAPPER:
            inner = (obj.__closure__ or ()) if isinstance(obj, types.FunctionType) else None
            children = gc.get_referents(obj) if inner is None else inner
            waiting += [(child, depth + 1) for child in children]


def _is_plain_object(value: Any) -> bool:
    """Tell whether a value can be what keeps a tracer, and is the program's."""
    if value is None or issubclass(type(value), (type, types.ModuleType)):
        return False
    return module_name(type(value)).partition(".")[0] not in TEST_MACHINERY
