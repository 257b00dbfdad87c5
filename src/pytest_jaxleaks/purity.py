"""Does a call change anything but its result?

A snapshot records the content of everything a function can reach by name: its arguments and their
attributes, its closure, its defaults, the globals that its code names, and the same of the
functions it names in turn.
"""

from __future__ import annotations

import functools
import random
import sys
import sysconfig
import types
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import jax
import numpy as np

from pytest_jaxleaks.leaves import is_key, short_type

__all__ = ["Snapshot", "changes", "snapshot"]

Snapshot = dict[str, Any]

LIMIT = 5_000
"""Objects per snapshot. Beyond that a function's surroundings are too large to watch."""

FOREIGN = ("jax", "jaxlib", "numpy", "logging", "threading", "_pytest", "pytest", "ml_dtypes")
LIBRARIES = tuple({sysconfig.get_path(name) for name in ("stdlib", "purelib", "platlib")})
ATOMS = (type(None), bool, int, float, complex, str, bytes, type(Ellipsis))
CODE = (
    types.FunctionType,
    types.BuiltinFunctionType,
    types.ModuleType,
    property,
    staticmethod,
    classmethod,
)
WRAPPED = ("__wrapped__", "fun", "fwd", "bwd", "jvp")


def snapshot(fn: Any, arguments: Mapping[str, Any]) -> Snapshot:
    """Record what a function can reach.

    Args:
        fn: the function.
        arguments: its arguments by name.

    Returns:
        From the name of each object, such as ``model.cache[0]``, to its content.
    """
    walk = _Walk()
    for name, value in arguments.items():
        walk.visit(name, value)
    walk.visit(getattr(fn, "__name__", type(fn).__name__), fn)
    walk.run()
    walk.found["Python's global random state"] = hash(random.getstate())
    state = np.random.get_state(legacy=False)
    walk.found["NumPy's global random state"] = hash(str(state))
    return walk.found


def changes(before: Snapshot, after: Snapshot) -> list[tuple[str, str]]:
    """Return ``(name, what happened)`` for each object whose content changed, the outermost
    first."""
    found: list[tuple[str, str]] = []
    for name in [*before, *(name for name in after if name not in before)]:
        if any(name.startswith((f"{outer}[", f"{outer}.")) for outer, _ in found):
            continue
        if name not in after:
            found.append((name, "is gone"))
        elif name not in before:
            if not isinstance(after[name], _Memo):
                found.append((name, f"is new: {_show(after[name])}"))
        elif not _same(before[name], after[name]):
            found.append((name, f"was {_show(before[name])}, is {_show(after[name])}"))
    return found


class _Memo:
    """Content of an attribute that ``functools.cached_property`` may add: no data of the call."""


MEMO = _Memo()


class _Size(int):
    """The length of a container."""


def _show(content: Any) -> str:
    if isinstance(content, _Size):
        return f"a container of length {int(content)}"
    if isinstance(content, (np.ndarray, jax.Array)):
        return short_type(content)
    return str(content)[:80]


def _same(one: Any, two: Any) -> bool:
    if one is two:
        return True
    if isinstance(one, _Memo) or isinstance(two, _Memo):
        return isinstance(one, _Memo) and isinstance(two, _Memo)
    if isinstance(one, (np.ndarray, jax.Array)) and isinstance(two, (np.ndarray, jax.Array)):
        return _same_array(one, two)
    return type(one) is type(two) and bool(one == two)


def _same_array(one: Any, two: Any) -> bool:
    if one.shape != two.shape or one.dtype != two.dtype:
        return False
    if any(isinstance(x, jax.Array) and x.is_deleted() for x in (one, two)):
        return True
    if is_key(one):
        one, two = jax.random.key_data(one), jax.random.key_data(two)
    return np.asarray(one).tobytes() == np.asarray(two).tobytes()


class _Walk:
    """A breadth-first walk that names what it meets; each object is named once, by its shortest
    path."""

    def __init__(self) -> None:
        self.found: Snapshot = {}
        self._seen: dict[int, Any] = {}
        self._queue: deque[tuple[str, Any]] = deque()

    def visit(self, name: str, value: Any) -> None:
        self._queue.append((name, value))

    def run(self) -> None:
        while self._queue and len(self.found) < LIMIT:
            name, value = self._queue.popleft()
            if isinstance(value, ATOMS):
                self.found[name] = value if value == value else "nan"
            elif id(value) in self._seen or isinstance(value, types.ModuleType):
                continue
            else:
                self._seen[id(value)] = value
                self._look(name, value)

    def _look(self, name: str, value: Any) -> None:
        content = _content(value)
        if content is not None:
            self.found[name] = content
            return
        if isinstance(value, Sequence | set | frozenset | deque):
            self.found[name] = _Size(len(value))
        for label, child in _children(name, value):
            self.visit(label, child)
        self.found.setdefault(name, f"a {type(value).__qualname__}")


