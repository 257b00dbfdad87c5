"""Triage: what the runs mean, and a leaking test that is really run again."""

from __future__ import annotations

import itertools
import json
from typing import TYPE_CHECKING

import jax  # noqa: F401 (imported once for the runs within this process)
import pytest

from pytest_jaxleaks.triage import MODES, Outcome, culprit, outcome_of, reason_in, verdict

if TYPE_CHECKING:
    from collections.abc import Sequence

_SUITE = """
import jax, jax.numpy as jnp
SEEN, ON = [], []

def test_other():
    ON.append(1)

def test_after_other():
    @jax.jit
    def step(x):
        if ON:
            SEEN.append(x)
        return x
    step(jnp.ones(3))

class Store:
    pass

def test_größe():
    store = Store()
    @jax.jit
    def step(x):
        store.größe = x * 2
        return x
    step(jnp.ones(3))
"""


def test_a_leaking_test_is_run_again_alone_in_other_modes(pytester: pytest.Pytester) -> None:
    """End to end: what jit has to do with it, what JAX's checker says, which test must run first.

    Reports, the baseline and the page of the run are not touched by the runs of the triage.
    """
    pytester.makepyfile(test_it=_SUITE)
    result = pytester.runpytest_inprocess(
        "--jax-leaks",
        "--jax-leaks-triage",
        "--jax-leaks-report=out.json",
        "--junitxml=out.xml",
        ".",
    )
    text = str(result.stdout).partition("triage of tracer leaks")[2]
    grown = text.partition("test_it.py::test_größe, test_it.Store.größe:")[2]
    assert "leaks when it runs alone in a fresh process, too" in grown
    assert "goes away with JIT disabled" in grown
    assert "JAX's own checker sees it when `step(jnp.ones(3))` at test_it.py:" in grown
    after = text.partition("test_it.py::test_after_other, test_it.SEEN:")[2].partition("::")[0]
    assert "does not leak when it runs alone in a fresh process, only after test_it.py" in after
    assert "only after test_it.py::test_other ran first" in text
    document = json.loads((pytester.path / "out.json").read_text("utf-8"))
    assert len(document["tests"]) == 2
    verdicts = {each["holder"]: each["verdict"] for each in document["triage"]}
    assert verdicts.keys() == {"test_it.Store.größe", "test_it.SEEN"}
    assert all(f"  {line}" in text for line in itertools.chain(*verdicts.values()))
    assert "test_other" in (pytester.path / "out.xml").read_text("utf-8")


_LEAKS_AND_GOES_ON = """
import jax
KEPT = []

def test_leak():
    jax.jit(lambda x: (KEPT.append(x), x)[1])(1.0)

def test_next():
    {next}
"""


