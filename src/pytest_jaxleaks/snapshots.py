"""What is kept of one value, leaf or static data, so that another process can compare it.

A snapshot holds plain data, NumPy arrays and pickles: never an object of JAX or of the test, which
would keep it alive, and which later code could change.
"""

from __future__ import annotations

import collections
import dataclasses
import enum
import functools
import pickle
import types
from typing import TYPE_CHECKING, Any

import jax
import numpy as np

from pytest_jaxleaks.errors import InvalidArgumentError
from pytest_jaxleaks.jax_internals import is_jax_module, is_traceback
from pytest_jaxleaks.leaves import SCALARS, is_key
from pytest_jaxleaks.recorded_functions import closed_over, is_traced_function, place_of
from pytest_jaxleaks.snapshot_kinds import (
    Array,
    Exact,
    Function,
    Items,
    Node,
    Number,
    Pickled,
    Snapshot,
    Tree,
    Unknown,
)

if TYPE_CHECKING:
    from collections.abc import Iterable

__all__ = ["tree_of"]


def tree_of(value: object) -> Tree:
    """Keep a pytree.

    Args:
        value: any pytree, a single leaf included.

    Raises:
        InvalidArgumentError: if it holds a tracer, or JAX cannot flatten it.
    """
    return _tree(value, "", (id(value),) if _is_node(value) else ())


# Below, ``path`` says where in the recorded value something is, and ``above`` holds what it is
# part of, by ``id``, so that a structure that contains itself comes to an end.


def _tree(value: object, path: str, above: tuple[int, ...]) -> Tree:
    try:
        leaves, treedef = jax.tree_util.tree_flatten_with_path(value, is_leaf=is_traced_function)
    except Exception as error:
        text = f"{type(error).__name__}: {error}"
        raise InvalidArgumentError(f"jax_record: the value{path} is no pytree: {text}") from None
    paths = tuple(jax.tree_util.keystr(keys) for keys, _ in leaves)
    return Tree(
        "pytree",
        str(treedef),
        _node(treedef, path, above),
        paths,
        tuple(
            _taken(leaf, path + own, above) for own, (_, leaf) in zip(paths, leaves, strict=True)
        ),
    )


def _node(treedef: Any, path: str, above: tuple[int, ...]) -> Node:
    own = treedef.node_data()
    if own is None:
        return Node("*", Exact("no data", None), ())
    cls, data = own
    return Node(
        _name(cls),
        _taken(data, f"{path} (static data of {cls.__name__})", above),
        tuple(_node(child, path, above) for child in treedef.children()),
    )


def _taken(value: Any, path: str, above: tuple[int, ...]) -> Snapshot:
    if isinstance(value, jax.core.Tracer):
        raise InvalidArgumentError(
            f"jax_record: the value{path} is a tracer ({value.aval}); record what the transformed "
            "function returns, outside of it (if that is where it was recorded, the tracer has "
            "leaked into it)"
        )
    if is_traced_function(value):
        return Unknown(_type_name(value), _ANOTHER_PROGRAM)
    if id(value) in above:
        return Exact("a part that contains itself", above[::-1].index(id(value)))
    above = (*above, id(value))
    found = _plain(value)
    if found is not None:
        return found
    for take in (_numeric, _named):
        found = take(value, path, above)
        if found is not None:
            return found
    if _is_node(value):
        return _tree(value, path, above)
    parts = _parts(value)
    if parts is not None:
        return _items(_type_name(value), parts, path, above)
    return _opaque(value)


_ANOTHER_PROGRAM = (
    "JAX made it by tracing a function, which may come out as another program in each variant; "
    "call it, and record what it returns"
)


def _plain(value: Any) -> Snapshot | None:
    """Keep text, ``None`` and the like, and of an exception its type."""
    if value is None or type(value) in (str, bytes):
        return Exact(_type_name(value), value, is_text=True)
    if isinstance(value, BaseException | types.TracebackType) or is_traceback(value):
        return Exact(_type_name(value), None)
    if isinstance(value, enum.Enum) and not isinstance(value, SCALARS):
        return Exact(_type_name(value), f"{type(value).__name__}.{value.name}")
    return None


def _numeric(value: Any, path: str, above: tuple[int, ...]) -> Snapshot | None:
    """Keep an array, a reference to one, or a number."""
    if isinstance(value, np.ma.MaskedArray):
        parts = [(".mask", np.ma.getmaskarray(value)), (".compressed()", value.compressed())]
        return _items("numpy masked array", parts, path, above)
    if isinstance(value, np.ndarray | np.generic):
        return _numpy(np.asarray(value), path, above)
    if isinstance(value, SCALARS):
        return _number(value)
    if isinstance(value, jax.Array):
        data = jax.random.key_data(value) if is_key(value) else value
        return Array(_kind(jax.typeof(value)), np.array(data), is_numpy=False)
    if isinstance(value, getattr(jax, "Ref", ())):  # public since jax 0.8
        contents: Any = value
        return _items("Ref", [("[...]", contents[...])], path, above)
    return None


