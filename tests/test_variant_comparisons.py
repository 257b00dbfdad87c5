"""Comparing over whole runs: who is blamed, what is said of the others, what is not compared."""

import pytest

INI = "[pytest]\nasyncio_default_fixture_loop_scope = function\n"


@pytest.fixture
def project(pytester):
    """A project directory with the option names that plugins here want to be told."""
    pytester.makeini(INI)
    return pytester


HEADER = """
import dataclasses
import jax
import jax.numpy as jnp
import numpy as np
import pytest

def mode():
    if jax.config.jax_disable_jit:
        return "nojit"
    return "nans" if jax.config.jax_debug_nans else "jit"
"""

ODD = """
@pytest.mark.jax_variants("jit", "nojit", "nans", compare=True)
@pytest.mark.parametrize("values", [(1, 2, 1), (1, 1, 2), (2, 1, 1), (1, 2, 3), (1, 2, 2)],
                         ids=["nojit", "nans", "jit", "all", "pair"])
def test_step(jax_record, values):
    jax_record(values[["jit", "nojit", "nans"].index(mode())])
"""

#: what fails, by test, and what the summary says of it
BLAMED = {
    "nojit-nojit": "the recorded results differ: only nojit differs; jit and nans agree: *",
    "nans-nans": "the recorded results differ: only nans differs; jit and nojit agree: *",
    "jit-nojit": "the recorded results differ: only jit differs, with which the others *",
    "all-nojit": "the recorded results differ, no two of jit, nojit and nans agree: *",
}
FAILING = {*BLAMED, "jit-nans", "all-nans", "pair-nojit", "pair-nans"}


def failing(result, *, phases=("FAILED", "ERROR")):
    """Return the ids of the items that failed in a run, in brackets."""
    lines = [line for line in result.outlines if line.startswith(phases)]
    return sorted(line.partition("[")[2].partition("]")[0] for line in lines)


def test_only_variants_that_differ_from_the_first_one_fail(project):
    """An agreeing third variant passes; the summary says in words who agrees with whom."""
    project.makepyfile(HEADER + ODD)
    result = project.runpytest_inprocess()
    assert failing(result) == sorted(FAILING)
    result.assert_outcomes(passed=7, failed=8)
    for pattern in BLAMED.values():
        result.stdout.fnmatch_lines([pattern])
    result.stdout.fnmatch_lines(["5 tests under jit, nojit, nans: 5 disagree"])


def test_the_reference_is_the_variant_that_is_named_first(project):
    """Whoever writes nojit first asks for jit to be compared with it."""
    project.makepyfile(
        HEADER
        + """
@pytest.mark.jax_variants("nojit", "jit", compare=True)
def test_step(jax_record): jax_record(mode())
"""
    )
    result = project.runpytest_inprocess()
    assert failing(result) == ["jit"]
    result.stdout.fnmatch_lines(["E *recorded under nojit and under jit: value: 'nojit' and 'jit'"])


@pytest.mark.parametrize("order", ["reverse()", "sort(key=lambda item: item.name[::-1])"])
def test_blame_does_not_depend_on_the_order(project, order):
    """The same items fail, in their call or by an error afterwards, and the summary is the same."""
    project.makeconftest(f"def pytest_collection_modifyitems(items): items.{order}")
    project.makepyfile(HEADER + ODD)
    result = project.runpytest_inprocess()
    assert failing(result) == sorted(FAILING)
    for pattern in BLAMED.values():
        result.stdout.fnmatch_lines([pattern])
    result.stdout.fnmatch_lines(["  *::test_step?all? (jit passed, nojit Variant*, nans Variant*)"])


VERSIONS = """
class Version:
    def __init__(self, number): self.number = number
    def __eq__(self, other): return self.number == other.number

@pytest.mark.jax_variants(compare=True)
@pytest.mark.parametrize("n", range(6), ids=[f"v{n}" for n in range(6)])
def test_version(jax_record, n): jax_record({"v": Version(n if mode() == "jit" else n // 3)})
"""


