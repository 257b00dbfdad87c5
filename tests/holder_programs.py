"""Small programs with known truth: ways to make a tracer, and ways to keep it.

``TRANSFORMS`` run a function of three numbers while it is traced. ``HOLDERS`` keep what
they are given; each has a name that a report of it must contain.
"""

from __future__ import annotations

import asyncio
import collections
import concurrent.futures
import contextvars
import dataclasses
import functools
import itertools
import logging.handlers
import queue
import threading
import types
import weakref
from typing import TYPE_CHECKING, Any
from unittest import mock

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, PartitionSpec

if TYPE_CHECKING:
    from collections.abc import Callable

X = jnp.arange(3.0)


# -- transformations ----------------------------------------------------------------------------


def _body(keep: Callable[[Any], None]) -> Callable[[Any], Any]:
    """Return a new function: JAX would not trace a known one again."""

    def body(x: Any) -> Any:
        y = jnp.sin(x) * 2
        keep(y)
        return y

    return body


def _total(keep: Callable[[Any], None]) -> Callable[[Any], Any]:
    body = _body(keep)
    return lambda x: body(x).sum()


def _scan(keep: Callable[[Any], None]) -> None:
    body = _body(keep)
    jax.lax.scan(lambda c, x: (body(c), x), X, jnp.ones(2))


def _while(keep: Callable[[Any], None]) -> None:
    body = _body(keep)
    jax.lax.while_loop(lambda c: c[0] < 1, lambda c: (c[0] + 1, body(c[1])), (0, X))


def _fori(keep: Callable[[Any], None]) -> None:
    body = _body(keep)
    jax.lax.fori_loop(0, 2, lambda _, c: body(c), X)


def _custom_vjp(keep: Callable[[Any], None]) -> None:
    @jax.custom_vjp
    def f(x: Any) -> Any:
        return x * 2

    body = _body(keep)
    f.defvjp(lambda x: (body(x), x), lambda x, ct: (ct * x,))
    jax.jit(jax.grad(lambda x: f(x).sum()))(X)


def _custom_jvp(keep: Callable[[Any], None]) -> None:
    @jax.custom_jvp
    def f(x: Any) -> Any:
        return x * 2

    body = _body(keep)
    f.defjvp(lambda primals, tangents: (body(primals[0]), tangents[0] * 2))
    jax.jit(jax.grad(lambda x: f(x).sum()))(X)


def _shard_map(keep: Callable[[Any], None]) -> None:
    mesh = Mesh(np.array(jax.devices()[:1]), ("d",))
    spec = PartitionSpec("d")
    jax.jit(jax.shard_map(_body(keep), mesh=mesh, in_specs=spec, out_specs=spec))(X)


def _thread(keep: Callable[[Any], None]) -> None:
    thread = threading.Thread(target=lambda: jax.jit(_body(keep))(X))
    thread.start()
    thread.join()


