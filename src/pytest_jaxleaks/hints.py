"""One piece of advice per kind of holder, and per library where the general one would not do.

Each piece names a mend that runs: ``conftest_examples/mends`` has a leaking test and its mended
twin for every one of them.
"""

from __future__ import annotations

import contextlib
import dataclasses
from typing import TYPE_CHECKING, Any, NamedTuple

from pytest_jaxleaks.links import dotted_name

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from pytest_jaxleaks.chains import Chain

__all__ = ["HINTS", "LIBRARY_HINTS", "hint_for"]

_RETURN_IT = "return it from the traced function and store what the call returns"

# By the kind of link that the holder is (see ``links.Link.kind``), or the kind of the root.
HINTS = {
    "attribute": f"do not assign traced values to attributes: {_RETURN_IT}",
    "class attribute": f"do not assign traced values to class attributes: {_RETURN_IT}",
    "function attribute": f"do not store traced values on a function: {_RETURN_IT}",
    "module variable": f"do not write to a module's variable while tracing: {_RETURN_IT}",
    "local variable": f"a traced function changed a variable outside of it: {_RETURN_IT}",
    "closure variable": (
        "the function closes over a traced value and outlives its trace: return the value, and "
        "make the function outside or hand it the value as an argument"
    ),
    "default argument": (
        "a mutable default argument lives as long as the function: "
        "use None, make the container inside and return it"
    ),
    "cache": (
        "the cached function ran while JAX traced its caller: put its body under "
        "`with jax.ensure_compile_time_eval():`, return a numpy array from it, "
        "or call it once before jit"
    ),
    "generator variable": (
        "a generator that started while tracing is still suspended: exhaust or close() it inside "
        "of the traced function"
    ),
    "context variable": (
        "put the old value back before the traced function returns: "
        "token = variable.set(...), and variable.reset(token) in `finally`"
    ),
    "thread-local": (
        f"do not store traced values in thread-local storage: pass it as an argument, or "
        f"{_RETURN_IT}"
    ),
    "fixture": (f"the fixture's value outlives the traced function that wrote to it: {_RETURN_IT}"),
    "object array": (
        "do not write traced values into a numpy array: use jnp.stack, or x.at[i].set(...), and "
        "return the result"
    ),
}
HINTS["context"] = HINTS["context variable"]
HINTS["class"] = HINTS["class attribute"]
HINTS["module"] = HINTS["module variable"]
HINTS["local"] = HINTS["local variable"]
HINTS["element"] = f"do not put traced values into a container outside of the trace: {_RETURN_IT}"


class _Way(NamedTuple):
    """A chain together with the classes of the objects on it."""

    chain: Chain
    classes: tuple[type, ...]
    names: tuple[str, ...]

    def passes(self, *prefixes: str) -> bool:
        return any(name.startswith(prefixes) for name in self.names)


class _Rule(NamedTuple):
    name: str
    applies: Callable[[_Way], bool]
    text: str


def _through(*prefixes: str) -> Callable[[_Way], bool]:
    """Match a chain that passes an object whose class's dotted name starts like that."""
    return lambda way: way.passes(*prefixes)


def _method_of(*prefixes: str) -> Callable[[_Way], bool]:
    return lambda way: "method" in way.names and way.passes(*prefixes)


def _in_attribute_of(way: _Way) -> tuple[type, str] | None:
    """Return the class and the name of the attribute that is the holder, if it is on the way."""
    owner, _, attribute = way.chain.holder.rpartition(".")
    found = [cls for cls, name in zip(way.classes, way.names, strict=True) if name == owner]
    return (found[-1], attribute) if found and way.chain.kind == "attribute" else None


def _is_in_container(way: _Way) -> bool:
    """Tell whether the holder keeps a list or the like that was added to while tracing."""
    return not way.chain.labels[-1].endswith(f".{way.chain.holder.rpartition('.')[2]}")


def _is_default_itself(way: _Way) -> bool:
    """Tell whether a traced value is a default argument itself, and not an element of one."""
    return way.chain.kind == "default argument" and not way.chain.labels[-1].endswith("]")


def _is_static_field(way: _Way) -> bool:
    """Tell whether the holder is a dataclass field with ``metadata={"static": True}``."""
    found = _in_attribute_of(way)
    if found is None or not dataclasses.is_dataclass(found[0]) or _is_in_container(way):
        return False
    return any(
        field.name == found[1] and bool(field.metadata.get("static"))
        for field in dataclasses.fields(found[0])
    )


def _is_cached_property(way: _Way) -> bool:
    found = _in_attribute_of(way)
    if found is None:
        return False
    classes = type.__dict__["__mro__"].__get__(found[0])
    names = (type.__dict__["__dict__"].__get__(cls) for cls in classes)
    descriptor = next((each[found[1]] for each in names if found[1] in each), None)
    return "cached_property" in type(descriptor).__name__


def _is_pytree_node(way: _Way) -> bool:
    """Tell whether the holder is an attribute of a class with its own flattening."""
    found = _in_attribute_of(way)
    if found is None or _is_in_container(way):
        return False
    return callable(getattr(found[0], "tree_flatten", None))


