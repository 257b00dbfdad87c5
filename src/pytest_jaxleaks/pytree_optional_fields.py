"""Fields that hold no array yet: once they do, the treedef is another one."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

import jax

from pytest_jaxleaks import pytree_hints as hints
from pytest_jaxleaks.pytree_findings import Cause, Symptom
from pytest_jaxleaks.pytree_subject import nodes, type_name

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pytest_jaxleaks.pytree_subject import Subject

__all__ = ["optional_field_symptoms"]


def optional_field_symptoms(subject: Subject) -> Iterator[Symptom]:
    """Note each child that is None by default now, and an array at other times, as it is annotated.

    A ``scan`` that fills such a field fails, and ``jit`` traces again. That is a limit: the object
    may never be changed. Classes of installed packages are left alone.
    """
    seen = set()
    for path, node in nodes(subject.obj):
        if type(node) in seen or hints.is_installed(type(node)):
            continue
        seen.add(type(node))
        for name in _empty_fields(node):
            owner = type_name(node)
            yield Symptom(
                "treedef",
                f"{path}.{name} is None: with an array there jit traces again, and scan and cond "
                "refuse the pair",
                Cause(
                    f"optional:{owner}.{name}",
                    f"the treedef of {owner} changes when its field {name} gets an array",
                    hints.array_from_the_start(node, name),
                ),
                broken=False,
            )


def _empty_fields(node: Any) -> list[str]:
    found = [name for name, note in _optional(node) if "rray" in str(note)]
    empty = [name for name in found if getattr(node, name, node) is None]
    return empty if empty and None in _children(node) else []


def _optional(node: Any) -> Iterator[tuple[str, Any]]:
    """Yield the name and annotation of the fields whose default is None."""
    if dataclasses.is_dataclass(node):
        for field in dataclasses.fields(node):
            if field.default is None and not field.metadata.get("static"):
                yield field.name, field.type
    elif isinstance(node, tuple):
        notes = getattr(type(node), "__annotations__", {})
        for name, default in getattr(type(node), "_field_defaults", {}).items():
            if default is None:
                yield name, notes.get(name)


def _children(node: Any) -> list[Any]:
    """Flatten one level; only None is looked for, by identity."""
    children = jax.tree.leaves(node, is_leaf=lambda child: child is not node)
    return [child for child in children if child is None]