TRANSFORMS: dict[str, Callable[[Callable[[Any], None]], Any]] = {
    "jit": lambda keep: jax.jit(_body(keep))(X),
    "vmap": lambda keep: jax.vmap(_body(keep))(X),
    "grad": lambda keep: jax.grad(_total(keep))(X),
    "value_and_grad": lambda keep: jax.value_and_grad(_total(keep))(X),
    "vjp": lambda keep: jax.vjp(_body(keep), X),
    "jvp": lambda keep: jax.jvp(_body(keep), (X,), (X,)),
    "jacfwd": lambda keep: jax.jacfwd(_body(keep))(X),
    "jacrev": lambda keep: jax.jacrev(_body(keep))(X),
    "hessian": lambda keep: jax.hessian(_total(keep))(X),
    "linearize": lambda keep: jax.linearize(_body(keep), X),
    "scan": _scan,
    "while": _while,
    "fori": _fori,
    "map": lambda keep: jax.lax.map(_body(keep), X),
    "cond": lambda keep: jax.lax.cond(True, _body(keep), lambda x: x, X),
    "switch": lambda keep: jax.lax.switch(1, [lambda x: x, _body(keep)], X),
    "remat": lambda keep: jax.checkpoint(_body(keep))(X),
    "grad_of_remat": lambda keep: jax.grad(jax.checkpoint(_total(keep)))(X),
    "custom_vjp": _custom_vjp,
    "custom_jvp": _custom_jvp,
    "eval_shape": lambda keep: jax.eval_shape(_body(keep), X),
    "make_jaxpr": lambda keep: jax.make_jaxpr(_body(keep))(X),
    "shard_map": _shard_map,
    "thread": _thread,
    "filter_jit": lambda keep: eqx.filter_jit(_body(keep))(X),
    "filter_vmap": lambda keep: eqx.filter_vmap(_body(keep))(X),
    "filter_grad": lambda keep: eqx.filter_grad(_total(keep))(X),
    "filter_jvp": lambda keep: eqx.filter_jvp(_body(keep), (X,), (X,)),
    "filter_closure_convert": lambda keep: eqx.filter_closure_convert(_body(keep), X),
    "jit(vmap)": lambda keep: jax.jit(jax.vmap(_body(keep)))(X),
    "vmap(grad)": lambda keep: jax.vmap(jax.grad(_body(keep)))(X),
    "grad(vmap)": lambda keep: jax.grad(lambda x: jax.vmap(_body(keep))(x).sum())(X),
    "jit(grad(scan))": lambda keep: jax.jit(
        jax.grad(lambda x: jax.lax.scan(lambda c, _: (_body(keep)(c), None), x, length=2)[0].sum())
    )(X),
    "vmap(jit)": lambda keep: jax.vmap(jax.jit(_body(keep)))(X),
    "jvp(jvp)": lambda keep: jax.jvp(lambda x: jax.jvp(_body(keep), (x,), (X,))[1], (X,), (X,)),
}


# -- holders ------------------------------------------------------------------------------------


@dataclasses.dataclass
class Holder:
    """Something that keeps values.

    Attributes:
        name: what a report must name.
        keep: keeps a value.
        drop: forgets every value.
        anchor: what a test holds on to.
    """

    name: str
    keep: Callable[[Any], None]
    drop: Callable[[], None]
    anchor: Any = None


MODULE_LIST: list[Any] = []
MODULE_DICT: dict[str, Any] = {}
MODULE_ARRAY = np.empty(2, dtype=object)
WEAK_KEYS: weakref.WeakKeyDictionary[Any, Any] = weakref.WeakKeyDictionary()
VARIABLE: contextvars.ContextVar[Any] = contextvars.ContextVar("VARIABLE", default=None)
LOCAL_STORE = threading.local()
BUFFER = logging.handlers.MemoryHandler(10_000, flushLevel=100)
LOGGER = logging.getLogger("pytest_jaxleaks.tests.holder_programs")
LOGGER.propagate = False
LOGGER.addHandler(BUFFER)


class Model:
    """A class that stores what it computes."""

    shared: Any = None

    def __init__(self) -> None:
        self.activation: Any = None
        self.history: list[Any] = []


class Slotted:
    """The same with slots."""

    __slots__ = ("stored",)


class Subclassed(dict[str, Any]):
    """A user's own mapping."""


@dataclasses.dataclass(frozen=True)
class Frozen:
    """A record without an attribute that can be assigned."""

    payload: Any


class Call(Frozen):
    """The same as a function."""

    def __call__(self) -> Any:
        """Return the payload."""
        return self.payload


class Static(eqx.Module):
    """A module whose static field hides a value from JAX."""

    hidden: Any = eqx.field(static=True)


class Lazy:
    """A class with a lazily computed attribute."""

    def __init__(self) -> None:
        self.source: Any = None

    @functools.cached_property
    def derived(self) -> Any:
        """Whatever the source was at the first access."""
        return self.source


def remember(value: Any, history: list[Any] = []) -> None:  # noqa: B006
    """Keep values in a mutable default."""
    history.append(value)


def target() -> None:
    """Carry an attribute."""


