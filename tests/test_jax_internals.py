"""Each private name of JAX that the package reads is still there: this fails where one is gone."""

from __future__ import annotations

import functools
import logging
from typing import TYPE_CHECKING, Any

import equinox as eqx
import jax
import jax.numpy as jnp
import pytest

from pytest_jaxleaks import jax_internals
from pytest_jaxleaks.jax_internals import (
    blocks_reference,
    hear_of_leak_checking,
    is_book_keeping,
    is_jax_cache,
    is_jax_function,
    is_tracing,
    may_be_jax_cache,
    record_of,
    trace_of,
    tracer_types,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

KEPT: list[Any] = []


@pytest.fixture(autouse=True)
def _forget() -> Iterator[None]:
    """Leave no tracer behind."""
    yield
    KEPT.clear()


def keep(x: Any) -> Any:
    """Leak a value of float32[3]."""
    KEPT.append(x * 1.0)
    return x * 2


def total(x: Any) -> Any:
    """Leak a value on the way to a scalar."""
    return keep(x).sum()


def in_vmap(x: Any) -> Any:
    """Call ``jax.vmap``: the line after this one is the caller."""
    return jax.vmap(keep)(x)


def mapped(x: Any) -> Any:
    """Trace ``keep`` for one device."""
    mesh = jax.make_mesh((1,), ("i",))
    spec = jax.sharding.PartitionSpec()
    return jax.shard_map(keep, mesh=mesh, in_specs=spec, out_specs=spec, check_vma=False)(x)


MAKERS: dict[str, tuple[Callable[[Any], Any], str, str]] = {
    "jit": (jax.jit(keep), "jit", "DynamicJaxprTracer"),
    "vmap": (lambda x: jax.vmap(keep)(jnp.stack([x])), "vmap", "BatchTracer"),
    "grad": (jax.grad(total), "grad", "LinearizeTracer"),
    "jvp": (lambda x: jax.jvp(keep, (x,), (x,)), "jvp", "JVPTracer"),
    "remat": (jax.jit(lambda x: jax.checkpoint(keep)(x)), "remat", "DynamicJaxprTracer"),
    "shard_map": (mapped, "shard_map", "ShardMapTracer"),
    "scan": (
        lambda x: jax.lax.scan(lambda c, _: (keep(c), None), x, None, length=2),
        "jit",
        "DynamicJaxprTracer",
    ),
}


@pytest.mark.parametrize("name", MAKERS)
def test_a_tracer_tells_what_made_it(name: str) -> None:
    """Value, kind and transformation are known of a tracer of each transformation."""
    make, transform, kind = MAKERS[name]
    make(jnp.ones(3))
    (tracer, *_) = KEPT
    record = record_of(tracer)
    assert (record.value, record.transform, record.kind) == ("float32[3]", transform, kind)
    assert id(type(tracer)) in tracer_types()
    assert trace_of(tracer) is not None


def test_jit_records_the_function_and_the_line() -> None:
    """A tracer of jit has the traced function with its place, and the line that made the value."""

    def step(x: Any) -> Any:
        KEPT.append(x * 1.0)
        return x * 2

    jax.jit(step)(jnp.ones(3))
    record = record_of(KEPT[0])
    first = step.__code__.co_firstlineno
    assert record.traced is not None
    assert record.traced[:2] == (__file__, first)
    assert record.traced.function.endswith("step")
    assert record.created is not None
    assert record.created[:2] == (__file__, first + 1)


def test_vmap_records_its_caller() -> None:
    """A tracer of vmap has the line that called ``jax.vmap``."""
    in_vmap(jnp.ones((2, 3)))
    record = record_of(KEPT[0])
    assert record.caller is not None
    assert record.caller[:2] == (__file__, in_vmap.__code__.co_firstlineno + 2)


def test_jax_has_caches_and_book_keeping() -> None:
    """JAX's caches are told from a user's, and its own structures from those that hold data."""
    from jax._src import api_util, util

    @functools.lru_cache
    def cached(x: int) -> int:
        return x

    @util.weakref_lru_cache
    def by_function(f: object, x: int) -> int:
        return x

    assert may_be_jax_cache(type(by_function))
    assert is_jax_cache(by_function)
    assert is_jax_cache(api_util.donation_vector)
    assert not is_jax_cache(cached)
    jaxpr = jax.make_jaxpr(lambda x: x + jnp.ones(3))(1.0)
    assert blocks_reference(jaxpr, jaxpr.jaxpr.eqns)
    assert is_book_keeping(type(jaxpr.jaxpr.eqns[0]))
    assert not is_book_keeping(type(jax.jit(keep)))
    assert not is_book_keeping(type(jax.tree.structure(1)))
    assert not is_book_keeping(eqx.Module)
    assert not is_book_keeping(logging.LogRecord)
    assert is_jax_function(jax.vmap)


def test_a_jaxpr_shows_its_constants() -> None:
    """The list of constants is the same object each time, and counts as the holder's."""

    def outer(x: Any) -> Any:
        KEPT.append(jax.make_jaxpr(lambda z: z + x)(1.0))
        return x

    jax.jit(outer)(1.0)
    (jaxpr,) = KEPT
    assert not blocks_reference(jaxpr, jaxpr.consts)
    assert id(type(jaxpr.consts[0])) in tracer_types()


def test_a_cache_around_a_function_of_jax_is_the_users() -> None:
    """``functools.lru_cache`` takes over the wrapped function's name and module."""
    assert not is_jax_cache(functools.lru_cache(jnp.arange))
    assert not is_jax_cache(functools.cache(jax.random.key))


def test_the_named_types_of_jax_exist() -> None:
    """What counts as a user's own although JAX defines it is still called so."""
    found = {
        type(jax.tree.structure(1)).__name__,
        type(jax.tree_util.Partial(keep)).__name__,
        type(jax.vjp(total, jnp.ones(3))[1]).__name__,
        type(jax.custom_jvp(keep)).__name__,
        type(jax.custom_vjp(keep)).__name__,
        type(jax.custom_batching.custom_vmap(keep)).__name__,
        type(jnp.ones(3).at).__name__,
        type(jnp.ones(3).at[0]).__name__,
        "custom_transpose",
    }
    assert found <= jax_internals._TRANSPARENT | {"function"}
    assert type(jax.jit(keep)).__name__ == jax_internals._JITTED


def test_leak_checking_is_heard_of() -> None:
    """JAX's own setting tells of its blocks, until it is not to any more."""
    heard: list[bool | None] = []
    take_back = hear_of_leak_checking(heard.append)
    with jax.check_tracer_leaks(False), jax.checking_leaks():
        pass
    take_back()
    with jax.check_tracer_leaks(False):
        pass
    assert heard == [False, True, False, None]


def test_a_jax_without_these_names_tells_less(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where nothing is recorded, nothing is told, and nothing breaks."""
    record = record_of(object())
    assert record == ("value of unknown type", "object", "other", None, None, None)
    assert trace_of(object()) is None
    monkeypatch.setattr(jax, "check_tracer_leaks", object())
    take_back = hear_of_leak_checking(pytest.fail)
    take_back()


def test_a_running_transformation_is_known() -> None:
    """Inside of jit, vmap, grad and jvp this thread is tracing; outside it is not."""
    seen: list[bool] = []

    def note(x: Any) -> Any:
        seen.append(is_tracing())
        return x

    for transformed in (jax.jit(note), jax.grad(note), lambda x: jax.jvp(note, (x,), (x,))):
        transformed(1.0)
    jax.vmap(note)(jnp.ones(2))
    assert seen == [True] * 4
    assert not is_tracing()


def test_containers_of_jax_are_known() -> None:
    """What a module of JAX has in a variable is JAX's, whoever else refers to it."""
    from jax._src import tree_util

    registry = tree_util._registry
    found = jax_internals.containers_of_jax()
    assert found[id(registry)] is registry
    assert id(dict(registry)) not in found


def test_what_donates_is_known() -> None:
    """A jitted function says what it donates, by number or by name; nothing else is asked."""

    class Lies:
        def __getattr__(self, name: str) -> object:
            return True

    def f(x: Any, y: Any) -> Any:
        return x, y

    assert jax_internals.donates_arguments(jax.jit(f, donate_argnums=1))
    assert jax_internals.donates_arguments(jax.jit(f, donate_argnames="x"))
    assert not jax_internals.donates_arguments(jax.jit(f))
    assert not jax_internals.donates_arguments(Lies())
