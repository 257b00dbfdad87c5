"""What a reference chain may start at: the things by which a program reaches a value."""

from __future__ import annotations

import sys
import types
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from pytest_jaxleaks.caches_of_jax import CachesOfJax
from pytest_jaxleaks.jax_internals import containers_of_jax, is_jax_module
from pytest_jaxleaks.links import at_home, module_name

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["TEST_MACHINERY", "Root", "RootFinder", "Surroundings"]


# Packages whose objects keep things for the sake of a test run, and not of the program.
TEST_MACHINERY = frozenset({"_pytest", "execnet", "pluggy", "pytest", "pytest_jaxleaks", "xdist"})
# Modules whose variables hold what the test run records: pytest catches warnings by one of them.
_RECORDERS = frozenset({"warnings"})

_CONTAINERS = frozenset(map(id, (dict, list, set)))


@dataclass(frozen=True)
class Root:
    """Where a chain starts.

    Attributes:
        kind: ``module``, ``class``, ``local``, or what the caller gave (``fixture``, ...).
        text: what the programmer calls it; empty where the first link names it.
        named_by: dotted name, as in ``tests.conftest.store``; None where the first link has it.
        module: name of the module it belongs to, to tell a project from a third party.
    """

    kind: str
    text: str = ""
    named_by: str | None = None
    module: str | None = None


@dataclass(frozen=True)
class Surroundings:
    """What whoever asks for holders knows about the program and the garbage collector cannot see.

    Attributes:
        roots: given roots by the ``id`` of the object that each of them names.
        frames: finished frames that are kept, whose locals count as reachable.
        running: frames of this thread that still run and whose locals count as reachable.
        jax_caches: caches of JAX's that exist; knowing them saves searching for them.
        ignored: ids of objects that belong to whoever asks.
        machinery: top-level packages whose objects hold values only on behalf of a test run.
    """

    roots: Mapping[int, Root] = field(default_factory=dict)
    frames: tuple[types.FrameType, ...] = ()
    running: tuple[types.FrameType, ...] = ()
    jax_caches: CachesOfJax = field(default_factory=CachesOfJax)
    ignored: frozenset[int] = frozenset()
    machinery: frozenset[str] = TEST_MACHINERY


class RootFinder:
    """Tells roots from other objects; made anew for each look, since modules come and go."""

    def __init__(self, surroundings: Surroundings) -> None:
        self._given = dict(surroundings.roots)
        for frame in surroundings.frames:
            module = frame.f_globals.get("__name__")
            self._given[id(frame)] = Root("local", module=module)
        self._machinery = surroundings.machinery
        self._modules = _module_dicts()
        # Ids of what exists as long as this look takes.
        self._of_jax: frozenset[int] | None = None

    def give(self, obj: Any, root: Root) -> None:
        """Count ``obj`` as ``root`` from now on."""
        self._given.setdefault(id(obj), root)

    def is_dead_end(self, obj: Any) -> bool:
        """Tell whether ``obj`` is JAX's or the test machinery's: a module, class or variable."""
        module = self._home(obj)
        if module is None:
            return self._is_container_of_jax(obj)
        return is_jax_module(module) or self._is_of_machinery(module)

    def _is_container_of_jax(self, obj: Any) -> bool:
        if id(type(obj)) not in _CONTAINERS:
            return False
        if self._of_jax is None:
            self._of_jax = frozenset(containers_of_jax())
        return id(obj) in self._of_jax

    def is_machinery(self, obj: Any) -> bool:
        """Tell whether ``obj`` is a module or class of the test machinery."""
        module = self._home(obj)
        return module is not None and self._is_of_machinery(module)

    def _is_of_machinery(self, module: str) -> bool:
        return module in _RECORDERS or module.partition(".")[0] in self._machinery

    def root_of(self, obj: Any) -> Root | None:
        """Return the root that ``obj`` is, or None."""
        given = self._given.get(id(obj))
        if given is not None:
            return given
        module = self._home(obj)
        if module is None or module in _RECORDERS:
            return None
        if is_class(obj):
            # A class that stands under its name in a module; any other must be held by something.
            qualified = type.__dict__["__qualname__"].__get__(obj)
            return Root("class", module=module) if at_home(obj, module, qualified) is obj else None
        return Root("module", module=module)

    def _home(self, obj: Any) -> str | None:
        """Return the module of a class, a module or a module's dict."""
        if type(obj) is dict:
            return self._modules.get(id(obj))
        if is_class(obj):
            return module_name(obj)
        if issubclass(type(obj), types.ModuleType):
            return str(types.ModuleType.__getattribute__(obj, "__name__"))
        return None


def is_class(obj: Any) -> bool:
    """Tell whether ``obj`` is a class, without asking its ``__class__``."""
    return issubclass(type(obj), type)


def _module_dicts() -> dict[int, str]:
    found = {}
    for name, module in list(sys.modules.items()):
        if issubclass(type(module), types.ModuleType):
            found[id(types.ModuleType.__getattribute__(module, "__dict__"))] = name
    return found
