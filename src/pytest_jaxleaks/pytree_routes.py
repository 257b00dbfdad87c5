"""Send the object through transformations, and use it when it comes out again."""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np

from pytest_jaxleaks import pytree_hints as hints
from pytest_jaxleaks.hidden_values import tracer_symptoms
from pytest_jaxleaks.leaves import is_array_like
from pytest_jaxleaks.pytree_causes import cause_of
from pytest_jaxleaks.pytree_contract import difference_symptom
from pytest_jaxleaks.pytree_findings import Cause, Symptom
from pytest_jaxleaks.pytree_subject import first_line, same_value, take_apart, type_name

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from pytest_jaxleaks.pytree_subject import Subject

__all__ = ["DEEPER", "OTHER_RESULT", "ROUTES", "fails_for_bare_leaves", "run_route", "same_result"]

DEEPER = frozenset({"round-trip", "nothing-hides", "placeholders", "treedef", "key-paths"})
"""The parts of the contract whose breakage explains what goes wrong in a transformation."""


_LOOKS = (
    jax.errors.ConcretizationTypeError,
    jax.errors.NonConcreteBooleanIndexError,
    jax.errors.TracerArrayConversionError,
    jax.errors.TracerIntegerConversionError,
)


_MANY = 1_000
"""With more arrays than this, compilers need minutes: what can be, is traced only."""

_TRACED_ONLY = frozenset({"jit", "jit construction", "scan", "cond", "donation"})
_TOO_LONG = frozenset({"grad", "map"})


OTHER_RESULT = "the probe gives another result than on the original"


class RouteFailedError(Exception):
    """A route gave a result that cannot be right; the message says what is wrong."""


def _jit(subject: Subject) -> Any:
    return jax.jit(lambda obj: obj)(subject.dynamic)


def _jit_construction(subject: Subject) -> Any:
    def build(values: list[Any]) -> Any:
        return _dynamic_part(subject, subject.rebuilt_with(values))

    return jax.jit(build)(subject.data_leaves())


def _dynamic_part(subject: Subject, obj: Any) -> Any:
    if all(subject.data):
        return obj
    leaves = jax.tree.leaves(obj)
    kept = [leaf if data else None for leaf, data in zip(leaves, subject.data, strict=True)]
    return jax.tree.unflatten(subject.treedef, kept)


def _batched(subject: Subject) -> Any:
    """Build a batch of two equal objects under vmap."""
    values = [_stacked(leaf) for leaf in subject.data_leaves()]
    return jax.vmap(lambda leaves: _dynamic_part(subject, subject.rebuilt_with(leaves)))(values)


def _example_of(subject: Subject, batch: Any) -> Any:
    """Take the first example: only leaves have a batch axis, and static data is of one example."""
    leaves = _first(jax.tree.leaves(batch))
    return jax.tree.unflatten(jax.tree.structure(subject.dynamic), leaves)


def _stacked(leaf: Any) -> Any:
    array = jnp.asarray(leaf)
    if jnp.issubdtype(array.dtype, jax.dtypes.prng_key):
        return jnp.stack([array, array])
    return jnp.asarray(np.stack([np.asarray(array)] * 2))  # by numpy: nothing to compile


def _first(batch: Any) -> Any:
    def of(leaf: Any) -> Any:
        is_key = jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key)
        return leaf[0] if is_key else jnp.asarray(np.asarray(leaf)[0])

    return jax.tree.map(of, batch)


def _vmap(subject: Subject) -> Any:
    return _example_of(subject, jax.vmap(lambda obj: obj)(_batched(subject)))


def _grad(subject: Subject) -> None:
    """Differentiate with respect to the inexact leaves: the gradient must look like the object."""
    values = [jnp.asarray(value) for value in subject.data_leaves()]
    inexact = [jnp.issubdtype(value.dtype, jnp.inexact) for value in values]
    if not any(inexact):
        return
    if all(inexact):
        gradient = jax.jit(jax.grad(lambda obj: _energy(jax.tree.leaves(obj))))(subject.dynamic)
        got = jax.tree.leaves(gradient)
    else:
        got = _mixed_gradient(subject, values, inexact)
    chosen = [value for value, take in zip(values, inexact, strict=True) if take]
    if [leaf.shape for leaf in got] != [value.shape for value in chosen]:
        raise RouteFailedError("the gradient has other leaves than the object")
    with np.errstate(all="ignore"):
        expected = [2 * np.conj(np.asarray(value)) for value in chosen]
    if not all(map(_close, expected, got)):
        raise RouteFailedError("the gradient with respect to its leaves is wrong")


