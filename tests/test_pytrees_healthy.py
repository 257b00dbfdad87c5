"""Healthy objects: no finding, whatever they are made of."""

from __future__ import annotations

import collections
import dataclasses
import functools
import warnings
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import lineax
import numpy as np
import optax
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pytest_jaxleaks import check_pytree

X = jnp.array([1.0, 2.0, 3.0])
KEY = jax.random.key(0)
PARAMS = {"w": X, "b": jnp.zeros(2)}
TABLE = jnp.arange(5.0)


class Pair(NamedTuple):
    """A named tuple."""

    first: Any
    second: Any = None


@jax.tree_util.register_dataclass
@dataclasses.dataclass
class Data:
    """A registered dataclass, with a default that is None."""

    x: Any
    cache: Any = None
    name: str = dataclasses.field(default="a", metadata={"static": True})


class Model(eqx.Module):
    """An equinox module with a converter, a check, a static number, a function and a flag."""

    w: jax.Array = eqx.field(converter=jnp.asarray)
    eps: float = eqx.field(static=True, default=1e-3)
    activation: Any = jax.nn.relu
    flag: bool = False

    def __check_init__(self) -> None:
        """Refuse matrices."""
        if self.w.ndim != 1:
            raise ValueError("w must be a vector")

    def __call__(self, x: Any) -> Any:
        """Use every field."""
        return x if self.flag else self.activation(self.w * x + self.eps)


class ByContent:
    """A numpy constant that is equal by content, and hashable."""

    def __init__(self, array: np.ndarray) -> None:
        self.array = array

    def __hash__(self) -> int:
        return hash(self.array.tobytes())

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ByContent) and np.array_equal(self.array, other.array)


@jax.tree_util.register_pytree_with_keys_class
class Node:
    """A hand-written node with static data, a lazy attribute and a memo."""

    unit = "m"

    def __init__(self, x: Any, static: Any = None) -> None:
        self.x, self.static = x, static
        self.memo: dict[str, Any] = {}

    @functools.cached_property
    def norm(self) -> Any:
        """Compute once."""
        return jnp.sqrt(jnp.sum(self.x**2))

    def total(self) -> Any:
        """Compute once, into a plain dict."""
        if "total" not in self.memo:
            self.memo["total"] = jnp.sum(self.x)
        return self.memo["total"]

    def tree_flatten_with_keys(self) -> tuple[Any, Any]:
        """Name the only child."""
        return ((jax.tree_util.GetAttrKey("x"), self.x),), self.static

    @classmethod
    def tree_unflatten(cls, static: Any, children: Any) -> Node:
        """Skip the constructor."""
        self = object.__new__(cls)
        (self.x,) = children
        self.static = static
        self.memo = {}
        return self


class Deriving(Node):
    """A node whose unflatten makes a function of the new leaves."""


def _derive(static: Any, children: Any) -> Deriving:
    self = object.__new__(Deriving)
    (self.x,) = children
    self.static, self.memo = static, {}
    self.apply = functools.partial(_scale, self.x)
    return self


def _scale(x: Any, y: Any) -> Any:
    return x * y + TABLE[0]


jax.tree_util.register_pytree_with_keys(
    Deriving, Deriving.tree_flatten_with_keys, _derive, lambda self: ((self.x,), self.static)
)


class Slots:
    """A node without a dict."""

    __slots__ = ("x", "y")

    def __init__(self, x: Any, y: Any) -> None:
        self.x, self.y = x, y


jax.tree_util.register_pytree_with_keys(
    Slots,
    lambda self: (
        ((jax.tree_util.GetAttrKey("x"), self.x), (jax.tree_util.GetAttrKey("y"), self.y)),
        None,
    ),
    lambda _, children: Slots(*children),
)


class SortedDict(dict):  # type: ignore[type-arg]
    """A subclass of dict with a registration of its own."""


