"""The leak check in every kind of test: its own locals are kept for the look, and named."""

from __future__ import annotations

from typing import TYPE_CHECKING

from suite_runs import LEAKY, run_suite

if TYPE_CHECKING:
    import pytest

ASYNC_MODE = ("-o", "asyncio_default_fixture_loop_scope=function")

PLAIN_KINDS = """
def test_function():
    box = Box(); leak_into(box)

def test_clean_function():
    assert float(jax.jit(lambda x: x + 1)(1.0)) == 2.0

class TestMethods:
    def test_method(self):
        box = Box(); leak_into(box)

    @staticmethod
    def test_static():
        box = Box(); leak_into(box)

    @classmethod
    def test_class(cls):
        box = Box(); leak_into(box)

    def test_on_self(self):
        self.box = Box(); leak_into(self.box)

    def test_clean(self):
        assert float(jax.grad(lambda x: x * x)(1.0)) == 2.0

@pytest.mark.parametrize("n", [1, 2])
def test_parametrized(n):
    box = Box()
    if n == 2:
        leak_into(box)

def decorated(function):
    @functools.wraps(function)
    def wrapper(*args, **kwargs):
        return function(*args, **kwargs)
    return wrapper

def decorated_without_a_trace(function):
    def wrapper():
        return function()
    return wrapper

class Decorator:
    def __init__(self, function):
        self.run = function

    def __getattr__(self, name):
        raise RuntimeError(name)

def decorated_by_an_object(function):
    hostile = Decorator(function)
    return lambda: (hostile, hostile.run())

def traced(function):
    @functools.wraps(function)
    def wrapper():
        jax.jit(function)()
    return wrapper

@decorated_by_an_object
def test_decorated_by_an_object():
    box = Box(); leak_into(box)

@traced
def test_traced_as_a_whole():
    y = jnp.ones(3) + 1
    assert y.shape == (3,)

@decorated
def test_decorated():
    box = Box(); leak_into(box)

@decorated_without_a_trace
def test_decorated_silently():
    box = Box(); leak_into(box)

def test_subtests(subtests):
    for i in range(2):
        with subtests.test(i=i):
            box = Box(); leak_into(box)

def test_subtests_clean(subtests):
    for i in range(2):
        with subtests.test(i=i):
            assert jnp.ones(3).sum() == 3

def test_subtests_tidied_up(subtests):
    for i in range(2):
        with subtests.test(i=i):
            box = Box(); leak_into(box)
            assert i, "the first one fails"
        box = None
"""


def test_functions_and_methods(pytester: pytest.Pytester) -> None:
    """Functions, methods of all sorts, decorated and parametrized tests name their own locals."""
    run = run_suite(pytester, LEAKY + PLAIN_KINDS)
    assert run.roots() == {
        "test_function": ["local variable 'box' of test_function"],
        "TestMethods::test_method": ["local variable 'box' of TestMethods.test_method"],
        "TestMethods::test_static": ["local variable 'box' of TestMethods.test_static"],
        "TestMethods::test_class": ["local variable 'box' of TestMethods.test_class"],
        "TestMethods::test_on_self": ["instance of TestMethods"],
        "test_parametrized[2]": ["local variable 'box' of test_parametrized"],
        "test_decorated_by_an_object": ["local variable 'box' of test_decorated_by_an_object"],
        "test_decorated": ["local variable 'box' of test_decorated"],
        "test_decorated_silently": ["local variable 'box' of test_decorated_silently"],
        "test_subtests": ["local variable 'box' of test_subtests"],
    }
    assert {leak["holder"] for found in run.leaks().values() for leak in found} == {
        "test_suite.Box.kept"
    }
    # A traceback that pytest shows does not keep what its variables were.
    assert run.result.parseoutcomes()["failed"] == 10 + 2


OWN_KIND = """
class Cases(pytest.File):
    def collect(self):
        for name in self.path.read_text().split():
            yield Case.from_parent(self, name=name)

class Case(pytest.Item):
    def runtest(self):
        box = Box()
        if self.name == "on_node":
            self.box = box
        if self.name != "clean":
            leak_into(box)

def pytest_collect_file(parent, file_path):
    return Cases.from_parent(parent, path=file_path) if file_path.suffix == ".cases" else None
"""


def test_items_of_a_projects_own_kind(pytester: pytest.Pytester) -> None:
    """What ``runtest`` has in variables, and what it stores on its node, is the project's."""
    pytester.makeconftest(LEAKY + OWN_KIND)
    pytester.makefile(".cases", suite="local on_node clean")
    run = run_suite(pytester, "")
    assert run.roots() == {
        "local": ["local variable 'box' of Case.runtest"],
        "on_node": ["attribute 'box' of the Case node"],
    }
    run.result.assert_outcomes(failed=2, passed=1)


