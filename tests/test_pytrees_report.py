"""The report of ``check_pytree``: its text, its structure, and clear errors for bad arguments."""

from __future__ import annotations

import pickle
import random
from typing import TYPE_CHECKING, Any

import equinox as eqx
import jax
import jax.numpy as jnp
import pytest

import pytest_jaxleaks
from pytest_jaxleaks import (
    InvalidArgumentError,
    JaxLeaksError,
    PytreeCheckError,
    PytreeFinding,
    check_pytree,
)
from pytest_jaxleaks.pytree_findings import CONTRACTS, Cause, Symptom, group_by_cause

if TYPE_CHECKING:
    from collections.abc import Sequence

pytestmark = pytest.mark.pytester_example_path("conftest_examples")


X = jnp.array([1.0, 2.0, 3.0])


class Closing:
    """A node with a function that closes over an array in its static data."""

    def __init__(self, x: Any, call: Any = None) -> None:
        self.x = x
        self.call = call or (lambda y: x * y)


jax.tree_util.register_pytree_node(
    Closing,
    lambda self: ((self.x,), self.call),
    lambda call, children: Closing(children[0], call),
)


def error_of(obj: Any, **options: Any) -> PytreeCheckError:
    """Return the error that the check raises."""
    with pytest.raises(PytreeCheckError) as info:
        check_pytree(obj, **options)
    return info.value


def test_text() -> None:
    """The text says what is broken, where, how it shows, and how to mend it."""
    text = str(error_of(Closing(X)))
    lines = text.splitlines()
    assert lines[0] == "Closing breaks the pytree contract: 1 cause."
    assert lines[2] == (
        "broken [nothing-hides] an array hides from JAX behind Closing.call: "
        "Closing.call -> closure variable 'x' of Closing.__init__.<lambda>"
    )
    assert lines[3] == f"    contract: {CONTRACTS['nothing-hides']}"
    assert "    mend:" in lines
    assert "limit [key-paths] Closing is registered without keys" in text


def test_healthy_text() -> None:
    """A healthy object's report is one sentence."""
    assert str(check_pytree({"x": X})) == "dict keeps the pytree contract."


def test_skipped_checks_have_reasons() -> None:
    """What cannot be checked is listed with its reason."""
    report = check_pytree({"call": lambda: None})
    assert any(reason.startswith("pickle: ") for reason in report.skipped)
    assert "transformations: it has no arrays among its leaves" in report.skipped
    assert "skipped:" in str(report)


def test_error_is_an_assertion_with_findings() -> None:
    """The error is an assertion error, and carries the findings, also through pickle."""
    error = error_of(Closing(X))
    assert isinstance(error, AssertionError)
    assert isinstance(error, JaxLeaksError)
    finding = error.findings[0]
    assert isinstance(finding, PytreeFinding)
    assert (finding.kind, finding.contract) == ("broken", "nothing-hides")
    assert finding.contracts == ("nothing-hides", "treedef")
    assert pickle.loads(pickle.dumps(error)).findings == error.findings


def test_anonymous_key_paths_fail_on_demand() -> None:
    """Key paths that are mere positions are a limit, and breakage if the caller wants names."""

    class Layer:
        def __init__(self, kernel: Any, bias: Any) -> None:
            self.kernel, self.bias = kernel, bias

    jax.tree_util.register_pytree_node(
        Layer,
        lambda self: ((self.kernel, self.bias), None),
        lambda _, children: Layer(*children),
    )
    obj = {"layer": Layer(X, X)}
    (limit,) = check_pytree(obj).limits
    assert limit.symptoms == ("a leaf of Layer is called ['layer'][<flat index 0>]",)
    (finding,) = error_of(obj, through=["key-paths"]).report.broken
    assert finding.contract == "key-paths"


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"through": "jit"}, "through must be a sequence of names, and is the text 'jit'"),
        ({"through": ["jit", "pmap"]}, "through has an unknown name 'pmap'; known are jit, "),
        ({"through": 3}, "through must be a sequence of names, and is int"),
        ({"probe": 3}, "probe must be a function or None, and is int"),
        ({"build": "x"}, "build must be a function or None, and is str"),
        ({"build": jnp.sin, "args": X}, "args must be a tuple or list, and is ArrayImpl"),
        ({"through": b"jit"}, "through must be a sequence of names, and is the text b'jit'"),
        ({"probe": repr}, "probe must return arrays, and what it returns is str"),
        ({"probe": lambda _: random.random()}, "probe must give the same result each time"),
        (
            {"build": lambda: {"x": X}, "args": (X,)},
            "build must be a function of args, 1 of them, that makes the object again, "
            "and raises TypeError",
        ),
        ({"args": (X,)}, "args are the arguments of build, and build is None"),
        ({"build": lambda: X}, "build must be a function that makes the object again, a dict, and"),
    ],
)
def test_bad_arguments(options: dict[str, Any], message: str) -> None:
    """A bad argument is refused at once, with its name, what it was and what was expected."""
    with pytest.raises(InvalidArgumentError) as info:
        check_pytree({"x": X}, **options)
    assert message in str(info.value)


