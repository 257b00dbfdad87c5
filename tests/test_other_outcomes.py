"""Tests that end in another way than by a leak, and what users do with pytest's options."""

from __future__ import annotations

import signal
import sys

import pytest
from suite_runs import LEAKY, run_suite

OUTCOMES = """
from pytest_jaxleaks import TracerLeakError

def test_fails_and_leaks():
    box = Box(); leak_into(box)
    assert 1 == 2

def test_fails_while_tracing():
    @jax.jit
    def f(x):
        y = x * 2
        raise ValueError("no")
    f(1.0)

def test_expected_error():
    @jax.jit
    def f(x):
        y = x * 2
        raise ValueError("no")
    with pytest.raises(ValueError) as info:
        f(1.0)

def test_uses_the_leak():
    box = Box(); leak_into(box)
    box.kept[0] + 1

def test_skips_after_leaking():
    box = Box(); leak_into(box)
    pytest.skip("why not")

@pytest.mark.skip
def test_skipped(): pass

@pytest.mark.xfail(raises=TracerLeakError, strict=True)
def test_expected_leak():
    box = Box(); leak_into(box)

@pytest.mark.xfail(raises=TracerLeakError, strict=True)
def test_expected_leak_is_gone(): pass

@pytest.mark.xfail(raises=TracerLeakError)
def test_expected_leak_but_fails():
    raise ValueError

def test_xfails_itself():
    box = Box(); leak_into(box)
    pytest.xfail("known")
"""


def test_outcomes(pytester: pytest.Pytester) -> None:
    """Another failure stays and shows the leaks beside it; skip and xfail work as ever."""
    run = run_suite(pytester, LEAKY + OUTCOMES)
    assert run.phases() == [
        ("test_fails_and_leaks", "call", "failed"),
        ("test_uses_the_leak", "call", "failed"),
        ("test_skips_after_leaking", "call", "skipped"),
        ("test_expected_leak", "call", "skipped"),
        ("test_xfails_itself", "call", "skipped"),
    ]
    run.result.assert_outcomes(failed=5, passed=1, skipped=2, xfailed=2)
    run.result.stdout.fnmatch_lines(
        [
            "*test_fails_and_leaks*",
            "*assert 1 == 2*",
            "*Captured tracer leaks call*",
            "tracer leak after the test, kept by test_suite.Box.kept",
        ]
    )
    run.result.stdout.fnmatch_lines_random(
        [
            "FAILED *::test_fails_and_leaks - assert 1 == 2",
            "FAILED *::test_fails_while_tracing - ValueError: no",
            "FAILED *::test_uses_the_leak - jax.errors.UnexpectedTracer*",
            "FAILED *::test_expected_leak_is_gone*",
            "FAILED *::test_expected_leak_but_fails - ValueError",
        ]
    )


THREE_LEAKS = """
@pytest.mark.parametrize("n", [1, 2, 3])
def test_leak(n):
    box = Box(); leak_into(box)
"""


def test_stopping_early(pytester: pytest.Pytester) -> None:
    """``-x`` and ``--maxfail`` count leaks; the report has what was found until then."""
    run = run_suite(pytester, LEAKY + THREE_LEAKS, "-x")
    run.result.assert_outcomes(failed=1)
    assert len(run.entries) == 1
    run = run_suite(pytester, "", "--maxfail=2")
    run.result.assert_outcomes(failed=2)
    assert len(run.entries) == 2


def test_repeated_tests(pytester: pytest.Pytester) -> None:
    """With pytest-rerunfailures a leak that is gone at the second attempt fails nothing."""
    source = """
ATTEMPTS = []

def test_flaky():
    ATTEMPTS.append(1)
    box = Box()
    if len(ATTEMPTS) == 1:
        leak_into(box)

def test_always():
    box = Box(); leak_into(box)
"""
    run = run_suite(pytester, LEAKY + source, "--reruns=1", "-p", "no:randomly")
    assert run.phases() == [
        ("test_flaky", "call", "rerun"),
        ("test_always", "call", "rerun"),
        ("test_always", "call", "failed"),
    ]
    outcomes = run.result.parseoutcomes()
    assert (outcomes["passed"], outcomes["failed"], outcomes["rerun"]) == (1, 1, 2)
    run.result.stdout.fnmatch_lines(["test_suite.Box.kept: * in 2 tests: *"])


@pytest.mark.parametrize("how", ["pytest.exit('enough')", "raise KeyboardInterrupt"])
def test_leaving(pytester: pytest.Pytester, how: str) -> None:
    """``pytest.exit`` and Ctrl-C end the run as ever; what was found before is in the report."""
    source = f"""
def test_leak():
    box = Box(); leak_into(box)

def test_leave():
    box = Box(); leak_into(box)
    {how}

def test_never(): pass
"""
    run = run_suite(pytester, LEAKY + source, subprocess="Keyboard" in how)
    assert run.result.ret == pytest.ExitCode.INTERRUPTED
    assert run.phases() == [("test_leak", "call", "failed")]
    assert gc_is_as_before(run.text)


def gc_is_as_before(text: str) -> bool:
    """Tell that no fault of the plugin's own was reported."""
    return "INTERNALERROR" not in text and "JaxLeaksWarning" not in text


def test_debugger(pytester: pytest.Pytester) -> None:
    """``--pdb`` opens at a leak, with the message shown and the run going on afterwards."""
    pytester.makepyfile(test_suite=LEAKY + THREE_LEAKS)
    arguments = ("--jax-leaks", "--pdb", "-p", "no:cacheprovider", "-k", "leak and not 3")
    result = pytester.run(sys.executable, "-m", "pytest", *arguments, stdin=b"p 6 * 7\nc\nc\n")
    text = result.stdout.str()
    assert text.count("(Pdb)") >= 3
    assert "42" in text
    assert text.index("tracer leak after the test") < text.index("(Pdb)")
    result.assert_outcomes(failed=2, deselected=1)


