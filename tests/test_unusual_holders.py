"""Holders and look-alikes that a walk over references gets wrong if it is not careful."""

from __future__ import annotations

import pytest
from suite_runs import LEAKY, run_suite

_LEAKS = """
import concurrent.futures
import contextvars
import copyreg
import signal
import types
import unittest.mock

import equinox as eqx
import numpy as np

def leak(keep):
    jax.jit(lambda x: keep(x * 2) and None or x)(jnp.ones(3))

TABLE = functools.lru_cache(jnp.arange)

class Grid:
    eye = functools.cache(jnp.eye)

def test_cache_of_a_function_of_jax():
    jax.jit(lambda x: x * TABLE(3))(jnp.ones(3))

def test_cache_in_a_class():
    jax.jit(lambda x: x * Grid.eye(3))(jnp.ones(3))

BUFFERS = {"buffer": np.empty(2, dtype=object)}
PAIR = (np.empty(2, dtype=object),)
OUTER = np.empty(2, dtype=object)
FIELDS = np.zeros(3, dtype=[("a", "i4"), ("o", object)])
MASKED = np.ma.masked_array(np.empty(2, dtype=object))

class Sub(np.ndarray): pass
SUB = np.empty(2, dtype=object).view(Sub)

def test_array_in_dict(): leak(lambda v: BUFFERS["buffer"].__setitem__(0, v))
def test_array_in_tuple(): leak(lambda v: PAIR[0].__setitem__(0, v))
def test_array_in_array():
    inner = np.empty(2, dtype=object)
    OUTER[0] = inner
    leak(lambda v: inner.__setitem__(1, v))
    del inner
def test_structured(): leak(lambda v: FIELDS["o"].__setitem__(1, v))
def test_subclass(): leak(lambda v: SUB.__setitem__(0, v))
def test_masked(): leak(lambda v: MASKED.__setitem__(0, v))

MODELS = []

@pytest.mark.parametrize("m", [MODELS])
def test_parameter(m): leak(m.append)

@pytest.mark.parametrize("m", [[]], ids=["list"])
def test_anonymous_parameter(m): leak(m.append)

CONFIG = types.SimpleNamespace(scale=1.0)

def test_put_back(monkeypatch):
    def keep(v):
        CONFIG.scale = v
        monkeypatch.setattr(CONFIG, "scale", 3.0)
    leak(keep)

def test_constants():
    jaxprs = []
    leak(lambda v: jaxprs.append(jax.make_jaxpr(lambda z: z + v)(1.0)))

class Collector:
    seen = None

def test_plugin(request):
    collector = Collector()
    request.config.pluginmanager.register(collector, "collector")
    del collector
    leak(lambda v: setattr(request.config.pluginmanager.get_plugin("collector"), "seen", v))

def test_property(record_property): leak(lambda v: record_property("loss", v))

def test_index_helper():
    helpers = []
    leak(lambda v: helpers.append(v.at[0]))

class Key(str):
    def __str__(self): raise RuntimeError("no text")
    __hash__ = str.__hash__

def test_odd_attribute():
    box = Box()
    leak(lambda v: box.__dict__.__setitem__(Key("odd"), v))

class Meta(type):
    def __eq__(cls, other): return cls is other   # so that there is no __hash__
    def __getattribute__(cls, name):
        if name in ("__dict__", "__mro__"): raise RuntimeError(name)
        return type.__getattribute__(cls, name)

class Odd(metaclass=Meta): pass

def test_odd_class():
    odd = Odd()
    leak(lambda v: setattr(odd, "kept", v))

def test_local_class():
    class Local: pass
    leak(lambda v: setattr(Local, "kept", v))

def test_class_of_an_object():
    def make():
        class Local: pass
        return Local()
    local = make()
    leak(lambda v: setattr(type(local), "kept", v))

STATE = contextvars.ContextVar("STATE")

def test_context_of_a_live_thread():
    started, done = threading.Event(), threading.Event()
    def work():
        leak(STATE.set)
        started.set(); done.wait()
    thread = threading.Thread(target=work, daemon=True)
    thread.start(); started.wait()
    test_context_of_a_live_thread.done = done

def test_element_of_a_context():
    contexts = []
    def keep(v):
        contexts.append(contextvars.copy_context())
        contexts[0].run(STATE.set, v)
    leak(keep)

def test_signal_handler(request):
    # What only the interpreter itself refers to.
    old = signal.getsignal(signal.SIGTERM)
    request.addfinalizer(lambda: signal.signal(signal.SIGTERM, old))
    def handler(v): return lambda number, frame: print(v)
    leak(lambda v: signal.signal(signal.SIGTERM, handler(v)))

RECORD = np.zeros(1, dtype=[("o", object)])[0]
def test_record(): leak(lambda v: RECORD.__setitem__("o", v))

def test_mock_with_a_signature():
    spy = unittest.mock.create_autospec(leak)
    leak(lambda v: spy(v))

def test_table_of_a_c_module():
    class Own: pass
    def pickler(v): return lambda own: (Own, (v,))
    leak(lambda v: copyreg.pickle(Own, pickler(v)))

def test_beside_a_closure_of_a_library():
    deep = [[[[[[[]]]]]]]
    def f(x):
        deep[0][0][0][0][0][0].append(x)
        return eqx.filter_closure_convert(lambda y: y * x, x)
    closed = eqx.filter_jit(f)(jnp.ones(3))

@jax.jit
def jitted(x):
    jitted.calls.append(x)
    return x
jitted.calls = []

def test_attribute_of_a_jitted_function(): jitted(jnp.ones(3))

@jax.custom_jvp
def ruled(x):
    ruled.last = x
    return x
ruled.defjvp(lambda primals, tangents: (primals[0], tangents[0]))

def test_attribute_of_a_function_with_a_rule(): jax.jit(ruled)(jnp.ones(3))

POOL = concurrent.futures.ThreadPoolExecutor(1)

def test_work_to_do(request):
    # The pool's thread has the queue in a variable of the standard library's.
    event = threading.Event()
    request.addfinalizer(event.set)
    POOL.submit(event.wait)
    leak(lambda v: POOL.submit(print, v))

def test_long_list():
    long = []
    def keep(v):
        chain = [v]
        for _ in range(20_000): chain = [chain]
        long.append(chain)
    leak(keep)
"""

