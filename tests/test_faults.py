"""Hostile objects, huge heaps, many leaks, forks: outcomes stay right and nothing is lost."""

from __future__ import annotations

import gc
from typing import TYPE_CHECKING

from suite_runs import LEAKY, run_suite

if TYPE_CHECKING:
    import pytest

HOSTILE = """
class Hostile:
    def __init__(self):
        self.kept = []
    def __repr__(self): raise RuntimeError("repr")
    def __str__(self): raise RuntimeError("str")
    def __hash__(self): raise RuntimeError("hash")
    def __bool__(self): raise RuntimeError("bool")
    def __len__(self): raise RuntimeError("len")
    def __eq__(self, other): raise RuntimeError("eq")
    def __iter__(self): raise RuntimeError("iter")
    def __getattr__(self, name): raise RuntimeError("getattr")
    def __dir__(self): raise RuntimeError("dir")
    def __del__(self): raise RuntimeError("del")

class Liar(Hostile):
    @property
    def __class__(self): return dict
    @property
    def __dict__(self): return {}

class RaisingMeta(type):
    armed = False
    def __getattribute__(cls, name):
        if type.__getattribute__(cls, "armed") and name in ("__name__", "__qualname__", "__mro__"):
            raise RuntimeError("meta")
        return super().__getattribute__(name)

class Meta(metaclass=RaisingMeta):
    def __init__(self):
        self.kept = []

class Leaky:
    seen = []
    def __init__(self):
        self.kept = []
    def __repr__(self):
        self.seen.append(jax.jit(lambda x: x)(1.0))
        return "x"

@pytest.mark.parametrize("cls", [Hostile, Liar, Meta, Leaky])
def test_object(cls):
    box = cls()
    kept = object.__getattribute__(box, "kept")
    jax.jit(lambda x: kept.append(x * 2))(1.0)
    del kept
    Meta.armed = True

class Key:
    def __init__(self): self.armed = False
    def __hash__(self): return 1
    def __eq__(self, other):
        if self.armed:
            raise RuntimeError("eq")
        return self is other
    def __repr__(self): raise RuntimeError("repr")

def test_keys():
    table = {Key(): [], Key(): []}
    kept = list(table.values())[1]
    jax.jit(lambda x: kept.append(x * 2))(1.0)
    for key in table:
        key.armed = True
    del kept

class Resurrecting:
    def __init__(self): self.me = self
    def __del__(self): ALIVE.append(self)

ALIVE = []

def test_resurrected():
    box = Resurrecting()
    jax.jit(lambda x: setattr(box, "kept", x * 2))(1.0)
    del box

def test_clean_and_hostile():
    box = Hostile()
    assert float(jax.jit(lambda x: x + 1)(1.0)) == 2.0
"""


def test_hostile_objects(pytester: pytest.Pytester) -> None:
    """Nothing of the program's is run: objects that raise, leak or lie are named all the same."""
    run = run_suite(
        pytester, LEAKY + HOSTILE, "-W", "ignore::pytest.PytestUnraisableExceptionWarning"
    )
    holders = {name: found[0]["holder"] for name, found in run.leaks().items()}
    assert holders.pop("test_resurrected").startswith("test_suite.")
    assert holders == {
        "test_object[Hostile]": "test_suite.Hostile.kept",
        "test_object[Liar]": "test_suite.test_object.box",
        "test_object[Meta]": "test_suite.Meta.kept",
        "test_object[Leaky]": "test_suite.Leaky.kept",
        "test_keys": "test_suite.test_keys.table",
    }
    assert "JaxLeaksWarning" not in run.text
    run.result.assert_outcomes(failed=6, passed=1)


