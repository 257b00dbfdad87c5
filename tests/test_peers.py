"""Other plugins and tools: same outcomes with and without them, and they keep what is theirs."""

from __future__ import annotations

import importlib.util
import sys

import pytest
from suite_runs import LEAKY, run_suite

SUITE = """
@pytest.fixture
def store():
    return Box()

def test_leak():
    box = Box(); leak_into(box)

def test_fixture(store):
    leak_into(store)

class TestMethods:
    def test_leak(self):
        self.box = Box(); leak_into(self.box)

    def test_clean(self):
        assert float(jax.grad(lambda x: x * x)(1.0)) == 2.0

def test_fails():
    assert 1 == 2
"""
ROOTS = {
    "test_leak": ["local variable 'box' of test_leak"],
    "test_fixture": ["fixture 'store' (function scope)"],
    "TestMethods::test_leak": ["instance of TestMethods"],
}

PLUGINS = {
    "alone": [],
    "pytest-cov, C core": ["--cov=.", "--cov-report=", "ctrace"],
    "pytest-cov, sys.monitoring": ["--cov=.", "--cov-report=", "sysmon"],
    "pytest-timeout": ["--timeout=100"],
    "pytest-timeout in a thread": ["--timeout=100", "--timeout-method=thread"],
    "pytest-rerunfailures": ["--reruns=1", "--only-rerun=NoSuchError"],
    "pytest-memray": ["--memray"],
    "pytest-benchmark": ["--benchmark-disable"],
}


@pytest.mark.parametrize("peer", list(PLUGINS))
def test_plugins(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch, peer: str) -> None:
    """The leaks and outcomes of a suite are the same with each plugin switched on.

    There is one exception, which the documentation names: before Python 3.12 memray's tracker
    takes the place of the profile function that keeps a test's local variables.
    """
    args = list(PLUGINS[peer])
    if args and args[-1] in ("ctrace", "sysmon"):
        monkeypatch.setenv("COVERAGE_CORE", args.pop())
    own_process = "cov" in peer or "memray" in peer
    run = run_suite(pytester, LEAKY + SUITE, *args, subprocess=own_process)
    hidden = {"test_leak"} if "memray" in peer and sys.version_info < (3, 12) else set()
    assert run.roots() == {name: root for name, root in ROOTS.items() if name not in hidden}
    run.result.assert_outcomes(failed=4 - len(hidden), passed=1 + len(hidden))
    assert "JaxLeaksWarning" not in run.text


@pytest.mark.skipif(
    importlib.util.find_spec("pytest_randomly") is None, reason="pytest-randomly is not installed"
)
def test_random_order(pytester: pytest.Pytester) -> None:
    """Whatever the order, the same tests have the same leaks."""
    for seed in (1, 2):
        run = run_suite(pytester, LEAKY + SUITE, f"--randomly-seed={seed}")
        assert run.roots() == ROOTS


FRIENDS = """
import chex
from absl.testing import parameterized

def test_benchmark(benchmark):
    box = Box()
    benchmark.pedantic(lambda: leak_into(box), rounds=1)

def test_benchmark_clean(benchmark):
    benchmark.pedantic(lambda: jax.jit(lambda x: x + 1)(1.0), rounds=1)

def test_mock(mocker):
    spy = mocker.Mock()
    jax.jit(lambda x: (spy(x), x)[1])(1.0)

def test_mock_clean(mocker):
    spy = mocker.Mock()
    spy(jax.jit(lambda x: x + 1)(1.0))

class Variants(chex.TestCase):
    @chex.variants(with_jit=True, without_jit=True)
    def test_variant(self):
        box = Box()

        @self.variant
        def f(x):
            box.kept.append(x)
            return x

        f(1.0)
"""


