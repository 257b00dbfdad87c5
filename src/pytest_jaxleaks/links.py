"""Names for the references from a container to what it holds, as a programmer would say them.

Nothing here runs user code: no ``__getattr__``, no ``__repr__``, no ``__iter__`` of a subclass.
Everything is read through the base types, so objects that lie or raise do no harm.
"""

from __future__ import annotations

import collections
import contextlib
import contextvars
import functools
import gc
import sys
import threading
import types
import weakref
from typing import TYPE_CHECKING, Any, NamedTuple

from pytest_jaxleaks.frames import frame_locals

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

__all__ = [
    "Link",
    "array_elements",
    "at_home",
    "attributes",
    "class_name",
    "dotted_name",
    "function_name",
    "instance_dict",
    "key_text",
    "links",
    "module_variables",
    "type_and_subclasses",
]

_LONGEST_KEY = 60
# Told by identity: comparing classes may run a metaclass's own code.
_PLAIN_KEYS = frozenset(map(id, (str, bytes, int, float, complex, bool, type(None))))
_ITERATION_CAP = 200_000


class Link(NamedTuple):
    """One reference, from a container to a thing it holds.

    Attributes:
        label: what a programmer calls it: ``Model.cache``, ``list[0]``, ``dict['mean']``.
        child: the thing that is held.
        named_by: dotted name of the attribute, variable or argument that holds it, such as
            ``model.Model.cache``; None where the link has no name of its own (``list[0]``).
        kind: ``attribute``, ``class attribute``, ``function attribute``, ``module variable``,
            ``local variable``, ``generator variable``, ``closure variable``, ``default argument``,
            ``cache``, ``context variable``, ``thread-local``, ``method``, ``object array`` or
            ``element``.
    """

    label: str
    child: Any
    named_by: str | None = None
    kind: str = "element"


def class_name(cls: type) -> str:
    """Return the qualified name of ``cls`` without the function that defines it."""
    return str(type.__dict__["__qualname__"].__get__(cls)).rpartition("<locals>.")[2]


def module_name(cls: type) -> str:
    """Return the name of the module that defines ``cls``, or an empty string."""
    try:
        found = type.__dict__["__module__"].__get__(cls)
    except AttributeError:
        return ""
    return found if isinstance(found, str) else ""


def type_and_subclasses(cls: type) -> frozenset[int]:
    """Return the ids of a class and of every subclass of it that exists now."""
    found: set[int] = set()
    waiting = [cls]
    while waiting:
        each = waiting.pop()
        if id(each) not in found:
            found.add(id(each))
            waiting += type.__subclasses__(each)
    return frozenset(found)


def dotted_name(cls: type) -> str:
    """Return ``module.Class`` (``Class`` alone for builtins)."""
    module = module_name(cls)
    return class_name(cls) if module in ("", "builtins") else f"{module}.{class_name(cls)}"


def function_name(function: types.FunctionType) -> str:
    """Return the qualified name of ``function`` without enclosing ``<locals>``."""
    return function.__qualname__.replace("<locals>.", "")


def _dotted_function(function: types.FunctionType) -> str | None:
    """Return ``module.function``; None where no module has it, as for a mock with a signature."""
    module = function.__module__
    return f"{module}.{function_name(function)}" if isinstance(module, str) else None


def at_home(obj: Any, module: object, qualified: object) -> Any:
    """Return what a module has under a qualified name, or None; ``obj`` if it is found there.

    Nothing but the dicts of modules and classes is read.
    """
    place: Any = sys.modules.get(module) if isinstance(module, str) else None
    for part in qualified.split(".") if isinstance(qualified, str) else ():
        if issubclass(type(place), types.ModuleType):
            names = types.ModuleType.__getattribute__(place, "__dict__")
        elif issubclass(type(place), type):
            names = type.__dict__["__dict__"].__get__(place)
        else:
            return None
        place = names.get(part)
        if place is not obj and issubclass(type(place), (staticmethod, classmethod)):
            place = place.__func__
    return place


