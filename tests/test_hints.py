"""Each hint, on a program that leaks, and its mend, on a program that does the same without."""

from __future__ import annotations

import importlib.util
import json

import pytest

from pytest_jaxleaks.chains import Chain
from pytest_jaxleaks.hints import HINTS, LIBRARY_HINTS, hint_for

pytestmark = pytest.mark.pytester_example_path("conftest_examples")


# Which piece of advice each test of conftest_examples/mends/test_before.py must give.
_BY_KIND = {
    "module_variable": "module variable",
    "attribute": "attribute",
    "class_attribute": "class attribute",
    "function_attribute": "function attribute",
    "local_variable": "local variable",
    "nonlocal_variable": "local variable",
    "lru_cache": "cache",
    "closure": "closure variable",
    "default_argument": "default argument",
    "generator": "generator variable",
    "context_variable": "context variable",
    "fixture": "fixture",
    "random_key": "local variable",
}
_BY_RULE = {
    "cached_property": "cached property",
    "default_value": "default value",
    "finalizer": "finalizer",
    "static_field": "static field",
    "aux_data": "pytree attribute",
    "tree_structure": "aux data",
    "thread_local": "thread-local",
    "logging": "logging",
    "mock": "mock",
    "bound_method": "bound method",
    "object_array": "object array",
    "exception": "exception",
    "thread_pool": "future",
    "equinox_state": "equinox state",
    "optimizer_state": "optax state",
    "distrax_distribution": "distrax method",
    "distrax_lambda": "distrax closure",
    "tfp_bijector": "tensorflow_probability cache",
    "tfp_parameter": "tensorflow_probability cache",
    "numpyro_guide": "numpyro guide",
    "numpyro_trace": "numpyro handler",
    "flax_module": "flax module",
    "flax_nnx": "flax nnx object",
}


def test_each_leaking_program_gets_its_advice_and_no_mended_one_leaks(
    pytester: pytest.Pytester,
) -> None:
    """Each test of test_before.py leaks, and each of its leaks names the mend for its kind.

    Every test of test_after.py passes in the same run: what the hints advise runs.
    """
    pytester.copy_example("mends")
    # In a process of its own: numpyro and distrax cannot be imported twice into one.
    options = ("--jax-leaks", "--jax-leaks-report=out.json", "-pno:cacheprovider")
    outcomes = pytester.runpytest_subprocess(*options).parseoutcomes()
    document = json.loads((pytester.path / "out.json").read_text("utf-8"))
    assert {test["path"] for test in document["tests"]} == {"test_before.py"}
    found = {test["nodeid"].partition("::test_")[2]: test["leaks"] for test in document["tests"]}
    wanted = _wanted()
    assert {name: {leak["hint"] for leak in leaks} for name, leaks in found.items()} == {
        name: {hint} for name, hint in wanted.items()
    }
    assert outcomes["failed"] == len(wanted)
    assert outcomes["passed"] >= 30
    assert "error" not in outcomes


def _wanted() -> dict[str, str]:
    rules = {rule.name: rule.text for rule in LIBRARY_HINTS}
    wanted = {name: HINTS[kind] for name, kind in _BY_KIND.items()}
    wanted |= {name: rules[rule] for name, rule in _BY_RULE.items()}
    optional = {
        "distrax": "distrax",
        "tfp": "tensorflow_probability",
        "numpyro": "numpyro",
        "flax": "flax",
        "optimizer": "optax",
    }
    for name, module in optional.items():
        if not _is_installed(module):
            wanted = {test: hint for test, hint in wanted.items() if not test.startswith(name)}
    return wanted


def _is_installed(module: str) -> bool:
    return importlib.util.find_spec(module) is not None


def test_every_leaking_program_has_a_mended_twin(pytester: pytest.Pytester) -> None:
    """test_after.py has a test of the same name for each test of test_before.py."""
    folder = pytester.copy_example("mends")
    before, after = ((folder / name).read_text() for name in ("test_before.py", "test_after.py"))
    names = [line[4:].partition("(")[0] for line in before.splitlines() if line[:9] == "def test_"]
    assert len(names) >= 30
    assert [name for name in names if f"def {name}(" not in after] == []


def _chain(kind: str, through: tuple[str, ...] = (), holder: str = "m.C.x") -> Chain:
    return Chain(("root",), (holder,), holder, kind, through)


def test_a_library_object_that_a_user_keeps_gets_the_users_advice() -> None:
    """A numpyro or distrax object in a list of the user's own is the user's leak to mend."""

    class Normal: ...

    Normal.__module__ = "numpyro.distributions.continuous"
    chain = _chain("local variable", holder="m.test.seen")
    assert hint_for(chain, ([], Normal(), 0)) == HINTS["local variable"]


def test_an_unknown_kind_gets_the_general_advice() -> None:
    """A kind of link that nobody wrote a hint for says to return the value."""
    assert "return it from the traced function" in hint_for(_chain("something new"))


def test_hints_are_one_line_each() -> None:
    """Hints stand in one line of a report."""
    texts = [*HINTS.values(), *(rule.text for rule in LIBRARY_HINTS)]
    assert not [text for text in texts if "\n" in text or not 40 < len(text) < 220]


def test_every_piece_of_advice_is_given_by_a_program() -> None:
    """No hint is without a leaking program that gets it, and a mended twin."""
    assert {rule.name for rule in LIBRARY_HINTS} - set(_BY_RULE.values()) == set()
    same_text = {"context", "class", "module", "local", "element", "object array", "thread-local"}
    assert set(HINTS) - set(_BY_KIND.values()) <= same_text
