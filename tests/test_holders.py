"""The search for holders: what it costs and what it leaves behind."""

from __future__ import annotations

import gc
import threading
import types
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import pytest

from pytest_jaxleaks import TracerLeakError, no_tracer_leaks


class Node:
    """An element of a linked list."""

    def __init__(self, following: Node | None) -> None:
        self.following = following
        self.value: Any = None


def _leak(keep: Any) -> TracerLeakError:
    with pytest.raises(TracerLeakError) as caught, no_tracer_leaks():
        jax.jit(lambda x: (keep(x), x + 1)[1])(jnp.ones(2))
    return caught.value


def test_a_search_leaves_no_frame_of_its_own_behind() -> None:
    """While other threads run, their frames are read; none of ours becomes cyclic garbage.

    A frame of a finished search would keep every object that it saw.
    """
    stop = threading.Event()
    thread = threading.Thread(target=stop.wait)
    thread.start()
    kept: list[Any] = []
    gc.collect()
    gc.disable()
    try:
        _leak(kept.append)
        frames = [obj for obj in gc.get_objects() if type(obj) is types.FrameType]
        rooms = ("jaxleaks/holders.py", "jaxleaks/unseen.py", "jaxleaks/thread_look.py")
        ours = [f for f in frames if f.f_code.co_filename.endswith(rooms)]
    finally:
        gc.enable()
        stop.set()
        thread.join()
    assert ours == []


def test_a_tracer_at_the_end_of_a_long_old_list_is_found() -> None:
    """A chain of 20,000 old objects needs neither recursion nor hours."""
    last = head = Node(None)
    for _ in range(20_000):
        head = Node(head)
    gc.collect()
    error = _leak(lambda x: setattr(last, "value", x))
    last.value = None
    (leak,) = error.leaks
    assert leak.holder.endswith("Node.value")
    assert head is not last


def test_ten_thousand_tracers_are_one_leak_with_a_count() -> None:
    """Values that are kept in the same way are merged, and the text stays short."""
    kept: list[Any] = []
    error = _leak(lambda x: kept.extend(x + i for i in range(10_000)))
    kept.clear()
    assert [leak.count for leak in error.leaks] == [10_000]
    assert len(str(error)) < 2_000


def test_a_local_variable_names_the_value_when_nothing_lasting_does() -> None:
    """What is kept by the caller's variable alone is named by it."""
    kept: list[Any] = []
    error = _leak(kept.append)
    kept.clear()
    assert error.leaks[0].root == (
        "local variable 'kept' of test_a_local_variable_names_the_value_when_nothing_lasting_does"
    )


def test_whoever_keeps_a_librarys_pytree_is_named() -> None:
    """JAX sees a layer's weights: no cache of the library's is to be emptied, but the list."""
    made: list[Any] = []

    def make(key: Any) -> None:
        made.append(eqx.nn.Linear(1, 2, key=key))

    with pytest.raises(TracerLeakError) as caught, no_tracer_leaks():
        jax.jit(make)(jax.random.key(0))
    name = "test_whoever_keeps_a_librarys_pytree_is_named.made"
    assert {leak.holder.rpartition("holders.")[2] for leak in caught.value.leaks} == {name}
    assert {leak.chain[-1] for leak in caught.value.leaks} == {"Linear.weight", "Linear.bias"}


def test_the_collector_is_left_as_it_was() -> None:
    """A block freezes nothing for good and switches nothing."""
    frozen, enabled = gc.get_freeze_count(), gc.isenabled()
    with no_tracer_leaks():
        jax.jit(lambda x: x * 3)(jnp.ones(2))
    assert (gc.get_freeze_count(), gc.isenabled()) == (frozen, enabled)