def test_blame_does_not_depend_on_the_worker(project):
    """With the variants of a test on different workers of xdist the same items fail, once each.

    What is compared by its own == is made again in the other worker.
    """
    project.makepyfile(test_odd=HEADER + ODD, test_versions=HEADER + VERSIONS)
    result = project.runpytest_subprocess("-n2", "--maxschedchunk=1", "--dist=load")
    assert failing(result) == sorted({*FAILING, *(f"v{n}-nojit" for n in range(1, 6))})
    for pattern in BLAMED.values():
        result.stdout.fnmatch_lines([pattern])
    result.stdout.fnmatch_lines(["11 tests under *: 10 disagree"])
    result.stdout.no_fnmatch_line("*compared by type only*")


def test_lf_runs_the_reference_too(project):
    """Alone, the failed variant would have nothing to differ from, and pass."""
    project.makepyfile(
        HEADER
        + """
@pytest.mark.jax_variants(compare=True)
@pytest.mark.parametrize("n", [0, 1])
def test_step(jax_record, n): jax_record(mode() if n else "")
"""
    )
    for _ in range(2):
        result = project.runpytest_inprocess("--lf", "-p", "cacheprovider")
        assert failing(result) == ["1-nojit"]
    result.assert_outcomes(passed=1, failed=1)
    path = next(project.path.glob("test_*.py"))
    path.write_text(path.read_text().replace("mode() if n", "1 if n"))
    project.runpytest_inprocess("--lf").assert_outcomes(passed=2)
    project.runpytest_inprocess("--lf").assert_outcomes(passed=4)


@pytest.mark.parametrize("backwards", [False, True])
def test_stepwise_goes_on_from_the_reference(project, backwards):
    """Whichever of the two runs first, the difference is found again until it is mended."""
    if backwards:
        project.makeconftest(
            """
            import pytest

            @pytest.hookimpl(tryfirst=True)
            def pytest_collection_modifyitems(items): items.reverse()
            """
        )
    path = project.makepyfile(
        HEADER
        + """
def test_one(): pass

@pytest.mark.jax_variants(compare=True)
def test_step(jax_record): jax_record(mode())

def test_two(): pass
"""
    )
    for _ in range(3):
        result = project.runpytest_inprocess("--sw", "-p", "cacheprovider")
        assert failing(result) == ["nojit"]
    path.write_text(path.read_text().replace("jax_record(mode())", "jax_record(1)"))
    project.runpytest_inprocess("--sw").assert_outcomes(passed=3, deselected=1)


def test_a_run_without_its_reference_says_so(project):
    """``-k nojit`` leaves nothing to compare with; tests that record nothing are not listed."""
    project.makepyfile(
        HEADER
        + """
pytestmark = pytest.mark.jax_variants(compare=True)

def test_step(jax_record): jax_record(mode())
def test_plain(): pass
"""
    )
    result = project.runpytest_inprocess("-k", "nojit")
    result.assert_outcomes(passed=2, deselected=2, warnings=1)
    result.stdout.no_fnmatch_line("*::test_plain (*")
    result.stdout.fnmatch_lines(
        [
            "not compared, since the variant to compare with did not run:",
            "  *::test_step (jit did not run; nojit did)",
            "2 tests under nojit: no disagreement",
        ]
    )


def test_comparing_nothing_fails_a_test_that_is_marked_itself(project):
    """compare=True without a record would pass for a comparison; both ways out are named."""
    project.makepyfile(
        """
        import pytest

        @pytest.mark.jax_variants(compare=True)
        def test_step(): pass
        """
    )
    result = project.runpytest_inprocess()
    result.assert_outcomes(failed=2)
    result.stdout.fnmatch_lines(
        [
            "E *test_step?jit?: compare=True, but the test recorded nothing to compare: call "
            "jax_record(value), a fixture, in it, or take compare=True out of its jax_variants "
            "marker"
        ]
    )


def test_comparing_nothing_is_a_warning_where_class_or_module_is_marked(project):
    """There the marker is for the tests that record."""
    project.makepyfile(
        """
        import pytest

        @pytest.mark.jax_variants(compare=True)
        class TestGroup:
            def test_plain(self): pass
            def test_step(self, jax_record): jax_record(1)
        """
    )
    result = project.runpytest_inprocess()
    result.assert_outcomes(passed=4, warnings=2)
    result.stdout.fnmatch_lines(["*test_plain?jit?: compare=True, but the test recorded nothing *"])


