"""Mends, as code that runs. Names come from the object at hand; the tests execute every one."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import jax

from pytest_jaxleaks.links import attributes
from pytest_jaxleaks.pytree_subject import is_data, type_name

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = [
    "build_outside_jit",
    "differentiate_parameters",
    "hash_by_content",
    "register_dataclass",
    "skip_init",
]


def build_outside_jit(obj: Any) -> str:
    """Return the mend for an object whose class cannot be changed: jit returns parameters only."""
    name = type_name(obj)
    return f"params = jax.jit(compute_params)(x)  # arrays only\nobj = {name}(*params)"


def differentiate_parameters(obj: Any) -> str:
    """Return the mend for Jacobians: differentiate with respect to the parameters instead."""
    name = type_name(obj)
    return f"jacobian = jax.jacfwd(lambda params: f({name}(*params)))(params)"


def register_dataclass(obj: Any, also_data: Sequence[str] = ()) -> str | None:
    """Return a definition of the class whose arrays are leaves and whose other fields are static.

    Args:
        obj: an instance with plain attributes; None is returned where it has none.
        also_data: attributes that should be leaves although they are none today.
    """
    fields = dict(attributes(obj))
    leaves = jax.tree.leaves(obj)
    if not fields or is_installed(type(obj)) or not all(name.isidentifier() for name in fields):
        return None
    lines = []
    for name, value in fields.items():
        if name in also_data or _holds_data(value, leaves):
            lines.append(f"    {name}: Any")
        else:
            lines.append(f"    {name}: Any = dataclasses.field(metadata=dict(static=True))")
    lines.sort(key=lambda line: "static" in line)
    head = "@jax.tree_util.register_dataclass\n@dataclasses.dataclass(kw_only=True)\n"
    return f"{head}class {type_name(obj).rpartition('.')[2]}:\n" + "\n".join(lines)


def _holds_data(value: Any, leaves: Sequence[Any]) -> bool:
    parts = jax.tree.leaves(value)
    return bool(parts) and all(is_data(p) or any(p is leaf for leaf in leaves) for p in parts)


def is_installed(cls: type) -> bool:
    """Whether the class comes from an installed package, which its user will not rewrite."""
    path = getattr(sys.modules.get(cls.__module__), "__file__", None) or ""
    return "site-packages" in path or "dist-packages" in path


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