jax.tree_util.register_pytree_with_keys(
    SortedDict,
    lambda self: (
        tuple((jax.tree_util.DictKey(key), self[key]) for key in sorted(self)),
        tuple(sorted(self)),
    ),
    lambda keys, values: SortedDict(zip(keys, values, strict=True)),
)


def used_node() -> Node:
    """Return a node whose caches are full."""
    node = Node(X)
    node.total()
    assert node.norm > 0
    return node


def optimiser(name: str) -> Any:
    """Return the state of an optimiser."""
    return {
        "adam": optax.adam(1e-3),
        "chain": optax.chain(optax.clip(1.0), optax.sgd(0.1, momentum=0.9)),
        "masked": optax.masked(optax.adam(1e-3), {"w": True, "b": False}),
        "scheduled": optax.inject_hyperparams(optax.adam)(learning_rate=1e-3),
    }[name].init(PARAMS)


NORMALISED, _STATE = eqx.nn.make_with_state(eqx.nn.BatchNorm)(3, axis_name="b", mode="batch")
HEALTHY = {
    "None": lambda: None,
    "array": lambda: X,
    "numpy array": lambda: np.ones(3),
    "number": lambda: 3.0,
    "text": lambda: "text",
    "empty": dict,
    "function": lambda: jnp.tanh,
    "nested": lambda: {"a": [Data(X), (None, "text", 1, 2.5, True, Data(1.0))], "b": Pair(X)},
    "one array twice": lambda: [X, X, {"again": X}],
    "ordered and default dicts": lambda: [
        collections.OrderedDict(b=X, a=2 * X),
        collections.defaultdict(list, {"a": X}),
    ],
    "keys": lambda: {"one": KEY, "many": jax.random.split(KEY, 3), "raw": jax.random.PRNGKey(1)},
    "dtypes": lambda: [
        jnp.ones(2, dtype)
        for dtype in (jnp.bfloat16, jnp.float16, jnp.int8, jnp.uint32, bool, jnp.complex64)
    ],
    "shapes and scalars": lambda: [jnp.zeros((0, 3)), jnp.ones(()), np.float64(3), np.int32(3)],
    "not a number": lambda: {"x": X * jnp.nan, "y": jnp.inf * X},
    "float64": lambda: np.linspace(0, 1, 3),
    "named tuple": lambda: Pair(X, [1, 2.0, True]),
    "dataclass": lambda: Data(X, name="b"),
    "module": lambda: Model([1.0, 2.0]),
    "mlp": lambda: eqx.nn.MLP(2, 3, 4, 2, key=KEY),
    "dropout": lambda: eqx.nn.Dropout(0.5),
    "attention": lambda: eqx.nn.MultiheadAttention(2, 4, key=KEY),
    "batch norm": lambda: NORMALISED,
    "state": lambda: _STATE,
    "adam": lambda: optimiser("adam"),
    "chain": lambda: optimiser("chain"),
    "masked": lambda: optimiser("masked"),
    "scheduled": lambda: optimiser("scheduled"),
    "operator": lambda: lineax.MatrixLinearOperator(jnp.eye(3)),
    "jax partial": lambda: jax.tree_util.Partial(_scale, X),
    "cotangent function": lambda: jax.vjp(jnp.sin, X)[1],
    "slots": lambda: Slots(X, 2 * X),
    "dict subclass": lambda: SortedDict(a=X, b=2 * X),
    "node": lambda: Node(X),
    "node with full caches": used_node,
    "derived in unflatten": lambda: _derive(None, [X]),
    "numpy constant": lambda: Node(X, ByContent(np.arange(3))),
    "static values": lambda: Node(X, (0.5, "a", (1, 2), [3], {"k": 1}, int, np.dtype("f4"))),
    "function of globals": lambda: Node(X, _scale),
    "jitted function": lambda: Node(X, jnp.tanh),
    "partial of static values": lambda: Node(X, functools.partial(_scale, 2.0)),
}


