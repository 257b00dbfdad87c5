"""The record of a leak: what is kept, by whom, where it was made, and how to mend it."""

from __future__ import annotations

import linecache
import sys
import types
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pytest_jaxleaks.chains import ChainNamer, without_positions
from pytest_jaxleaks.hints import hint_for
from pytest_jaxleaks.jax_internals import Place, is_jax_module, is_jaxpr, record_of, traced_by
from pytest_jaxleaks.links import module_name

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from pytest_jaxleaks.chains import Chain
    from pytest_jaxleaks.holders import Holding
    from pytest_jaxleaks.roots import Root

__all__ = [
    "CodeUnderTest",
    "Leak",
    "Location",
    "is_jaxpr_of_a_library",
    "leaks_from",
    "not_ignored",
]


# What a linked list of a hundred thousand nodes would fill a report with.
_MOST_LINKS = 100


@dataclass(frozen=True)
class Location:
    """A place in source code.

    Attributes:
        path: file name, relative to the project's root where it lies below it.
        line: line number, from 1.
        function: qualified name of the function.
        source: the line's text, without indentation; empty where it cannot be read.
    """

    path: str
    line: int
    function: str
    source: str = ""

    def as_dict(self) -> dict[str, Any]:
        """Return the place as the JSON report has it."""
        return {"path": self.path, "line": self.line, "function": self.function}


@dataclass(frozen=True)
class Leak:
    """A value that outlived the transformation that made it.

    Attributes:
        value: shape and dtype, such as ``float32[3]``.
        tracer: class of the tracer, such as ``DynamicJaxprTracer``.
        transform: jit, vmap, grad, jvp, remat, shard_map or other.
        owner: ``project`` or ``third-party``.
        traced: the traced function, where JAX recorded it.
        created: where the value was made, where JAX recorded it.
        caller: where the transformation was called, where JAX recorded it.
        root: what the program reaches the value by.
        holder: dotted name of the attribute, variable or cache to edit.
        chain: the way from the root to the value.
        hint: how to mend it.
        names: dotted names along the chain; an ignore pattern matches any of them.
        count: how many values are held in just this way.
    """

    value: str
    tracer: str
    transform: str
    owner: str
    traced: Location | None
    created: Location | None
    caller: Location | None
    root: str
    holder: str
    chain: tuple[str, ...]
    hint: str
    names: tuple[str, ...] = ()
    count: int = 1

    def matches(self, pattern: str) -> bool:
        """Tell whether a holder pattern (``*`` and ``?`` as in file names) names this leak."""
        return any(fnmatchcase(name, pattern) for name in (self.holder, *self.names))

    def as_dict(self) -> dict[str, Any]:
        """Return the leak as the JSON report has it (version 1)."""
        traced = self.traced and {
            "function": self.traced.function,
            "path": self.traced.path,
            "line": self.traced.line,
        }
        return {
            "value": self.value,
            "tracer": self.tracer,
            "transform": self.transform,
            "owner": self.owner,
            "traced": traced,
            "created": self.created and self.created.as_dict(),
            "root": self.root,
            "holder": self.holder,
            "chain": list(self.chain),
            "hint": self.hint,
        }


@dataclass(frozen=True)
class CodeUnderTest:
    """What belongs to the project.

    Attributes:
        folder: the project's root folder.
        package: top-level package (or module) of the code that is being checked.
    """

    folder: Path
    package: str = ""

    def owns(self, module: str | None) -> bool:
        """Tell whether a module belongs to the project."""
        if module is None or module.partition(".")[0] == (self.package or "__main__"):
            return True
        path = getattr(sys.modules.get(module), "__file__", None)
        if not isinstance(path, str):
            return module not in sys.stdlib_module_names and module not in sys.modules
        return "site-packages" not in path and Path(path).is_relative_to(self.folder)

    def owns_name(self, dotted: str) -> bool:
        """Tell whether a dotted name, such as ``tests.conftest.store``, is of the project."""
        module = dotted
        while module and module not in sys.modules:
            module = module.rpartition(".")[0]
        return bool(module) and self.owns(module)

    def locate(self, place: Place | None) -> Location | None:
        """Return a place with its file name relative to the root, if it lies below it."""
        if place is None:
            return None
        path = Path(place.path)
        source = linecache.getline(place.path, place.line).strip()
        if path.is_relative_to(self.folder):
            path = path.relative_to(self.folder)
        return Location(path.as_posix(), place.line, place.function, source)