SIZES = """
class Link:
    pass

def test_deep_chain():
    top = link = Link()
    for _ in range(3_000):
        link.next = Link()
        link = link.next
    jax.jit(lambda x: setattr(link, "kept", x * 2))(1.0)
    del link

def test_cyclic_chain():
    first, second = Link(), Link()
    first.next, second.next = second, first
    jax.jit(lambda x: setattr(second, "kept", x * 2))(1.0)
    del second

def test_many_leaks():
    box = Box()
    def f(x):
        for _ in range(10_000):
            box.kept.append(jnp.sin(x) if len(box.kept) < 5 else x)
        box.others = [x + i for i in range(1_000)]
        return x
    jax.jit(f)(1.0)

def test_big_heap():
    containers = [[i] for i in range(1_000_000)]
    box = Box(); leak_into(box)

def test_big_heap_clean():
    containers = [[i] for i in range(1_000_000)]
    assert float(jax.jit(lambda x: x + 1)(1.0)) == 2.0
"""


def test_sizes(pytester: pytest.Pytester) -> None:
    """Deep and cyclic chains, thousands of leaks and a large heap: short, true reports."""
    run = run_suite(pytester, LEAKY + SIZES)
    assert sorted(run.leaks()) == [
        "test_big_heap",
        "test_cyclic_chain",
        "test_deep_chain",
        "test_many_leaks",
    ]
    assert len(run.leaks()["test_many_leaks"]) <= 10
    assert len(run.result.stdout.lines) < 150
    assert max(map(len, run.result.stdout.lines)) < 2_000
    assert "JaxLeaksWarning" not in run.text
    run.result.assert_outcomes(failed=4, passed=1)


COLLECTOR = """
def test_disabled():
    gc.disable()
    box = Box(); leak_into(box)

def test_still_disabled():
    assert not gc.isenabled()
    gc.enable()
    gc.set_threshold(500, 5, 5)
    gc.callbacks.append(print_nothing)
    gc.set_debug(gc.DEBUG_SAVEALL)
    gc.set_debug(0)

def print_nothing(phase, info):
    pass

def test_settings_stay():
    assert gc.isenabled()
    assert gc.get_threshold() == (500, 5, gc.get_threshold()[2])
    assert print_nothing in gc.callbacks
    gc.callbacks.remove(print_nothing)
    gc.set_threshold(2000, 10, 10)

def test_freezes():
    box = Box(); leak_into(box)
    gc.freeze()

def test_clean_after_freeze():
    assert float(jax.jit(lambda x: x + 1)(1.0)) == 2.0

def test_unfreezes():
    gc.unfreeze()
    box = Box(); leak_into(box)

def test_cycle_is_no_leak():
    box = Box()
    box.me = box
    leak_into(box)
    del box
"""


def test_collector_settings(pytester: pytest.Pytester) -> None:
    """A suite that disables the collector, sets thresholds or freezes is checked rightly."""
    run = run_suite(pytester, LEAKY + COLLECTOR)
    assert sorted(run.leaks()) == ["test_disabled", "test_freezes", "test_unfreezes"]
    run.result.assert_outcomes(failed=3, passed=4)


ASKING = """
import weakref

KEPT = Box()

class Node:
    def __init__(self):
        self.me = self

@pytest.fixture
def nodes():
    many = [[i] for i in range(1_000)]  # a look freezes what there is only if it is much
    return {"node": Node(), "many": many}

def test_freed(nodes):
    node = weakref.ref(nodes.pop("node"))
    gc.collect()
    assert node() is None

def test_shown(nodes):
    assert sum(type(obj) is Node for obj in gc.get_objects()) == 1
    assert [obj for obj in gc.get_referrers(nodes["node"]) if type(obj) is not Node] == [nodes]

def test_leaks_and_collects():
    box = Box(); leak_into(box)
    gc.collect()

def test_tidies_up_and_collects():
    box = Box(); leak_into(box)
    gc.collect()
    box.kept.clear()

def test_collects_while_tracing():
    def f(x):
        y = x * 2
        gc.collect()
        return y
    jax.grad(f)(1.0)

def test_other_thread_asks():
    thread = threading.Thread(target=lambda: (leak_into(KEPT), gc.collect()))
    thread.start()
    thread.join()

def test_replaces_the_collector(monkeypatch):
    monkeypatch.setattr(gc, "get_objects", lambda: [])
    box = Box(); leak_into(box)
"""