def test_interrupted_look(pytester: pytest.Pytester) -> None:
    """Ctrl-C in the middle of a look ends the run as ever, and the collector is left as it was."""
    pytester.makeconftest(
        f"""
import gc, os, signal
from pytest_jaxleaks import watching

# A run in the background of a shell is started with SIGINT ignored.
signal.signal(signal.SIGINT, signal.default_int_handler)
FREEZE_COUNT = gc.get_freeze_count()
search = watching.find_holders

def interrupted(*args, **options):
    os.kill(os.getpid(), {int(signal.SIGINT)})
    return search(*args, **options)

watching.find_holders = interrupted

def pytest_unconfigure(config):
    print("frozen:", gc.get_freeze_count() > FREEZE_COUNT)
"""
    )
    run = run_suite(pytester, LEAKY + THREE_LEAKS, subprocess=True)
    assert run.result.ret == pytest.ExitCode.INTERRUPTED
    assert "frozen: False" in run.text
    assert gc_is_as_before(run.text)


def test_junit(pytester: pytest.Pytester) -> None:
    """A leak is a failure in JUnit XML, and one at setup an error."""
    source = """
@pytest.fixture
def store():
    box = Box(); leak_into(box)
    return box

def test_call():
    box = Box(); leak_into(box)

def test_setup(store): pass
"""
    run_suite(pytester, LEAKY + source, "--junit-xml=junit.xml")
    text = (pytester.path / "junit.xml").read_text()
    assert 'errors="1" failures="1"' in text
    assert "kept by test_suite.Box.kept" in text


MANY = """
KEPT = Box()

@pytest.mark.parametrize("number", range(5))
def test_leaks(number):
    leak_into(KEPT)

def test_leaks_elsewhere():
    box = Box(); leak_into(box)
"""


def test_a_leak_of_many_tests_is_told_in_full_for_some(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After many full reports a test names the first one; the JSON report has all of it.

    pytest does not cut the lines of its short summary where CI is set: each has one all the same.
    """
    monkeypatch.setattr("pytest_jaxleaks.retelling._IN_FULL", 3)
    monkeypatch.setenv("CI", "true")
    run = run_suite(pytester, LEAKY + MANY)
    run.result.assert_outcomes(failed=6)
    lines = run.result.stdout.str().splitlines()
    assert len([line for line in lines if line.startswith("  reached by")]) == 4
    short = [line for line in lines if line.startswith("The same as in")]
    assert len(short) == 2
    assert "::test_leaks[0] and other tests" in short[0]
    openings = [line for line in lines if line.startswith("tracer leak after the test, kept by")]
    assert len(openings) == 6
    assert len(run.entries) == 6
    assert all(entry["leaks"][0]["chain"] for entry in run.entries)
    summary = lines[next(i for i, line in enumerate(lines) if "short test summary" in line) + 1 :]
    told = "TracerLeakError: tracer leak after the test, kept by test_suite.Box.kept"
    assert [told in line for line in summary] == [True] * 6 + [False]


def test_the_place_of_a_leak_is_in_the_project(pytester: pytest.Pytester) -> None:
    """``--tb=line``, editors and other plugins get the line of the value, or else of the test."""
    suite = LEAKY + "def test_leaks():\n    leak_into(KEPT)\n\nKEPT = Box()\n"
    run = run_suite(pytester, suite, "--tb=line")
    made = suite.strip().splitlines().index("        box.kept.append(x * 2)") + 1
    run.result.stdout.fnmatch_lines([f"*test_suite.py:{made}: TracerLeakError: tracer leak after*"])
    assert "checking.py" not in run.text


_DEBUGGER = """
import pdb

class Shows(pdb.Pdb):
    def interaction(self, frame, traceback):
        stack, index = self.get_stack(frame, getattr(traceback, "__traceback__", traceback))
        frame = stack[index][0]
        print("entered", frame.f_code.co_name, "with", frame.f_locals.get("rate"))
"""


def test_pdb_enters_the_test_that_leaks(pytester: pytest.Pytester) -> None:
    """``--pdb`` shows the end of the test with its local variables, and no frame of the check's."""
    pytester.makepyfile(shows=_DEBUGGER)
    pytester.syspathinsert()
    suite = LEAKY + "def test_leaks():\n    rate, box = 42, Box()\n    leak_into(box)\n"
    run = run_suite(pytester, suite, "--pdb", "--pdbcls=shows:Shows")
    run.result.stdout.fnmatch_lines(["*entered test_leaks with 42*"])
    run.result.assert_outcomes(failed=1)


def test_a_leak_of_generated_code_is_placed_at_its_test(pytester: pytest.Pytester) -> None:
    """Code may have a file name that no file can have: its test's line is told, and no fault."""
    suite = (
        LEAKY
        + """
def test_leaks():
    box, names = Box(), {}
    source = "def traced(x, box):\\n    box.kept.append(x * 2)\\n    return x"
    exec(compile(source, "generated" * 100, "exec"), names)
    jax.jit(lambda x: names["traced"](x, box))(jnp.ones(3))
"""
    )
    run = run_suite(pytester, suite, "--tb=line")
    run.result.assert_outcomes(failed=1)
    assert gc_is_as_before(run.text)
    run.result.stdout.fnmatch_lines(["*test_suite.py:*: TracerLeakError: tracer leak after*"])
