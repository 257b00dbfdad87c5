"""Each phase of a test is looked at, and a leak is blamed on what made it, once."""

from __future__ import annotations

import pytest
from suite_runs import LEAKY, run_suite

FIXTURES = """
LAST = Box()

@pytest.fixture(scope="module")
def store():
    box = Box(); leak_into(box)
    return box

@pytest.fixture(scope="session")
def session_store():
    box = Box(); leak_into(box)
    yield box

@pytest.fixture
def emptied():
    box = Box()
    yield box
    box.kept.clear()

@pytest.fixture(scope="module")
def shared():
    return []

@pytest.fixture
def hidden():
    box = Box(); leak_into(box)
    yield None

@pytest.fixture
def leaks_elsewhere():
    leak_into(LAST)

@pytest.fixture
def harmless():
    return jax.jit(lambda x: x + 1)(1.0)

@pytest.fixture
def leaks_at_the_end():
    yield
    leak_into(LAST)

@pytest.fixture
def nested(harmless, leaks_elsewhere):
    return 1

class TestStore:
    def test_first(self, store): pass
    def test_second(self, store): pass

def test_session(session_store): pass
def test_session_again(session_store): pass
def test_emptied(emptied): leak_into(emptied)
def test_writes_to_shared(shared): jax.jit(shared.append)(1.0)
def test_reads_shared(shared): assert len(shared) == 1
def test_hidden(hidden): pass
def test_elsewhere(harmless, nested): pass
def test_at_the_end(leaks_at_the_end, harmless): pass
def test_dynamic(request): request.getfixturevalue("hidden")

class TestSetup:
    def setup_method(self):
        self.box = Box(); leak_into(self.box)
    def test_setup_method(self): pass

class Case(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.box = Box(); leak_into(cls.box)
    def test_first(self): pass
    def test_second(self): pass
"""


def test_fixtures_are_blamed(pytester: pytest.Pytester) -> None:
    """A fixture's leak is reported at its setup, by name and scope, and not again."""
    run = run_suite(pytester, LEAKY + FIXTURES)
    assert run.roots() == {
        "TestStore::test_first": ["fixture 'store' (module scope)"],
        "test_session": ["fixture 'session_store' (session scope)"],
        "test_emptied": ["fixture 'emptied' (function scope)"],
        "test_writes_to_shared": ["fixture 'shared' (module scope)"],
        "test_hidden": ["fixture 'hidden' (function scope)"],
        "test_elsewhere": ["module variable 'LAST' of test_suite"],
        "test_at_the_end": ["module variable 'LAST' of test_suite"],
        "test_dynamic": ["fixture 'hidden' (function scope)"],
        "TestSetup::test_setup_method": ["instance of TestSetup"],
        "Case::test_first": ["class attribute 'box' of Case"],
    }
    phases = {(name, phase) for name, phase, _ in run.phases()}
    assert phases == {
        ("TestStore::test_first", "setup"),
        ("test_session", "setup"),
        ("test_emptied", "call"),
        ("test_writes_to_shared", "call"),
        ("test_hidden", "setup"),
        ("test_elsewhere", "setup"),
        ("test_at_the_end", "teardown"),
        ("test_dynamic", "call"),
        ("TestSetup::test_setup_method", "setup"),
        ("Case::test_first", "setup"),
    }
    run.result.stdout.fnmatch_lines_random(
        [
            "*after setting up fixture 'store' (module scope), kept by test_suite.Box.kept",
            "*after setting up fixture 'leaks_elsewhere' (function scope), kept by *",
            "*after tearing down fixture 'leaks_at_the_end' (function scope), kept by *",
            "*fixture 'hidden' (function scope) -> local variable 'box' of suspended generator*",
        ]
    )
    assert "FixtureDef" not in run.text
    run.result.assert_outcomes(passed=5, failed=3, errors=7)


ASYNC_FIXTURES = """
import pytest_asyncio

@pytest_asyncio.fixture
async def store():
    box = Box(); leak_into(box)
    yield box

@pytest_asyncio.fixture
async def hidden():
    box = Box(); leak_into(box)
    yield None

@pytest.fixture
async def anyio_store():
    box = Box(); leak_into(box)
    yield box

@pytest.fixture
def anyio_backend():
    return "asyncio"

@pytest.mark.asyncio
async def test_store(store): pass

@pytest.mark.asyncio
async def test_hidden(hidden): pass

@pytest.mark.anyio
async def test_anyio(anyio_store): pass
"""


def test_async_fixtures(pytester: pytest.Pytester) -> None:
    """Fixtures that are asynchronous generators are named like others."""
    run = run_suite(
        pytester, LEAKY + ASYNC_FIXTURES, "-o", "asyncio_default_fixture_loop_scope=function"
    )
    assert run.roots() == {
        "test_store": ["fixture 'store' (function scope)"],
        "test_hidden": ["fixture 'hidden' (function scope)"],
        "test_anyio": ["fixture 'anyio_store' (function scope)"],
    }


IMPORTED = """
EARLY = Box()
leak_into(EARLY)

def test_first(): pass
def test_own():
    box = Box(); leak_into(box)
"""


