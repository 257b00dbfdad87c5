"""One broken node per part of the pytree contract, each with its mended twin.

``check_pytree`` raises ``PytreeCheckError`` for the broken ones and says which part of the contract
they break; it returns a report for the mended ones.
"""

import dataclasses
import functools
from typing import Any

import jax
import jax.numpy as jnp
import pytest

from pytest_jaxleaks import PytreeCheckError, check_pytree

X = jnp.array([1.0, 2.0, 3.0])


def broken_contract(obj: Any) -> str:
    """Return the part of the contract that the first finding names."""
    with pytest.raises(PytreeCheckError) as info:
        check_pytree(obj)
    return info.value.findings[0].contract


# 1. The round trip: ``unit`` is neither a child nor aux data.


@jax.tree_util.register_pytree_node_class
class Forgetful:
    def __init__(self, value, unit="m"):
        self.value, self.unit = value, unit

    def tree_flatten(self):
        return (self.value,), None

    @classmethod
    def tree_unflatten(cls, aux, children):
        return cls(*children)


@jax.tree_util.register_dataclass
@dataclasses.dataclass
class Complete:
    value: Any
    unit: str = dataclasses.field(default="m", metadata={"static": True})


def test_round_trip_broken():
    assert broken_contract(Forgetful(X, "km")) == "round-trip"


def test_round_trip_mended():
    check_pytree(Complete(X, "km"))


# 2. Treedefs: every instance makes a function of its own, so no two treedefs are equal.


@jax.tree_util.register_pytree_node_class
class FreshFunction:
    def __init__(self, weight):
        self.weight = weight
        self.activation = lambda x: jnp.maximum(x, 0)

    def tree_flatten(self):
        return (self.weight,), self.activation

    @classmethod
    def tree_unflatten(cls, activation, children):
        self = object.__new__(cls)
        (self.weight,), self.activation = children, activation
        return self


def relu(x):
    return jnp.maximum(x, 0)


@jax.tree_util.register_dataclass
@dataclasses.dataclass
class NamedFunction:
    weight: Any
    activation: Any = dataclasses.field(default=relu, metadata={"static": True})


def test_treedef_broken():
    assert broken_contract(FreshFunction(X)) == "treedef"


def test_treedef_mended():
    check_pytree(NamedFunction(X))


# 3. Placeholders: the constructor, which unflatten runs, converts what it is given.


@jax.tree_util.register_pytree_node_class
class Converting:
    def __init__(self, mean):
        self.mean = jnp.asarray(mean)

    def tree_flatten(self):
        return (self.mean,), None

    @classmethod
    def tree_unflatten(cls, aux, children):
        return cls(*children)


@jax.tree_util.register_pytree_node_class
class ConvertingOnce(Converting):
    @classmethod
    def tree_unflatten(cls, aux, children):
        self = object.__new__(cls)
        (self.mean,) = children
        return self


def test_placeholders_broken():
    assert broken_contract(Converting([1.0, 2.0])) == "placeholders"


def test_placeholders_mended():
    check_pytree(ConvertingOnce([1.0, 2.0]))


# 4. Key paths: the names belong to the other leaf.


class CrossedNames:
    def __init__(self, low, high):
        self.low, self.high = low, high


class StraightNames(CrossedNames):
    pass


_LOW, _HIGH = jax.tree_util.GetAttrKey("low"), jax.tree_util.GetAttrKey("high")
jax.tree_util.register_pytree_with_keys(
    CrossedNames,
    lambda node: (((_HIGH, node.low), (_LOW, node.high)), None),
    lambda aux, children: CrossedNames(*children),
)
jax.tree_util.register_pytree_with_keys(
    StraightNames,
    lambda node: (((_LOW, node.low), (_HIGH, node.high)), None),
    lambda aux, children: StraightNames(*children),
)


def test_key_paths_broken():
    assert broken_contract(CrossedNames(X, 2 * X)) == "key-paths"


def test_key_paths_mended():
    check_pytree(StraightNames(X, 2 * X))


# 5. Nothing hides: a closure holds an array that JAX cannot see.


@jax.tree_util.register_pytree_node_class
class Closing:
    def __init__(self, scale, apply=None):
        self.scale = scale
        self.apply = apply or (lambda x: x * scale)

    def tree_flatten(self):
        return (self.scale,), self.apply

    @classmethod
    def tree_unflatten(cls, apply, children):
        return cls(*children, apply)


@jax.tree_util.register_dataclass
@dataclasses.dataclass
class Computing:
    scale: Any

    def apply(self, x):
        return x * self.scale


def test_nothing_hides_broken():
    assert broken_contract(Closing(X)) == "nothing-hides"


def test_nothing_hides_mended():
    check_pytree(Computing(X), probe=lambda node: node.apply(2.0))


# 6. Through transformations: the method asks for the value of a leaf.


@jax.tree_util.register_dataclass
@dataclasses.dataclass
class BakedShape:
    table: Any
    rows: int = dataclasses.field(metadata={"static": True})

    def first(self):
        if self.table.ndim == 1 and not isinstance(self.table, jax.core.Tracer):
            return self.table[0]
        return self.table[0] * self.rows  # another result when traced


@jax.tree_util.register_dataclass
@dataclasses.dataclass
class OwnShape:
    table: Any

    def first(self):
        return self.table[0]


def test_through_broken():
    with pytest.raises(PytreeCheckError) as info:
        check_pytree(BakedShape(X, 3), probe=BakedShape.first)
    assert info.value.findings[0].contract == "through"


def test_through_mended():
    check_pytree(OwnShape(X), probe=OwnShape.first)


# 7. Copies: ``deepcopy`` starts afresh.


@jax.tree_util.register_dataclass
@dataclasses.dataclass
class Resetting:
    weight: Any

    def __deepcopy__(self, memo):
        return Resetting(jnp.zeros_like(self.weight))


@jax.tree_util.register_dataclass
@dataclasses.dataclass
class Copying:
    weight: Any


def test_copies_broken():
    assert broken_contract(Resetting(X)) == "copies"


def test_copies_mended():
    check_pytree(Copying(X))


# 8. Construction: the constructor keeps what it was given, a tracer when jit builds the object.

SEEN: list[Any] = []


@jax.tree_util.register_dataclass
@dataclasses.dataclass
class Registering:
    weight: Any

    def __post_init__(self):
        SEEN.append(self.weight)


@jax.tree_util.register_dataclass
@dataclasses.dataclass
class Deriving:
    weight: Any

    @functools.cached_property
    def norm(self):
        return jnp.linalg.norm(self.weight)


def test_construction_broken():
    assert broken_contract(Registering(X)) == "construction"
    SEEN.clear()


def test_construction_mended():
    check_pytree(Deriving(X), probe=lambda node: node.norm)
