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
    "EQUAL_BY_CONTENT",
    "NAMED_FUNCTION",
    "build_outside_jit",
    "differentiate_parameters",
    "register_dataclass",
    "skip_init",
]

EQUAL_BY_CONTENT = """\
@dataclasses.dataclass(frozen=True)  # equal by content, so that treedefs are equal too
class Static:
    name: str
    sizes: tuple[int, ...]"""
"""The mend for static data that is equal only to itself, or cannot be compared."""

NAMED_FUNCTION = """\
def activation(x):  # at module level: one function for all instances
    return jax.nn.relu(x)"""
"""The mend for a function among the static data that every instance makes anew."""


def build_outside_jit(obj: Any) -> str:
    """Return the mend for an object whose class cannot be changed: jit returns parameters only."""
    return f"params = jax.jit(compute_params)(x)  # arrays only\nobj = {type_name(obj)}(*params)"


def differentiate_parameters(obj: Any) -> str:
    """Return the mend for Jacobians: differentiate with respect to the parameters instead."""
    return f"jacobian = jax.jacfwd(lambda params: f({type_name(obj)}(*params)))(params)"


def register_dataclass(obj: Any, also_data: Sequence[str] = ()) -> str | None:
    """Return a definition of the class whose arrays are leaves and whose other fields are static.

    Args:
        obj: an instance with plain attributes, or a named tuple; None is returned where it has no
            fields, or where its class comes from an installed package.
        also_data: attributes that should be leaves although they are none today.
    """
    fields = _fields(obj)
    if not fields or is_installed(type(obj)) or not all(name.isidentifier() for name in fields):
        return None
    leaves = jax.tree.leaves(obj)
    data = [
        f"    {name}: Any"
        for name, value in fields.items()
        if name in also_data or _holds_data(value, leaves)
    ]
    static = [
        f'    {name}: Any = dataclasses.field(metadata={{"static": True}})'
        for name, value in fields.items()
        if name not in also_data and not _holds_data(value, leaves)
    ]
    head = "@jax.tree_util.register_dataclass\n@dataclasses.dataclass\n"
    return f"{head}class {type_name(obj).rpartition('.')[2]}:\n" + "\n".join(data + static)


def _fields(obj: Any) -> dict[str, Any]:
    names = getattr(type(obj), "_fields", None)
    if isinstance(obj, tuple) and names:
        return dict(zip(names, obj, strict=False))
    return dict(attributes(obj))


def _holds_data(value: Any, leaves: Sequence[Any]) -> bool:
    parts = jax.tree.leaves(value)
    return bool(parts) and all(is_data(p) or any(p is leaf for leaf in leaves) for p in parts)


def is_installed(cls: type) -> bool:
    """Whether the class comes from an installed package, which its user will not rewrite."""
    path = getattr(sys.modules.get(cls.__module__), "__file__", None) or ""
    return "site-packages" in path or "dist-packages" in path


def skip_init(obj: Any) -> str | None:
    """Return a ``tree_unflatten`` that runs neither ``__init__`` nor ``__new__`` of the class.

    Where the children are not just the attributes, a definition as a dataclass is returned.
    """
    if is_installed(type(obj)):
        return None
    children = jax.tree.leaves(obj, is_leaf=lambda child: child is not obj)
    fields = dict(attributes(obj))
    names = [name for child in children for name, value in fields.items() if value is child]
    if not names or not len(names) == len(children) == len(fields):
        return register_dataclass(obj)
    targets = ", ".join(f"obj.{name}" for name in names)
    return (
        "@classmethod\n"
        "def tree_unflatten(cls, aux, children):\n"
        "    obj = object.__new__(cls)  # no __init__, no conversion, no validation\n"
        f"    ({targets},) = children\n"
        "    return obj"
    )
