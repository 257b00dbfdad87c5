"""Mends, as code that runs. Names come from the object at hand; the tests execute every one."""

from __future__ import annotations

import dataclasses
import sys
from typing import TYPE_CHECKING, Any

import equinox as eqx
import jax

from pytest_jaxleaks.links import attributes
from pytest_jaxleaks.pytree_subject import is_data, same_value, type_name

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = [
    "EQUAL_BY_CONTENT",
    "NAMED_FUNCTION",
    "array_from_the_start",
    "build_outside_jit",
    "differentiate_parameters",
    "is_installed",
    "leaf_of_partial",
    "register_container",
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


def leaf_of_partial(holder: str) -> str:
    """Return the mend for a function that holds an array: the array is a leaf of a ``Partial``.

    Args:
        holder: what holds the function, for the comment.
    """
    return (
        "def apply(hidden, x):  # at module level: what it closed over is an argument\n"
        "    return hidden * x\n\n"
        f"function = jax.tree_util.Partial(apply, hidden)  # for {holder}: a leaf now"
    )


def register_container(obj: Any) -> str | None:
    """Return the registration of a subclass of dict or list, which JAX does not take for one."""
    name = type_name(obj).rpartition(".")[2]
    if issubclass(type(obj), dict):
        return (
            "jax.tree_util.register_pytree_with_keys(\n"
            f"    {name},\n"
            "    lambda node: (\n"
            "        tuple((jax.tree_util.DictKey(key), value) for key, value in node.items()),\n"
            "        tuple(node),\n"
            "    ),\n"
            f"    lambda keys, values: {name}(zip(keys, values)),\n"
            ")"
        )
    if issubclass(type(obj), list):
        return (
            "jax.tree_util.register_pytree_with_keys(\n"
            f"    {name},\n"
            "    lambda node: (\n"
            "        tuple((jax.tree_util.SequenceKey(i), item) for i, item in enumerate(node)),\n"
            "        None,\n"
            "    ),\n"
            f"    lambda _, items: {name}(items),\n"
            ")"
        )
    return None


def array_from_the_start(obj: Any, name: str) -> str:
    """Return the mend for a field that gets its array late: it has one from the start."""
    replaced = f"obj._replace({name}=empty)"
    if not isinstance(obj, tuple):
        replaced = f"dataclasses.replace(obj, {name}=empty)"
    return (
        f"empty = jnp.zeros(())  # of the shape and dtype that {name} gets later\nobj = {replaced}"
    )


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
    is_module = isinstance(obj, eqx.Module)
    field = (
        "eqx.field(static=True)" if is_module else 'dataclasses.field(metadata={"static": True})'
    )
    static = [
        f"    {name}: Any = {field}"
        for name, value in fields.items()
        if name not in also_data and not _holds_data(value, leaves)
    ]
    name = type_name(obj).rpartition(".")[2]
    if is_module:
        return f"class {name}(eqx.Module):\n" + "\n".join(data + static)
    head = "@jax.tree_util.register_dataclass\n@dataclasses.dataclass\n"
    return f"{head}class {name}:\n" + "\n".join(data + static)


def _fields(obj: Any) -> dict[str, Any]:
    names = getattr(type(obj), "_fields", None)
    if isinstance(obj, tuple) and names:
        return dict(zip(names, obj, strict=False))
    return dict(attributes(obj))


def _holds_data(value: Any, leaves: Sequence[Any]) -> bool:
    parts = jax.tree.leaves(value)
    return bool(parts) and all(
        is_data(p) or any(_is_leaf(p, leaf) for leaf in leaves) for p in parts
    )


def _is_leaf(value: Any, leaf: Any) -> bool:
    """Whether a value is this leaf, also where flatten has made an array of a number."""
    return value is leaf or (isinstance(value, (float, complex)) and same_value(value, leaf))


def is_installed(cls: type) -> bool:
    """Whether the class comes from Python or an installed package: its user will not rewrite it."""
    if cls.__module__.partition(".")[0] in sys.stdlib_module_names - {"__main__"}:
        return True
    path = getattr(sys.modules.get(cls.__module__), "__file__", None) or ""
    return "site-packages" in path or "dist-packages" in path


def skip_init(obj: Any) -> str | None:
    """Return an unflatten that runs neither ``__init__`` nor ``__new__`` of the class.

    It is a method where the class has one, else a function. Where the children are not just the
    attributes, or where JAX itself unflattens by calling the class (dataclasses), a definition as
    a dataclass is returned: without the constructor that was written by hand.
    """
    if is_installed(type(obj)):
        return None
    is_method = hasattr(type(obj), "tree_unflatten")
    if dataclasses.is_dataclass(obj) and not is_method:
        return register_dataclass(obj)
    children = jax.tree.leaves(obj, is_leaf=lambda child: child is not obj)
    fields = dict(attributes(obj))
    names = [name for child in children for name, value in fields.items() if value is child]
    if not names or not len(names) == len(children) == len(fields):
        return register_dataclass(obj)
    name = type_name(obj).rpartition(".")[2]
    targets = ", ".join(f"obj.{name}" for name in names)
    if not is_method:
        return (
            "def unflatten(aux, children):\n"
            f"    obj = object.__new__({name})  # no __init__, no conversion, no validation\n"
            f"    ({targets},) = children\n"
            "    return obj"
        )
    return (
        "@classmethod\n"
        "def tree_unflatten(cls, aux, children):\n"
        "    obj = object.__new__(cls)  # no __init__, no conversion, no validation\n"
        f"    ({targets},) = children\n"
        "    return obj"
    )