def key_text(key: Any) -> str:
    """Return a short text for a mapping key without running a user's ``__repr__``."""
    if id(type(key)) in _PLAIN_KEYS:
        text = repr(key)
    elif type(key) is tuple and len(key) <= 4:
        text = f"({', '.join(key_text(part) for part in key)})"
    elif issubclass(type(key), type):
        text = class_name(key)
    else:
        text = f"<{class_name(type(key))}>"
    return text if len(text) <= _LONGEST_KEY else text[: _LONGEST_KEY - 3] + "..."


def instance_dict(obj: Any) -> dict[str, Any] | None:
    """Return where the instance attributes of ``obj`` are stored, or None."""
    with contextlib.suppress(Exception):
        found = object.__getattribute__(obj, "__dict__")
        if isinstance(found, dict):
            return found
    return None


def attributes(obj: Any) -> Iterator[tuple[str, Any]]:
    """Yield the name and value of each instance attribute, ``__slots__`` included."""
    for name, value in list((instance_dict(obj) or {}).items()):
        yield name if type(name) is str else key_text(name), value
    for cls in type.__dict__["__mro__"].__get__(type(obj)):
        for name, descriptor in list(type.__dict__["__dict__"].__get__(cls).items()):
            if type(descriptor) is types.MemberDescriptorType and name != "__dict__":
                with contextlib.suppress(Exception):
                    yield _unmangled(name, cls), descriptor.__get__(obj)


def _unmangled(name: str, cls: type) -> str:
    prefix = f"_{cls.__name__.lstrip('_')}__"
    return name[len(prefix) - 2 :] if name.startswith(prefix) else name


# What the standard library calls its own private attributes in its public interface.
_PUBLIC_NAMES = {
    "_mock_call_args": "call_args",
    "_mock_call_args_list": "call_args_list",
    "_mock_mock_calls": "mock_calls",
    "_mock_method_calls": "method_calls",
    "_mock_return_value": "return_value",
    "_mock_side_effect": "side_effect",
    "_mock_children": "children",
}


def _of_attributes(obj: Any) -> Iterator[Link]:
    cls = type(obj)
    if module_name(cls).partition(".")[0] in ("jax", "jaxlib"):
        wrapped: Any = (instance_dict(obj) or {}).get("__wrapped__")
        if _is_function(wrapped):
            yield from _of_wrapper(obj, wrapped)
    for raw, value in attributes(obj):
        name = _PUBLIC_NAMES.get(raw, raw)
        if raw == "_consts" and class_name(cls) in ("ClosedJaxpr", "Jaxpr"):
            name = "consts"
        yield Link(f"{class_name(cls)}.{name}", value, f"{dotted_name(cls)}.{name}", "attribute")


def _of_wrapper(obj: Any, wrapped: types.FunctionType) -> Iterator[Link]:
    """Yield the attributes of what a decorator of JAX's made of a function, by its name."""
    name, dotted = function_name(wrapped), _dotted_function(wrapped)
    for attribute, value in attributes(obj):
        if not attribute.startswith("_"):
            named_by = _member(dotted, attribute)
            yield Link(f"{name}.{attribute}", value, named_by, "function attribute")


def _of_dict(obj: Any) -> Iterator[Link]:
    kind = class_name(type(obj))
    for key, value in list(dict.items(obj)):
        yield Link(f"{kind}[{key_text(key)}]", value)
        if id(type(key)) not in _PLAIN_KEYS:
            yield Link(f"key of {kind}", key)


def _of_sequence(base: type) -> Callable[[Any], Iterator[Link]]:
    def enumerate_links(obj: Any) -> Iterator[Link]:
        kind = class_name(type(obj))
        for index, value in enumerate(base.__iter__(obj)):  # type: ignore[attr-defined]
            yield Link(f"{kind}[{index}]", value)

    return enumerate_links


