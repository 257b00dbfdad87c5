"""A second object that is built alike: by the caller's own function, or by the class's constructor.

Two objects from the same constructor must have equal treedefs. Where each parameter of the
constructor is kept in an attribute of that name (``loc`` in ``loc`` or ``_loc``), the object can
be built again, with the same values, with other values, and inside ``jit``. A constructor that
does not give the same object again is left alone.
"""

from __future__ import annotations

import dataclasses
import inspect
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp

from pytest_jaxleaks.hidden_values import tracer_symptoms
from pytest_jaxleaks.links import attributes
from pytest_jaxleaks.pytree_causes import treedef_difference
from pytest_jaxleaks.pytree_contract import difference_symptom
from pytest_jaxleaks.pytree_subject import first_line, is_data, same_value, type_name

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from pytest_jaxleaks.pytree_findings import Symptom
    from pytest_jaxleaks.pytree_subject import Subject

__all__ = ["Recipe", "construction_symptoms", "like_symptoms", "recipe_of"]


@dataclasses.dataclass(frozen=True)
class Recipe:
    """A function and the arguments from which it builds the object.

    Attributes:
        build: the function or class.
        args: its positional arguments.
        kwargs: its keyword arguments.
        traced: what of the arguments may be traced: every array for a function that the caller
            names, and only jax arrays and leaves of the object for a constructor.
        twin: what it built from the same arguments.
        again: what it built the second time.
    """

    build: Callable[..., Any]
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    traced: Callable[[Any], bool]
    twin: Any
    again: Any

    def with_arrays(self, change: Callable[[Any], Any]) -> Any:
        """Build from arguments whose arrays have gone through ``change``."""
        args, kwargs = self._with(change)
        return self.build(*args, **kwargs)

    def _with(self, change: Callable[[Any], Any]) -> Any:
        """Return the arguments with ``change`` applied to what of them may be traced."""
        return _mapped(
            lambda leaf: change(leaf) if self.traced(leaf) else leaf, (self.args, self.kwargs)
        )

    def inside_jit(self) -> Any:
        """Build inside ``jit``, with the arrays among the arguments traced, and return the object.

        As ``jit`` does, the leaves leave the trace as outputs and the treedef as it is.
        """
        given_arrays: list[Any] = []
        self._with(lambda leaf: given_arrays.append(leaf))
        outside: list[Any] = []

        def build(arrays: list[Any]) -> list[Any]:
            given = iter(arrays)
            args, kwargs = self._with(lambda _: next(given))
            built, structure = jax.tree.flatten(self.build(*args, **kwargs))
            data = [is_data(leaf) for leaf in built]
            outside[:] = [
                structure,
                data,
                [None if d else x for d, x in zip(data, built, strict=True)],
            ]
            return [leaf for leaf, out in zip(built, data, strict=True) if out]

        arrays = jax.jit(build)(given_arrays)
        structure, data, fixed = outside
        given = iter(arrays)
        return jax.tree.unflatten(
            structure, [next(given) if out else x for out, x in zip(data, fixed, strict=True)]
        )


def _mapped(change: Callable[[Any], Any], value: Any) -> Any:
    """Map over the leaves as ``jax.tree.map`` does, and keep the order of keys in dicts."""

    def is_dict(child: Any) -> bool:
        return type(child) is dict

    def inner(child: Any) -> Any:
        if is_dict(child):
            return {key: _mapped(change, held) for key, held in child.items()}
        return change(child)

    return jax.tree.map(inner, value, is_leaf=is_dict)


def recipe_of(
    subject: Subject, build: Callable[..., Any] | None, args: Sequence[Any]
) -> Recipe | None:
    """Return how to build the object again, or None where nothing is known or it cannot be trusted.

    Args:
        subject: the object.
        build: the caller's function, with ``args``, or None to try the class's constructor.
        args: its arguments.
    """
    if build is not None:
        twin, again = (build(*args) for _ in range(2))
        return Recipe(build, tuple(args), {}, lambda leaf: isinstance(leaf, jax.Array), twin, again)
    return _constructor_recipe(subject, optional=True)


def _constructor_recipe(subject: Subject, optional: bool) -> Recipe | None:
    """Try the class's constructor, with a value for optional parameters or without."""
    kwargs = _constructor_arguments(subject.obj, optional)
    if kwargs is None:
        return None
    own = {id(leaf) for leaf in subject.data_leaves()}

    def traced(leaf: Any) -> bool:
        return isinstance(leaf, jax.Array) or (hasattr(leaf, "dtype") and id(leaf) in own)

    try:
        twin, again = (type(subject.obj)(**kwargs) for _ in range(2))
        trusted = _same(subject, twin) or _unstable(subject, twin, again)
    except Exception:  # the attributes are not what the constructor takes
        return None
    return Recipe(type(subject.obj), (), kwargs, traced, twin, again) if trusted else None


