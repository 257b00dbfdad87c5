"""pytest-xdist: the same leaks, one JSON file, one summary."""

from __future__ import annotations

import pytest
from suite_runs import LEAKY, run_suite

SUITE = """
EARLY = Box()
leak_into(EARLY)

@pytest.fixture(scope="module")
def store():
    box = Box(); leak_into(box)
    return box

@pytest.mark.xdist_group("store")
def test_store(store): pass

class TestGroup:
    def test_leak(self):
        box = Box(); leak_into(box)
    def test_clean(self):
        assert float(jax.jit(lambda x: x + 1)(1.0)) == 2.0
"""


@pytest.fixture(autouse=True)
def few_plugins(monkeypatch: pytest.MonkeyPatch) -> None:
    """Load what is needed here only: each run starts three processes."""
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")
    monkeypatch.setenv("PYTEST_PLUGINS", "xdist.plugin,pytest_jaxleaks.plugin")


def facts(run):
    """Return what must not depend on how the tests are distributed."""
    return [(e["nodeid"], e["phase"], e["outcome"], e["leaks"]) for e in run.entries]


def test_distribution(pytester: pytest.Pytester) -> None:
    """Each ``--dist`` mode gives the report of a run in one process."""
    alone = run_suite(pytester, LEAKY + SUITE)
    expected = facts(alone)
    assert [entry[1] for entry in expected] == ["collection", "setup", "call"]
    for mode in ("load", "loadscope", "loadfile", "loadgroup", "worksteal"):
        run = run_suite(pytester, "", "-n2", f"--dist={mode}", subprocess=True)
        got = facts(run)
        if mode == "loadgroup":
            got = [(nodeid.removesuffix("@store"), *rest) for nodeid, *rest in got]
        assert got == expected, mode
        assert run.text.count("tracer leaks by holder") == 1
        assert run.text.count("tracer leak after importing the tests") == 1
        run.result.assert_outcomes(passed=1, failed=1, errors=1)


def test_each_worker(pytester: pytest.Pytester) -> None:
    """With ``--dist=each`` every worker has its own leaks, and there is still one file."""
    run = run_suite(pytester, LEAKY + SUITE, "--tx=2*popen", "--dist=each", subprocess=True)
    phases = [phase for _, phase, _ in run.phases()]
    assert phases == ["collection", "setup", "setup", "call", "call"]
    assert run.text.count("tracer leaks by holder") == 1


def test_killed_worker(pytester: pytest.Pytester) -> None:
    """When a worker dies in a test, what was found before and elsewhere is reported."""
    source = """
import os

def test_a_leak():
    box = Box(); leak_into(box)

def test_b_dies():
    box = Box(); leak_into(box)
    os._exit(1)

def test_c_leak():
    box = Box(); leak_into(box)
"""
    run = run_suite(pytester, LEAKY + source, "-n1", subprocess=True)
    assert [name for name, _, _ in run.phases()] == ["test_a_leak", "test_c_leak"]
    run.result.assert_outcomes(failed=3)
    run.result.stdout.fnmatch_lines(["*crashed while running*test_b_dies*"])