def leaks_from(holdings: Sequence[Holding], code: CodeUnderTest) -> list[Leak]:
    """Turn holdings into leaks, equal ones merged, shortest chains first.

    Args:
        holdings: the holdings of one search.
        code: what belongs to the project.

    Returns:
        One leak per way in which the program keeps traced values.
    """
    namer = ChainNamer(holdings, code.owns_name)
    groups: dict[tuple[object, ...], list[tuple[Chain, Holding]]] = {}
    for holding in holdings:
        chain = namer.chain(holding)
        shape = tuple(map(without_positions, chain.labels))
        key = (chain.holder, shape, traced_by(holding.tracer))
        groups.setdefault(key, []).append((chain, holding))
    leaks = [_leak(group, code) for group in groups.values()]
    return sorted(leaks, key=lambda leak: (len(leak.chain), leak.chain))


def _leak(group: Sequence[tuple[Chain, Holding]], code: CodeUnderTest) -> Leak:
    chain, holding = min(group, key=lambda each: len(each[0].labels))
    record = record_of(holding.tracer)
    return Leak(
        value=record.value,
        tracer=record.kind,
        transform=record.transform,
        owner="project" if _is_own(holding.root, code) else "third-party",
        traced=code.locate(record.traced),
        created=code.locate(record.created),
        caller=code.locate(record.caller),
        root=chain.labels[0],
        holder=chain.holder,
        chain=_capped(chain.labels),
        hint=hint_for(chain, holding.path),
        names=chain.names,
        count=len(group),
    )


def _capped(labels: tuple[str, ...]) -> tuple[str, ...]:
    """Leave out the middle of a very long way, and say how much that is."""
    left_out = len(labels) - _MOST_LINKS
    if left_out <= 0:
        return labels
    half = _MOST_LINKS // 2
    return (*labels[:half], f"({left_out} links)", *labels[-half:])


def is_jaxpr_of_a_library(holding: Holding, code: CodeUnderTest) -> bool:
    """Tell whether a third party keeps a jaxpr: equinox does in a cache, and in its closures.

    A library that keeps what it traced does so for its structure: nobody takes the constants out.
    Since jax 0.12 a jaxpr has them even where it is kept next to the values it is called with, as
    in what ``eqx.filter_closure_convert`` returns, and so in many a solution of optimistix.
    """
    path = holding.path
    position = next(filter(lambda i: is_jaxpr(path[i]), range(len(path))), None)
    if position is None:
        return False
    return not _is_own(holding.root, code) or _is_of_a_library(path[:position], code)


def _is_of_a_library(path: Sequence[Any], code: CodeUnderTest) -> bool:
    """Tell whether the innermost object that is no mere container is one of a third party's."""
    for obj in reversed(path):
        is_function = type(obj) is types.FunctionType
        module = str(obj.__module__) if is_function else module_name(type(obj))
        package = module.partition(".")[0]
        if package not in ("builtins", "collections"):
            is_standard = package in sys.stdlib_module_names
            return not (is_standard or is_jax_module(module) or code.owns(module))
    return False


def _is_own(root: Root, code: CodeUnderTest) -> bool:
    return root.kind == "local" or code.owns(root.module)


def not_ignored(leaks: Iterable[Leak], patterns: Sequence[str]) -> list[Leak]:
    """Return the leaks that none of ``patterns`` names."""
    return [leak for leak in leaks if not any(leak.matches(pattern) for pattern in patterns)]