def test_a_fixture_may_record_before_the_test_ends(project):
    """What its setup records is compared; what its teardown would record is refused."""
    project.makepyfile(
        HEADER
        + """
pytestmark = pytest.mark.jax_variants(compare=True)

@pytest.fixture
def before(jax_record): jax_record(mode())

@pytest.fixture
def after(jax_record):
    jax_record(1)
    yield
    jax_record(mode())

def test_before(before): pass
def test_after(after): pass
"""
    )
    result = project.runpytest_inprocess()
    result.assert_outcomes(passed=3, failed=1, errors=2)
    assert failing(result, phases="FAILED") == ["nojit"]
    result.stdout.fnmatch_lines(["E *jax_record: *::test_after?jit? is over, and what it *"])


def test_one_variant_that_records_nothing_is_a_difference(project):
    """The number of values tells more than that there is none."""
    project.makepyfile(
        HEADER
        + """
@pytest.mark.jax_variants(compare=True)
def test_step(jax_record):
    if mode() == "jit":
        jax_record(1)
"""
    )
    result = project.runpytest_inprocess()
    result.assert_outcomes(passed=1, failed=1)
    result.stdout.fnmatch_lines(["E *number of recorded values: 1 and 0"])


def test_recording_without_compare_is_a_warning(project):
    """A test that records under several variants and compares nothing is told both ways out."""
    project.makepyfile("def test_step(jax_record): assert jax_record({'a': 1}) == {'a': 1}")
    result = project.runpytest_inprocess("--jax-variants=jit,nojit")
    result.assert_outcomes(passed=2, warnings=2)
    result.stdout.fnmatch_lines(
        [
            "*test_step?jit?: jax_record was called, but nothing is compared: mark the test with "
            "@pytest.mark.jax_variants(..., compare=True), or with compare=False if that is *"
        ]
    )


def test_recording_that_needs_no_comparing_is_silent(project):
    """Without variants, under one, or with compare=False there is nothing to say."""
    project.makepyfile("def test_step(jax_record): assert jax_record({'a': 1}) == {'a': 1}")
    project.runpytest_inprocess("-W", "error").assert_outcomes(passed=1)
    project.runpytest_inprocess("-W", "error", "--jax-variants=nojit").assert_outcomes(passed=1)
    project.makepyfile(
        """
        import pytest

        @pytest.mark.jax_variants(compare=False)
        def test_step(jax_record): jax_record(1)
        """
    )
    project.runpytest_inprocess("-W", "error").assert_outcomes(passed=2)


def test_what_cannot_be_compared_is_a_warning(project):
    """An object without an == of its own is named, with the reason; the test does not fail."""
    project.makepyfile(
        HEADER
        + """
class Opaque: pass

@pytest.mark.jax_variants(compare=True)
def test_step(jax_record):
    jax_record({"a": Opaque(), "b": 1, "c": jax.vjp(jax.jit(jnp.sin), 1.0)})
"""
    )
    result = project.runpytest_inprocess()
    result.assert_outcomes(passed=2, warnings=2)
    result.stdout.fnmatch_lines(
        ["*: value?'c'??1?: * was compared by type only, since JAX made it by tracing *"]
    )
    result.stdout.fnmatch_lines(
        [
            "*test_step?nojit?: recorded under jit and under nojit: value?'a'?: *.Opaque was "
            "compared by type only, since its class defines no __eq__"
        ]
    )


def test_expected_failures_of_a_test_case(project):
    """Under expectedFailure a variant that succeeds has passed, and the other has failed."""
    project.makepyfile(
        HEADER
        + """
import unittest

class TestCase(unittest.TestCase):
    @unittest.expectedFailure
    def test_branch(self): jax.jit(lambda x: 1 if x > 0 else 2)(1.0)

    @unittest.expectedFailure
    def test_both(self): assert 0
"""
    )
    result = project.runpytest_inprocess("--jax-variants=jit,nojit")
    result.assert_outcomes(xfailed=3, failed=1)
    result.stdout.fnmatch_lines(
        [
            "fails only under jit: *",
            "  *::test_branch (jit *, nojit passed)",
            "2 tests *: 1 disagree",
        ]
    )
    result.stdout.no_fnmatch_line("*in different ways*")