def test_leaks_at_import(pytester: pytest.Pytester) -> None:
    """What was leaked before the first test is reported once, for its module, and fails the run."""
    pytester.makepyfile(test_clean="def test_clean(): pass")
    run = run_suite(pytester, LEAKY + IMPORTED)
    assert [(e["nodeid"], e["phase"], e["outcome"]) for e in run.entries] == [
        ("test_suite.py", "collection", "failed"),
        ("test_suite.py::test_own", "call", "failed"),
    ]
    assert run.entries[0]["leaks"][0]["root"] == "module variable 'EARLY' of test_suite"
    assert set(run.entries[0]) == {"nodeid", "path", "line", "phase", "outcome", "leaks"}
    run.result.assert_outcomes(passed=2, failed=1)
    alone = run_suite(pytester, "", "-k", "clean or first")
    alone.result.assert_outcomes(passed=2, deselected=1)
    assert alone.result.ret == pytest.ExitCode.TESTS_FAILED
    assert alone.text.count("tracer leak after importing the tests") == 1
    accepted = run_suite(
        pytester, "", "-k", "clean or first", "-o", "jax_leaks_ignore=test_suite.Box.kept"
    )
    assert accepted.result.ret == pytest.ExitCode.OK
    assert [(e["phase"], e["outcome"]) for e in accepted.entries] == [("collection", "passed")]


COLLECTED = """
def made():
    box = Box(); leak_into(box)
    return box

@pytest.fixture(params=[made()])
def chosen(request): pass

def test_chosen(chosen): pass

@pytest.mark.parametrize("box", [made()])
def test_parametrized(box): pass

class Case(unittest.TestCase):
    made = 0

    def __init__(self, *args):
        super().__init__(*args)
        Case.made += 1
        self.box = made()

    def test_leaks(self): self.other = made()
    def test_made_once(self): self.assertEqual(self.made, 3)  # pytest makes one of its own
"""


def test_leaks_in_collection(pytester: pytest.Pytester) -> None:
    """What conftest hooks, parameters and constructors of test cases keep before the first test.

    pytest makes an instance per test when it collects them; a look never makes another one.
    """
    conftest = "def pytest_configure(config): config.box = Box(); leak_into(config.box)"
    pytester.makeconftest(LEAKY + conftest)
    run = run_suite(pytester, LEAKY + COLLECTED)
    roots = {leak["root"] for e in run.entries for leak in e["leaks"] if e["phase"] == "collection"}
    assert roots == {
        "attribute 'box' of config",
        "parameter 'chosen' of test_chosen",
        "parameter 'box' of test_parametrized",
        "instance of Case",
    }
    assert [e for e in run.phases() if e[1] != "collection"] == [
        ("Case::test_leaks", "call", "failed")
    ]
    run.result.assert_outcomes(passed=3, failed=1)


def test_unchecked_tests_are_not_blamed_on_checked_ones(pytester: pytest.Pytester) -> None:
    """With markers alone, what unmarked tests and imports leak is nobody's."""
    source = """
EARLY, LATE = Box(), Box()
leak_into(EARLY)

@pytest.mark.no_tracer_leak
def test_before(): pass

def test_unmarked(): leak_into(LATE)

@pytest.mark.no_tracer_leak
def test_after(): jax.jit(lambda x: x + 1)(1.0)

@pytest.mark.no_tracer_leak
def test_leaks():
    box = Box(); leak_into(box)
"""
    run = run_suite(pytester, LEAKY + source, option="-q")
    run.result.assert_outcomes(passed=3, failed=1)
    assert run.roots() == {"test_leaks": ["local variable 'box' of test_leaks"]}


@pytest.mark.parametrize(
    ("marker", "message"),
    [
        (
            "allow_tracer_leak('why', strict='no')",
            "*allow_tracer_leak: strict must be True or*'no'*",
        ),
        ("allow_tracer_leak()", "*allow_tracer_leak: *missing*reason*"),
        ("allow_tracer_leak(reason=3)", "*allow_tracer_leak: reason must be a text*but was 3*"),
        ("no_tracer_leak(ignore=3)", "*no_tracer_leak: ignore must*3*"),
        ("no_tracer_leak(reason='why')", "*no_tracer_leak: *unexpected*reason*"),
    ],
)
def test_a_wrong_marker_is_named(pytester: pytest.Pytester, marker: str, message: str) -> None:
    """Before any test runs: which test, which marker, what was wrong."""
    pytester.makepyfile(f"import pytest\n@pytest.mark.{marker}\ndef test_it(): pass")
    result = pytester.runpytest_inprocess()
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines([f"*::test_it: @pytest.mark.{message[1:]}"])


def test_the_closest_marker_holds(pytester: pytest.Pytester) -> None:
    """A parameter is closer than its function, a class closer than what it inherits from."""
    source = """
ALLOWED, CHECKED = pytest.mark.allow_tracer_leak("known"), pytest.mark.no_tracer_leak

@CHECKED
class Base:
    def test_leaks(self):
        box = Box(); leak_into(box)

@ALLOWED
class TestOwn(Base): pass

class TestInherited(Base): pass

@CHECKED
@pytest.mark.parametrize("n", [0, pytest.param(1, marks=ALLOWED)])
def test_parameters(n):
    box = Box(); leak_into(box)
"""
    run = run_suite(pytester, LEAKY + source, option="-q")
    assert {name for name, _, outcome in run.phases() if outcome == "failed"} == {
        "TestInherited::test_leaks",
        "test_parameters[0]",
    }
    run.result.assert_outcomes(passed=2, failed=2)
