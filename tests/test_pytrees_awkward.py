"""Healthy objects that a check could easily mistake for broken ones, and large and deep ones."""

from __future__ import annotations

import dataclasses
import functools
import sys
import warnings
from typing import Any

import jax
import jax.numpy as jnp
import lineax as lx
import numpy as np
import pytest
from flax import nnx
from jax.scipy.spatial.transform import Rotation

from pytest_jaxleaks import PytreeCheckError, check_pytree

X = jnp.array([1.0, 2.0, 3.0])


class Ordered:
    """A node whose static data keeps the order of a dict."""

    def __init__(self, x: Any, names: dict[str, int]) -> None:
        self.x, self.names = x, names


jax.tree_util.register_pytree_with_keys(
    Ordered,
    lambda self: (((jax.tree_util.GetAttrKey("x"), self.x),), tuple(self.names.items())),
    lambda names, children: Ordered(children[0], dict(names)),
)


class Knowing:
    """A node that knows itself, by an attribute that is no child."""

    def __init__(self, x: Any) -> None:
        self.x, self.me = x, self


jax.tree_util.register_pytree_with_keys(
    Knowing,
    lambda self: (((jax.tree_util.GetAttrKey("x"), self.x),), None),
    lambda _, children: Knowing(children[0]),
)


def nested(depth: int) -> Any:
    """Return a leaf in so many lists."""
    return functools.reduce(lambda inner, _: [inner], range(depth), X)


AWKWARD = {
    "integer larger than JAX has": lambda: {"seed": 2**70, "x": X},
    "integer of 64 bits": lambda: {"seed": 2**40, "x": X},
    "tuple without a length": lambda: Rotation.from_quat(jnp.array([0.0, 0.0, 0.0, 1.0])),
    "order of a dict": lambda: Ordered(X, {"b": 1, "a": 2}),
    "tags in a frozenset": lambda: lx.MatrixLinearOperator(jnp.eye(3), lx.symmetric_tag),
    "label on a function of JAX": lambda: {"jvp": jax.linearize(jnp.sin, X)[1]},
    "variable of nnx": lambda: nnx.Param(X),
    "state of nnx": lambda: nnx.state(nnx.Linear(2, 3, rngs=nnx.Rngs(0))),
    "object that knows itself": lambda: Knowing(X),
    "deep lists": lambda: nested(500),
    "typed and legacy keys": lambda: [jax.random.key(0), jax.random.PRNGKey(0)],
    "float0": lambda: {"tangent": np.zeros(3, jax.dtypes.float0), "x": X},
    "mutable array": lambda: {"ref": jax.new_ref(X), "x": X},
    "shapes": lambda: {"shape": jax.ShapeDtypeStruct((3,), jnp.float32), "x": X},
    "no elements": lambda: {"x": jnp.zeros((0, 3)), "y": np.zeros(0)},
}


@pytest.mark.parametrize("name", AWKWARD)
def test_awkward_object_holds(name: str) -> None:
    """An unusual but healthy object passes, and the check has no fault of its own."""
    obj = AWKWARD[name]()
    with warnings.catch_warnings():
        warnings.filterwarnings("error", message=".*pytest-jaxleaks")
        assert check_pytree(obj).broken == ()


def test_copies_of_a_librarys_own_classes_are_a_limit() -> None:
    """What a library's class does when it is copied is noted: its user cannot mend it."""
    report = check_pytree(nnx.Param(X))
    assert [limit.contract for limit in report.limits] == ["copies"]


@dataclasses.dataclass
class Layer:
    """A layer of a wide model."""

    weight: Any


jax.tree_util.register_dataclass(Layer)


def test_wide_object_is_traced_and_not_compiled() -> None:
    """For thousands of arrays the check traces, and says which transformations it did not try."""
    report = check_pytree([Layer(np.float32(i)) for i in range(1_500)])
    assert report.findings == ()
    assert "grad: not tried, as there are 1500 arrays" in report.skipped
    assert not any(reason.startswith(("jit", "scan", "vmap")) for reason in report.skipped)


class Halving:
    """A node whose unflatten makes another treedef."""

    def __init__(self, parts: Any, size: int) -> None:
        self.parts, self.size = parts, size


jax.tree_util.register_pytree_node(
    Halving,
    lambda self: (tuple(self.parts), self.size),
    lambda size, parts: Halving(list(parts), size // 2),
)


def test_wide_object_is_checked_all_the_same() -> None:
    """What is wrong with a wide object is found, at rest and while it is traced."""
    with pytest.raises(PytreeCheckError) as info:
        check_pytree(Halving([np.float32(i) for i in range(1_200)], 64))
    (finding,) = info.value.report.broken
    assert finding.contract == "round-trip"
    assert "size of Halving does not survive" in finding.cause
    assert any(text.startswith("through scan") for text in finding.symptoms)


def test_too_deep() -> None:
    """An object deeper than JAX can follow is said to be just that."""
    line = f"list is nested more than {sys.getrecursionlimit() - 100} deep"
    deep = nested(sys.getrecursionlimit() + 500)
    if sys.version_info >= (3, 12):
        assert check_pytree(deep).skipped == (f"everything: {line}",)
    else:
        with pytest.raises(PytreeCheckError, match=line):
            check_pytree(deep)
    assert jax.tree.leaves(nested(200))  # JAX still works


class Endless:
    """A node that is its own child."""

    def __init__(self, x: Any) -> None:
        self.x, self.me = x, self


jax.tree_util.register_pytree_node(
    Endless, lambda self: ((self.x, self.me), None), lambda _, children: Endless(children[0])
)


def test_node_inside_of_itself() -> None:
    """A node that contains itself is told before JAX loses its way in it."""
    with pytest.raises(PytreeCheckError) as info:
        check_pytree({"node": Endless(X)})
    (finding,) = info.value.report.broken
    assert finding.cause == "dict contains itself: flatten meets Endless inside of itself"
    assert jax.tree.leaves(nested(200))  # JAX still works