def _mixed_gradient(subject: Subject, values: list[Any], inexact: list[bool]) -> list[Any]:
    def energy(chosen: list[Any]) -> Any:
        remaining = iter(chosen)
        filled = [
            next(remaining) if take else value for value, take in zip(values, inexact, strict=True)
        ]
        leaves = jax.tree.leaves(subject.rebuilt_with(filled))
        data = [leaf for leaf, used in zip(leaves, subject.data, strict=True) if used]
        return _energy([leaf for leaf, take in zip(data, inexact, strict=True) if take])

    chosen = [value for value, take in zip(values, inexact, strict=True) if take]
    return list(jax.jit(jax.grad(energy))(chosen))


def _energy(leaves: list[Any]) -> Any:
    """The sum of squared absolute values, whose gradient is twice the conjugate leaf."""
    return sum(jnp.sum(jnp.real(leaf * jnp.conj(leaf))).astype(jnp.float32) for leaf in leaves)


def _eval_shape(subject: Subject) -> None:
    dynamic = subject.dynamic
    found = jax.eval_shape(lambda obj: obj, dynamic)
    if type(found) is not type(dynamic) and not jax.tree_util.all_leaves([dynamic]):
        raise RouteFailedError(f"the result is of type {type_name(found)}")
    # A node that drops placeholders when it is flattened again is the placeholders' business.
    leaves = jax.tree.leaves(found)
    expected = [jnp.shape(leaf) for leaf in jax.tree.leaves(dynamic)]
    if len(leaves) == len(expected) and [leaf.shape for leaf in leaves] != expected:
        raise RouteFailedError("the result has other shapes than the object")


def _scan(subject: Subject) -> Any:
    # Within jit, as JAX keeps what it compiles for control flow outside of it for a long time.
    def scan(obj: Any) -> Any:
        return jax.lax.scan(lambda carry, _: (carry, None), obj, None, length=2)[0]

    return jax.jit(scan)(_as_arrays(subject))


def _cond(subject: Subject) -> Any:
    def copied(obj: Any) -> Any:
        return jax.tree.map(lambda leaf: leaf, obj)

    def cond(obj: Any, choice: Any) -> Any:
        return jax.lax.cond(choice, lambda obj: obj, copied, obj)

    return jax.jit(cond)(_as_arrays(subject), np.asarray(True))


def _as_arrays(subject: Subject) -> Any:
    return jax.tree.map(jnp.asarray, subject.dynamic)


def _map(subject: Subject) -> Any:
    batch = jax.jit(lambda objs: jax.lax.map(lambda obj: obj, objs))(_batched(subject))
    return _example_of(subject, batch)


def _device(subject: Subject) -> Any:
    return jax.device_put(jax.device_get(subject.dynamic))


def _donation(subject: Subject) -> Any:
    copied = jax.tree.map(lambda leaf: jnp.array(leaf, copy=True), subject.dynamic)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=".*donated.*")
        return jax.jit(lambda obj: jax.tree.map(lambda leaf: leaf, obj), donate_argnums=0)(copied)


ROUTES: dict[str, Callable[[Subject], Any]] = {
    "jit": _jit,
    "jit construction": _jit_construction,
    "vmap": _vmap,
    "grad": _grad,
    "eval_shape": _eval_shape,
    "scan": _scan,
    "cond": _cond,
    "map": _map,
    "device": _device,
    "donation": _donation,
}
"""Each takes the subject and returns what came out (None where only its success counts)."""


def run_route(name: str, subject: Subject, probe: Any, expected: Any) -> Iterator[Symptom | str]:
    """Send the object through one transformation and compare it, and what ``probe`` says of it.

    Yields symptoms, and reasons (as text) for what was skipped.

    Args:
        name: a key of ``ROUTES``.
        subject: the object.
        probe: a function of the object that uses it, or None.
        expected: what ``probe`` returned for the object itself.
    """
    if name in _TOO_LONG and is_wide(subject):
        yield f"{name}: not tried, as there are {sum(subject.data)} arrays"
        return
    try:
        if name in _TRACED_ONLY and is_wide(subject):
            yield from _traced(name, subject)
            return
        found = ROUTES[name](subject)
        if found is None:
            return
        found = subject.restored(found)
        yield from tracer_symptoms(found, f"through {name}")
        yield from _compared(name, subject, found)
        if probe is not None:
            _compare_probe(expected, probe(found))
    except RouteFailedError as error:
        cause = Cause(f"route:{error}", f"{type_name(subject.obj)} through {name}: {error}")
        yield Symptom("through", f"through {name}: {error}", cause, implied_by=DEEPER)
    except Exception as error:
        cause = cause_of(error, f"{name} of {type_name(subject.obj)}", hints.skip_init(subject.obj))
        text = f"through {name}: {first_line(error)}"
        if fails_for_bare_leaves(ROUTES[name], subject, error):
            yield text
        else:
            yield Symptom("through", text, cause, implied_by=DEEPER)
    if name == "vmap" and probe is not None:
        yield from _used_under_vmap(subject, probe, expected)