def _attribute() -> Holder:
    model = Model()
    return Holder(
        "activation",
        lambda v: setattr(model, "activation", v),
        lambda: setattr(model, "activation", None),
        model,
    )


def _attribute_list() -> Holder:
    model = Model()
    return Holder(
        "history",
        lambda v: model.history.append([{"x": v}]),
        lambda: model.history.clear(),
        model,
    )


def _class_attribute() -> Holder:
    return Holder(
        "shared", lambda v: setattr(Model, "shared", v), lambda: setattr(Model, "shared", None)
    )


def _slot() -> Holder:
    slotted = Slotted()
    return Holder(
        "stored",
        lambda v: setattr(slotted, "stored", v),
        lambda: setattr(slotted, "stored", None),
        slotted,
    )


def _function_attribute() -> Holder:
    return Holder(
        "target", lambda v: setattr(target, "last", v), lambda: setattr(target, "last", None)
    )


def _closure() -> Holder:
    captured: Any = None

    def keep(value: Any) -> None:
        nonlocal captured
        captured = value

    def read() -> Any:
        return captured

    return Holder("captured", keep, lambda: keep(None), read)


def _default() -> Holder:
    history = remember.__defaults__[0]  # type: ignore[index]
    return Holder("history", remember, lambda: history.clear())


def _partial() -> Holder:
    box: list[Any] = []
    return Holder(
        "partial", lambda v: box.append(functools.partial(print, v)), lambda: box.clear(), box
    )


def _bound_method() -> Holder:
    box: list[Any] = []
    return Holder("payload", lambda v: box.append(Frozen(v).__repr__), lambda: box.clear(), box)


def _lru_cache() -> Holder:
    current: list[Any] = [None]

    @functools.lru_cache
    def table(_: int) -> Any:
        return current[0]

    def keep(value: Any) -> None:
        current[0] = value
        table(1)
        current[0] = None

    return Holder("table", keep, lambda: table.cache_clear(), table)


def _cached_property() -> Holder:
    lazy = Lazy()

    def keep(value: Any) -> None:
        lazy.source = value
        assert lazy.derived is not None
        lazy.source = None

    return Holder("derived", keep, lambda: lazy.__dict__.pop("derived", None), lazy)


def _weak_key() -> Holder:
    key = Model()
    return Holder("WEAK_KEYS", lambda v: WEAK_KEYS.update({key: v}), lambda: WEAK_KEYS.clear(), key)


def _thread_local() -> Holder:
    return Holder(
        "value",
        lambda v: setattr(LOCAL_STORE, "value", v),
        lambda: setattr(LOCAL_STORE, "value", None),
    )


def _generator() -> Holder:
    box: list[Any] = []

    def count(start: Any) -> Any:
        yield start.shape
        yield start

    def keep(value: Any) -> None:
        suspended = count(value)
        next(suspended)
        box.append(suspended)

    return Holder("start", keep, lambda: box.clear(), box)


def _iterator() -> Holder:
    box: list[Any] = []
    return Holder("repeat", lambda v: box.append(itertools.repeat(v)), lambda: box.clear(), box)


def _future() -> Holder:
    box: list[Any] = []

    def keep(value: Any) -> None:
        future: concurrent.futures.Future[Any] = concurrent.futures.Future()
        future.set_result(value)
        box.append(future)

    return Holder("Future", keep, lambda: box.clear(), box)


def _asyncio_future() -> Holder:
    loop = asyncio.new_event_loop()
    loop.close()
    box: list[Any] = []

    def keep(value: Any) -> None:
        future = asyncio.Future(loop=loop)
        future.set_result(value)
        box.append(future)

    return Holder("Future", keep, lambda: box.clear(), box)


def _queue() -> Holder:
    waiting: queue.Queue[Any] = queue.Queue()
    return Holder("Queue", lambda v: waiting.put(v), lambda: waiting.queue.clear(), waiting)


def _simple_queue() -> Holder:
    waiting: queue.SimpleQueue[Any] = queue.SimpleQueue()
    return Holder("SimpleQueue", lambda v: waiting.put(v), lambda: waiting.get(), waiting)