def test_probe_with_more_than_arrays() -> None:
    """A probe may return text besides arrays, and nothing at all: it is used under vmap as well."""
    assert check_pytree({"x": X}, lambda tree: (tree["x"], "text")).findings == ()
    assert check_pytree({"x": X}, lambda _: None).findings == ()


class Drawing(eqx.Module):
    """A model that forgets to take a key."""

    x: Any

    def __call__(self, y: Any) -> Any:
        """Draw outside of JAX."""
        return self.x * y + random.random()


def test_default_probe_that_is_random() -> None:
    """Nobody is blamed for a model that is random when it was not asked for: that is said."""
    assert check_pytree(Drawing(X)).broken == ()
    assert "use: the result is another one each time" in check_pytree(Drawing(X)).skipped


def test_keys_of_dicts_are_named() -> None:
    """Two dicts with other keys: the finding says which keys."""
    error = error_of({"x": X}, like={"x": X, "y": X})
    assert "aux data of dict: ['x'] and ['x', 'y']" in error.findings[0].cause


def test_only_the_named_transformations_run() -> None:
    """``through`` chooses the transformations: with none the probe runs once only."""
    calls: list[Any] = []

    def probe(tree: dict[str, Any]) -> Any:
        calls.append(tree)
        return tree["x"]

    check_pytree({"x": X}, probe, through=[])
    assert len(calls) == 1
    check_pytree({"x": X}, probe, through=["jit", "scan"])
    assert len(calls) == 4


def test_inside_of_a_transformation() -> None:
    """An object with tracers is refused with a finding that says so."""

    def traced(x: Any) -> Any:
        check_pytree({"x": x})
        return x

    with pytest.raises(PytreeCheckError, match=r"\['x'\] of dict is a tracer"):
        jax.jit(traced)(X)


def test_deleted_array() -> None:
    """An object with an array that was donated is refused with a finding that says so."""
    x = jnp.ones(3)
    x.delete()
    (finding,) = error_of({"x": x}).findings
    assert (
        finding.cause == "['x'] of dict is an array that has been deleted, by donation or by hand"
    )


def test_fault_of_the_check_is_a_warning(monkeypatch: pytest.MonkeyPatch) -> None:
    """An error in the check itself is a warning with a traceback, and never a finding."""

    def fail(*_: Any) -> Sequence[Any]:
        raise RuntimeError("our own fault")

    monkeypatch.setattr("pytest_jaxleaks.pytrees.copy_symptoms", fail)
    with pytest.warns(UserWarning, match="our own fault"):
        assert check_pytree({"x": X}).findings == ()


def symptom(
    contract: Any, key: str, *, broken: bool = True, implied: Sequence[str] = ()
) -> Symptom:
    """Return a symptom."""
    return Symptom(contract, f"text of {key}", Cause(key, key), broken, frozenset(implied))


def test_symptoms_are_grouped_by_cause() -> None:
    """A deeper cause takes the symptoms that it implies; limits come last and explain nothing."""
    findings = group_by_cause(
        [
            symptom("through", "crash", implied=["nothing-hides"]),
            symptom("copies", "closure"),
            symptom("key-paths", "names", broken=False),
            symptom("nothing-hides", "closure"),
            symptom("through", "alone", implied=["key-paths"]),
        ]
    )
    assert [(f.kind, f.cause) for f in findings] == [
        ("broken", "closure"),
        ("broken", "alone"),
        ("limit", "names"),
    ]
    assert findings[0].contracts == ("nothing-hides", "through", "copies")


def test_public_names() -> None:
    """The public names resolve, and are listed."""
    for name in ("PytreeCheckError", "PytreeFinding", "PytreeReport", "check_pytree"):
        assert name in dir(pytest_jaxleaks)
        assert getattr(pytest_jaxleaks, name).__name__ == name


@pytest.mark.parametrize("example", ["pytree_gallery"])
def test_example_runs(pytester: pytest.Pytester, example: str) -> None:
    """The example of broken nodes and their mended twins runs as it stands."""
    pytester.copy_example(example)
    pytester.runpytest_inprocess("-q", "-p", "no:cacheprovider").assert_outcomes(passed=16)
