"""From the objects between a root and a tracer to the names that a programmer gave them."""

from __future__ import annotations

import itertools
import re
import sys
from typing import TYPE_CHECKING, Any, NamedTuple

from pytest_jaxleaks.jax_internals import children_of_node, is_jax_module
from pytest_jaxleaks.links import Link, class_name, links, module_variables

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from pytest_jaxleaks.holders import Holding
    from pytest_jaxleaks.roots import Root

__all__ = ["Chain", "ChainNamer", "without_positions"]

# An instance is one reference from an attribute's value or two (over its dict); a function is three
# from a closure variable's value (tuple of cells, cell).
_MOST_HIDDEN_STEPS = 3
# What a ``contextvars.Context`` keeps its variables' values in.
_PARTS_OF_A_CONTEXT = frozenset(
    {"hamt", "hamt_array_node", "hamt_bitmap_node", "hamt_collision_node"}
)


class Chain(NamedTuple):
    """How a program reaches a value.

    Attributes:
        labels: the root and the links in the programmer's words.
        names: dotted names of the links that have one, outermost first.
        holder: dotted name of the innermost link that a programmer can edit.
        kind: the kind of the link that the holder is (see ``Link.kind``), or of the root.
        through: class names of the objects on the way.
    """

    labels: tuple[str, ...]
    names: tuple[str, ...]
    holder: str
    kind: str
    through: tuple[str, ...]


class ChainNamer:
    """Names the paths of one search; each object on them is enumerated once."""

    def __init__(self, holdings: Sequence[Holding], owns: Callable[[str], bool]) -> None:
        self._owns = owns
        self._wanted = {id(obj) for holding in holdings for obj in holding.path}
        self._tables: dict[int, dict[int, Link]] = {}
        # Attributes of a third party's pytree nodes that JAX sees into.
        self._in_sight: set[str] = set()

    def chain(self, holding: Holding) -> Chain:
        """Return the names along ``holding.path``."""
        found = self._links(holding.path, holding.root)
        labels = [link.label for link in found]
        names = [link.named_by for link in found if link.named_by]
        if holding.root.text:
            labels.insert(0, holding.root.text)
        if holding.root.named_by:
            names.insert(0, holding.root.named_by)
        if not labels:
            labels = [class_name(type(holding.path[0]))]
        holder, kind = self._holder(found, holding.root)
        return Chain(
            tuple(labels),
            tuple(names),
            holder or next(iter(names), labels[0]),
            kind,
            tuple(class_name(type(obj)) for obj in holding.path[:-1]),
        )

    def _holder(self, found: Sequence[Link], root: Root) -> tuple[str | None, str]:
        """Return the name, and its kind, of what somebody has to edit.

        That is the innermost thing in the project's own code that outlives a call. Failing that, an
        attribute with a bound method, since it hides its object from JAX; or what the chain starts
        at, for a third party's cache; or the innermost name there is. What JAX sees of a third
        party's pytree node is data: whoever keeps the node is to be edited.
        """
        named = [link for link in found if link.named_by and not _is_foreign(link.named_by)]
        lasting = [link for link in named if link.kind != "local variable"]
        for link in reversed(lasting):
            if self._owns(str(link.named_by)):
                return link.named_by, link.kind
        for link, inner in itertools.pairwise(found):
            if inner.kind == "method" and link in lasting:
                return link.named_by, "method"
        if root.kind in ("module", "class") and named:
            return named[0].named_by, named[0].kind
        hiding = [link for link in named if link.named_by not in self._in_sight]
        lasting = [link for link in hiding if link.kind != "local variable"]
        if hiding and (lasting or not root.named_by):
            last = (lasting or hiding)[-1]
        elif named and not root.named_by:
            last = named[-1]
        else:
            return root.named_by, root.kind
        return last.named_by, last.kind

    def _links(self, path: Sequence[Any], root: Root) -> list[Link]:
        found = []
        path = [obj for obj in path if class_name(type(obj)) not in _PARTS_OF_A_CONTEXT]
        position = 0
        while position < len(path) - 1:
            link, step = self._next(path, position, root)
            found.append(link)
            if link.kind == "attribute" and self._is_in_sight(link, path[position:]):
                self._in_sight.add(str(link.named_by))
            position += step
        return _without_cells(found)

    def _is_in_sight(self, link: Link, path: Sequence[Any]) -> bool:
        """Tell whether an attribute is of a third party's pytree node, and what it holds a child.

        The node's own flattening is called; that of a project's class never is.
        """
        if link.named_by is None or self._owns(link.named_by):
            return False
        children = set(map(id, children_of_node(path[0])))
        return any(id(obj) in children for obj in path[1:])

    def _next(self, path: Sequence[Any], position: int, root: Root) -> tuple[Link, int]:
        table = self._table(path[position], root if position == 0 else None)
        unnamed = Link(f"inside {class_name(type(path[position]))}", path[position + 1])
        for step, child in enumerate(
            path[position + 1 : position + 1 + _MOST_HIDDEN_STEPS], start=1
        ):
            link = table.get(id(child), unnamed)
            if link.label != unnamed.label:
                return link, step
        return unnamed, 1

    def _table(self, obj: Any, root: Root | None) -> dict[int, Link]:
        table = self._tables.get(id(obj))
        if table is None:
            table = self._tables[id(obj)] = {}
            is_variables = root is not None and root.kind == "module" and type(obj) is dict
            found = module_variables(str(root.module), obj) if is_variables and root else links(obj)
            for link in found:
                if id(link.child) in self._wanted:
                    table.setdefault(id(link.child), link)
        return table


def _without_cells(found: list[Link]) -> list[Link]:
    """Drop a cell's anonymous link where the variable it belongs to was named already."""
    return [link for i, link in enumerate(found) if link.label != "closure variable" or i == 0]


def _is_foreign(dotted: str) -> bool:
    """Tell whether a name belongs to a module that nobody edits to mend a leak."""
    package = dotted.partition(".")[0]
    return is_jax_module(package) or package in sys.stdlib_module_names or package == "numpy"


def without_positions(label: str) -> str:
    """Return ``list[*]`` for ``list[3]``, so that elements of one container compare equal."""
    return re.sub(r"\[.*\]$", "[*]", label)
