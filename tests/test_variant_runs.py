"""Verdicts and comparisons over whole runs, and the company pytest keeps: xdist and others."""

import pytest

INI = "[pytest]\nasyncio_default_fixture_loop_scope = function\n"

needs_pytest_9 = pytest.mark.skipif(pytest.version_tuple < (9,), reason="new in pytest 9")


@pytest.fixture
def project(pytester):
    """A project directory with the option names that plugins here want to be told."""
    pytester.makeini(INI)
    return pytester


DISAGREEING = """
import jax
import jax.numpy as jnp
import pytest

def test_agrees(): assert jax.jit(lambda x: x + 1)(1) == 2

def test_scan(): jax.lax.scan(lambda c, x: (c, x), 0.0, jnp.zeros(0))

@pytest.mark.parametrize("n", [1])
def test_branch(n): jax.jit(lambda x: 1 if x > 0 else 2)(n)

def test_side_effect():
    seen = []
    @jax.jit
    def double(x):
        seen.append(1)
        return 2 * x
    double(1.0), double(2.0)
    assert len(seen) == 2

KEPT = []

def test_leak():
    jax.jit(lambda x: KEPT.append(x))(1.0)
    KEPT.pop() + 1

@pytest.mark.jax_variants("jit", "nojit", "nans")
def test_nan(): jnp.log(jnp.float32(-1))

@pytest.mark.jax_variants("jit", "x64")
def test_precision(): assert jnp.asarray(1e-9) + 1 > 1

@pytest.mark.xfail(reason="known", strict=False)
def test_expected(): jax.jit(lambda x: 1 if x > 0 else 2)(1.0)

def test_skips(jax_variant):
    if jax_variant == "nojit":
        pytest.skip("not here")

class TestGroup:
    def test_both_fail(self): assert 0
"""

VERDICTS = [
    "fails only under nojit: the test relies on tracing *",
    "  *::test_scan (jit passed, nojit ValueError: zero-length scan *)",
    "fails only under jit: the code needs a concrete value *",
    "  *::test_branch?1? (jit TracerBoolConversionError: *, nojit passed)",
    "  *::test_expected (jit TracerBoolConversionError: *, nojit passed)",
    "fails only under jit: a leaked tracer, a Python side effect *",
    "  *::test_side_effect (jit AssertionError: assert 1 == 2*, nojit passed)",
    "leak only under jit: the traced value escapes; with JIT off it is an ordinary array",
    "  *::test_leak (jit UnexpectedTracerError: *, nojit passed)",
    "fails only under nans: a NaN is computed *",
    "  *::test_nan (jit passed, nojit passed, nans FloatingPointError: *)",
    "passes only under x64: 32 bits are too few*",
    "  *::test_precision (jit AssertionError: *, x64 passed)",
    "10 tests under jit, nojit, nans, x64: 7 disagree",
]


def test_each_disagreement_is_explained(project):
    """The summary names each pattern once, with its meaning and the tests that show it."""
    project.makepyfile(DISAGREEING)
    result = project.runpytest_inprocess("--jax-variants=jit,nojit")
    result.stdout.fnmatch_lines(VERDICTS)
    result.stdout.no_fnmatch_line("  *::test_agrees (*")
    result.stdout.no_fnmatch_line("  *::test_skips (*")
    result.stdout.no_fnmatch_line("  *::test_both_fail (*")


def test_teardown_errors_count_as_failures(project):
    """An exception in a fixture's teardown makes its variant disagree."""
    project.makepyfile(
        """
        import jax, pytest

        @pytest.fixture
        def value():
            yield
            assert not jax.config.jax_disable_jit

        @pytest.mark.jax_variants
        def test_step(value): pass
        """
    )
    result = project.runpytest_inprocess()
    result.stdout.fnmatch_lines(["  *::test_step (jit passed, nojit AssertionError: assert not *"])


