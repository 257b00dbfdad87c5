"""The shipped examples: what is broken is reported by the right holder, what is mended is not."""

from __future__ import annotations

import fnmatch
import json
import shutil
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import distrax  # noqa: F401 (imported here once, and not anew by each run in this process)
import equinox  # noqa: F401
import pytest

if TYPE_CHECKING:
    from collections.abc import Iterable

EXAMPLES = Path(__file__).parents[1] / "conftest_examples"


class Expected(NamedTuple):
    """What is to be said about one folder: a pattern of the holders by test."""

    failing: dict[str, str]
    accepted: dict[str, str] = {}
    options: tuple[str, ...] = ("--jax-leaks",)


EXPECTED = {
    "batched_gradient": Expected({"test_batch": "test_batched_gradient_broken.Field.cache"}),
    "cached_constant": Expected({"test_smooth": "test_cached_constant_broken.window"}),
    "class_with_cache": Expected(
        {"test_whitening_of_a_batch": "test_class_with_cache_broken.Whitening.factors"}
    ),
    "module_level_key": Expected({"test_dropout": "test_module_level_key_broken.KEY"}),
    # Which of its bound methods is named is distrax's affair.
    "returned_distribution": Expected({"test_posterior": "distrax.*.DiagLinear.*"}),
    "turned_on_in_conftest": Expected(
        {"test_normalize": "test_on_by_conftest_broken.norms"}, options=()
    ),
    "turned_on_in_ini": Expected(
        {"test_layer": "test_on_by_ini_broken.STATS"},
        {"test_old_layer": "test_on_by_ini_broken.LEGACY"},
        options=(),
    ),
}


def copy(pytester: pytest.Pytester, names: Iterable[str]) -> None:
    """Copy what is below each of some folders of examples to where pytester runs."""
    for name in names:
        ignored = shutil.ignore_patterns("__pycache__")
        shutil.copytree(EXAMPLES / name, pytester.path, dirs_exist_ok=True, ignore=ignored)


def check_holders(document: dict, outcome: str, expected: dict[str, str]) -> None:
    """Compare the tests and holders that a JSON report has for one outcome."""
    tests = {
        test["nodeid"].rpartition("::")[2]: test
        for test in document["tests"]
        if test["outcome"] == outcome
    }
    assert set(tests) == set(expected)
    for name, test in tests.items():
        assert test["path"].endswith("_broken.py")
        for leak in test["leaks"]:
            assert fnmatch.fnmatchcase(leak["holder"], expected[name])


@pytest.mark.parametrize("name", EXPECTED)
def test_the_check_reports_what_is_broken_and_nothing_else(
    pytester: pytest.Pytester, name: str
) -> None:
    """Each broken test is reported with its holder; all other tests of the folder pass."""
    expected = EXPECTED[name]
    copy(pytester, [name])
    result = pytester.runpytest_inprocess(*expected.options, "--jax-leaks-report=report.json")
    document = json.loads((pytester.path / "report.json").read_text(encoding="utf-8"))
    check_holders(document, "failed", expected.failing)
    check_holders(document, "passed", expected.accepted)
    outcomes = result.parseoutcomes()
    assert outcomes["failed"] == len(expected.failing)
    assert outcomes["passed"] >= 1


def test_without_the_check_every_example_passes(pytester: pytest.Pytester) -> None:
    """The leaks are silent: with the plugin switched off all examples pass, broken ones too."""
    copy(pytester, EXPECTED)
    tests = sum(len(list((EXAMPLES / name).glob("test_*.py"))) for name in EXPECTED)
    result = pytester.runpytest_inprocess("-p", "no:jaxleaks", "-p", "no:warnings")
    outcomes = result.parseoutcomes()
    assert set(outcomes) == {"passed"}
    assert outcomes["passed"] >= tests


@pytest.mark.parametrize("name", EXPECTED)
def test_every_broken_example_has_a_mended_twin(name: str) -> None:
    """A folder of the leak check's examples holds pairs, each with words of its own on top."""
    files = sorted(path.name for path in (EXAMPLES / name).glob("test_*.py"))
    broken = [file for file in files if file.endswith("_broken.py")]
    assert broken
    twins = [file.replace("_broken.py", "_mended.py") for file in broken]
    assert files == sorted(broken + twins)
    for file in files:
        assert (EXAMPLES / name / file).read_text(encoding="utf-8").startswith('"""')
