"""Hints are code that runs, and what they make of a broken object is mended."""

from __future__ import annotations

import collections
import dataclasses
from typing import TYPE_CHECKING, Any, NamedTuple

import distrax
import equinox as eqx
import jax
import jax.numpy as jnp
import pytest

from pytest_jaxleaks import PytreeCheckError, check_pytree
from pytest_jaxleaks import pytree_hints as hints

if TYPE_CHECKING:
    import numpy as np

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
    namespace = {
        "jax": jax,
        "jnp": jnp,
        "eqx": eqx,
        "dataclasses": dataclasses,
        "Any": Any,
        **names,
    }
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


class Weight:
    """The function that unflattens runs the constructor, which converts."""

    def __init__(self, x: Any) -> None:
        self.x = jnp.asarray(x)


jax.tree_util.register_pytree_node(
    Weight, lambda self: ((self.x,), None), lambda _, children: Weight(*children)
)


def test_unflatten_as_a_function() -> None:
    """A class that was registered with functions gets a function, which mends it."""
    mended = type("Weight", (Weight,), {})
    unflatten = run(hint_for(Weight(X)), Weight=mended)["unflatten"]
    jax.tree_util.register_pytree_node(mended, lambda self: ((self.x,), None), unflatten)
    check_pytree(mended(X))


@jax.tree_util.register_dataclass
@dataclasses.dataclass
class Flag:
    """JAX calls the class of a dataclass with its fields: this constructor has other parameters."""

    x: Any

    def __init__(self, *, on: Any) -> None:
        self.x = on


@jax.tree_util.register_dataclass
@dataclasses.dataclass
class Converted:
    """JAX runs ``__post_init__`` of a dataclass in every unflatten."""

    x: Any

    def __post_init__(self) -> None:
        self.x = jnp.asarray(self.x)


@pytest.mark.parametrize("obj", [Flag(on=X), Converted(X)], ids=lambda obj: type(obj).__name__)
def test_dataclass_without_its_constructor(obj: Any) -> None:
    """A method would not be asked: a dataclass is mended by the constructor that it is given."""
    check_pytree(run(hint_for(obj))[type(obj).__name__](x=X))


class Rate:
    """Flatten makes an array of a number."""

    def __init__(self, rate: float) -> None:
        self.rate = rate


jax.tree_util.register_pytree_node(
    Rate, lambda self: ((jnp.asarray(self.rate),), None), lambda _, children: Rate(*children)
)


def test_number_that_flatten_converts_stays_a_leaf() -> None:
    """The number is a leaf of the mended class as well, and no static field."""
    mended = run(hint_for(Rate(2.0)))["Rate"](rate=2.0)
    assert jax.tree.leaves(mended) == [2.0]
    check_pytree(mended)


class Params(dict):  # type: ignore[type-arg]
    """JAX takes no subclass of dict for a dict."""


class Stack(list):  # type: ignore[type-arg]
    """JAX takes no subclass of list for a list."""


@pytest.mark.parametrize("inside", [False, True])
@pytest.mark.parametrize(("cls", "content"), [(Params, {"b": X, "a": X}), (Stack, [X, X])])
def test_container_is_registered(cls: type, content: Any, inside: bool) -> None:
    """A subclass of dict or list gets a registration that works, also inside of another object."""
    broken = cls(content)
    hint = hint_for({"params": broken} if inside else broken)
    mended = type(cls.__name__, (cls,), {})
    run(hint, **{cls.__name__: mended})
    check_pytree({"params": mended(content)})
    assert jax.tree.map(lambda leaf: leaf, mended(content)) == content


class Closing:
    """The function of an instance closes over its array."""

    def __init__(self, x: Any, call: Any = None) -> None:
        self.x, self.call = x, call or (lambda y: x * y)


jax.tree_util.register_pytree_node(
    Closing,
    lambda self: ((self.x,), self.call),
    lambda call, children: Closing(children[0], call),
)


@pytest.mark.parametrize(
    "make", [lambda: Closing(X), lambda: {"call": Closing(X).call, "x": X}], ids=["class", "dict"]
)
def test_array_behind_a_function_becomes_a_leaf(make: Any) -> None:
    """The partial of the hint has the array that was hidden for a leaf."""
    function = run(hint_for(make()), hidden=2 * X)["function"]
    check_pytree({"x": X, "call": function}, probe=lambda tree: tree["call"](tree["x"]))
    assert jnp.array_equal(function(X), 2 * X * X)


class Table(eqx.Module):
    """An array is filed under static data."""

    x: Any
    table: Any = eqx.field(static=True)
    name: str = eqx.field(static=True)


@pytest.mark.filterwarnings("ignore:A JAX array is being set as static")
def test_module_stays_a_module() -> None:
    """The mended class of an equinox module is one."""
    namespace = run(hint_for(Table(X, 2 * X, "sines")))
    mended = namespace["Table"](x=X, table=2 * X, name="sines")
    assert isinstance(mended, eqx.Module)
    assert len(jax.tree.leaves(mended)) == 2
    check_pytree(mended)


@jax.tree_util.register_dataclass
@dataclasses.dataclass
class State:
    """One field gets its array later."""

    x: Any
    cache: jax.Array | None = None


class Pair(NamedTuple):
    """So does one here."""

    x: Any
    cache: jax.Array | None = None


@pytest.mark.parametrize("obj", [State(X), Pair(X)], ids=lambda obj: type(obj).__name__)
def test_field_that_gets_its_array_later(obj: Any) -> None:
    """It is a limit, breakage on demand, and gone when the field has an array from the start."""
    (limit,) = check_pytree({"state": obj}).findings
    name = type(obj).__name__
    assert (limit.kind, limit.contract) == ("limit", "treedef")
    assert limit.cause == f"the treedef of {name} changes when its field cache gets an array"
    assert limit.symptoms[0].startswith("['state'].cache is None")
    with pytest.raises(PytreeCheckError, match="its field cache"):
        check_pytree(obj, through=["optional-fields"])
    assert limit.hint is not None
    mended = run(limit.hint, obj=obj)["obj"]
    assert check_pytree(mended, through=["optional-fields"]).findings == ()


def test_field_that_is_static_or_no_array_may_be_none() -> None:
    """Static fields, and those that never hold arrays, are no news."""

    @jax.tree_util.register_dataclass
    @dataclasses.dataclass
    class Options:
        x: Any
        table: np.ndarray | None = dataclasses.field(default=None, metadata={"static": True})
        name: str | None = None

    assert check_pytree(Options(X)).findings == ()


class Bare:
    """JAX knows nothing of this class."""

    def __init__(self, x: Any) -> None:
        self.x = x


def test_the_object_that_hides_is_mended() -> None:
    """The hint mends the object that hides an array, and not the container around it."""
    mended = run(hint_for([{"bare": Bare(X)}]))["Bare"](x=X)
    check_pytree([{"bare": mended}])


def test_the_installed_object_is_built() -> None:
    """Inside of a container it is the distribution that is built again, and not the container."""
    hint = hint_for({"prior": distrax.MultivariateNormalDiag(X, X)})
    assert "obj = MultivariateNormalDiag(*params)" in hint


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
