"""The shipped examples: what is broken is reported by the right holder, what is mended is not."""

from __future__ import annotations

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
    """What is to be said about one folder: holders that fail by test, and accepted ones."""

    failing: dict[str, set[str]]
    accepted: dict[str, set[str]] = {}
    options: tuple[str, ...] = ("--jax-leaks",)


_AFFINE = "distrax._src.bijectors.scalar_affine.ScalarAffine"

EXPECTED = {
    "batched_gradient": Expected({"test_batch": {"test_batched_gradient_broken.Field.cache"}}),
    "cached_constant": Expected({"test_smooth": {"test_cached_constant_broken.window"}}),
    "class_with_cache": Expected(
        {"test_whitening_of_a_batch": {"test_class_with_cache_broken.Whitening.factors"}}
    ),
    "module_level_key": Expected({"test_dropout": {"test_module_level_key_broken.KEY"}}),
    "returned_distribution": Expected(
        {"test_posterior": {f"{_AFFINE}.{name}" for name in ("_scale", "_inv_scale", "_log_scale")}}
    ),
    "turned_on_in_conftest": Expected(
        {"test_normalize": {"test_on_by_conftest_broken.norms"}}, options=()
    ),
    "turned_on_in_ini": Expected(
        {"test_layer": {"test_on_by_ini_broken.STATS"}},
        {"test_old_layer": {"test_on_by_ini_broken.LEGACY"}},
        options=(),
    ),
}


def copy(pytester: pytest.Pytester, names: Iterable[str]) -> None:
    """Copy what is below each of some folders of examples to where pytester runs."""
    for name in names:
        ignored = shutil.ignore_patterns("__pycache__")
        shutil.copytree(EXAMPLES / name, pytester.path, dirs_exist_ok=True, ignore=ignored)


def holders(document: dict, outcome: str) -> dict[str, set[str]]:
    """Return the holders in a JSON report by the name of the test, for one outcome."""
    found: dict[str, set[str]] = {}
    for test in document["tests"]:
        if test["outcome"] == outcome:
            assert test["path"].endswith("_broken.py"), test
            name = test["nodeid"].rpartition("::")[2]
            found.setdefault(name, set()).update(leak["holder"] for leak in test["leaks"])
    return found


@pytest.mark.parametrize("name", EXPECTED)
def test_the_check_reports_what_is_broken_and_nothing_else(
    pytester: pytest.Pytester, name: str
) -> None:
    """Each broken test is reported with its holder; all other tests of the folder pass."""
    expected = EXPECTED[name]
    copy(pytester, [name])
    result = pytester.runpytest_inprocess(*expected.options, "--jax-leaks-report=report.json")
    document = json.loads((pytester.path / "report.json").read_text(encoding="utf-8"))
    assert holders(document, "failed") == expected.failing
    assert holders(document, "passed") == expected.accepted
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