def _of_tuple(obj: Any) -> Iterator[Link]:
    cls = type(obj)
    fields = type.__dict__["__dict__"].__get__(cls).get("_fields", ())
    fields = fields if isinstance(fields, tuple) and len(fields) == tuple.__len__(obj) else ()
    for index, value in enumerate(tuple.__iter__(obj)):
        if fields and isinstance(fields[index], str):
            field = fields[index]
            dotted = f"{dotted_name(cls)}.{field}"
            yield Link(f"{class_name(cls)}.{field}", value, dotted, "attribute")
        else:
            yield Link(f"{class_name(cls)}[{index}]", value)


def _of_set(base: type) -> Callable[[Any], Iterator[Link]]:
    def enumerate_links(obj: Any) -> Iterator[Link]:
        kind = class_name(type(obj))
        for value in list(base.__iter__(obj)):  # type: ignore[attr-defined]
            yield Link(f"element of {kind}", value)

    return enumerate_links


def _of_cell(obj: Any) -> Iterator[Link]:
    with contextlib.suppress(ValueError):  # the variable is not bound yet, or deleted
        yield Link("closure variable", obj.cell_contents, kind="closure variable")


def _of_function(obj: Any) -> Iterator[Link]:
    name, dotted = function_name(obj), _dotted_function(obj)
    for variable, cell in zip(obj.__code__.co_freevars, obj.__closure__ or (), strict=False):
        with contextlib.suppress(ValueError):
            value = cell.cell_contents
            label = f"closure variable '{variable}' of {name}"
            yield Link(label, value, _member(dotted, variable), "closure variable")
    yield from _of_defaults(obj, name, dotted)
    for raw, value in list((instance_dict(obj) or {}).items()):
        attribute = key_text(raw) if type(raw) is not str else raw
        label = f"{name}.{attribute}"
        yield Link(label, value, _member(dotted, attribute), "function attribute")


def _member(dotted: str | None, name: str) -> str | None:
    return None if dotted is None else f"{dotted}.{name}"


def _of_defaults(obj: Any, name: str, dotted: str | None) -> Iterator[Link]:
    code, defaults = obj.__code__, obj.__defaults__ or ()
    positional = code.co_varnames[: code.co_argcount]
    pairs = list(zip(positional[len(positional) - len(defaults) :], defaults, strict=False))
    for argument, value in [*pairs, *(obj.__kwdefaults__ or {}).items()]:
        label = f"default argument '{argument}' of {name}"
        yield Link(label, value, _member(dotted, argument), "default argument")


def _of_method(obj: Any) -> Iterator[Link]:
    name = getattr(obj.__func__, "__name__", "?") if _is_function(obj.__func__) else "?"
    owner = class_name(type(obj.__self__))
    yield Link(f"bound method '{name}' of {owner}", obj.__self__, kind="method")
    yield Link(f"function of bound method '{name}'", obj.__func__)


def _is_function(obj: Any) -> bool:
    return type(obj) is types.FunctionType


def _callable_name(obj: Any) -> str:
    return function_name(obj) if _is_function(obj) else class_name(type(obj))


def _of_partial(obj: Any) -> Iterator[Link]:
    fields = functools.partial.__dict__
    function = fields["func"].__get__(obj)
    name = f"{class_name(type(obj))}({_callable_name(function)})"
    yield Link(f"function of {name}", function)
    for index, value in enumerate(fields["args"].__get__(obj)):
        yield Link(f"argument {index} of {name}", value)
    for keyword, value in dict.items(fields["keywords"].__get__(obj)):
        yield Link(f"argument '{keyword}' of {name}", value)


def _of_lru_cache(obj: Any) -> Iterator[Link]:
    wrapped: Any = (instance_dict(obj) or {}).get("__wrapped__")
    name = function_name(wrapped) if _is_function(wrapped) else "a cached function"
    # Where the function stands under its own name, somebody else has put a cache around it.
    dotted = None
    if _is_function(wrapped):
        found = at_home(obj, wrapped.__module__, wrapped.__qualname__)
        dotted = None if found is wrapped else _dotted_function(wrapped)
    for child in gc.get_referents(obj):
        if child is not wrapped and child is not instance_dict(obj):
            yield Link(f"cache of {name}", child, dotted, "cache")
    yield Link(f"function cached by {name}", wrapped)


