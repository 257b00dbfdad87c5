"""Threads: a trace that still runs is no leak; what another thread made or keeps is found."""

from __future__ import annotations

from typing import TYPE_CHECKING

from suite_runs import LEAKY, run_suite

if TYPE_CHECKING:
    import pytest

THREADS = """
import concurrent.futures

KEPT = []
INSIDE, GO_ON = threading.Event(), threading.Event()

def tracing():
    @jax.jit
    def f(x):
        y = x * 2
        KEPT.append(y)
        INSIDE.set()
        GO_ON.wait(20)
        return y
    f(jnp.ones(3))

THREAD = threading.Thread(target=tracing)

def test_trace_still_runs():
    THREAD.start()
    assert INSIDE.wait(20)

def test_trace_has_ended():
    GO_ON.set()
    THREAD.join()

def test_made_by_thread():
    box = Box()
    thread = threading.Thread(target=leak_into, args=(box,))
    thread.start()
    thread.join()

def keeper(ready, stop):
    mine = Box(); leak_into(mine)
    ready.set()
    stop.wait(20)

def test_kept_by_thread(request):
    ready, stop = threading.Event(), threading.Event()
    thread = threading.Thread(target=keeper, args=(ready, stop), daemon=True)
    thread.start()
    assert ready.wait(20)
    request.addfinalizer(lambda: (stop.set(), thread.join()))

def test_pool_is_clean():
    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        assert list(pool.map(lambda i: float(jax.jit(lambda x: x * i)(1.0)), range(4)))

def helper(inbox, finish):
    item = inbox.get()
    finish.wait(20)

@pytest.mark.parametrize("transform", [jax.jit, jax.grad, jax.vmap])
def test_helper_of_a_trace_is_clean(transform):
    def f(x):
        inbox, finish = queue.Queue(), threading.Event()
        thread = threading.Thread(target=helper, args=(inbox, finish))
        thread.start()
        inbox.put(x * 2)
        y = jnp.cos(x) * jnp.sum(jnp.arange(5.0))  # vmap and grad compile while they trace
        finish.set()
        thread.join()
        return y
    transform(f)(jnp.ones(3) if transform is jax.vmap else 1.0)

def worker(inbox, ready, stop):
    item = {"metrics": [inbox.get()]}
    ready.set()
    stop.wait(20)
    del item

def with_worker(use):
    inbox, ready, stop = queue.Queue(), threading.Event(), threading.Event()
    thread = threading.Thread(target=worker, args=(inbox, ready, stop), daemon=True)
    thread.start()
    try:
        use(lambda value: (inbox.put(value), ready.wait(20)))
    finally:
        stop.set()
        thread.join()

@pytest.mark.parametrize("transform", [jax.jit, jax.grad, jax.vmap])
def test_worker_holds_for_a_while(transform):
    def use(send):
        def f(x):
            send(x * 2)
            return (x * 3).sum()
        transform(f)(jnp.ones(3) if transform is jax.vmap else 1.0)
        jax.jit(lambda x: x * 5)(2.0)
    with_worker(use)

def test_worker_with_a_result_is_clean():
    def use(send):
        send(jax.jit(lambda x: x * 7)(1.0))
        jax.jit(lambda x: x * 5)(2.0)
    with_worker(use)
"""


def test_threads(pytester: pytest.Pytester) -> None:
    """Every leak by way of another thread is found once, in its test, and nothing else is."""
    run = run_suite(pytester, LEAKY + THREADS)
    worker = ["local variable 'item' of worker (thread 'worker')"]
    assert run.roots() == {
        "test_trace_has_ended": ["module variable 'KEPT' of test_suite"],
        "test_made_by_thread": ["local variable 'box' of test_made_by_thread"],
        "test_kept_by_thread": ["local variable 'mine' of keeper (thread 'keeper')"],
        "test_worker_holds_for_a_while[jit]": worker,
        "test_worker_holds_for_a_while[grad]": worker,
        "test_worker_holds_for_a_while[vmap]": worker,
    }
    chain = run.leaks()["test_worker_holds_for_a_while[jit]"][0]["chain"]
    assert chain[1:] == ["dict['metrics']", "list[0]"]


def test_listener_is_registered_once_and_removed(pytester: pytest.Pytester) -> None:
    """However many tests run, JAX has one listener more, and none when the run is over."""
    from jax._src import monitoring  # there is no public way to count listeners

    before = len(monitoring._event_duration_secs_listeners)
    source = """
from jax._src import monitoring

@pytest.mark.parametrize("n", range(3))
def test_count(n):
    print("listeners:", len(monitoring._event_duration_secs_listeners))

def test_cleared_by_the_suite():
    monitoring.clear_event_listeners()
"""
    saved = list(monitoring._event_duration_secs_listeners)
    run = run_suite(pytester, LEAKY + source, "-s", "-k", "count")
    assert run.text.count(f"listeners: {before + 1}") == 3
    assert len(monitoring._event_duration_secs_listeners) == before
    run = run_suite(pytester, "", "-k", "cleared")
    run.result.assert_outcomes(passed=1, deselected=3)
    monitoring._event_duration_secs_listeners[:] = saved
