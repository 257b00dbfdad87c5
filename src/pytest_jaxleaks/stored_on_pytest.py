"""What a program has stored on pytest's own objects: attributes, stashes, names in ``pytest``.

pytest keeps values there for itself as well. What is its own is told by the code of its classes,
which name their attributes, and by its keys, which are variables of its modules.
"""

from __future__ import annotations

import functools
import sys
import types
from typing import TYPE_CHECKING, Any

import pytest

from pytest_jaxleaks.links import module_name
from pytest_jaxleaks.roots import TEST_MACHINERY, Root

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

__all__ = ["stored_values"]


def stored_values(config: pytest.Config, nodes: Iterable[Any]) -> Iterator[tuple[Any, Root]]:
    """Yield what is stored on objects of pytest's, with what to call it.

    Args:
        config: the configuration.
        nodes: a test and the collectors above it, or those of all tests.
    """
    owners: list[Any] = [config, *nodes]
    for owner in owners:
        text = "config" if owner is config else f"the {type(owner).__name__} node"
        yield from _attributes(owner, f"pytest.{type(owner).__name__}", text)
        yield from _stash(owner.stash, f"pytest.{type(owner).__name__}.stash", text)
    for name, value in vars(pytest).items():
        if name not in pytest.__all__ and not name.startswith("_"):
            yield value, Root("local", f"attribute '{name}' of pytest", f"pytest.{name}")


def _attributes(owner: Any, dotted: str, text: str) -> Iterator[tuple[Any, Root]]:
    own = _own_names(type(owner).__mro__)
    for name, value in vars(owner).items():
        if not name.startswith("_") and name not in own:
            yield value, Root("local", f"attribute '{name}' of {text}", f"{dotted}.{name}")


def _stash(stash: Any, dotted: str, text: str) -> Iterator[tuple[Any, Root]]:
    values = getattr(stash, "_storage", {})
    if values:
        own = _keys_of_the_test_run(len(sys.modules))
        for key, value in list(values.items()):
            if id(key) not in own:
                yield value, Root("local", f"stash of {text}", dotted)


@functools.cache
def _own_names(bases: tuple[type, ...]) -> frozenset[str]:
    """Return the attributes that pytest's code names of a class, which is given with its bases.

    A test suite may have nodes of its own kinds: what their code stores is the suite's.
    """
    found: set[str] = set()
    of_pytest = [base for base in bases if _is_machinery(base)]
    for base in of_pytest:
        for value in vars(base).values():
            function = getattr(value, "fget", None) or getattr(value, "__func__", value)
            if type(function) is types.FunctionType:
                found.update(function.__code__.co_names)
        found.update(vars(base))
    return frozenset(found)


def _is_machinery(cls: type) -> bool:
    return cls is object or module_name(cls).partition(".")[0] in TEST_MACHINERY


@functools.lru_cache(maxsize=1)
def _keys_of_the_test_run(_modules: int) -> set[int]:
    """Return the ids of the stash keys that pytest and its like have in variables.

    Args:
        _modules: how many modules there are; they are looked through again when that changes.
    """
    found = set()
    for name, module in list(sys.modules.items()):
        if name.partition(".")[0] in TEST_MACHINERY:
            for value in list(getattr(module, "__dict__", {}).values()):
                if module_name(type(value)) == "_pytest.stash":
                    found.add(id(value))
    return found