_HOLDERS = {
    "test_cache_of_a_function_of_jax": "test_suite.TABLE",
    "test_cache_in_a_class": "test_suite.Grid.eye",
    "test_array_in_dict": "test_suite.BUFFERS",
    "test_array_in_tuple": "test_suite.PAIR",
    "test_array_in_array": "test_suite.OUTER",
    "test_structured": "test_suite.FIELDS",
    "test_subclass": "test_suite.SUB",
    "test_masked": "test_suite.MASKED",
    "test_parameter[m0]": "test_suite.MODELS",
    "test_anonymous_parameter[list]": "test_suite.test_anonymous_parameter.m",
    "test_put_back": "test_suite.CONFIG",
    "test_constants": "test_suite.test_constants.jaxprs",
    "test_plugin": "test_suite.Collector.seen",
    "test_property": "record_property",
    "test_index_helper": "test_suite.test_index_helper.helpers",
    "test_odd_attribute": "test_suite.Box.<Key>",
    "test_odd_class": "test_suite.Odd.kept",
    "test_local_class": "test_suite.Local.kept",
    "test_class_of_an_object": "test_suite.Local.kept",
    "test_context_of_a_live_thread": "STATE",
    "test_element_of_a_context": "STATE",
    "test_signal_handler": "test_suite.test_signal_handler.handler.<lambda>.v",
    "test_record": "test_suite.RECORD",
    "test_mock_with_a_signature": "test_suite.test_mock_with_a_signature.spy",
    "test_table_of_a_c_module": "test_suite.test_table_of_a_c_module.pickler.<lambda>.v",
    "test_beside_a_closure_of_a_library": "test_suite.test_beside_a_closure_of_a_library.deep",
    "test_attribute_of_a_jitted_function": "test_suite.jitted.calls",
    "test_attribute_of_a_function_with_a_rule": "test_suite.ruled.last",
    "test_work_to_do": "test_suite.POOL",
    "test_long_list": "test_suite.test_long_list.long",
}


def test_each_holder_is_named(pytester: pytest.Pytester) -> None:
    """Each test leaks, its holder is the one that has to be edited, and no later test is harmed."""
    run = run_suite(pytester, LEAKY + _LEAKS)
    leaks = run.leaks()
    found = {name: {leak["holder"] for leak in leaks[name]} for name in leaks}
    assert found == {name: {holder} for name, holder in _HOLDERS.items()}
    owners = {name: leak["owner"] for name, each in leaks.items() for leak in each}
    assert owners.pop("test_table_of_a_c_module") == "third-party"
    assert set(owners.values()) == {"project"}
    phases = {name: phase for name, phase, _ in run.phases()}
    assert phases.pop("test_put_back") == "teardown"
    assert set(phases.values()) == {"call"}
    (long,) = leaks["test_long_list"]
    assert len(long["chain"]) == 101
    assert long["chain"][50] == "(19903 links)"
    roots = {name: each[0]["chain"][0] for name, each in leaks.items()}
    assert roots["test_signal_handler"] == "handler of signal SIGTERM"
    assert roots["test_table_of_a_c_module"].startswith("module variable 'dispatch_table' of copy")
    (context,) = leaks["test_element_of_a_context"]
    assert context["chain"][1:] == ["list[0]", "context variable 'STATE'"]
    assert "JaxLeaksWarning" not in run.text