COMPARED = """
import jax
import jax.numpy as jnp
import pytest

pytestmark = pytest.mark.jax_variants("jit", "nojit", compare=True)

def off(): return jax.config.jax_disable_jit

def test_same(jax_record): jax_record(jax.jit(lambda x: {"sum": x.sum(), "n": 1})(jnp.ones(3)))

def test_value(jax_record): jax_record(jnp.float32(1 if off() else 2))

def test_dtype(jax_record): jax_record(jnp.ones(2, jnp.int32 if off() else jnp.float32))

def test_weak_type(jax_record): jax_record(1.0 if off() else jnp.float32(1))

def test_shape(jax_record): jax_record(jnp.ones(2 if off() else 3))

def test_treedef(jax_record): jax_record([1] if off() else (1,))

def test_exception(jax_record):
    with pytest.raises((TypeError, ValueError)) as caught:
        raise (TypeError if off() else ValueError)("no")
    jax_record(caught.value)

def test_count(jax_record):
    for n in range(1 if off() else 2):
        assert jax_record(n) == n

def test_carry(jax_record):
    try:
        jax_record(jax.lax.scan(lambda c, _: (c + 0.5, None), 0, length=2))
    except TypeError as error:
        jax_record(error)
"""


def test_recorded_results_have_to_agree(project):
    """Value, dtype, weak type, shape, treedef, exception type and number of records compare."""
    project.makepyfile(COMPARED)
    result = project.runpytest_inprocess()
    result.assert_outcomes(passed=10, failed=8)
    begin = "E *VariantMismatchError: recorded under jit and under nojit: "
    result.stdout.fnmatch_lines(
        [
            f"{begin}value: 2.0 and 1.0; 1 of 1 elements differ *",
            f"{begin}value: float32?2? and int32?2?",
            f"{begin}value: float32?? and weak float32??",
            f"{begin}value: float32?3? and float32?2?",
            f"{begin}value: treedef PyTreeDef((?,)) and PyTreeDef(???)",
            f"{begin}value: builtins.ValueError and builtins.TypeError",
            f"{begin}number of recorded values: 2 and 1",
            f"{begin}value?0?: float32?? and weak float32??",
            "the recorded results differ: *",
            "  *::test_value (jit passed, nojit VariantMismatchError: *)",
            "9 tests under jit, nojit: 8 disagree",
        ]
    )
    result.stdout.no_fnmatch_line("*variant_runs.py*")


def test_xdist_workers_report_and_compare_alike(project):
    """The variants of a test may run in two workers: verdicts and comparisons are the same.

    Of two variants with different records the reference, jit, is never blamed, whoever ends last.
    """
    project.makepyfile(test_disagreeing=DISAGREEING, test_compared=COMPARED)
    result = project.runpytest_subprocess("--jax-variants=jit,nojit", "-n2", "--maxschedchunk=1")
    outcomes = result.parseoutcomes()
    assert outcomes["passed"] + outcomes["failed"] == 36
    assert outcomes["failed"] + outcomes.get("errors", 0) == 16
    result.stdout.no_re_match_line(r"(FAILED|ERROR) test_compared.py::.*\[jit\]")
    result.stdout.fnmatch_lines(["19 tests under *: 15 disagree"])
    lines = result.outlines
    for line in VERDICTS[:-1]:
        start = (
            line.strip().removeprefix("*").split("?")[0].split(" (")[0].split(":*")[0].rstrip("* ")
        )
        assert any(start in each for each in lines), line


def test_x64_is_compared_by_kind_of_dtype(project):
    """A float64 result agrees with a float32 one if it is as close as float32 can be."""
    project.makepyfile(
        """
        import jax.numpy as jnp, pytest

        @pytest.mark.jax_variants("jit", "x64", compare=True)
        @pytest.mark.parametrize("large", [1.0, 1e9])
        def test_sum(jax_record, large): jax_record(jnp.asarray(large) + 1 - jnp.asarray(large))
        """
    )
    result = project.runpytest_inprocess()
    result.assert_outcomes(passed=3, failed=1)
    result.stdout.fnmatch_lines(["E *recorded under jit and under x64: value: 0.0 and 1.0; *"])