def test_an_interrupted_run_is_not_triaged(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Who interrupts the tests wants the end; who interrupts the triage wants the summary."""
    pytester.makepyfile(_LEAKS_AND_GOES_ON.format(next="import pytest; pytest.exit('enough')"))
    options = ("--jax-leaks", "--jax-leaks-triage")
    text = str(pytester.runpytest_inprocess(*options).stdout)
    assert "the run was interrupted: no test was run again" in text

    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("pytest_jaxleaks.triage.run", interrupted)
    pytester.makepyfile(_LEAKS_AND_GOES_ON.format(next="pass"))
    result = pytester.runpytest_inprocess(*options)
    result.assert_outcomes(passed=1, failed=1)
    assert "interrupted; tests that were not run again: 1" in str(result.stdout)


def test_a_fault_of_triage_is_a_warning(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The summary of the run and its exit status stay as they are."""

    def fails(*_: object) -> None:
        raise RuntimeError("no more processes")

    monkeypatch.setattr("pytest_jaxleaks.triage.run", fails)
    pytester.makepyfile(_LEAKS_AND_GOES_ON.format(next="pass"))
    result = pytester.runpytest_inprocess("--jax-leaks", "--jax-leaks-triage")
    text = str(result.stdout)
    assert "JaxLeaksWarning: pytest-jaxleaks could not do this: run leaking tests again" in text
    assert "RuntimeError: no more processes" in text
    assert "it ended early: see the warning of pytest-jaxleaks" in text
    result.assert_outcomes(passed=1, failed=1)
    assert result.ret == pytest.ExitCode.TESTS_FAILED


def test_nothing_is_said_of_a_clean_run(pytester: pytest.Pytester) -> None:
    """No leak, no triage."""
    pytester.makepyfile("def test_it(): import jax")
    result = pytester.runpytest_inprocess("--jax-leaks", "--jax-leaks-triage")
    assert "triage of" not in str(result.stdout)


def _phase(**more: object) -> dict[str, object]:
    fields = {"outcome": "passed", "holders": [], "error": "", "message": "", "place": ""}
    return {"nodeid": "t", "source": "", **fields, **more}


@pytest.mark.parametrize(
    ("phases", "mode", "expected"),
    [
        ([_phase()], "alone", Outcome("clean")),
        ([_phase(outcome="failed", holders=["m.x"])], "alone", Outcome("leaks")),
        ([_phase(outcome="failed", holders=["m.y"])], "alone", Outcome("clean")),
        (
            [_phase(outcome="failed", error="E", message="no", place="a:1")],
            "nojit",
            Outcome("failed", "E: no", "a:1"),
        ),
        ([_phase(outcome="skipped")], "alone", Outcome("not run", "it was skipped")),
        ("no such test", "alone", Outcome("not run", "no such test")),
        (
            [_phase(outcome="failed", message="Leaked trace X", place="a:1", source="f(x)")],
            "checker",
            Outcome("leaks", "", "a:1", "f(x)"),
        ),
        (
            [_phase(outcome="failed", error="IndexError", message="list index", place="a:1")],
            "checker",
            Outcome("failed", "IndexError: list index", "a:1"),
        ),
    ],
)
def test_what_became_of_a_leak(
    phases: list[dict[str, object]] | str, mode: str, expected: Outcome
) -> None:
    """Only the holder in question counts, and JAX's checker is known by its message."""
    assert outcome_of(phases, "m.x", mode) == expected


def _outcomes(**kinds: str) -> dict[str, Outcome]:
    return {mode: Outcome(kinds.get(mode, "leaks"), "why", "a:1", "f(x)") for mode in MODES}


@pytest.mark.parametrize(
    ("outcomes", "expected"),
    [
        (_outcomes(alone="not run"), "cannot be run alone: why"),
        (_outcomes(alone="failed"), "fails when it runs alone, for another reason: why"),
        (_outcomes(nojit="clean"), "goes away with JIT disabled"),
        (_outcomes(), "stays with JIT disabled"),
        (_outcomes(nojit="failed"), "with JIT disabled the test fails for another reason: why"),
        (_outcomes(), "JAX's own checker sees it when `f(x)` at a:1 returns"),
        (_outcomes(checker="clean"), "JAX's own checker does not see it"),
        (_outcomes(alone="clean"), "leaks with fresh caches"),
        (_outcomes(alone="clean", fresh="clean"), "another test has a part in it"),
    ],
)
def test_verdicts(outcomes: dict[str, Outcome], expected: str) -> None:
    """Each outcome has its line."""
    assert any(expected in line for line in verdict(outcomes))


@pytest.mark.parametrize("guilty", ["t0", "t3", "t6"])
def test_the_test_that_must_run_first_is_found_by_halving(guilty: str) -> None:
    """One of seven, in a handful of runs."""
    runs: list[Sequence[str]] = []

    def leaks_after(tests: Sequence[str]) -> bool:
        runs.append(tests)
        return guilty in tests

    assert culprit([f"t{i}" for i in range(7)], leaks_after) == guilty
    assert len(runs) <= 5


def test_no_single_test_is_blamed_for_what_two_do() -> None:
    """Where one alone does not bring the leak back, none is named; nor after too many runs."""
    assert culprit(["a", "b"], lambda tests: len(tests) == 2) is None
    assert culprit([], lambda _: True) is None
    assert culprit([str(i) for i in range(1000)], lambda tests: "7" in tests, most_runs=3) is None


@pytest.mark.parametrize(
    ("stderr", "stdout", "reason"),
    [
        (
            b"ERROR: not found: /a/t.py::t\n(no match)\n",
            b"..\n1 warning in 1s\n",
            "not found: /a/t.py::t",
        ),
        (
            b"",
            b"E   ModuleNotFoundError: No module named 'x'\n1 error in 1s\n",
            "ModuleNotFoundError: No module named 'x'",
        ),
        (b"Segmentation fault\n", b"", "Segmentation fault"),
        (b"", b"", ""),
    ],
)
def test_the_reason_why_no_test_ran(stderr: bytes, stdout: bytes, reason: str) -> None:
    """pytest's own error or that of an import; what pytest sums up says nothing."""
    assert reason_in(stderr, stdout) == reason


def test_doctests_wrapped_errors_and_options_that_look_like_paths(
    pytester: pytest.Pytester,
) -> None:
    """What JAX's checker raises is recognized inside of a doctest's error and of a user's.

    A test that is there only while others are collected with it is said not to run alone.
    The run's own options stay, those of ``addopts`` too: ``models -k models`` has the path once.
    """
    folder = pytester.mkdir("models")
    (folder / "test_models.py").write_text(
        '''
import jax, os
W, DYNAMIC = [], []

def pytest_generate_tests(metafunc):
    if "model" in metafunc.fixturenames:
        alone = "PYTEST_JAXLEAKS_TRIAGE_CHILD" in os.environ
        metafunc.parametrize("model", [0] if alone else [1])

def test_dynamic(model):
    jax.jit(lambda x: (DYNAMIC.append(x), x)[1])(1.0)

def doc():
    """
    >>> keep = []
    >>> _ = jax.jit(lambda x: (keep.append(x), x)[1])(1.0)
    """

def test_wrapped():
    try:
        jax.jit(lambda x: (W.append(x), x)[1])(1.0)
    except Exception as error:
        raise ExceptionGroup("failed", [ValueError("solver"), error])
'''
    )
    pytester.makeini("[pytest]\naddopts = --doctest-modules models")
    options = ("--jax-leaks", "--jax-leaks-triage")
    text = str(pytester.runpytest_inprocess(*options, "models", "-k", "models").stdout)
    section = text.partition("triage of tracer leaks")[2]
    assert section.count("leaks when it runs alone in a fresh process, too") == 2
    assert section.count("JAX's own checker sees it when") == 2
    assert section.count("cannot be run alone") == 1
    assert "cannot be run alone: not found: " in section
