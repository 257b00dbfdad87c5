"""Log records that a test looks at: what captured them holds them, and the test only on its behalf.

``records = caplog.records`` and ``with self.assertLogs() as logs`` are how tests look at what was
logged. A traced value among a record's arguments is then no more the test's than it is without the
local variable. A handler, a list or an attribute of the program's own that keeps records is.
"""

from __future__ import annotations

import logging
import types
from typing import TYPE_CHECKING, Any

from pytest_jaxleaks.links import dotted_name

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Set

    from pytest_jaxleaks.roots import Root

__all__ = ["edges_to_captured_records"]

_CONTAINERS = (dict, list, set, tuple, types.CellType)
# What ``unittest``'s ``assertLogs`` hands out.
_WATCHER = "unittest._log._LoggingWatcher"
_OF_A_TEST = ("fixture", "local")


def edges_to_captured_records(
    nodes: Mapping[int, Any],
    below: Mapping[int, Iterable[int]],
    roots: Mapping[int, Root],
    captured: Set[int],
) -> list[tuple[int, int]]:
    """Return the references to captured log records that only a test's own variables lead to.

    Each is a pair of ids: of what refers to the record, and of the record.

    Args:
        nodes: the objects of the graph by their ids.
        below: the ids of what an object refers to.
        roots: where chains start.
        captured: ids of what pytest's log capture holds.
    """
    records = [key for key, node in nodes.items() if issubclass(type(node), logging.LogRecord)]
    if not records:
        return []
    above: dict[int, list[int]] = {}
    for parent, children in below.items():
        for child in children:
            above.setdefault(child, []).append(parent)
    found = []
    for record in records:
        for parent in above.get(record, ()):
            ways = _ways_up(parent, above)
            if _of_a_test(ways, nodes, roots) and (
                record in captured or any(_is_watcher(nodes[each]) for each in ways)
            ):
                found.append((parent, record))
    return found


def _ways_up(node: int, above: Mapping[int, list[int]]) -> set[int]:
    found, waiting = {node}, [node]
    while waiting:
        for parent in above.get(waiting.pop(), ()):
            if parent not in found:
                found.add(parent)
                waiting.append(parent)
    return found


def _of_a_test(ways: set[int], nodes: Mapping[int, Any], roots: Mapping[int, Root]) -> bool:
    for each in ways:
        node = nodes[each]
        if each in roots:
            if roots[each].kind not in _OF_A_TEST:
                return False
        elif type(node) not in _CONTAINERS and not _is_watcher(node):
            return False
    return True


def _is_watcher(node: Any) -> bool:
    return dotted_name(type(node)) == _WATCHER