def test_recording_a_tracer_fails_the_test(project):
    """The message says where to record instead."""
    project.makepyfile(
        """
        import jax

        def test_step(jax_record): jax.jit(lambda x: jax_record(2 * x))(1.0)
        """
    )
    result = project.runpytest_inprocess()
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["E *InvalidArgumentError: jax_record: the value is a tracer *"])


def test_hypothesis_tests_run_per_variant(project):
    """Functions, methods and TestCase methods under @given run in every variant."""
    project.makepyfile(
        """
        import unittest
        import jax
        from hypothesis import given, settings, strategies as st

        SEEN = set()

        @given(st.integers())
        @settings(max_examples=5, database=None)
        def test_function(n): SEEN.add(("function", jax.config.jax_disable_jit))

        class TestGroup:
            @given(st.integers())
            @settings(max_examples=5, database=None)
            def test_method(self, n): SEEN.add(("method", jax.config.jax_disable_jit))

        class TestU(unittest.TestCase):
            @given(st.integers())
            @settings(max_examples=5, database=None)
            def test_unit(self, n): SEEN.add(("unit", jax.config.jax_disable_jit))

        def test_seen(): assert len(SEEN) == 6
        """
    )
    project.runpytest_inprocess("--jax-variants=jit,nojit").assert_outcomes(passed=8)


def test_async_tests_and_fixtures_run_in_the_variant(project):
    """pytest-asyncio runs the loop in the thread that has the mode."""
    project.makepyfile(
        """
        import asyncio
        import jax, pytest, pytest_asyncio

        def mode(): return "nojit" if jax.config.jax_disable_jit else "jit"

        @pytest_asyncio.fixture
        async def inner(jax_variant):
            await asyncio.sleep(0)
            assert mode() == jax_variant
            yield mode()
            assert mode() == jax_variant

        @pytest_asyncio.fixture(scope="module", loop_scope="module")
        async def outer():
            await asyncio.sleep(0)
            return mode()

        @pytest.mark.asyncio
        async def test_async(inner, outer, jax_variant):
            await asyncio.sleep(0)
            assert mode() == inner == jax_variant
            assert outer == "jit"

        @pytest.mark.asyncio(loop_scope="module")
        async def test_shared_loop(inner, outer, jax_variant):
            await asyncio.sleep(0)
            assert mode() == jax_variant
        """
    )
    project.runpytest_inprocess("--jax-variants=jit,nojit").assert_outcomes(passed=4)


def test_anyio_tests_run_in_the_variant(project):
    """So does the plugin of anyio."""
    pytest.importorskip("anyio")
    project.makepyfile(
        """
        import jax, pytest

        @pytest.mark.anyio
        @pytest.mark.parametrize("anyio_backend", ["asyncio"])
        async def test_anyio(jax_variant):
            assert jax.config.jax_disable_jit == (jax_variant == "nojit")
        """
    )
    project.runpytest_inprocess("--jax-variants=jit,nojit").assert_outcomes(passed=2)


@needs_pytest_9
def test_subtests_count_for_their_variant(project):
    """A failed subtest makes its variant disagree."""
    project.makepyfile(
        """
        import jax

        def test_step(subtests):
            for n in range(2):
                with subtests.test(n=n):
                    assert n == 0 or not jax.config.jax_disable_jit
        """
    )
    result = project.runpytest_inprocess("--jax-variants=jit,nojit")
    result.stdout.fnmatch_lines(["  *::test_step (jit passed, nojit AssertionError: *)"])


