"""The examples in ``conftest_examples/`` run as their READMEs and docstrings say."""

import pytest

pytestmark = pytest.mark.pytester_example_path("conftest_examples")


def run(pytester, name, *arguments):
    """Run a copy of an example."""
    pytester.copy_example(name)
    return pytester.runpytest_inprocess(*arguments)


def test_whole_project(pytester):
    """Every test runs three times; the marked one runs once."""
    result = run(pytester, "variants_whole_project")
    result.assert_outcomes(passed=3 * 3 + 1)
    result.stdout.fnmatch_lines(["4 tests under jit, nojit, highest: no disagreement"])


def test_one_test(pytester):
    """Both variants of the mended test return the same."""
    run(pytester, "variants_one_test").assert_outcomes(passed=2)


def test_one_test_broken(pytester):
    """The broken twin returns another count when it is not traced."""
    result = run(pytester, "variants_one_test_broken")
    result.assert_outcomes(passed=1, failed=1)
    result.stdout.fnmatch_lines(
        [
            "E *recorded under jit and under nojit: value?1?: 1 and 2; 1 of 1 elements differ*",
            "the recorded results differ: *",
        ]
    )