def _of_suspended(frame_name: str, kind: str) -> Callable[[Any], Iterator[Link]]:
    def enumerate_links(obj: Any) -> Iterator[Link]:
        frame = getattr(obj, frame_name)
        if frame is not None:
            name = str(obj.__qualname__).replace("<locals>.", "")
            module = frame.f_globals.get("__name__", "")
            for variable, value in frame_locals(frame).items():
                label = f"local variable '{variable}' of suspended {kind} {name}"
                yield Link(label, value, f"{module}.{name}.{variable}", "generator variable")

    return enumerate_links


def _of_frame(obj: Any) -> Iterator[Link]:
    code = obj.f_code
    name = code.co_qualname.replace("<locals>.", "")
    module = obj.f_globals.get("__name__", "")
    for variable, value in frame_locals(obj).items():
        label = f"local variable '{variable}' of {name}"
        yield Link(label, value, f"{module}.{name}.{variable}", "local variable")


def _of_class(obj: Any) -> Iterator[Link]:
    for name, value in list(type.__dict__["__dict__"].__get__(obj).items()):
        label = f"class attribute '{name}' of {class_name(obj)}"
        yield Link(label, value, f"{dotted_name(obj)}.{name}", "class attribute")


def _of_module(obj: Any) -> Iterator[Link]:
    module = str(types.ModuleType.__getattribute__(obj, "__name__"))
    variables = instance_dict(obj) or {}
    yield from module_variables(module, variables)
    for child in gc.get_referents(obj):
        if child is not variables:  # the C code of the module holds it
            yield Link(f"inside module {module}", child)


def module_variables(module: str, variables: dict[str, Any]) -> Iterator[Link]:
    """Yield the variables of a module, given its name and its dict."""
    for name, value in list(variables.items()):
        label = f"module variable '{name}' of {module}"
        yield Link(label, value, f"{module}.{name}", "module variable")


def _of_descriptor(*names: str) -> Callable[[Any], Iterator[Link]]:
    def enumerate_links(obj: Any) -> Iterator[Link]:
        for name in names:
            value = getattr(obj, name, None)
            if value is not None:
                yield Link(f"{class_name(type(obj))}.{name}", value)

    return enumerate_links


def _of_context(obj: Any) -> Iterator[Link]:
    for variable, value in list(contextvars.Context.items(obj)):
        label = f"context variable '{variable.name}'"
        yield Link(label, value, variable.name, "context variable")


def _of_thread_local(obj: Any) -> Iterator[Link]:
    cls = type(obj)
    for name, value in list(threading.local.__getattribute__(obj, "__dict__").items()):
        label = f"thread-local '{name}' of {class_name(cls)}"
        yield Link(label, value, f"{dotted_name(cls)}.{name}", "thread-local")


def _of_weak_reference(obj: Any) -> Iterator[Link]:
    callback = weakref.ref.__dict__["__callback__"].__get__(obj)
    if callback is not None:
        yield Link("callback of a weak reference", callback)


def _of_ndarray(obj: Any) -> Iterator[Link]:
    """Yield the elements of a numpy object array, which the collector does not see."""
    numpy = sys.modules["numpy"]
    kind = "ndarray" if issubclass(type(obj), numpy.ndarray) else class_name(type(obj))
    for index, value in array_elements(obj):
        yield Link(f"{kind}{index}", value, kind="object array")