@needs_pytest_9
def test_strict_mode_accepts_variants(project):
    """Marker, ini option and ids pass pytest's strict checks."""
    project.makeini(INI + "strict = true\njax_variants = jit, nojit\n")
    project.makepyfile(
        """
        import pytest

        @pytest.mark.jax_variants("x64")
        @pytest.mark.parametrize("n", [1, 2])
        def test_marked(n): pass

        def test_step(): pass
        """
    )
    project.runpytest_inprocess("-W", "error").assert_outcomes(passed=4)


def test_random_order_of_variants_compares_alike(project):
    """Whichever variant runs first, the reference is what the other is compared with and blamed by.

    A run that has passed before the reference ended gets an error of its own.
    """
    project.makeconftest("def pytest_collection_modifyitems(items): items.reverse()")
    project.makepyfile(COMPARED)
    result = project.runpytest_inprocess()
    result.assert_outcomes(passed=18, errors=8)
    result.stdout.fnmatch_lines(
        [
            "*ERROR at teardown of test_carry?nojit?*",
            "recorded under jit and under nojit: value?0?: float32?? and weak float32??",
            "(found when jit ended; this run had ended before it, and passed)",
            "  *::test_value (jit passed, nojit VariantMismatchError: recorded under jit and *)",
            "9 tests under *: 8 disagree",
        ]
    )
    result.stdout.no_re_match_line(r"(FAILED|ERROR) .*\[jit\]")
    assert result.ret == pytest.ExitCode.TESTS_FAILED


def test_records_that_cannot_be_compared_are_a_warning(project, monkeypatch):
    """A fault in the comparison itself is shown and fails no test."""

    def broken(*_arguments, **_options):
        raise RuntimeError("lost")

    monkeypatch.setattr("pytest_jaxleaks.variant_exchange.Exchange.get", broken)
    project.makepyfile(COMPARED)
    result = project.runpytest_inprocess("-k", "test_value")
    result.assert_outcomes(passed=2, deselected=16, warnings=2)
    result.stdout.fnmatch_lines(
        ["*test_value?jit?: its records could not be compared:", "*RuntimeError: lost"]
    )


def test_an_exception_that_cannot_be_printed_does_no_harm(project):
    """The verdict shows its type."""
    project.makepyfile(
        """
        import jax

        class Mute(Exception):
            def __str__(self): raise ValueError

        def test_step():
            if jax.config.jax_disable_jit:
                raise Mute
        """
    )
    result = project.runpytest_inprocess("--jax-variants=jit,nojit", "--tb=native")
    result.stdout.fnmatch_lines(["  *::test_step (jit passed, nojit Mute)"])


def test_every_variant_is_checked_for_leaks(project):
    """With --jax-leaks each item is checked; the verdict tells leaks of jit from those of vmap."""
    project.makepyfile(
        """
        import unittest
        import jax
        import jax.numpy as jnp
        import pytest

        class Model:
            def __init__(self): self.cache = []
            def __call__(self, x):
                self.cache.append(x)
                return 2 * x

        def test_jit():
            model = Model()
            jax.jit(model)(1.0)

        @pytest.fixture
        def used():
            model = Model()
            jax.jit(model)(1.0)
            return model

        def test_fixture(used): pass

        class TestUnit(unittest.TestCase):
            def test_method(self):
                model = Model()
                jax.jit(model)(1.0)

        def test_vmap():
            model = Model()
            jax.vmap(model)(jnp.ones(3))

        def test_clean(): jax.jit(lambda x: 2 * x)(1.0)
        """
    )
    result = project.runpytest_inprocess("--jax-leaks", "--jax-variants=jit,nojit")
    result.assert_outcomes(passed=5, failed=4, errors=1)
    result.stdout.fnmatch_lines(
        [
            "leak only under jit: the traced value escapes; with JIT off it is an ordinary array",
            "  *::test_jit (jit TracerLeakError: *, nojit passed)",
            "  *::test_fixture (jit TracerLeakError: *, nojit passed)",
            "  *::TestUnit::test_method (jit TracerLeakError: *, nojit passed)",
            "5 tests under jit, nojit: 3 disagree",
        ]
    )