def _numpy(value: np.ndarray[Any, Any], path: str, above: tuple[int, ...]) -> Snapshot:
    shape = ",".join(map(str, value.shape))
    if value.dtype == object:
        parts = [(str([*where]), value[where]) for where in np.ndindex(value.shape)]
        return _items(f"numpy object[{shape}]", parts, path, above)
    if value.dtype == jax.dtypes.float0:
        return Array(f"float0[{shape}]", np.zeros(value.shape, dtype=bool), is_numpy=True)
    value = value.astype(value.dtype.newbyteorder("="))  # a copy
    plain = value.dtype.names is None and value.dtype.kind in "biufcV"
    dtype = value.dtype.name if plain else value.dtype
    return Array(f"{dtype}[{shape}]", value, is_numpy=True)


def _number(value: complex) -> Number:
    base: Any = next(scalar for scalar in SCALARS if isinstance(value, scalar))
    try:
        kind = _kind(jax.typeof(value))
    except (TypeError, OverflowError):
        kind = None
    default = jax.dtypes.canonicalize_dtype(np.dtype(base))
    return Number(f"Python {base.__name__}", base(value), kind, default)


def _kind(aval: Any) -> str:
    weak = "weak " if getattr(aval, "weak_type", False) else ""
    return f"{weak}{aval.dtype}[{','.join(map(str, aval.shape))}]"


def _named(value: Any, path: str, above: tuple[int, ...]) -> Snapshot | None:
    """Keep the name of a function, a type or a module: each run may make its own."""
    if isinstance(value, jax.tree_util.PyTreeDef):
        return Tree("treedef", str(value), _node(value, path, above), (), ())
    if isinstance(value, type | types.ModuleType | types.BuiltinFunctionType):
        return Exact(_type_name(value), _name(value))
    if isinstance(value, types.MethodType):
        return _items("method", [("func", value.__func__), ("self", value.__self__)], path, above)
    if isinstance(value, functools.partial):
        parts = [("func", value.func), ("args", value.args), ("keywords", value.keywords)]
        if not _is_node(value):
            return _items(_type_name(value), parts, path, above)
    if not callable(value) or dataclasses.is_dataclass(value):
        return None
    place = place_of(value)
    if place is None:
        return None
    variables = closed_over(value)
    return Function(
        _type_name(value),
        place,
        tuple(name for name, _ in variables),
        tuple(_taken(each, f"{path} closing over {name}", above) for name, each in variables),
    )


def _parts(value: Any) -> list[tuple[str, Any]] | None:
    """Return the named parts of a container that compares part by part, ``None`` for all else."""
    if isinstance(value, collections.deque):
        return [(f"[{index}]", each) for index, each in enumerate(value)]
    if type(value) is dict and all(isinstance(key, str | int | None) for key in value):
        return sorted((f"[{key!r}]", each) for key, each in value.items())
    if not dataclasses.is_dataclass(value) or isinstance(value, type):
        return None
    code = getattr(type(value).__eq__, "__code__", None)
    if code is None or code.co_filename != "<string>":
        return None  # not the comparison that dataclasses write, which is field by field
    fields = [field for field in dataclasses.fields(value) if field.compare]
    return [(f".{field.name}", getattr(value, field.name, None)) for field in fields]


def _items(kind: str, parts: Iterable[tuple[str, Any]], path: str, above: tuple[int, ...]) -> Items:
    named = list(parts)
    return Items(
        kind,
        tuple(name for name, _ in named),
        tuple(_taken(part, path + name, above) for name, part in named),
    )


def _is_node(value: object) -> bool:
    try:
        return not jax.tree_util.all_leaves([value])
    except Exception:
        return False  # a dict whose keys cannot be sorted, a class that refuses to be flattened


def _opaque(value: object) -> Snapshot:
    """Keep an object of which we know nothing but what its class says about being equal."""
    kind = _type_name(value)
    if is_jax_module(type(value).__module__):
        text = repr(value)  # a mesh, a device, a sharding: they cannot be pickled
        if " at 0x" not in text:
            return Exact(kind, text)
    own = type(value).__eq__ is not object.__eq__
    try:
        data = pickle.dumps(value)
        if own or pickle.loads(data) is value:  # such as a sentinel that is pickled by its name
            return Pickled(kind, data)
    except Exception as error:
        if own:
            return Unknown(kind, f"it cannot be pickled ({type(error).__name__}: {error})")
    return Unknown(kind, "its class defines no __eq__")


def _type_name(value: object) -> str:
    """Return the qualified name of an object's type."""
    return _name(type(value))


def _name(value: Any) -> str:
    name = getattr(value, "__qualname__", None) or getattr(value, "__name__", "?")
    return f"{getattr(value, '__module__', None)}.{name}"
