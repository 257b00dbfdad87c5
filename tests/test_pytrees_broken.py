"""Nodes that break the pytree contract: each is found, and the finding names what is to blame."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from pytest_jaxleaks import PytreeCheckError, check_pytree
from pytest_jaxleaks.pytrees import DEFAULT_THROUGH

if TYPE_CHECKING:
    from collections.abc import Callable

    from pytest_jaxleaks import PytreeFinding

X = jnp.array([1.0, 2.0, 3.0])
AttrKey = jax.tree_util.GetAttrKey


def broken(obj: Any, **options: Any) -> tuple[PytreeFinding, ...]:
    """Return the broken findings of ``obj``, which must have some; through jit only, for speed."""
    options.setdefault("through", ("jit",))
    with pytest.raises(PytreeCheckError) as info:
        check_pytree(obj, **options)
    return info.value.report.broken


def filled(cls: type, **fields: Any) -> Any:
    """Make an instance without running its constructor."""
    self = object.__new__(cls)
    vars(self).update(fields)
    return self


def node(
    name: str,
    fields: str,
    flatten: Callable[[Any], tuple[Any, Any]],
    unflatten: Callable[[type, Any, Any], Any],
    **members: Any,
) -> type:
    """Define and register a class whose constructor stores the named fields."""

    def __init__(self: Any, *values: Any) -> None:  # noqa: N807
        vars(self).update(zip(fields.split(), values, strict=False))

    cls = type(name, (), {"__init__": __init__, **members})
    jax.tree_util.register_pytree_node(
        cls, flatten, lambda aux, children: unflatten(cls, aux, children)
    )
    return cls


def with_aux(name: str, **members: Any) -> type:
    """Define a healthy class with a leaf ``x`` and static data ``aux``."""
    return node(
        name,
        "x aux",
        lambda self: ((self.x,), self.aux),
        lambda cls, aux, children: filled(cls, x=children[0], aux=aux),
        **members,
    )


def with_leaf(name: str, build: Callable[[type, Any], Any], **members: Any) -> type:
    """Define a class with a leaf ``x`` that unflatten builds with ``build``."""
    return node(
        name,
        "x",
        lambda self: ((self.x,), None),
        lambda cls, _, children: build(cls, children[0]),
        **members,
    )


HoldsStatic = with_aux("HoldsStatic")


def closure_over(value: Any) -> Any:
    """Return a function that closes over ``value``."""
    return lambda x: x * value


class Plain:
    """An object that JAX knows nothing of."""

    def __init__(self, **fields: Any) -> None:
        vars(self).update(fields)

    def method(self, x: Any) -> Any:
        """Use the first field."""
        return x * next(iter(vars(self).values()))


class Slotted:
    """An object without a dict."""

    __slots__ = ("table",)


def slotted(value: Any) -> Slotted:
    """Return an object that holds ``value`` in a slot."""
    self = Slotted()
    self.table = value
    return self


def in_object_array(value: Any) -> np.ndarray:
    """Return a numpy array of objects with ``value`` among them."""
    array = np.empty(2, dtype=object)
    array[0] = value
    return array


def cached(value: Any) -> Any:
    """Return a cached function that has been called."""
    function = functools.lru_cache(lambda n: value * n)
    function(2)
    return function


def defaulted(value: Any) -> Any:
    """Return a function with ``value`` for a default."""

    def scale(x: Any, by: Any = value, *, also: Any = None) -> Any:
        return x * by

    return scale


HIDING_PLACES = {
    "closure": (closure_over, "closure variable 'value' of closure_over"),
    "default argument": (defaulted, "default argument 'by' of defaulted.scale"),
    "partial": (lambda v: functools.partial(jnp.add, v), "argument 0 of partial"),
    "partial keyword": (lambda v: functools.partial(defaulted(1), also=v), "argument 'also'"),
    "bound method": (lambda v: Plain(w=v).method, "bound method 'method' of Plain -> Plain.w"),
    "attribute": (lambda v: Plain(config=Plain(table=[v])), "Plain.config -> Plain.table"),
    "slot": (slotted, "Slotted.table"),
    "dict": (lambda v: {"memo": v}, "dict['memo']"),
    "lru_cache": (cached, "cache of cached"),
    "jitted closure": (lambda v: jax.jit(closure_over(v)), "closure variable 'value'"),
    "object array": (in_object_array, "ndarray[0]"),
    "array itself": (lambda v: v, "HoldsStatic.aux"),
}


@pytest.mark.parametrize("place", HIDING_PLACES)
def test_array_in_static_data_is_named(place: str) -> None:
    """Whatever way an array takes into static data, the finding says which way that is."""
    hide, words = HIDING_PLACES[place]
    findings = broken(HoldsStatic(X, hide(2 * X)))
    assert [finding.contract for finding in findings] == ["nothing-hides"]
    assert words in findings[0].cause


@pytest.mark.parametrize("place", HIDING_PLACES)
def test_tracer_in_static_data_is_found_after_jit(place: str) -> None:
    """An object that jit returned with a tracer in its static data is broken, and names the way."""
    hide, words = HIDING_PLACES[place]
    kept = []

    @jax.jit
    def build(x: Any) -> Any:
        kept.append(hide(2 * x))
        return x

    x = build(X)
    findings = broken(HoldsStatic(x, kept.pop()))
    assert findings[0].contract == "nothing-hides"
    assert words in findings[0].cause


def test_array_behind_an_opaque_leaf_is_found() -> None:
    """An object that JAX cannot flatten hides its arrays, also inside of a container."""
    (finding,) = broken({"config": Plain(table=X)})
    assert finding.contract == "nothing-hides"
    assert "dict['config'] -> Plain.table" in finding.cause


def test_closure_in_an_equinox_field_is_found() -> None:
    """A function in an ordinary field of a module hides what it closes over."""

    class Model(eqx.Module):
        weight: jax.Array
        apply: Any

    (finding,) = broken(Model(X, closure_over(2 * X)))
    assert finding.contract == "nothing-hides"
    assert "Model.apply -> closure variable 'value'" in finding.cause


def test_static_jax_array_in_an_equinox_field_is_found() -> None:
    """A jax array in a static field is hidden; the three symptoms of it are one finding."""

    class Layer(eqx.Module):
        weight: jax.Array
        scale: Any = eqx.field(static=True)

    with pytest.warns(UserWarning, match="static"):
        findings = broken(Layer(X, jnp.sum(X)))
    assert [finding.contract for finding in findings] == ["nothing-hides"]
    assert "Layer.scale" in findings[0].cause
    assert "copies" in findings[0].contracts or "treedef" in findings[0].contracts


def test_bound_method_of_the_object_itself_is_stale() -> None:
    """A bound method that unflatten carries over still uses the leaves of the first object."""

    class Model:
        def __init__(self, x: Any) -> None:
            self.x = x
            self.call = self.apply

        def apply(self, y: Any) -> Any:
            return self.x * y

    jax.tree_util.register_pytree_node(
        Model,
        lambda self: ((self.x,), self.call),
        lambda call, children: filled(Model, x=children[0], call=call),
    )
    (finding,) = broken(Model(np.ones(3)))
    assert finding.contract == "nothing-hides"
    assert "bound method 'apply' of Model -> Model.x" in finding.cause


_REGISTRY: dict[int, Any] = {}


def test_array_that_unflatten_looks_up_in_a_registry_is_hidden() -> None:
    """An array that lives in a global table, with its key in the static data, hides as well."""

    class Looked:
        def __init__(self, x: Any, w: Any) -> None:
            self.x, self.w = x, w
            _REGISTRY[id(w)] = w

    jax.tree_util.register_pytree_node(
        Looked,
        lambda self: ((self.x,), id(self.w)),
        lambda key, children: filled(Looked, x=children[0], w=_REGISTRY[key]),
    )
    findings = broken(Looked(X, 2 * X))
    assert findings[0].contract == "nothing-hides"
    assert "Looked.w" in findings[0].cause
    _REGISTRY.clear()


def test_lost_attribute() -> None:
    """An attribute that is neither child nor static data is missing after a round trip."""
    Lossy = with_leaf("Lossy", lambda cls, x: filled(cls, x=x))
    obj = Lossy(X)
    obj.unit = "km"
    (finding,) = broken(obj)
    assert finding.contract == "round-trip"
    assert "unit of Lossy" in finding.cause
    assert "unit was 'km' and is missing after a round trip" in finding.symptoms


def test_lost_array() -> None:
    """An array that flatten forgets is missing after a round trip."""
    Lossy = with_leaf("Lossy", lambda cls, x: filled(cls, x=x))
    obj = Lossy(X)
    obj.extra = 2 * X
    (finding,) = broken(obj)
    assert finding.contract == "round-trip"
    assert "extra of Lossy" in finding.cause


def test_attribute_with_another_value() -> None:
    """An attribute that unflatten resets to a default is found by its value."""
    Resets = with_leaf("Resets", lambda cls, x: filled(cls, x=x, order=1))
    obj = Resets(X)
    obj.order = 4
    (finding,) = broken(obj)
    assert "order was 4 and is 1 after a round trip" in finding.symptoms


def test_attribute_that_was_set_later() -> None:
    """A flag that was set after construction falls back on what the constructor sets."""

    class Flagged:
        def __init__(self, x: Any) -> None:
            self.x = x
            self.training = False

    jax.tree_util.register_pytree_node(
        Flagged, lambda self: ((self.x,), None), lambda _, children: Flagged(*children)
    )
    obj = Flagged(X)
    obj.training = True
    (finding,) = broken(obj)
    assert "training was True and is False after a round trip" in finding.symptoms


def test_swapped_children_of_equal_value() -> None:
    """Children in another order are found although jit swaps them twice and their values agree."""
    Range = node(
        "Range",
        "low high",
        lambda self: ((self.high, self.low), None),
        lambda cls, _, children: cls(*children),
    )
    (finding,) = broken(Range(X, X + 0))
    assert finding.contract == "round-trip"
    assert "order" in finding.cause


def test_one_child_twice() -> None:
    """A child that is flattened in the place of another is found by the attribute it overwrites."""
    Twice = node(
        "Twice",
        "x y",
        lambda self: ((self.x, self.x), None),
        lambda cls, _, children: cls(*children),
    )
    (finding,) = broken(Twice(X, 2 * X))
    assert finding.contract == "round-trip"
    assert "y of Twice" in finding.cause


def test_unflatten_builds_the_parent_class() -> None:
    """A subclass that unflatten turns into its parent is found by its type."""

    class Base:
        def __init__(self, w: Any) -> None:
            self.w = w

    class Child(Base):
        pass

    jax.tree_util.register_pytree_node(
        Child, lambda self: ((self.w,), None), lambda _, children: Base(*children)
    )
    (finding,) = broken(Child(X))
    assert finding.contract == "round-trip"
    assert "another type" in finding.cause


def test_constructor_that_unflatten_cannot_call() -> None:
    """When unflatten itself raises, everything that follows from it is one finding."""

    class Named:
        def __init__(self, *, x: Any) -> None:
            self.x = x

    jax.tree_util.register_pytree_node(
        Named, lambda self: ((self.x,), None), lambda _, children: Named(*children)
    )
    (finding,) = broken(Named(x=X))
    assert finding.contract == "round-trip"
    assert "TypeError" in finding.cause
    assert len(finding.contracts) > 1


def test_flatten_that_changes_the_object() -> None:
    """A flatten that stores something makes the next one differ."""

    class Lazy:
        def __init__(self, w: Any, norm: Any = None) -> None:
            self.w, self.norm = w, norm

    def flatten(self: Lazy) -> tuple[Any, None]:
        children = self.w, self.norm
        self.norm = 1.0
        return children, None

    jax.tree_util.register_pytree_node(Lazy, flatten, lambda _, children: Lazy(*children))
    findings = broken(Lazy(X))
    assert findings[0].contract == "round-trip"
    assert "flattening changes Lazy" in findings[0].cause


def test_not_a_pytree() -> None:
    """An object of a class that nobody registered is told from a leaf."""
    (finding,) = broken(Plain(x=X))
    assert "Plain is no pytree" in finding.cause


def test_fresh_static_data_for_each_flatten() -> None:
    """A function that each flatten makes anew makes the object unequal to itself."""
    Fresh = node(
        "Fresh",
        "x",
        lambda self: ((self.x,), (1, lambda v: v)),
        lambda cls, _, children: cls(*children),
    )
    (finding,) = broken(Fresh(X))
    assert finding.contract == "treedef"
    assert "aux data of Fresh[1]" in finding.cause


def test_fresh_static_data_for_each_instance() -> None:
    """Static data without equality that a constructor makes is found by building a second one."""

    class Configured:
        def __init__(self, x: Any) -> None:
            self.x = x
            self.config = Plain(size=3)

    jax.tree_util.register_pytree_node(
        Configured,
        lambda self: ((self.x,), self.config),
        lambda config, children: filled(Configured, x=children[0], config=config),
    )
    (finding,) = broken([{"model": Configured(X)}])
    assert finding.contract == "treedef"
    assert "a Plain object, two of them: equal only to itself" in finding.cause


_NUMBERS = iter(range(1000))


def test_number_of_each_instance_in_static_data() -> None:
    """A serial number makes every treedef another one: two objects of one recipe show it."""

    class Numbered:
        def __init__(self, x: Any) -> None:
            self.x = x
            self.number = next(_NUMBERS)

    jax.tree_util.register_pytree_node(
        Numbered,
        lambda self: ((self.x,), self.number),
        lambda number, children: filled(Numbered, x=children[0], number=number),
    )
    (finding,) = broken(Numbered(X))
    assert finding.contract == "treedef"
    assert "built twice" in finding.symptoms[0]


def test_static_data_that_depends_on_values() -> None:
    """Static data that is computed from the leaves makes jit trace again for each value."""

    class Peaked:
        def __init__(self, x: Any) -> None:
            self.x = x
            self.peak = float(np.max(np.asarray(x)))

    jax.tree_util.register_pytree_node(
        Peaked,
        lambda self: ((self.x,), self.peak),
        lambda peak, children: filled(Peaked, x=children[0], peak=peak),
    )
    (finding,) = broken(Peaked(X))
    assert finding.contract == "treedef"
    assert "built from other values" in finding.symptoms[0]


@pytest.mark.parametrize("wrap", [lambda a: a, lambda a: (a,), lambda a: {"mask": a}])
def test_numpy_array_in_static_data(wrap: Callable[[Any], Any]) -> None:
    """A bare numpy array in static data cannot be compared: two equal objects raise in jit."""
    (finding,) = broken(HoldsStatic(X, wrap(np.arange(3))))
    assert finding.contract == "treedef"
    assert "numpy array" in finding.cause
    assert "comparison raises ValueError" in finding.cause


def test_what_cannot_be_compared_stays_out_of_jaxs_caches() -> None:
    """A broken object does not make the next one of its type fail in jit."""
    Holds = with_aux("Holds")
    with pytest.raises(PytreeCheckError, match="static data cannot be compared"):
        check_pytree(Holds(X, np.arange(3)))
    assert check_pytree(Holds(X, [1, 2, 3]))


def test_nan_in_static_data() -> None:
    """A NaN in static data is not equal to itself once it has been pickled."""
    Nan = with_aux("Nan")
    globals()["Nan"] = Nan
    Nan.__module__, Nan.__qualname__ = __name__, "Nan"
    findings = broken(Nan(X, float("nan")))
    assert "nan" in findings[0].cause


def test_like_compares_structures() -> None:
    """A second object with another structure is refused, as scan would."""
    (finding,) = broken({"x": X, "cache": None}, like={"x": X, "cache": X})
    assert finding.contract == "treedef"
    assert "structure differs" in finding.cause


@pytest.mark.parametrize(
    ("name", "build", "words"),
    [
        ("converts", lambda cls, x: filled(cls, x=jnp.asarray(x)), "JAX"),
        ("casts to float", lambda cls, x: filled(cls, x=float(x)), "float()"),
        ("reads a shape", lambda cls, x: filled(cls, x=x, n=x.shape), "'shape'"),
        ("rejects None", lambda cls, x: filled(cls, x=x) if x is not None else 1 / 0, "division"),
    ],
)
def test_unflatten_that_uses_its_leaves(name: str, build: Any, words: str) -> None:
    """An unflatten that works on its leaves fails for a placeholder: one finding says where."""
    Using = with_leaf("Using", build)
    obj = filled(Using, x=X if name != "casts to float" else 2.0)
    if name == "reads a shape":
        obj.n = (3,)
    (finding,) = broken(obj)
    assert finding.contract == "placeholders"
    assert words in finding.cause
    assert "test_pytrees_broken.py" in finding.cause


def test_unflatten_that_computes_with_arrays_only() -> None:
    """An unflatten that computes is found although it is idempotent and lets placeholders be."""

    def build(cls: type, x: Any) -> Any:
        return filled(cls, x=x / jnp.sum(x) if isinstance(x, jax.Array) else x)

    (finding,) = broken(with_leaf("Normalised", build)(X / jnp.sum(X)))
    assert finding.contract == "placeholders"
    assert "computes" in finding.cause


def test_flatten_that_reads_a_shape() -> None:
    """A flatten that reads the shape of its leaf fails for the objects that vmap puts there."""
    Shaped = node(
        "Shaped",
        "x",
        lambda self: ((self.x,), self.x.shape),
        lambda cls, _, children: cls(*children),
    )
    (finding,) = broken(Shaped(X))
    assert finding.contract == "placeholders"
    assert "'object' object has no attribute 'shape'" in finding.cause


def test_namedtuple_that_validates() -> None:
    """A validating ``__new__`` of a namedtuple is found as well."""
    import collections

    class Point(collections.namedtuple("Point", "x y")):
        def __new__(cls, x: Any, y: Any) -> Any:
            if x is None or y is None:
                raise TypeError("coordinates must not be None")
            return super().__new__(cls, x, y)

    (finding,) = broken(Point(X, X))
    assert finding.contract == "placeholders"
    assert "coordinates must not be None" in finding.cause


def test_key_paths_in_another_order() -> None:
    """Key paths that come with the leaves in another order are found."""

    class Pair:
        def __init__(self, a: Any, b: Any) -> None:
            self.a, self.b = a, b

    jax.tree_util.register_pytree_with_keys(
        Pair,
        lambda self: (((AttrKey("b"), self.b), (AttrKey("a"), self.a)), None),
        lambda _, children: Pair(*children),
        flatten_func=lambda self: ((self.a, self.b), None),
    )
    for pair in (Pair(1.0, 2.0), Pair(jnp.zeros(2), jnp.zeros(2)), Pair(X, X)):
        (finding,) = broken(pair)
        assert finding.contract == "key-paths"


def test_key_path_of_two_leaves() -> None:
    """Two leaves with one key path are found."""

    class Pair:
        def __init__(self, a: Any, b: Any) -> None:
            self.a, self.b = a, b

    jax.tree_util.register_pytree_with_keys(
        Pair,
        lambda self: (((AttrKey("a"), self.a), (AttrKey("a"), self.b)), None),
        lambda _, children: Pair(*children),
    )
    (finding,) = broken(Pair(X, 2 * X))
    assert finding.contract == "key-paths"
    assert "several leaves have the key path .a" in finding.symptoms


def test_deepcopy_that_changes_leaves() -> None:
    """A ``__deepcopy__`` that starts afresh is found."""
    Fresh = with_leaf(
        "Fresh",
        lambda cls, x: filled(cls, x=x),
        __deepcopy__=lambda self, _: filled(type(self), x=jnp.zeros(3)),
    )
    (finding,) = broken(Fresh(X))
    assert finding.contract == "copies"
    assert "deepcopy of Fresh changes the leaves" in finding.cause


def test_getattr_that_recurses_in_copies() -> None:
    """A ``__getattr__`` that needs attributes which a copy does not have yet is found."""
    Proxy = with_leaf(
        "Proxy",
        lambda cls, x: filled(cls, x=x),
        __getattr__=lambda self, name: getattr(self.x, name),
    )
    findings = broken(Proxy(X))
    assert findings[0].contract == "copies"
    assert "RecursionError" in findings[0].cause


_KEPT: list[Any] = []


def test_unflatten_that_keeps_its_leaves() -> None:
    """An unflatten that keeps a leaf outside keeps a tracer: the finding names the holder."""

    def build(cls: type, x: Any) -> Any:
        _KEPT.append(x)
        return filled(cls, x=x)

    findings = broken(with_leaf("Keeping", build)(X))
    _KEPT.clear()
    assert findings[0].contract == "construction"
    assert "_KEPT" in findings[0].cause


def test_probe_that_fails_after_a_round_trip() -> None:
    """Use that needs a lost private attribute is breakage: the probe shows it."""
    Private = with_leaf("Private", lambda cls, x: filled(cls, x=x))
    obj = Private(X)
    obj._scale = 2.0
    assert check_pytree(obj).limits[0].contract == "round-trip"
    findings = broken(obj, probe=lambda self: self.x * self._scale)
    assert "_scale" in "".join(finding.cause for finding in findings)


def test_probe_that_gives_another_result() -> None:
    """A probe whose result changes on the way is breakage, and the route is named."""
    Counting = with_aux("Counting")

    def probe(self: Any) -> Any:
        return self.x + isinstance(self.x, jax.core.Tracer)

    (finding,) = broken(Counting(X, "static"), probe=probe, through=DEFAULT_THROUGH)
    assert finding.contract == "through"
    assert finding.symptoms == (
        "used under vmap: the probe gives another result than on the original",
    )


def test_object_that_fails_at_once() -> None:
    """A probe that fails on the object itself is a finding, not an error of the check."""
    (finding,) = broken(HoldsStatic(X, None), probe=lambda self: self.missing)
    assert "the probe fails on the object itself" in finding.symptoms[0]


def test_build_is_called_inside_jit() -> None:
    """With ``build`` and ``args`` the object is built inside jit, which shows what hides there."""

    def build(x: Any) -> Any:
        return HoldsStatic(x, closure_over(x.sum()))

    findings = broken(HoldsStatic(X, jnp.tanh), build=build, args=(X,))
    texts = [text for finding in findings for text in finding.symptoms]
    assert any("built inside jit" in text and "tracer" in text for text in texts)


def test_independent_causes_are_separate_findings() -> None:
    """Two things that are wrong independently are two findings."""
    Both = with_aux("Both")
    obj = Both(X, closure_over(2 * X))
    obj.unit = "km"
    assert {finding.contract for finding in broken(obj)} == {"nothing-hides", "round-trip"}