def is_wide(subject: Subject) -> bool:
    """Whether the object has so many arrays that compilers need minutes for it."""
    return sum(subject.data) > _MANY


def _traced(name: str, subject: Subject) -> Iterator[Symptom]:
    """Trace a route without compiling it: what comes out has the right treedef, or has not."""
    came_out = []

    def through(values: list[Any]) -> list[Any]:
        found = ROUTES[name](take_apart(subject.rebuilt_with(values)))
        leaves, treedef = jax.tree.flatten(found)
        came_out.append((type(found), treedef))
        return [leaf for leaf in leaves if isinstance(leaf, jax.Array)]

    jax.make_jaxpr(through)(subject.data_leaves())
    cls, treedef = came_out[0]
    if cls is not type(subject.obj) and not jax.tree_util.treedef_is_leaf(treedef):
        raise RouteFailedError(f"comes back as {cls.__qualname__}")
    expected = jax.tree.structure(subject.dynamic)
    yield from difference_symptom(expected, treedef, f"through {name}", subject.obj)


def _compared(name: str, subject: Subject, found: Any) -> Iterator[Symptom]:
    leaves, treedef = jax.tree.flatten(found)
    if type(found) is not type(subject.obj) and not jax.tree_util.treedef_is_leaf(treedef):
        raise RouteFailedError(f"comes back as {type_name(found)}")
    yield from difference_symptom(subject.treedef, treedef, f"through {name}", subject.obj)
    if len(leaves) == len(subject.leaves) and not all(map(same_value, subject.leaves, leaves)):
        raise RouteFailedError("comes back with other leaves")


def _used_under_vmap(subject: Subject, probe: Any, expected: Any) -> Iterator[Symptom]:
    def use(obj: Any) -> Any:
        return _arrays(probe(subject.restored(obj)))  # vmap returns nothing else

    try:
        found = jax.vmap(use)(_batched(subject))
        _compare_probe(_arrays(expected), _first(found))
    except RouteFailedError as error:
        cause = Cause(
            f"route:{error}", f"used under vmap, {type_name(subject.obj)} differs: {error}"
        )
        yield Symptom("through", f"used under vmap: {error}", cause, implied_by=DEEPER)
    except Exception as error:
        cause = cause_of(error, f"use of {type_name(subject.obj)} under vmap")
        text = f"used under vmap: {first_line(error)}"
        # A probe that looks at values says nothing about the object.
        yield Symptom("through", text, cause, not isinstance(error, _LOOKS), implied_by=DEEPER)


def _arrays(result: Any) -> list[Any]:
    return [leaf for leaf in jax.tree.leaves(result) if is_array_like(leaf)]


def _compare_probe(expected: Any, found: Any) -> None:
    if not same_result(expected, found):
        raise RouteFailedError(OTHER_RESULT)


def same_result(expected: Any, found: Any) -> bool:
    """Whether two results of a probe agree, leaf by leaf, within the tolerance of their dtypes."""
    wanted, got = jax.tree.leaves(expected), jax.tree.leaves(found)
    return len(wanted) == len(got) and all(map(_close, wanted, got))


def _close(expected: Any, found: Any) -> bool:
    """Compare within half of the digits of the dtype: transformations may reorder sums.

    The tolerance is the square root of the dtype's machine epsilon, relative to the largest finite
    entry of the expected array (3.5e-4 for float32).
    """
    if not isinstance(expected, (jax.Array, np.ndarray, np.generic, bool, int, float, complex)):
        return type(expected) is type(found)
    if same_value(expected, found):
        return True
    one, other = jnp.asarray(expected), jnp.asarray(found)
    if one.shape != other.shape or not jnp.issubdtype(one.dtype, jnp.inexact):
        return False
    if one.dtype != other.dtype:
        return False
    wide = np.complex128 if jnp.issubdtype(one.dtype, jnp.complexfloating) else np.float64
    left, right = np.asarray(one).astype(wide), np.asarray(other).astype(wide)
    info: Any = jnp.finfo  # untyped in some versions of JAX
    tolerance = float(info(one.dtype).eps) ** 0.5
    finite = np.abs(left[np.isfinite(left)])
    scale = float(finite.max()) if finite.size else 1.0
    return bool(np.allclose(left, right, rtol=tolerance, atol=tolerance * scale, equal_nan=True))


def fails_for_bare_leaves(
    route: Callable[[Subject], Any], subject: Subject, error: Exception
) -> bool:
    """Whether a plain list of the same leaves fails alike: then the object is not to blame."""
    try:
        route(take_apart(subject.data_leaves()))
    except Exception as other:
        return type(other) is type(error)
    return False
