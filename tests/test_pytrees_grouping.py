"""One cause is one finding, however it shows; and faults in key paths are findings, no crashes."""

from __future__ import annotations

import dataclasses
import uuid
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import pytest
from jax.scipy.interpolate import RegularGridInterpolator

from pytest_jaxleaks import PytreeCheckError, check_pytree

if TYPE_CHECKING:
    from collections.abc import Callable

    from pytest_jaxleaks import PytreeFinding

X = jnp.array([1.0, 2.0, 3.0])
LOW, HIGH = jax.tree_util.GetAttrKey("low"), jax.tree_util.GetAttrKey("high")


def broken(obj: Any, **options: Any) -> tuple[PytreeFinding, ...]:
    """Return the broken findings of ``obj``, which must have some."""
    with pytest.raises(PytreeCheckError) as info:
        check_pytree(obj, **options)
    return info.value.report.broken


def pair_with_keys(with_keys: Callable[[Any], Any]) -> Any:
    """Return a node with two leaves and static data, and a flatten with keys of its own."""

    class Pair:
        def __init__(self, low: Any, high: Any, unit: str = "m") -> None:
            self.low, self.high, self.unit = low, high, unit

    jax.tree_util.register_pytree_with_keys(
        Pair,
        with_keys,
        lambda unit, children: Pair(*children, unit),
        flatten_func=lambda self: ((self.low, self.high), self.unit),
    )
    return Pair(X, 2 * X)


def no_keys(pair: Any) -> Any:
    """Forget the keys."""
    return (pair.low, pair.high), pair.unit


def raising(pair: Any) -> Any:
    """Refuse."""
    raise KeyError("no such key")


def other_static(pair: Any) -> Any:
    """Forget the static data."""
    return ((LOW, pair.low), (HIGH, pair.high)), None


@pytest.mark.parametrize(
    ("with_keys", "words"),
    [
        (no_keys, "tree_flatten_with_path"),
        (raising, "raising (test_pytrees_grouping.py"),
        (other_static, "the key paths of Pair do not match its leaves"),
    ],
)
def test_flatten_with_keys_that_is_wrong(with_keys: Callable[[Any], Any], words: str) -> None:
    """A flatten with keys that raises, or disagrees with flatten, is a finding."""
    (finding,) = broken(pair_with_keys(with_keys))
    assert finding.contract == "key-paths"
    assert words in finding.cause


def test_other_static_data_with_keys_is_named() -> None:
    """Which part of the static data differs between the two kinds of flatten is said."""
    (finding,) = broken(pair_with_keys(other_static))
    assert finding.symptoms[0].endswith("is 'm' with flatten and None with tree_flatten_with_path")


def test_unflatten_inside_of_jax_is_one_cause() -> None:
    """An unflatten that words its refusal anew for each placeholder is one finding."""
    (finding,) = broken(RegularGridInterpolator((jnp.arange(3.0),), jnp.arange(3.0)))
    assert finding.contract == "placeholders"
    assert len(finding.symptoms) > 6


def shape_of(x: Any) -> Any:
    """Fail here for a placeholder without a shape."""
    return x.shape


def positive(x: Any) -> Any:
    """Fail here for other placeholders."""
    return x if shape_of(x) == () or (x > 0).all() else None


class Deep:
    """A node whose constructor fails at various depths."""

    def __init__(self, x: Any) -> None:
        self.x = positive(x)


jax.tree_util.register_pytree_node(
    Deep, lambda self: ((self.x,), None), lambda _, children: Deep(*children)
)


def test_unflatten_that_fails_in_several_functions_is_one_cause() -> None:
    """How deep the refusal of a placeholder comes does not make it another finding."""
    (finding,) = broken(Deep(X))
    assert finding.contract == "placeholders"
    assert "shape_of (test_pytrees_grouping.py" in finding.cause


@jax.tree_util.register_dataclass
@dataclasses.dataclass
class Batch:
    """A node that is used in another way when it is traced."""

    x: Any

    def total(self) -> Any:
        """Return something else for tracers, and for what comes out of a transformation."""
        return jnp.sum(self.x) if self.x is X else jnp.zeros(())


def test_probe_that_differs_everywhere_is_one_cause() -> None:
    """A probe whose result differs after each transformation, and within vmap, is one finding."""
    (finding,) = broken(Batch(X), probe=Batch.total)
    assert finding.contract == "through"
    assert any(text.startswith("used under vmap") for text in finding.symptoms)
    assert any(text.startswith("through jit") for text in finding.symptoms)


class Summed:
    """Static data that the constructor computes where it is not given."""

    def __init__(self, x: Any, total: float | None = None) -> None:
        self.x, self.total = x, float(jnp.sum(x)) if total is None else total


jax.tree_util.register_pytree_node(
    Summed,
    lambda self: ((self.x,), self.total),
    lambda total, children: Summed(children[0], total),
)


def test_static_data_that_the_constructor_computes() -> None:
    """Static data that the constructor reads from an array is found, also if it can be passed."""
    (finding,) = broken(Summed(X))
    assert finding.contract == "treedef"
    assert "aux data of Summed" in finding.cause
    assert "built from other values" in finding.symptoms[0]


@jax.tree_util.register_dataclass
@dataclasses.dataclass
class Named:
    """Each instance gets a name of its own."""

    x: Any
    name: str = dataclasses.field(
        default_factory=lambda: uuid.uuid4().hex, metadata={"static": True}
    )


def test_default_that_is_another_one_each_time() -> None:
    """Static data with a default factory that never gives the same makes each treedef unequal."""
    (finding,) = broken(Named(X))
    assert finding.contract == "treedef"
    assert "aux data of Named" in finding.cause
    assert "built twice with the same defaults" in finding.symptoms[0]


def test_no_use_without_a_probe() -> None:
    """Without a probe no symptom speaks of one."""

    class Fresh:
        def __init__(self, x: Any) -> None:
            self.x = x

    jax.tree_util.register_pytree_node(
        Fresh, lambda self: ((self.x,), object()), lambda _, children: Fresh(*children)
    )
    (finding,) = broken(Fresh(X))
    assert finding.contract == "treedef"
    assert not any("probe" in text for text in finding.symptoms)
