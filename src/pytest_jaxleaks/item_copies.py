"""Copies of items that pytest cannot parametrize: ``TestCase`` methods and doctests."""

from __future__ import annotations

import copy
import functools
import unittest
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["copier_of"]


def copier_of(item: pytest.Item) -> Callable[[str], pytest.Item] | None:
    """Find the way to copy an item.

    Args:
        item: a collected item.

    Returns:
        A function that takes a label and returns a copy with the label in its name and id, as
        ``test_step[label]``; ``None`` if there is no sound way to copy such an item.
    """
    if isinstance(item, pytest.DoctestItem):
        return functools.partial(_copied_doctest, item)
    if isinstance(item, pytest.Function) and _is_unittest(item):
        return functools.partial(_copied_unittest, item)
    return None


class _OwnId(pytest.Item):
    """Takes its id from its name; stands behind the copied item's type, in front of ``Item``.

    The id goes to pytest as a string, whatever the copied type makes of it: pytest 9 keeps ids as
    path, names and parameters, and ``--lf`` finds an item only if its label is a parameter.
    """

    def __init__(self, name: str, parent: pytest.Collector, **kwargs: Any) -> None:
        super().__init__(name, parent, **{**kwargs, "nodeid": f"{parent.nodeid}::{name}"})


@functools.cache
def _copy_type(base: type[pytest.Item]) -> Any:
    """Make the type of the copies of items of type ``base``."""
    own: dict[str, Any] = {}
    if issubclass(base, pytest.Function):
        own["_getinstance"] = _test_case
    return type(base.__name__, (base, _OwnId), own)


def _copied_doctest(item: pytest.DoctestItem, label: str) -> pytest.Item:
    """Copy a doctest. Its globals are copied too: the first run clears them."""
    dtest = copy.copy(item.dtest)
    dtest.globs = dict(item.dtest.globs)
    copied: pytest.Item = _copy_type(type(item)).from_parent(
        item.parent, name=f"{item.name}[{label}]", runner=item.runner, dtest=dtest
    )
    return copied


def _is_unittest(item: pytest.Function) -> bool:
    """Say whether an item is a ``TestCase`` method whose instance we know how to make.

    pytest makes the instance in ``_getinstance``, by the item's name. That method is private and
    has been there since pytest 8.2 (seen up to 9.2).
    """
    return (
        item.cls is not None
        and issubclass(item.cls, unittest.TestCase)
        and hasattr(type(item), "_getinstance")
        and item.originalname == item.name
    )


def _copied_unittest(item: pytest.Function, label: str) -> pytest.Item:
    copied: pytest.Item = _copy_type(type(item)).from_parent(
        item.parent, name=f"{item.name}[{label}]", originalname=item.name
    )
    return copied


def _test_case(item: pytest.Function) -> object:
    """Make the ``TestCase`` by the method's name, which is not the copy's name."""
    assert item.cls is not None
    return item.cls(item.originalname)
