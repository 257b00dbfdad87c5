"""Which of several markers of one kind holds for a test: the closest one."""

from __future__ import annotations

from typing import Any

import pytest

__all__ = ["closest_marks"]


def closest_marks(node: pytest.Item | pytest.Collector, *names: str) -> list[pytest.Mark]:
    """Find the markers that hold for a test: those of the closest thing that has any.

    Parameters are closer than their function, which is closer than its class. Of a class and its
    base classes pytest lists the markers of the base first, and of a function and its parameters
    those of the function; here a class is closer than what it inherits from.

    Args:
        node: the test, or its definition.
        names: the names of the markers.

    Returns:
        One marker, none, or what somebody put twice on one function, class or module.
    """
    for each in reversed(node.listchain()):
        for group in _groups(each):
            marks: list[pytest.Mark] = [getattr(one, "mark", one) for one in group]
            found = [mark for mark in marks if mark.name in names]
            if found:
                return found
    return []


def _groups(node: Any) -> list[list[Any]]:
    groups = [node.own_markers]
    if isinstance(node, pytest.Class):
        given = [vars(base).get("pytestmark", []) for base in node.obj.__mro__]
        return [one if isinstance(one, list) else [one] for one in given] + groups
    parameters = getattr(node, "callspec", None)
    return groups if parameters is None else [list(parameters.marks), *groups]