def _content(value: Any) -> Any:
    """Return the content of what has no parts, None for what has."""
    if isinstance(value, _Memo):
        return value
    if isinstance(value, jax.core.Tracer):
        return f"a tracer of type {value.aval}"
    if isinstance(value, jax.Array):
        return value
    if isinstance(value, np.ndarray) and value.dtype != object:
        return value.copy()
    if isinstance(value, np.generic):
        return np.asarray(value)
    if isinstance(value, np.random.Generator):
        return f"a generator in state {hash(str(value.bit_generator.state))}"
    if isinstance(value, np.random.RandomState):
        return f"a generator in state {hash(str(value.get_state(legacy=False)))}"
    if isinstance(value, random.Random):
        return f"a generator in state {hash(value.getstate())}"
    return None


def _children(name: str, value: Any) -> Iterator[tuple[str, Any]]:
    if isinstance(value, np.ndarray):
        yield from ((f"{name}[{i}]", part) for i, part in enumerate(value.flat))
    elif isinstance(value, Mapping):
        yield from ((f"{name}[{key!r}]", part) for key, part in list(value.items()))
    elif isinstance(value, list | tuple | deque):
        yield from ((f"{name}[{i}]", part) for i, part in enumerate(list(value)))
    elif isinstance(value, set | frozenset):
        yield from ((f"{name}[{part!r}]", part) for part in value if isinstance(part, ATOMS))
    elif isinstance(value, types.FunctionType):
        yield from _reached_by_code(name, value)
    elif isinstance(value, types.MethodType):
        yield name, value.__func__
        yield f"{name}.__self__", value.__self__
    elif isinstance(value, functools.partial):
        yield f"{name}.func", value.func
        yield f"{name}.args", value.args
        yield f"{name}.keywords", value.keywords
    elif isinstance(value, type):
        yield from _class_attributes(value)
    else:
        yield from _attributes(name, value)


def _reached_by_code(name: str, fn: types.FunctionType) -> Iterator[tuple[str, Any]]:
    if _is_library(fn):
        return
    for variable, cell in zip(fn.__code__.co_freevars, fn.__closure__ or (), strict=True):
        try:
            yield f"closure variable {variable!r} of {fn.__name__}", cell.cell_contents
        except ValueError:  # not filled yet
            continue
    for position, default in enumerate(fn.__defaults__ or ()):
        yield f"default {position} of {fn.__name__}", default
    for key, default in (fn.__kwdefaults__ or {}).items():
        yield f"default of {key!r} of {fn.__name__}", default
    for key, attribute in list(fn.__dict__.items()):
        yield f"{name}.{key}", attribute
    for variable in sorted(_names(fn.__code__)):
        if variable in fn.__globals__:
            yield f"global {variable!r}", fn.__globals__[variable]


def _names(code: types.CodeType) -> set[str]:
    """Return every name that the code, or code nested in it, looks up or stores outside its
    locals."""
    found = set(code.co_names)
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            found |= _names(constant)
    return found


def _is_library(fn: types.FunctionType) -> bool:
    return fn.__code__.co_filename.startswith(LIBRARIES)


def _is_foreign(kind: type) -> bool:
    return kind.__module__.split(".")[0] in FOREIGN


def _class_attributes(kind: type) -> Iterator[tuple[str, Any]]:
    """Walk the data that a class of the user's keeps, and the code of its methods."""
    module = sys.modules.get(kind.__module__)
    path = getattr(module, "__file__", None)
    if _is_foreign(kind) or (path or "").startswith(LIBRARIES) or kind.__module__ == "builtins":
        return
    for key, part in list(vars(kind).items()):
        if isinstance(part, types.FunctionType) or (
            not key.startswith("__") and not isinstance(part, CODE)
        ):
            yield f"{kind.__name__}.{key}", part


def _attributes(name: str, value: Any) -> Iterator[tuple[str, Any]]:
    for wrapped in WRAPPED:
        inner = (
            getattr(value, wrapped, None) if _is_foreign(type(value)) or callable(value) else None
        )
        if isinstance(inner, types.FunctionType | types.MethodType | functools.partial):
            yield f"{name}", inner
    if _is_foreign(type(value)):
        return
    yield f"class {type(value).__name__}", type(value)
    attributes = getattr(value, "__dict__", None) or {}
    for key, part in list(attributes.items()):
        memo = isinstance(getattr(type(value), key, None), functools.cached_property)
        yield f"{name}.{key}", MEMO if memo and isinstance(part, ATOMS) else part
    for kind in type(value).__mro__:
        for slot in _slots(kind):
            if slot not in attributes and hasattr(value, slot):
                yield f"{name}.{slot}", getattr(value, slot)


def _slots(kind: type) -> tuple[str, ...]:
    slots = vars(kind).get("__slots__", ())
    names = (slots,) if isinstance(slots, str) else tuple(slots)
    return tuple(name for name in names if not name.startswith("__"))