@pytest.mark.parametrize("name", HEALTHY)
def test_healthy(name: str) -> None:
    """A healthy object passes, and the check itself works without a warning of its own."""
    with warnings.catch_warnings():
        warnings.filterwarnings("error", message=".*pytree check.*")
        report = check_pytree(HEALTHY[name]())
    assert report.broken == ()


@pytest.mark.parametrize("name", ["nested", "dataclass", "module", "mlp", "chain", "slots", "keys"])
def test_healthy_without_limits(name: str) -> None:
    """The most usual objects have no limits either."""
    assert check_pytree(HEALTHY[name]()).findings == ()


def test_marker_of_each_instance_is_a_limit() -> None:
    """A bare object in the static data, as equinox marks its states, is unequal on purpose."""
    report = check_pytree(HEALTHY["batch norm"]())
    assert report.broken == ()
    assert any("aux data of StateIndex" in limit.cause for limit in report.limits)


def test_array_cached_by_use_is_not_hidden() -> None:
    """A probe that fills a cache on the object does not make a healthy object broken."""
    node = Node(X)
    report = check_pytree(node, probe=lambda self: (self.norm, self.total()))
    assert report.broken == ()
    assert "norm" in vars(node)


def test_class_default_that_takes_over_is_a_limit() -> None:
    """A lost attribute with a default on the class is a limit when the probe does not notice."""
    node = Node(X)
    node.unit = "km"
    (limit,) = check_pytree(node, probe=lambda self: self.total()).limits
    assert "unit" in limit.cause


def test_methods_are_not_called_under_a_trace_of_the_object_itself() -> None:
    """Nothing of a trace stays in the caches of the object that was checked."""
    node = Node(X)
    check_pytree(node, probe=lambda self: self.total())
    assert not isinstance(node.memo["total"], jax.core.Tracer)
    assert float(node.memo["total"]) == 6.0


class Hostile:
    """A node whose special methods raise."""

    def __init__(self, x: Any) -> None:
        self.x = x

    def _refuse(self, *_: Any) -> Any:
        raise RuntimeError("do not touch")

    __eq__ = __bool__ = __len__ = __iter__ = __repr__ = _refuse  # type: ignore[assignment]
    __hash__ = None  # type: ignore[assignment]


jax.tree_util.register_pytree_with_keys(
    Hostile,
    lambda self: (((jax.tree_util.GetAttrKey("x"), self.x),), None),
    lambda _, children: Hostile(*children),
)


def test_hostile_special_methods_are_not_called() -> None:
    """Comparison, truth, length, iteration and repr of the user's objects are left alone."""
    assert check_pytree({"a": [Hostile(X)]}).findings == ()


def test_large_objects_are_affordable() -> None:
    """No Jacobian of a large array is made: its identity matrix would fill the memory."""
    assert check_pytree({"weights": np.ones(300_000, np.float32)}).findings == ()


def test_object_survives_the_check() -> None:
    """Donation and copies leave the leaves of the object alive and unchanged."""
    node = Node(jnp.arange(4.0))
    leaf = node.x
    check_pytree(node)
    assert node.x is leaf
    assert leaf.sum() == 6


leaves = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-5, 5),
    st.floats(-1, 1),
    st.text(max_size=3),
    st.builds(lambda shape: jnp.ones(shape), st.sampled_from([(), (0,), (2,)])),
    st.builds(lambda dtype: np.ones(2, dtype), st.sampled_from(["f4", "i4", "bool", "c8"])),
)
containers = st.recursive(
    leaves,
    lambda children: st.one_of(
        st.lists(children, max_size=3),
        st.tuples(children, children),
        st.dictionaries(st.text(max_size=2), children, max_size=3),
        st.builds(Pair, children, children),
        st.builds(Data, children, children),
        st.builds(Node, children),
        st.builds(Slots, children, children),
    ),
    max_leaves=6,
)


@given(containers)
@settings(max_examples=15, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
def test_generated_containers(tree: Any) -> None:
    """Nested containers of arrays, numbers, None, text and custom nodes give no finding at all."""
    assert check_pytree(tree).findings == ()