UNITTEST_KINDS = """
class Plain(unittest.TestCase):
    def test_plain(self):
        box = Box(); leak_into(box)

    def test_on_self(self):
        self.box = Box(); leak_into(self.box)

    def test_subtests(self):
        for i in range(2):
            with self.subTest(i=i):
                box = Box(); leak_into(box)

    def test_subtest_that_fails(self):
        box = Box(); leak_into(box)
        with self.subTest():
            self.fail("on purpose")

    def test_clean(self):
        self.assertEqual(float(jax.jit(lambda x: x + 1)(1.0)), 2.0)

class Tidy(unittest.TestCase):
    def setUp(self):
        self.box = Box()

    def tearDown(self):
        self.box.kept.clear()

    def test_tidied_up(self):
        leak_into(self.box)

class Isolated(unittest.IsolatedAsyncioTestCase):
    async def test_isolated(self):
        box = Box(); leak_into(box)
        await asyncio.sleep(0)

    async def test_clean(self):
        await asyncio.sleep(0)

from absl.testing import parameterized

class Absl(parameterized.TestCase):
    @parameterized.parameters(1, 2)
    def test_numbers(self, n):
        box = Box()
        if n == 2:
            leak_into(box)

    @parameterized.named_parameters(("first", 1), ("second", 2))
    def test_names(self, n):
        box = Box()
        if n == 2:
            leak_into(box)

    @parameterized.product(a=(1, 2), b=(3,))
    def test_product(self, a, b):
        box = Box()
        if a == 2:
            leak_into(box)
"""


def test_unittest_and_absl(pytester: pytest.Pytester) -> None:
    """``TestCase``, its subtests and asyncio cases, and absl's parameters name their own locals.

    ``setUp`` and ``tearDown`` belong to pytest's call phase: what ``tearDown`` has tidied up is
    gone when that phase ends.
    """
    run = run_suite(pytester, LEAKY + UNITTEST_KINDS)
    assert run.roots() == {
        "Plain::test_plain": ["local variable 'box' of Plain.test_plain"],
        "Plain::test_on_self": ["instance of Plain"],
        "Plain::test_subtests": ["local variable 'box' of Plain.test_subtests"],
        "Plain::test_subtest_that_fails": ["local variable 'box' of Plain.test_subtest_that_fails"],
        "Isolated::test_isolated": ["local variable 'box' of Isolated.test_isolated"],
        "Absl::test_numbers1": ["local variable 'box' of Absl.test_numbers"],
        "Absl::test_names_second": ["local variable 'box' of Absl.test_names"],
        "Absl::test_product1": ["local variable 'box' of Absl.test_product"],
    }


ASYNC_KINDS = """
import anyio

@pytest.mark.asyncio
async def test_asyncio():
    box = Box(); leak_into(box)
    await asyncio.sleep(0)

@pytest.mark.asyncio
async def test_asyncio_clean():
    await asyncio.sleep(0)

@pytest.mark.asyncio
class TestAsync:
    async def test_method(self):
        box = Box()
        await asyncio.to_thread(leak_into, box)

@pytest.mark.anyio
@pytest.mark.parametrize("anyio_backend", ["asyncio"])
async def test_anyio():
    box = Box(); leak_into(box)
    await anyio.sleep(0)

@pytest.mark.anyio
@pytest.mark.parametrize("anyio_backend", ["asyncio"])
async def test_anyio_clean():
    await anyio.sleep(0)
"""


def test_async(pytester: pytest.Pytester) -> None:
    """Coroutines under pytest-asyncio and anyio are kept too."""
    run = run_suite(pytester, LEAKY + ASYNC_KINDS, *ASYNC_MODE)
    assert run.roots() == {
        "test_asyncio": ["local variable 'box' of test_asyncio"],
        "TestAsync::test_method": ["local variable 'box' of TestAsync.test_method"],
        "test_anyio[asyncio]": ["local variable 'box' of test_anyio"],
    }
    run.result.assert_outcomes(failed=3, passed=2)