def _mock() -> Holder:
    spy = mock.Mock()
    return Holder("call_args", spy, lambda: spy.reset_mock(), spy)


def _exception() -> Holder:
    model = Model()

    def keep(value: Any) -> None:
        try:
            raise ValueError(value.shape)
        except ValueError as error:
            model.activation = error

    return Holder("activation", keep, lambda: setattr(model, "activation", None), model)


def _static_field() -> Holder:
    box: list[Any] = []

    def keep(value: Any) -> None:
        with mock.patch("warnings.warn"):
            box.append(Static(value))

    return Holder("hidden", keep, lambda: box.clear(), box)


def _pytree_aux() -> Holder:
    box: list[Any] = []
    return Holder(
        "payload",
        lambda v: box.append(jax.tree.structure(jax.tree_util.Partial(Call(v)))),
        lambda: box.clear(),
        box,
    )


def _jitted_closure() -> Holder:
    box: list[Any] = []
    return Holder("v", lambda v: box.append(jax.jit(lambda u: u + v)), lambda: box.clear(), box)


def _namedtuple_of_jax() -> Holder:
    box: list[Any] = []

    def keep(value: Any) -> None:
        box.append(jnp.linalg.svd(jnp.ones((2, 2)) * jnp.sum(value)))

    return Holder("SVDResult", keep, lambda: box.clear(), box)


def _object_array() -> Holder:
    return Holder(
        "MODULE_ARRAY", lambda v: MODULE_ARRAY.__setitem__(0, v), lambda: MODULE_ARRAY.fill(None)
    )


HOLDERS: dict[str, Callable[[], Holder]] = {
    "module list": lambda: Holder(
        "MODULE_LIST", lambda v: MODULE_LIST.append(v), lambda: MODULE_LIST.clear()
    ),
    "module dict": lambda: Holder(
        "MODULE_DICT", lambda v: MODULE_DICT.update(k=[(v,)]), lambda: MODULE_DICT.clear()
    ),
    "attribute": _attribute,
    "attribute list": _attribute_list,
    "class attribute": _class_attribute,
    "slot": _slot,
    "function attribute": _function_attribute,
    "closure": _closure,
    "default argument": _default,
    "partial": _partial,
    "bound method": _bound_method,
    "lru_cache": _lru_cache,
    "cached_property": _cached_property,
    "weak-key dict": _weak_key,
    "context variable": lambda: Holder("VARIABLE", VARIABLE.set, lambda: VARIABLE.set(None)),
    "thread-local": _thread_local,
    "generator": _generator,
    "iterator": _iterator,
    "future": _future,
    "asyncio future": _asyncio_future,
    "queue": _queue,
    "simple queue": _simple_queue,
    "log record": lambda: Holder(
        "BUFFER", lambda v: LOGGER.warning("%s", v), lambda: BUFFER.buffer.clear()
    ),
    "mock": _mock,
    "stored exception": _exception,
    "static field": _static_field,
    "aux data": _pytree_aux,
    "jitted closure": _jitted_closure,
    "named tuple of JAX": _namedtuple_of_jax,
    "object array": _object_array,
    "deque": lambda: (lambda d: Holder("deque", lambda v: d.append(v), lambda: d.clear(), d))(
        collections.deque(maxlen=9)
    ),
    "ordered dict": lambda: (
        lambda d: Holder("OrderedDict", lambda v: d.update(a=v), lambda: d.clear(), d)
    )(collections.OrderedDict()),
    "dict subclass": lambda: (
        lambda d: Holder("Subclassed", lambda v: d.update(a=v), lambda: d.clear(), d)
    )(Subclassed()),
    "namespace": lambda: (
        lambda n: Holder("seen", lambda v: setattr(n, "seen", v), lambda: n.__dict__.clear(), n)
    )(types.SimpleNamespace()),
}
# What keeps values per thread or context does not see what another thread does.
NOT_FROM_A_THREAD = {"context variable", "thread-local"}