_CLEAN = """
import time
import warnings

import equinox as eqx

X = 2.0

def test_class_in_a_traceback():
    @jax.jit
    def f(x):
        y = x * 2
        class Bad:
            w = y
            def m(self): return y
        raise ValueError
    with pytest.raises(ValueError) as caught:
        f(X)

def test_class_in_an_exception():
    @jax.jit
    def f(x):
        class Bad: w = x * 2
        raise ValueError
    try: f(X)
    except ValueError as error: kept = error

CALL = jax.jit(lambda fn, z: fn(z), static_argnums=0)

def test_class_of_a_static_argument():
    def f(x):
        class M:
            w = x * 2
            def __call__(self, z): return self.w * z
        return CALL(M(), x)
    jax.jit(f)(X)

def test_class_that_jax_has_registered():
    def f(x):
        y = x * 2
        @jax.tree_util.register_pytree_node_class
        class L:
            def __init__(self, a): self.a = a
            def tree_flatten(self): return (self.a,), None
            @classmethod
            def tree_unflatten(cls, aux, children): return cls(*children)
            def m(self): return self.a + y
        return L(y).m()
    jax.jit(f)(X)

# As flax does, for one.
from jax._src.tree_util import _registry as REGISTRY_OF_JAX

class Shape(UserWarning): pass

def test_recorded_warning():
    def f(x):
        warnings.warn(Shape("shape", x))
        return x
    jax.jit(f)(X)

def test_closures_of_a_library():
    # Since jax 0.12 the jaxpr in them has constants, though it is called with others.
    closed = eqx.filter_jit(lambda x: eqx.filter_closure_convert(lambda y: y * x, x))(X)
    assert closed(X) == 4

def test_kept_jaxpr():
    jaxpr = jax.make_jaxpr(lambda x: x + jnp.ones(3))(X)

@pytest.mark.parametrize("transform", [jax.jit, jax.vmap, jax.grad])
@pytest.mark.parametrize("seconds", [0.05, 0.2])
def test_trace_of_another_thread(transform, seconds):
    started = threading.Event()
    box = Box()
    def work():
        def f(x):
            box.now = x * 2
            started.set()
            time.sleep(seconds)
            del box.now
            return x.sum()
        transform(f)(jnp.ones(3))
    threading.Thread(target=work, daemon=True).start()
    started.wait()
"""


def test_nothing_else_is_reported(pytester: pytest.Pytester) -> None:
    """Only dead ends lead to these values, or a trace that still runs is busy with them."""
    run = run_suite(pytester, LEAKY + _CLEAN)
    assert run.leaks() == {}
    assert run.result.parseoutcomes()["passed"] == 13


def test_the_jaxprs_in_a_librarys_cache_are_its_own_affair(pytester: pytest.Pytester) -> None:
    """equinox caches shapes by jaxprs whose constants are tracers of an outer trace.

    Its closure conversion keeps the jaxpr beside the constants, which leave ``jvp`` as leaves. Kept
    by somebody else while the trace runs, they are a leak.
    """
    source = """
import equinox as eqx
from equinox.internal import cached_filter_eval_shape
import optimistix as optx

def root(a):
    solver = optx.Newton(rtol=1e-4, atol=1e-4)
    return optx.root_find(lambda y, args: y**2 - args, solver, jnp.float32(1.0), args=a).value

def test_gradient(): jax.grad(root)(jnp.float32(4.0))

def converted(w): return eqx.filter_closure_convert(lambda x: x @ w, jnp.ones(3))

def test_tangent():
    w = jnp.ones((3, 3))
    operator, tangent = eqx.filter_jvp(converted, (w,), (w,))
    operator(jnp.ones(3))

def test_kept():
    kept = []
    jax.jit(lambda w: kept.append(converted(w)))(jnp.ones((3, 3)))

class Equal:  # as optimistix has it in its own code
    def __init__(self, jaxpr): self.jaxpr = jaxpr
    def __hash__(self): return 0
    def __eq__(self, other): return type(self) is type(other)

def test_static_part():
    def loss(w):
        static = Equal(jax.make_jaxpr(lambda x: x * w)(w))
        cached_filter_eval_shape(lambda marked, x: x, static, w)
        return (w * w).sum()
    jax.grad(loss)(jnp.ones(3))
"""
    pytest.importorskip("optimistix")
    run = run_suite(pytester, LEAKY + source, subprocess=True)
    run.result.assert_outcomes(passed=3, failed=1)
    assert run.leaks().keys() == {"test_kept"}