def _constructor_arguments(obj: Any, optional: bool) -> dict[str, Any] | None:
    """Read the arguments of the constructor from the attributes of their names.

    Args:
        obj: the object.
        optional: give a value to parameters with a default too. Without it the constructor
            computes by itself what it keeps, such as a number that it reads from an array.
    """
    if type(obj).__module__ == "builtins" or isinstance(obj, tuple):
        return None
    fields = dict(attributes(obj))
    try:
        parameters = inspect.signature(type(obj)).parameters.values()
    except (TypeError, ValueError):
        return None
    found = {}
    for parameter in parameters:
        held = [name for name in (parameter.name, f"_{parameter.name}") if name in fields]
        if parameter.kind is parameter.VAR_KEYWORD:
            continue
        if parameter.kind in (parameter.VAR_POSITIONAL, parameter.POSITIONAL_ONLY):
            return None
        if held and (optional or parameter.default is parameter.empty):
            found[parameter.name] = fields[held[0]]
        elif parameter.default is parameter.empty:
            return None
    return found


def _same(subject: Subject, twin: Any) -> bool:
    """Whether the constructor gave the same object again."""
    if type(twin) is not type(subject.obj):
        return False
    leaves, treedef = jax.tree.flatten(twin)
    if len(leaves) != len(subject.leaves) or not all(map(same_value, subject.leaves, leaves)):
        return False
    return treedef_difference(subject.treedef, treedef) is None


def _unstable(subject: Subject, twin: Any, again: Any) -> bool:
    """Whether the constructor gives another treedef each time: that needs no comparison."""
    if not type(twin) is type(again) is type(subject.obj):
        return False
    return treedef_difference(jax.tree.structure(twin), jax.tree.structure(again)) is not None


def like_symptoms(subject: Subject, like: Any) -> Iterator[Symptom]:
    """Compare with an object that the caller says is built alike."""
    treedef = jax.tree.structure(like)
    doing = "compared with the object given as like"
    yield from difference_symptom(subject.treedef, treedef, doing, subject.obj, always=True)


def construction_symptoms(subject: Subject, recipe: Recipe) -> Iterator[Symptom | str]:
    """Build the object again; yield symptoms, and reasons (as text) why something was skipped."""
    twin, again = jax.tree.structure(recipe.twin), jax.tree.structure(recipe.again)
    doing = "built twice from the same values"
    found = list(difference_symptom(twin, again, doing, subject.obj, not _is_marker(twin, again)))
    yield from found
    if not found:
        yield from _from_other_values(subject, recipe)
        yield from _by_its_defaults(subject, recipe)
    yield from _inside_jit(subject, recipe)


def _by_its_defaults(subject: Subject, recipe: Recipe) -> Iterator[Symptom]:
    """Build the object from what the constructor demands, and let it find the rest by itself."""
    plain = None if recipe.args else _constructor_recipe(subject, optional=False)
    if plain is None or plain.kwargs.keys() == recipe.kwargs.keys():
        return
    if _same(subject, plain.twin):
        yield from _from_other_values(subject, plain)
        return
    twin, again = jax.tree.structure(plain.twin), jax.tree.structure(plain.again)
    doing = "built twice with the same defaults"
    yield from difference_symptom(twin, again, doing, subject.obj, not _is_marker(twin, again))


def _is_marker(one: Any, other: Any) -> bool:
    """Whether two treedefs differ in a bare ``object()``: it is there to be unequal to others."""
    found = treedef_difference(one, other)
    return found is not None and type(found.left) is object


def _from_other_values(subject: Subject, recipe: Recipe) -> Iterator[Symptom]:
    try:
        other = jax.tree.structure(recipe.with_arrays(_nudged))
    except Exception:  # other values may be no valid arguments
        return
    yield from difference_symptom(
        subject.treedef, other, "built from other values", subject.obj, True
    )


def _nudged(leaf: Any) -> Any:
    """Another value of the same shape and dtype, close enough to be as valid as the first."""
    array = jnp.asarray(leaf)
    if not jnp.issubdtype(array.dtype, jnp.inexact):
        return leaf
    return jnp.where(array == 0, 1e-3, array * 1.01).astype(array.dtype)


def _inside_jit(subject: Subject, recipe: Recipe) -> Iterator[Symptom | str]:
    name = type_name(subject.obj)
    try:
        found = recipe.inside_jit()
    except Exception as error:
        yield f"construction of {name} inside jit: {first_line(error)}"
        return
    yield from tracer_symptoms(found, "built inside jit")