def test_a_failed_test_case_is_not_compared(project):
    """What it recorded before it failed is not what it returns."""
    project.makepyfile(
        HEADER
        + """
import unittest

@pytest.mark.jax_variants(compare=True)
class TestCase(unittest.TestCase):
    @pytest.fixture(autouse=True)
    def _record(self, jax_record): self.record = jax_record

    def test_step(self):
        self.record(1)
        assert mode() == "nojit"
        self.record(2)

    def test_differs(self): self.record(mode())
"""
    )
    result = project.runpytest_inprocess()
    result.stdout.fnmatch_lines(
        ["  *::test_step (jit AssertionError: *, nojit passed)", "2 tests *: 2 disagree"]
    )
    result.stdout.fnmatch_lines(["  *::test_differs (jit passed, nojit VariantMismatchError: *)"])


def test_an_expected_mismatch_is_expected_in_any_order(project):
    """xfail covers a mismatch, whether the variant or the reference ends last."""
    project.makepyfile(
        HEADER
        + """
@pytest.mark.jax_variants(compare=True)
@pytest.mark.xfail(reason="known", strict=False)
def test_step(jax_record): jax_record(mode())
"""
    )
    project.runpytest_inprocess().assert_outcomes(xpassed=1, xfailed=1)
    project.makeconftest("def pytest_collection_modifyitems(items): items.reverse()")
    result = project.runpytest_inprocess()
    result.assert_outcomes(xpassed=2)
    assert result.ret == pytest.ExitCode.OK


def test_a_rerun_forgets_what_was_recorded(project):
    """With pytest-rerunfailures the last attempt counts, in records and in verdict."""
    pytest.importorskip("pytest_rerunfailures")
    project.makepyfile(
        HEADER
        + """
TRIES = []

@pytest.mark.jax_variants(compare=True)
def test_flaky(request):
    TRIES.append(mode())
    if TRIES.count(mode()) == 1:
        request.getfixturevalue("jax_record")("first")
        assert 0
    request.getfixturevalue("jax_record")(mode() if TRIES.count(mode()) < 3 else "same")
    assert TRIES.count(mode()) > 2
"""
    )
    result = project.runpytest_inprocess("--reruns=3")
    result.assert_outcomes(passed=2)
    result.stdout.fnmatch_lines(["1 test under jit, nojit: no disagreement"])


def test_choices_hold_when_an_item_runs_again(project):
    """A test that opts out of variants, or chooses its own, does so at each attempt."""
    pytest.importorskip("pytest_rerunfailures")
    project.makepyfile(
        HEADER
        + """
TRIES = {}

def again(name):
    TRIES[name] = TRIES.get(name, 0) + 1
    assert TRIES[name] > 2

@pytest.mark.jax_variants("jit")
def test_out(jax_variant):
    assert mode() == jax_variant == "jit"
    again("out")

@pytest.mark.parametrize("jax_variant", ["nans"], indirect=True)
def test_own(jax_variant):
    assert mode() == jax_variant == "nans"
    again("own")

@pytest.mark.jax_variants(compare=False)
def test_silent(jax_record, jax_variant):
    jax_record(mode())
    again(mode())
"""
    )
    result = project.runpytest_inprocess(
        "--reruns=3", "--jax-variants=jit,nojit", "-W", "error::pytest.PytestWarning"
    )
    result.assert_outcomes(passed=4)
    result.stdout.fnmatch_lines(["3 tests under jit, nojit, nans: no disagreement"])


def test_property_tests_may_take_the_variant(project):
    """Hypothesis' health check for function-scoped fixtures does not object to jax_variant.

    It still objects to other fixtures, jax_record among them.
    """
    project.makepyfile(
        HEADER
        + """
from hypothesis import given, settings, strategies as st

quick = settings(max_examples=5, database=None)

@quick
@given(st.integers())
def test_function(jax_variant, n): assert mode() == jax_variant

@given(st.integers())
@pytest.mark.parametrize("m", [1, 2])
@quick
def test_parametrized(jax_variant, m, n): assert mode() == jax_variant

class TestGroup:
    @given(st.integers())
    def test_method(self, jax_variant, n): assert mode() == jax_variant

@pytest.fixture
def other(): return 1

@given(st.integers())
def test_other(jax_variant, other, n): pass

@given(st.integers())
def test_record(jax_record, n): pass
"""
    )
    result = project.runpytest_inprocess("--jax-variants=jit,nojit")
    result.assert_outcomes(passed=8, failed=4)
    result.stdout.fnmatch_lines(["*FailedHealthCheck: *uses a function-scoped fixture *"])
    project.runpytest_inprocess("-k", "not other and not record").assert_outcomes(
        passed=4, deselected=2
    )