# The first rule that applies gives the advice: libraries before kinds, special before general.
LIBRARY_HINTS = (
    _Rule(
        "logging",
        _through("logging.LogRecord"),
        "a log record keeps its arguments: log shapes and dtypes, or print values with "
        "jax.debug.print",
    ),
    _Rule(
        "mock",
        _through("unittest.mock."),
        "a mock keeps the arguments of each call: call reset_mock() inside of the traced function, "
        "record shapes instead, or give the mock values by jax.debug.callback",
    ),
    _Rule(
        "distrax method",
        _method_of("distrax."),
        "a distrax bijector keeps bound methods that hold traced parameters: return the parameters "
        "from jit and build the distribution outside",
    ),
    _Rule(
        "distrax closure",
        lambda way: way.chain.kind == "closure variable" and way.passes("distrax."),
        "a distrax bijector keeps a function that closes over a traced value: return the value "
        "from jit and build the distribution outside",
    ),
    _Rule(
        "tensorflow_probability cache",
        lambda way: "BijectorCache" in way.chain.through,
        "a TFP bijector's cache keeps its own inputs alive: use distrax's own bijector instead, or "
        "call bijector._cache.clear() before the traced function returns",
    ),
    _Rule(
        "numpyro guide",
        _through("numpyro.infer.", "numpyro.contrib.", "numpyro.primitives.plate"),
        "a numpyro guide or kernel sets itself up at its first call and keeps what it saw: "
        "call init (or the guide) once outside of jit, and jit the update",
    ),
    _Rule(
        "numpyro handler",
        _through("numpyro.handlers.", "numpyro.primitives."),
        "a numpyro handler keeps the trace of its last run: make the handler inside of the traced "
        "function, use .get_trace(...) there and return the values",
    ),
    _Rule(
        "optax state",
        _through("optax."),
        "the optimizer's state is a value like any other: take it as an argument of the traced "
        "step and return the new one, `params, opt_state = step(params, opt_state)`",
    ),
    _Rule(
        "equinox state",
        _through("equinox.nn._stateful.State"),
        "an equinox.nn.State is passed along: take it as an argument of the traced function and "
        "return the new one, `y, state = f(x, state)`",
    ),
    _Rule(
        "flax module",
        _through("flax.core.scope.", "flax.linen."),
        "a flax module or scope that is used up is kept: return values from apply, or collect "
        "them by self.sow(...) and apply(..., mutable=[...])",
    ),
    _Rule(
        "flax nnx object",
        _through("flax.nnx."),
        "an nnx object that a traced function made is kept: return both parts of nnx.split(...) "
        "from it, and keep what nnx.merge(...) makes of them outside",
    ),
    _Rule(
        "bound method",
        _through("method"),
        "a bound method keeps its object, traced values included, and JAX cannot see into it: "
        "make it a method or a property, and keep no bound method in an attribute or in aux data",
    ),
    _Rule(
        "finalizer",
        _through("weakref.finalize"),
        "a finalizer keeps its arguments until its object is gone: give it names or shapes, or "
        "make it outside of the traced function with what the call returns",
    ),
    _Rule(
        "future",
        _through("concurrent.futures.", "_asyncio.Future", "_asyncio.Task", "asyncio."),
        "a future keeps the result of work that was handed a traced value: wait for it inside of "
        "the traced function, or start the work outside with what the call returns",
    ),
    _Rule(
        "exception",
        lambda way: any(issubclass(cls, BaseException) for cls in way.classes),
        "an exception keeps its arguments and, by its traceback, the local variables of the traced "
        "function: store str(error), or error.with_traceback(None) without traced arguments",
    ),
    _Rule(
        "aux data",
        _through("jaxlib._jax.pytree.PyTreeDef", "jaxlib.xla_extension.pytree.PyTreeDef"),
        "the static part of a pytree (a treedef) holds a traced value: make it a child, "
        "not aux data",
    ),
    _Rule(
        "default value",
        _is_default_itself,
        "a function that was made while tracing has a traced value for a default: hand it the "
        "value as an argument where it is called, or return the value and make it outside",
    ),
    _Rule(
        "static field",
        _is_static_field,
        "a static field holds a traced value, which leaves jit unseen: make it a normal field, or "
        "convert it to a Python number outside of jit",
    ),
    _Rule(
        "cached property",
        _is_cached_property,
        "the cached property was computed while tracing, and stays: read it once before jit, make "
        "it a property, or compute it under jax.ensure_compile_time_eval()",
    ),
    _Rule(
        "pytree attribute",
        _is_pytree_node,
        "a pytree node holds a traced value that is not among its children (aux data, or set "
        "aside): flatten it as a child, or return it from the traced function",
    ),
    _Rule(
        "object array",
        lambda way: way.chain.kind != "object array" and way.passes("numpy.ndarray"),
        HINTS["object array"],
    ),
    _Rule("thread-local", _through("_thread._local", "threading.local"), HINTS["thread-local"]),
)


def hint_for(chain: Chain, path: Sequence[Any] = ()) -> str:
    """Return how to mend a leak that is kept in the way that ``chain`` tells.

    Args:
        chain: the names along the way.
        path: the objects from the root to the tracer; their classes tell the library.

    Returns:
        One line of advice.
    """
    classes = tuple(map(type, path[:-1]))
    way = _Way(chain, classes, tuple(map(dotted_name, classes)))
    for rule in LIBRARY_HINTS:
        # A metaclass may do anything when it is asked for an attribute.
        with contextlib.suppress(Exception):
            if rule.applies(way):
                return rule.text
    return HINTS.get(chain.kind, HINTS["element"])