def test_questions_to_the_collector(pytester: pytest.Pytester) -> None:
    """A test that asks the collector gets the answers it gets without the check, and is checked."""
    functions = gc.collect, gc.get_objects, gc.get_referrers
    run = run_suite(pytester, LEAKY + ASKING)
    assert run.roots() == {
        "test_leaks_and_collects": ["local variable 'box' of test_leaks_and_collects"],
        "test_other_thread_asks": ["module variable 'KEPT' of test_suite"],
        "test_replaces_the_collector": ["local variable 'box' of test_replaces_the_collector"],
    }
    run.result.assert_outcomes(failed=3, passed=4)
    assert (gc.collect, gc.get_objects, gc.get_referrers) == functions


FORKS = """
import multiprocessing
import os

def child():
    os._exit(0)

@pytest.mark.filterwarnings("ignore")
def test_fork():
    box = Box(); leak_into(box)
    pid = os.fork()
    if pid == 0:
        os._exit(0)
    assert os.waitpid(pid, 0)[1] == 0

@pytest.mark.filterwarnings("ignore")
def test_fork_that_collects():
    pid = os.fork()
    if pid == 0:
        gc.collect()
        os._exit(0)
    assert os.waitpid(pid, 0)[1] == 0

@pytest.mark.filterwarnings("ignore")
def test_multiprocessing():
    process = multiprocessing.get_context("fork").Process(target=child)
    process.start()
    process.join(20)
    assert process.exitcode == 0

def test_leak():
    box = Box(); leak_into(box)
"""


def test_forks(pytester: pytest.Pytester) -> None:
    """Children of a test change nothing for the parent."""
    run = run_suite(pytester, LEAKY + FORKS, subprocess=True)
    assert sorted(run.leaks()) == ["test_fork", "test_leak"]
    run.result.assert_outcomes(failed=2, passed=2)


def test_forked_tests(pytester: pytest.Pytester) -> None:
    """With pytest-forked, whose children run the tests, the check is in nobody's way.

    Where pytest-forked cannot run a test at all (newest pytest), it cannot with the check either.
    """
    source = """
def test_leak():
    box = []
    jax.eval_shape(lambda x: box.append(x) or x, 1.0)

def test_clean(): pass
"""
    pytester.makepyfile(test_suite=LEAKY + source)
    plain = pytester.runpytest_subprocess("--forked", "-p", "no:cacheprovider").parseoutcomes()
    run = run_suite(pytester, "", "--forked", subprocess=True)
    failed = run.result.parseoutcomes().get("failed", 0)
    works = plain.get("passed", 0) == 2
    assert failed == (1 if works else plain["failed"])
    assert list(run.leaks()) == (["test_leak"] if works else [])


def test_own_fault_is_a_warning(pytester: pytest.Pytester) -> None:
    """An error inside of the check is a warning with its traceback, even under ``-W error``."""
    pytester.makeconftest(
        """
import pytest
from pytest_jaxleaks import watching

@pytest.fixture(autouse=True)
def broken(monkeypatch):
    def fail(*args, **options):
        raise RuntimeError("a fault of its own")
    monkeypatch.setattr(watching, "find_holders", fail)
"""
    )
    source = """
def test_leak():
    box = Box(); leak_into(box)

def test_fails():
    assert False
"""
    run = run_suite(pytester, LEAKY + source, "-W", "error::pytest_jaxleaks.JaxLeaksWarning")
    run.result.assert_outcomes(passed=1, failed=1)
    run.result.stdout.fnmatch_lines(["*could not check test_suite.py::test_leak because*"])
    assert "a fault of its own" in run.text
