"""``--jax-leaks-fresh``: blame does not depend on the order of the tests."""

from __future__ import annotations

from typing import TYPE_CHECKING

from suite_runs import LEAKY, run_suite

if TYPE_CHECKING:
    import pytest

SHARED_TRACE = """
KEPT = Box()
TRACES = []

@jax.jit
def step(x):
    TRACES.append(1)
    KEPT.kept.append(x)
    return x

@pytest.mark.parametrize("n", [1, 2, 3])
def test_step(n):
    step(1.0)
    KEPT.kept = [x for x in KEPT.kept if n == 0]

@pytest.mark.parametrize("n", [1, 2])
def test_leak(n):
    step(1.0)

def test_count():
    print("traces:", len(TRACES))
"""


def test_blame_by_order_and_fresh(pytester: pytest.Pytester) -> None:
    """Without it the first test has the leak and the report says so; with it every test has its."""
    run = run_suite(pytester, LEAKY + SHARED_TRACE, "-s", "-k", "leak or count")
    assert list(run.roots()) == ["test_leak[1]"]
    run.result.stdout.fnmatch_lines(
        ["test_suite.Box.kept: * in 1 test: *", "*other tests may share*--jax-leaks-fresh*"]
    )
    fresh = run_suite(pytester, "", "-s", "-k", "leak or count", "--jax-leaks-fresh")
    assert list(fresh.roots()) == ["test_leak[1]", "test_leak[2]"]
    assert "may share" not in fresh.text
    assert "traces: 2" in fresh.text
    by_ini = run_suite(pytester, "", "-s", "-o", "jax_leaks_fresh=true")
    assert list(by_ini.roots()) == ["test_leak[1]", "test_leak[2]"]
    assert "traces: 5" in by_ini.text


def test_nobody_elses_cache_is_cleared(pytester: pytest.Pytester) -> None:
    """Outside of the tests everything that was traced before is found again."""
    pytester.makeconftest(
        """
import pathlib
import jax

TRACES = []

@jax.jit
def helper(x):
    TRACES.append(1)
    return x

def pytest_runtestloop():
    helper(1.0)

def pytest_sessionfinish():
    helper(1.0)
    pathlib.Path("traces.txt").write_text(str(len(TRACES)))
"""
    )
    source = """
def test_one(pytestconfig): pass
def test_two(pytestconfig): pass
"""
    run = run_suite(pytester, LEAKY + source, "--jax-leaks-fresh")
    run.result.assert_outcomes(passed=2)
    assert (pytester.path / "traces.txt").read_text() == "1"


def test_repeated_test_traces_again(pytester: pytest.Pytester) -> None:
    """A test that is run again gets a fresh trace too, so its leak does not seem to go away."""
    source = """
KEPT = Box()

@jax.jit
def step(x):
    KEPT.kept.append(x)
    return x

def test_step():
    step(1.0)
"""
    run = run_suite(pytester, LEAKY + source, "--reruns=1", "-p", "no:randomly")
    assert run.result.parseoutcomes().get("passed") == 1
    run = run_suite(pytester, "", "--reruns=1", "-p", "no:randomly", "--jax-leaks-fresh")
    assert run.result.parseoutcomes().get("failed") == 1