@pytest.mark.parametrize("option", ["--jax-variants=jit", "--verbose"])
def test_a_hook_that_raises_is_a_usage_error(project, option):
    """The message names the file, and what was raised; the run ends as for any bad input."""
    project.makeconftest(
        """
        def pytest_jaxleaks_variants(config):
            raise KeyError("mode")
        """
    )
    project.makepyfile("import pytest\n@pytest.mark.jax_variants\ndef test_step(): pass")
    result = project.runpytest_inprocess(option)
    message = "*pytest_jaxleaks_variants of *conftest.py (line 2) raised KeyError: 'mode'"
    if option == "--verbose":
        result.stdout.fnmatch_lines([message])
        assert result.ret == pytest.ExitCode.INTERRUPTED
    else:
        result.stderr.fnmatch_lines([message])
        assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stdout.no_fnmatch_line("*INTERNALERROR*")


def test_a_hook_that_raises_names_test_cases_and_doctests_too(project):
    """So it is for items that are copied, and for those that choose a variant by a fixture."""
    project.makeconftest("def pytest_jaxleaks_variants(config): return 1 / 0")
    project.makepyfile(
        test_case="""
        import unittest, pytest

        @pytest.mark.jax_variants
        class TestCase(unittest.TestCase):
            def test_step(self): pass
        """,
        test_own="""
        import pytest

        @pytest.mark.parametrize("jax_variant", ["jit"], indirect=True)
        def test_own(jax_variant): pass
        """,
    )
    result = project.runpytest_inprocess("--continue-on-collection-errors")
    result.assert_outcomes(errors=2)
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    lines = [line for line in result.outlines if "raised ZeroDivisionError" in line]
    assert len(lines) >= 2
    result.stdout.no_fnmatch_line("*INTERNALERROR*")


@pytest.mark.parametrize(
    ("mode", "text"),
    [
        ("lambda: 3", "*context manager, but it returned int: 3"),
        (
            "generator",
            "*(decorate the function with contextlib.contextmanager), but it *generator*",
        ),
        ("lambda: contextlib.aclosing(None)", "*(an asynchronous one cannot be used), but it *"),
    ],
)
def test_a_mode_that_is_no_context_manager_is_named(project, mode, text):
    """The error names the variant, what its mode returned and what was expected."""
    project.makeconftest(
        f"""
        import contextlib
        from pytest_jaxleaks import Variant

        def generator(): yield

        def pytest_jaxleaks_variants(config): return Variant("odd", {mode}, "m")
        """
    )
    project.makepyfile("import pytest\n@pytest.mark.jax_variants('odd')\ndef test_step(): pass")
    result = project.runpytest_inprocess()
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines([f"E *mode of variant 'odd': expected a function {text}"])


def test_a_large_python_number_under_x64(project):
    """A Python int is the same number in both, and agrees with the array that x64 makes of it."""
    project.makepyfile(
        HEADER
        + """
@pytest.mark.jax_variants("jit", "x64", compare=True)
def test_number(jax_record): jax_record(2**40)

@pytest.mark.jax_variants("jit", "x64", compare=True)
def test_array(jax_record, jax_variant):
    jax_record(jax.jit(lambda: 2**40)() if jax_variant == "x64" else 2**40)

@pytest.mark.jax_variants("jit", "x64", compare=True)
def test_differs(jax_record, jax_variant):
    jax_record(jax.jit(lambda: 2**40)() if jax_variant == "x64" else 2.0)
"""
    )
    result = project.runpytest_inprocess()
    result.assert_outcomes(passed=5, failed=1)
    result.stdout.fnmatch_lines(["E *value: weak float32?? and weak int64??"])


def test_async_and_doctest_items_are_compared_or_left_alone(project):
    """A coroutine records like any other test; a doctest cannot ask for jax_record."""
    project.makepyfile(
        HEADER
        + '''
@pytest.mark.jax_variants(compare=True)
@pytest.mark.asyncio
async def test_step(jax_record): jax_record(mode())

def documented():
    """
    >>> 1 + 1
    2
    """
'''
    )
    result = project.runpytest_inprocess("--doctest-modules", "--jax-variants=jit,nojit")
    result.assert_outcomes(passed=3, failed=1)
    assert failing(result) == ["nojit"]