def test_fixtures_of_other_plugins(pytester: pytest.Pytester) -> None:
    """A leak into a mock, a benchmark's function or a chex variant is found and named."""
    run = run_suite(pytester, LEAKY + FRIENDS)
    roots = run.roots()
    assert sorted(roots) == [
        "Variants::test_variant__with_jit",
        "test_benchmark",
        "test_mock",
    ]
    assert roots["test_mock"] == ["local variable 'spy' of test_mock"]
    assert roots["test_benchmark"] == ["local variable 'box' of test_benchmark"]
    [variant] = roots["Variants::test_variant__with_jit"]
    assert variant == "local variable 'box' of Variants.test_variant"


def test_jaxtyping_hook(pytester: pytest.Pytester) -> None:
    """Under jaxtyping's import hook with beartype tests and models are wrapped, and named."""
    pytester.makepyfile(
        model="""
import jax
from jaxtyping import Array, Float

class Model:
    def __init__(self):
        self.cache: list = []

    def __call__(self, x: Float[Array, " n"]) -> Float[Array, " n"]:
        y = x * 2
        self.cache.append(y)
        return y
""",
        test_suite=LEAKY
        + """
from jaxtyping import install_import_hook

with install_import_hook("model", "beartype.beartype"):
    import model

def test_model():
    m = model.Model()
    jax.jit(m.__call__)(jnp.ones(3))
""",
    )
    run = run_suite(
        pytester, "", "--jaxtyping-packages=test_suite,beartype.beartype", subprocess=True
    )
    assert run.roots() == {"test_model": ["local variable 'm' of test_model"]}
    assert run.leaks()["test_model"][0]["holder"] == "model.Model.cache"


TOOLS = """
import cProfile
import pstats

PROFILES = []
TRACED = set()

def profiler(frame, event, arg):
    PROFILES.append(frame.f_code.co_name)

def tracer(frame, event, arg):
    TRACED.add(frame.f_code.co_name)
    return tracer

@pytest.fixture
def profiling():
    sys.setprofile(profiler)
    yield
    assert sys.getprofile() is profiler
    sys.setprofile(None)

@pytest.fixture
def tracing():
    before = sys.gettrace()
    sys.settrace(tracer)
    yield
    assert sys.gettrace() is tracer
    sys.settrace(before)

@pytest.fixture
def c_profiling():
    profile = cProfile.Profile()
    profile.enable()
    yield profile
    profile.disable()
    names = {entry[2] for entry in pstats.Stats(profile).stats}
    assert "profiled" in names

def profiled():
    return jax.jit(lambda x: x + 1)(1.0)

def test_profile_function(profiling):
    box = Box(); leak_into(box)

def test_profile_function_clean(profiling):
    profiled()
    assert "profiled" in PROFILES

def test_trace_function(tracing):
    box = Box(); leak_into(box)

def test_trace_function_clean(tracing):
    profiled()
    assert "profiled" in TRACED

def test_c_profile(c_profiling):
    profiled()
    box = Box(); leak_into(box)

def test_c_profile_clean(c_profiling):
    profiled()

def test_sets_a_profiler_itself():
    sys.setprofile(profiler)
    box = Box(); leak_into(box)

def test_finds_it_again():
    assert sys.getprofile() is profiler
    sys.setprofile(None)

def test_nothing_is_left():
    assert sys.getprofile() is None

@pytest.fixture(autouse=True)
def tools():
    find = sys.monitoring.get_tool if hasattr(sys, "monitoring") else id
    before = [find(i) for i in range(6)]
    yield
    assert [find(i) for i in range(6)] == before
"""


def test_profilers_and_tracers(pytester: pytest.Pytester) -> None:
    """What watches the program before the test watches it afterwards, and sees the test."""
    run = run_suite(pytester, LEAKY + TOOLS, "-p", "no:cov")
    assert run.roots() == {
        "test_profile_function": ["local variable 'box' of test_profile_function"],
        "test_trace_function": ["local variable 'box' of test_trace_function"],
        "test_c_profile": ["local variable 'box' of test_c_profile"],
        "test_sets_a_profiler_itself": ["local variable 'box' of test_sets_a_profiler_itself"],
    }
    run.result.assert_outcomes(failed=4, passed=5)