def array_elements(obj: Any) -> Iterator[tuple[str, Any]]:
    """Yield the objects that a numpy array refers to, with their indices: ``[0]``, ``['a'][0]``.

    A record, which is one element of a structured array, is read as an array without axes.
    """
    numpy = sys.modules["numpy"]
    is_array = issubclass(type(obj), numpy.ndarray)
    plain = numpy.ndarray.view(obj, numpy.ndarray) if is_array else numpy.array(obj)
    for field in plain.dtype.fields or ():
        for index, value in array_elements(plain[field]):
            yield f"[{field!r}]{index if is_array else ''}", value
    if plain.dtype.hasobject and plain.dtype.fields is None:
        flat = plain.reshape(-1)[:_ITERATION_CAP].tolist()
        for position, value in zip(numpy.ndindex(*plain.shape), flat, strict=False):
            yield f"[{', '.join(map(str, position))}]", value


_ENUMERATORS: dict[type, Callable[[Any], Iterator[Link]]] = {
    dict: _of_dict,
    list: _of_sequence(list),
    tuple: _of_tuple,
    collections.deque: _of_sequence(collections.deque),
    set: _of_set(set),
    frozenset: _of_set(frozenset),
    types.CellType: _of_cell,
    types.FunctionType: _of_function,
    types.MethodType: _of_method,
    functools.partial: _of_partial,
    functools._lru_cache_wrapper: _of_lru_cache,
    types.GeneratorType: _of_suspended("gi_frame", "generator"),
    types.CoroutineType: _of_suspended("cr_frame", "coroutine"),
    types.AsyncGeneratorType: _of_suspended("ag_frame", "async generator"),
    types.FrameType: _of_frame,
    type: _of_class,
    types.ModuleType: _of_module,
    property: _of_descriptor("fget", "fset", "fdel"),
    staticmethod: _of_descriptor("__func__"),
    classmethod: _of_descriptor("__func__"),
    contextvars.Context: _of_context,
    contextvars.Token: _of_descriptor("old_value"),
    threading.local: _of_thread_local,
    weakref.ref: _of_weak_reference,
}
_BY_TYPE = {id(cls): enumerate_links for cls, enumerate_links in _ENUMERATORS.items()}


# Types of which an instance's references all have names; what else the collector reports of them
# (a class's dict, a module's) is only a means.
_WHOLLY_NAMED = (type, types.ModuleType, threading.local)


def _enumerators(cls: type) -> tuple[Callable[[Any], Iterator[Link]], ...]:
    """Return what enumerates an instance of ``cls``: its attributes, then its base container."""
    if id(cls) in _BY_TYPE:
        return (_BY_TYPE[id(cls)],)
    bases = type.__dict__["__mro__"].__get__(cls)
    found = [_BY_TYPE[id(base)] for base in bases if id(base) in _BY_TYPE][:1]
    if issubclass(cls, _WHOLLY_NAMED):
        return tuple(found)
    numpy = sys.modules.get("numpy")
    if numpy is not None and issubclass(cls, (numpy.ndarray, numpy.void)):
        found.append(_of_ndarray)
    return (_of_attributes, *found)


def links(obj: Any) -> Iterator[Link]:
    """Yield every reference that ``obj`` holds, named ones first and its class last.

    References of C types that have no names (``itertools.repeat``, ``asyncio.Future``) come last,
    with the type as their label. An instance's ``__dict__``, a function's closure tuple and the
    like are looked through: the link goes straight from the instance to the attribute's value.

    Args:
        obj: any object.

    Yields:
        A :class:`Link` per reference.

    Example:
        >>> [link.label for link in links({"a": [1]})]
        ["dict['a']"]
    """
    cls = type(obj)
    known = {id(cls), id(instance_dict(obj))}
    for enumerate_links in _enumerators(cls):
        for link in enumerate_links(obj):
            known.add(id(link.child))
            yield link
    if id(cls) in _BY_TYPE or issubclass(cls, _WHOLLY_NAMED):
        return
    inside = f"inside {class_name(type(obj))}"
    for child in gc.get_referents(obj):
        if id(child) not in known:
            yield Link(inside, child)
    yield Link(f"class {class_name(cls)}", cls)
