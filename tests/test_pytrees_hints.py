"""Hints are code that runs, and what they make of a broken object is mended."""

from __future__ import annotations

import collections
import dataclasses
from typing import Any

import distrax
import jax
import jax.numpy as jnp
import pytest

from pytest_jaxleaks import PytreeCheckError, check_pytree
from pytest_jaxleaks import pytree_hints as hints

X = jnp.array([1.0, 2.0, 3.0])


def hint_for(obj: Any) -> str:
    """Return the hint of the first broken finding."""
    with pytest.raises(PytreeCheckError) as info:
        check_pytree(obj)
    hint = info.value.report.broken[0].hint
    assert hint is not None
    assert hint.splitlines()[0] in str(info.value)
    return hint


def run(hint: str, **names: Any) -> dict[str, Any]:
    """Execute a hint with the imports that a user has, and return its names."""
    namespace = {"jax": jax, "jnp": jnp, "dataclasses": dataclasses, "Any": Any, **names}
    exec(hint, namespace)
    return namespace


class Unit:
    """A unit is forgotten by flatten, and the leaf is converted by the constructor."""

    def __init__(self, value: Any, unit: str = "m") -> None:
        self.value, self.unit = value, unit


jax.tree_util.register_pytree_node(
    Unit, lambda self: ((self.value,), None), lambda _, children: Unit(*children)
)


def test_dataclass_keeps_what_was_lost() -> None:
    """The definition as a dataclass holds every attribute, arrays as leaves, the rest static."""
    namespace = run(hint_for(Unit(X, "km")))
    mended = namespace["Unit"](value=X, unit="km")
    check_pytree(mended)
    assert jax.tree.map(lambda leaf: leaf, mended).unit == "km"
    assert len(jax.tree.leaves(mended)) == 1


class Scaled:
    """An array is filed under static data."""

    def __init__(self, value: Any, scale: Any) -> None:
        self.value, self.scale = value, scale


jax.tree_util.register_pytree_node(
    Scaled,
    lambda self: ((self.value,), self.scale),
    lambda scale, children: Scaled(children[0], scale),
)


def test_dataclass_moves_arrays_to_the_leaves() -> None:
    """The array in the static data is a leaf of the mended class."""
    mended = run(hint_for(Scaled(X, 2 * X)))["Scaled"](value=X, scale=2 * X)
    check_pytree(mended)
    assert len(jax.tree.leaves(mended)) == 2


class Vector:
    """The constructor converts its arguments."""

    def __init__(self, x: Any, y: Any) -> None:
        self.x, self.y = jnp.asarray(x), jnp.asarray(y)

    def tree_flatten(self) -> tuple[Any, None]:
        """Return both as children."""
        return (self.x, self.y), None

    @classmethod
    def tree_unflatten(cls, _: None, children: Any) -> Vector:
        """Run the constructor."""
        return cls(*children)


jax.tree_util.register_pytree_node_class(Vector)


def test_unflatten_without_the_constructor() -> None:
    """The ``tree_unflatten`` of the hint mends a constructor that converts."""
    unflatten = run(hint_for(Vector(1.0, 2.0)))["tree_unflatten"]
    mended = type("Mended", (Vector,), {"tree_unflatten": unflatten})
    jax.tree_util.register_pytree_node_class(mended)
    check_pytree(mended(1.0, 2.0))


class Point(collections.namedtuple("Point", "x y")):
    """A named tuple that validates."""

    def __new__(cls, x: Any, y: Any) -> Any:
        """Refuse None."""
        if x is None or y is None:
            raise TypeError("coordinates must not be None")
        return super().__new__(cls, x, y)


def test_named_tuple_becomes_a_dataclass() -> None:
    """A named tuple's ``__new__`` always runs: the hint is a dataclass with its fields."""
    mended = run(hint_for(Point(X, X)))["Point"](x=X, y=X)
    check_pytree(mended)


def test_parameters_leave_jit() -> None:
    """With a class that cannot be changed, jit returns the parameters; the object then works."""
    obj = distrax.MultivariateNormalDiag(X, X)
    namespace = run(
        hint_for(obj),
        x=X,
        compute_params=lambda x: (x + 1, 2 * x),
        MultivariateNormalDiag=distrax.MultivariateNormalDiag,
    )
    expected = distrax.MultivariateNormalDiag(X + 1, 2 * X).log_prob(X)
    assert jnp.allclose(namespace["obj"].log_prob(X), expected)


def test_jacobian_with_respect_to_parameters() -> None:
    """Where jacfwd of the object fails, jacfwd of its parameters works."""
    report = check_pytree(distrax.Normal(X, X))
    (limit,) = [finding for finding in report.limits if finding.contract == "placeholders"]
    assert limit.hint is not None
    namespace = run(limit.hint, f=lambda d: d.log_prob(X), params=(X, X), Normal=distrax.Normal)
    assert namespace["jacobian"][0].shape == (3, 3)


class Holder:
    """Static data of any kind."""

    def __init__(self, x: Any, static: Any) -> None:
        self.x, self.static = x, static


jax.tree_util.register_pytree_node(
    Holder,
    lambda self: ((self.x,), self.static),
    lambda static, children: Holder(children[0], static),
)


def test_static_data_equal_by_content() -> None:
    """The frozen dataclass of the hint is equal by content."""
    static = run(hints.EQUAL_BY_CONTENT)["Static"]
    check_pytree(Holder(X, static("a", (1,))), like=Holder(X, static("a", (1,))))


def test_function_at_module_level() -> None:
    """The function of the hint is one for all instances."""
    activation = run(hints.NAMED_FUNCTION)["activation"]
    check_pytree(Holder(X, activation), like=Holder(2 * X, activation))


def test_no_definition_of_an_installed_class() -> None:
    """Nobody is told to rewrite a class of an installed package."""
    assert hints.register_dataclass(distrax.Normal(X, X)) is None
    assert hints.skip_init(distrax.Normal(X, X)) is None


def test_no_definition_without_fields() -> None:
    """An object without attributes gets no definition."""
    assert hints.register_dataclass(object()) is None
