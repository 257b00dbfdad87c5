"""Mends, as code that runs. Names come from the object at hand; the tests execute every one."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import jax

from pytest_jaxleaks.links import attributes
from pytest_jaxleaks.pytree_subject import is_data, type_name

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["build_outside_jit", "hash_by_content", "register_dataclass", "skip_init", "with_keys"]


def build_outside_jit(obj: Any) -> str:
    """Return the mend for an object whose class cannot be changed: jit returns parameters only."""
    name = type_name(obj)
    return f"params = jax.jit(compute_params)(x)  # arrays only\nobj = {name}(*params)"


def register_dataclass(obj: Any, also_data: Sequence[str] = ()) -> str | None:
    """Return a definition of the class whose arrays are leaves and whose other fields are static.

    Args:
        obj: an instance with plain attributes; None is returned where it has none.
        also_data: attributes that should be leaves although they are none today.
    """
    fields = dict(attributes(obj))
    if not fields or not all(name.isidentifier() for name in fields):
        return None
    lines = []
    for name, value in fields.items():
        if name in also_data or _holds_data(value):
            lines.append(f"    {name}: Any")
        else:
            lines.append(f"    {name}: Any = dataclasses.field(metadata=dict(static=True))")
    lines.sort(key=lambda line: "static" in line)
    head = "@jax.tree_util.register_dataclass\n@dataclasses.dataclass(kw_only=True)\n"
    return f"{head}class {type_name(obj).rpartition('.')[2]}:\n" + "\n".join(lines)


def _holds_data(value: Any) -> bool:
    leaves = jax.tree.leaves(value)
    return bool(leaves) and all(is_data(leaf) or type(leaf) in (int, float) for leaf in leaves)


def skip_init(obj: Any) -> str | None:
    """Return a ``tree_unflatten`` that runs neither ``__init__`` nor ``__new__`` of the class."""
    leaves = jax.tree.leaves(obj, is_leaf=lambda child: child is not obj)
    fields = dict(attributes(obj))
    names = [name for leaf in leaves for name, value in fields.items() if value is leaf]
    if not names or len(names) != len(leaves) or len(names) != len(fields):
        return register_dataclass(obj)
    targets = ", ".join(f"obj.{name}" for name in names)
    return (
        "@classmethod\n"
        "def tree_unflatten(cls, aux, children):\n"
        "    obj = object.__new__(cls)  # no __init__, no conversion, no validation\n"
        f"    ({targets},) = children\n"
        "    return obj"
    )


def hash_by_content(where: str) -> str:
    """Return the mend for static data that compares by identity or cannot be compared."""
    del where
    return (
        "@dataclasses.dataclass(frozen=True)  # equal by content, hashable\n"
        "class Static:\n"
        "    name: str\n"
        "    sizes: tuple[int, ...]"
    )


def with_keys(obj: Any) -> str | None:
    """Return the mend for a node without key paths of its own."""
    return register_dataclass(obj)
