"""Diagnosis under xdist, without a terminal, and all of it in one run."""

from __future__ import annotations

import json

import pytest

_SUITE = """
import jax, jax.numpy as jnp

class Modèle:
    def __init__(self):
        self.größe = []
    def __call__(self, x):
        self.größe.append(x * 2)
        return x

MODEL = Modèle()

def test_used():
    model = Modèle()
    jax.jit(model)(jnp.ones(3))
    model.größe[0] + 1

def test_branch():
    jax.jit(lambda x: 1 if x > 0 else 2)(1.0)

def test_kept():
    jax.jit(MODEL)(jnp.ones(3))
"""


@pytest.fixture
def suite(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> pytest.Pytester:
    """A suite with one failure of each kind."""
    pytest.importorskip("xdist")
    monkeypatch.delenv("PYTEST_XDIST_WORKER", raising=False)
    pytester.makepyfile(test_it=_SUITE)
    return pytester


def test_everything_at_once_with_workers(suite: pytest.Pytester) -> None:
    """Errors are explained, leaks triaged and written, with one file each, from the workers."""
    result = suite.runpytest_subprocess(
        "-n2",
        "-v",
        "--jax-leaks",
        "--jax-leaks-triage",
        "--jax-leaks-report=out.json",
        "--jax-leaks-sarif=out.sarif",
        "--jax-leaks-html=out.html",
    )
    text = result.stdout.str()
    assert text.count("JAX error explained") == 2
    assert "kept by test_it.Modèle.größe" in text
    assert "depends on  argument x" in text
    assert "triage of tracer leaks" in text
    assert "goes away with JIT disabled" in text.partition("triage of tracer leaks")[2]
    document = json.loads((suite.path / "out.json").read_text("utf-8"))
    assert {leak["holder"] for test in document["tests"] for leak in test["leaks"]} == {
        "test_it.Modèle.größe"
    }
    for name in ("out.sarif", "out.html"):
        assert "Modèle.größe" in (suite.path / name).read_text("utf-8"), name
    assert "INTERNALERROR" not in text


def test_everything_at_once_without_a_terminal(suite: pytest.Pytester) -> None:
    """No terminal reporter, no summary, the same files and the same exit status.

    What the triage says is in the JSON report.
    """
    result = suite.runpytest_subprocess(
        "-pno:terminal",
        "--jax-leaks",
        "--jax-leaks-triage",
        "--jax-leaks-report=out.json",
        "--jax-leaks-sarif=out.sarif",
        "--jax-leaks-html=out.html",
        "--junitxml=out.xml",
    )
    assert result.ret == 1
    assert "INTERNALERROR" not in result.stdout.str() + result.stderr.str()
    for name in ("out.json", "out.sarif", "out.html", "out.xml"):
        assert "Modèle" in json.dumps((suite.path / name).read_text("utf-8"), ensure_ascii=False)
    (triage,) = json.loads((suite.path / "out.json").read_text("utf-8"))["triage"]
    assert (triage["nodeid"], triage["holder"]) == ("test_it.py::test_used", "test_it.Modèle.größe")
    assert any(line.startswith("goes away with JIT disabled") for line in triage["verdict"])


def test_the_checkers_own_crash_is_told(suite: pytest.Pytester) -> None:
    """Where JAX's checker raises while it describes a leak, the section names the holder.

    It does so where a variable is in a closure of a function that has not ended, see
    https://github.com/jax-ml/jax/issues/26560.
    """
    suite.makepyfile(
        test_crash="""
        import jax, jax.numpy as jnp

        class Store:
            pass

        def test_crash():
            store = Store()

            def show():
                return store

            with jax.checking_leaks():
                jax.jit(lambda x: setattr(store, "kept", x) or x)(jnp.ones(3))
        """
    )
    text = suite.runpytest_subprocess("test_crash.py").stdout.str()
    assert "IndexError" in text or "Leaked trace" in text
    section = text.partition("JAX error explained")[2]
    assert "JAX's leak checker is right" in section
    assert "test_crash.Store.kept" in section


_MARKED = """
import jax, pytest
KEPT = []

def test_unmarked(): jax.jit(lambda x: KEPT.append(x))(1.0)

@pytest.mark.no_tracer_leak
def test_marked(): pass
"""


def test_a_run_that_checks_few_tests_or_none_says_so(pytester: pytest.Pytester) -> None:
    """Who asks for an output without --jax-leaks may take its silence for a clean suite."""
    pytester.makepyfile(_MARKED)
    header = "jax-leaks: --jax-leaks-sarif, --jax-leaks-triage without --jax-leaks: only tests*"
    nothing = "No test was checked for tracer leaks, and --jax-leaks-sarif, --jax-leaks-triage*"
    options = ("-pno:cacheprovider", "--jax-leaks-sarif=out.sarif", "--jax-leaks-triage")
    result = pytester.runpytest_inprocess(*options)
    result.stdout.fnmatch_lines([header])
    result.stdout.no_fnmatch_line(nothing)
    result = pytester.runpytest_inprocess(*options, "-q", "-k", "unmarked")
    result.assert_outcomes(passed=1, deselected=1)
    result.stdout.fnmatch_lines([nothing])
    for more in (
        ("--jax-leaks", "-k", "test_marked"),
        ("-o", "jax_leaks=true", "-k", "test_marked"),
    ):
        result = pytester.runpytest_inprocess(*options, *more)
        result.stdout.no_fnmatch_line("*without --jax-leaks*")
        result.stdout.no_fnmatch_line(nothing)