HYPOTHESIS = """
from hypothesis import example, given, settings, strategies as st

quick = settings(max_examples=5, deadline=None, database=None, derandomize=True)

@given(n=st.integers(0, 100))
@example(n=1)
@example(n=7)
@example(n=8)
@quick
def test_one_example(n):
    box = Box()
    if n == 7:
        leak_into(box)

class TestProperties:
    @given(st.integers(0, 3))
    @quick
    def test_all_examples(self, n):
        box = Box(); leak_into(box)

@given(st.floats(0, 1))
@quick
def test_clean(x):
    assert jax.jit(lambda x: x)(x) == x

@given(st.integers(0, 100))
@quick
def test_fails(n):
    assert n < 1

@pytest.mark.asyncio
@given(st.integers(0, 3))
@quick
async def test_async(n):
    box = Box(); leak_into(box)
"""


def test_property_tests(pytester: pytest.Pytester) -> None:
    """A property test is reported once, with its leaking example; failures stay as they are."""
    run = run_suite(pytester, LEAKY + HYPOTHESIS, *ASYNC_MODE)
    roots = run.roots()
    assert roots.pop("test_one_example") == ["example test_one_example(n=7)"]
    [example] = roots.pop("TestProperties::test_all_examples")
    assert example.startswith("example TestProperties.test_all_examples(n=")
    assert roots == {"test_async": ["local variable 'box' of test_async"]}
    [leak] = run.leaks()["test_one_example"]
    assert leak["chain"][1:] == ["local variable 'box' of test_one_example", "Box.kept", "list[0]"]
    run.result.stdout.fnmatch_lines(["*test_fails(*", "*n=1,*"])


MACHINES = """
from hypothesis import settings, strategies as st
from hypothesis.stateful import RuleBasedStateMachine, rule

class Leaking(RuleBasedStateMachine):
    def __init__(self):
        super().__init__()
        self.box = Box()

    @rule(n=st.integers(0, 3))
    def put(self, n): leak_into(self.box)

class TidiedUp(Leaking):
    def teardown(self): self.box.kept.clear()

class Failing(Leaking):
    @rule()
    def fail(self): assert False

for cls in (Leaking, TidiedUp, Failing):
    cls.TestCase.settings = settings(
        max_examples=3, stateful_step_count=2, deadline=None, database=None, derandomize=True
    )
TestLeaking, TestTidiedUp, TestFailing = Leaking.TestCase, TidiedUp.TestCase, Failing.TestCase

def test_classes_are_as_they_were():
    assert "teardown" not in vars(Leaking)
    assert TidiedUp.teardown.__code__.co_name == "teardown"
"""


def test_state_machines(pytester: pytest.Pytester) -> None:
    """What is left on a machine of a stateful test after its teardown is named by its class."""
    run = run_suite(pytester, LEAKY + MACHINES)
    assert {name: set(roots) for name, roots in run.roots().items()} == {
        "TestLeaking::runTest": {"state machine Leaking"},
        "TestFailing::runTest": {"state machine Failing"},
    }
    leak = run.leaks()["TestLeaking::runTest"][0]
    assert leak["chain"][1:] == ["Leaking.box", "Box.kept", "list[0]"]
    run.result.assert_outcomes(failed=2, passed=2)


def test_database_key_of_hypothesis_is_unchanged(pytester: pytest.Pytester) -> None:
    """Examples that hypothesis has saved without the check are found again with it."""
    source = """
from hypothesis import given, settings, strategies as st
from hypothesis.database import DirectoryBasedExampleDatabase

@given(st.integers(0, 10**6))
@settings(database=DirectoryBasedExampleDatabase("examples"), max_examples=30)
def test_large(n):
    assert n < 5000
"""
    pytester.makepyfile(test_suite=source)
    pytester.runpytest_inprocess("-p", "no:cacheprovider")
    before = sorted(path.name for path in (pytester.path / "examples").iterdir())
    run_suite(pytester, "")
    after = sorted(path.name for path in (pytester.path / "examples").iterdir())
    assert before
    assert after == before


def test_doctests(pytester: pytest.Pytester) -> None:
    """A doctest's names are looked at before they are cleared, in modules and in text files."""
    pytester.makepyfile(
        test_suite=LEAKY
        + '''
def documented():
    """
    >>> box = Box()
    >>> _ = leak_into(box)
    """

def harmless():
    """
    >>> float(jax.jit(lambda x: x + 1)(1.0))
    2.0
    """
'''
    )
    pytester.maketxtfile(
        guide="""
        >>> import jax
        >>> kept = []
        >>> def f(x):
        ...     kept.append(x)
        >>> _ = jax.jit(f)(1.0)
        """
    )
    run = run_suite(pytester, "", "--doctest-modules", "--doctest-glob=*.txt")
    assert run.roots() == {
        "test_suite.documented": ["name 'box' of doctest test_suite.documented"],
        "guide.txt": ["name 'kept' of doctest guide.txt"],
    }
    run.result.assert_outcomes(failed=2, passed=1)
