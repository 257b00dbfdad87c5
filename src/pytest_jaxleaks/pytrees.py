"""``check_pytree``: does whatever a function returns survive as a pytree?"""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any, NamedTuple

import jax

from pytest_jaxleaks.errors import InvalidArgumentError, PytreeCheckError
from pytest_jaxleaks.guarding import warn_of_own_fault
from pytest_jaxleaks.hidden_values import hidden_symptoms
from pytest_jaxleaks.probes import default_probe
from pytest_jaxleaks.pytree_arguments import check_arguments, check_what_it_builds, checked_names
from pytest_jaxleaks.pytree_causes import cause_of, treedef_difference
from pytest_jaxleaks.pytree_contract import (
    purity_symptoms,
    round_trip_symptoms,
)
from pytest_jaxleaks.pytree_copies import copy_symptoms
from pytest_jaxleaks.pytree_findings import CONTRACTS, Cause, Symptom, group_by_cause
from pytest_jaxleaks.pytree_hints import register_container, register_dataclass
from pytest_jaxleaks.pytree_key_paths import key_path_symptoms
from pytest_jaxleaks.pytree_lookalikes import construction_symptoms, like_symptoms, recipe_of
from pytest_jaxleaks.pytree_nesting import nesting_symptoms
from pytest_jaxleaks.pytree_optional_fields import optional_field_symptoms
from pytest_jaxleaks.pytree_placeholders import placeholder_symptoms
from pytest_jaxleaks.pytree_rare_routes import RARE_ROUTES, run_rare_route
from pytest_jaxleaks.pytree_report import PytreeReport
from pytest_jaxleaks.pytree_routes import (
    ROUTES,
    run_route,
    same_result,
)
from pytest_jaxleaks.pytree_state import lost_state_symptoms
from pytest_jaxleaks.pytree_subject import (
    Subject,
    first_line,
    is_data,
    nodes,
    take_apart,
    type_name,
)
from pytest_jaxleaks.pytree_use import changed_by_use, has_arrays, steady
from pytest_jaxleaks.pytree_watch import watched

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from pytest_jaxleaks.pytree_lookalikes import Recipe

__all__ = ["DEFAULT_THROUGH", "check_pytree"]

DEFAULT_THROUGH: tuple[str, ...] = tuple(ROUTES)
"""The transformations that every object must pass; the rarer ones only give limits."""


def check_pytree(
    obj: Any,
    probe: Callable[[Any], Any] | None = None,
    through: Sequence[str] = DEFAULT_THROUGH,
    *,
    like: Any = None,
    build: Callable[..., Any] | None = None,
    args: Sequence[Any] = (),
) -> PytreeReport:
    """Check that ``obj`` keeps the pytree contract, alone and through transformations.

    The contract: flatten and unflatten give the object back; nothing hides from JAX in closures,
    bound methods or static data; objects that are built alike have equal treedefs; unflatten
    accepts every placeholder that JAX passes; key paths lead to the leaves; copies are equal; and
    the object works as before after each transformation. Failures with one cause are one finding.

    Args:
        obj: any pytree: a distribution, a model, an optimiser's state, a nested container.
        probe: a function of the object that uses it and returns arrays of any shape and dtype; its
            result must not change. By default distributions (distrax, numpyro, TFP on JAX) are
            sampled and asked for a log probability, bijectors map an array forward and back, and
            callable equinox modules are called.
        through: names of transformations. Besides the default ones ``jacfwd``, ``jacrev``,
            ``hessian``, ``lower`` and ``export`` are known: they are always tried, and what fails
            there is a limit, unless it is named here. ``key-paths`` makes anonymous key paths
            breakage, and ``optional-fields`` fields that are None now and arrays later.
        like: another object that is built alike, with other values: its treedef must be equal.
        build: the function that made the object, if it can be called again: it is called once more,
            and once inside ``jit``. By default the class's constructor is tried.
        args: the arguments of ``build``; the jax arrays among them are traced.

    Returns:
        The report: its ``findings`` are limits only, and ``skipped`` says what was not checked.

    Raises:
        PytreeCheckError: the contract is broken; ``findings`` has one entry per cause.
        InvalidArgumentError: an argument cannot be used; a probe whose result is not the same
            each time, or has no arrays, too.

    Results of ``probe`` are compared within the square root of the dtype's machine epsilon,
    relative to the largest entry (half of the digits: transformations may reorder sums); leaves
    are compared exactly.

    Example:
        >>> import jax.numpy as jnp
        >>> report = check_pytree({"w": jnp.ones(3), "b": None})
        >>> report.findings
        ()
    """
    __tracebackhide__ = True
    through = checked_names(through)
    check_arguments(probe, build, args)
    request = _Request(obj, probe, through, like, build, tuple(args))
    name = type_name(obj)
    symptoms, skipped = _collect(watched(_run(request), name))
    report = PytreeReport(name, group_by_cause(symptoms), tuple(dict.fromkeys(skipped)))
    if report.broken:
        raise PytreeCheckError(report)
    return report


def _collect(items: Iterator[Symptom | str]) -> tuple[list[Symptom], list[str]]:
    symptoms: list[Symptom] = []
    skipped: list[str] = []
    for item in items:
        if isinstance(item, str):
            skipped.append(item)
        else:
            symptoms.append(item)
    return symptoms, skipped


class _Request(NamedTuple):
    """The arguments of ``check_pytree``."""

    obj: Any
    probe: Callable[[Any], Any] | None
    through: tuple[str, ...]
    like: Any
    build: Callable[..., Any] | None
    args: tuple[Any, ...]


_Found = Symptom | str

INCOMPARABLE = (
    "transformations: its static data cannot be compared, and JAX, which keeps it in its caches, "
    "would then fail for every other object of the type"
)


def _run(request: _Request) -> Iterator[_Found]:
    """Run every check; yield symptoms, and reasons (as text) for what was skipped."""
    obj = request.obj
    nested = list(nesting_symptoms(obj))
    if nested:
        yield from nested
        return
    try:
        subject = take_apart(obj)
    except Exception as error:
        cause = cause_of(error, f"flatten of {type_name(obj)}")
        yield Symptom("round-trip", f"flatten: {first_line(error)}", cause)
        return
    refusal = _refused(subject)
    if refusal is not None:
        yield refusal
        return
    incomparable = False
    for found in _guarded(lambda: _at_rest(subject, request)):
        incomparable |= isinstance(found, Symptom) and found.raises
        yield found
    if incomparable:
        yield INCOMPARABLE
        return
    yield from _guarded(lambda: _in_motion(subject, request))


def _refused(subject: Subject) -> Symptom | None:
    """Return why the object cannot be checked at all, or None."""
    name = type_name(subject.obj)
    for index, leaf in enumerate(subject.leaves):
        if isinstance(leaf, jax.core.Tracer):
            where = _leaf_name(subject, index)
            line = (
                f"{where} is a tracer: check_pytree runs inside a transformation, "
                "or the tracer leaked from one"
            )
            return Symptom("construction", line, Cause("tracer", line))
        if isinstance(leaf, jax.Array) and leaf.is_deleted():
            where = _leaf_name(subject, index)
            line = f"{where} is an array that has been deleted, by donation or by hand"
            return Symptom("round-trip", line, Cause("deleted", line))
    if len(subject.leaves) == 1 and subject.leaves[0] is subject.obj and _is_opaque(subject.obj):
        line = f"{name} is no pytree: JAX takes the whole object for one leaf"
        mend = register_container(subject.obj) or register_dataclass(subject.obj)
        return Symptom("round-trip", line, Cause("unregistered", line, mend))
    return None


def _leaf_name(subject: Subject, index: int) -> str:
    name = type_name(subject.obj)
    try:
        path = jax.tree_util.tree_leaves_with_path(subject.obj)[index][0]
    except Exception:  # key paths that do not work are reported as such
        return f"leaf {index} of {name}"
    return f"{jax.tree_util.keystr(path) or 'the object'} of {name}"


def _is_opaque(leaf: Any) -> bool:
    """Whether it is an object that JAX can do nothing with; functions are fixed leaves."""
    home = type(leaf).__module__.partition(".")[0]
    is_function = callable(leaf) and home in ("builtins", "functools", "jax", "jaxlib")
    plain = isinstance(leaf, (bool, int, float, complex, str, bytes))
    return not (is_data(leaf) or plain or is_function)


def _guarded(check: Callable[[], Iterable[_Found]]) -> Iterator[_Found]:
    """Turn a fault of our own into a warning: it says nothing about the object."""
    try:
        yield from check()
    except InvalidArgumentError:
        raise
    except Exception:
        warn_of_own_fault("finish a check of a pytree")


def _at_rest(subject: Subject, request: _Request) -> Iterator[_Found]:
    """Run the checks that need no transformation."""
    recipe, skipped = _recipe(subject, request)
    twin = recipe.twin if recipe else None
    checks: list[Callable[[], Iterable[_Found]]] = [
        lambda: purity_symptoms(subject),
        lambda: round_trip_symptoms(subject),
        lambda: hidden_symptoms(subject),
        lambda: placeholder_symptoms(subject),
        lambda: _on_demand("key-paths", key_path_symptoms(subject), request),
        lambda: _on_demand("optional-fields", optional_field_symptoms(subject), request),
        lambda: like_symptoms(subject, request.like) if request.like is not None else (),
        lambda: construction_symptoms(subject, recipe) if recipe is not None else (),
        lambda: _parts_built_again(subject),
        lambda: copy_symptoms(subject),
        lambda: lost_state_symptoms(subject, twin, lambda other: _same_use(request, other)),
    ]
    yield from skipped
    for check in checks:
        yield from _guarded(check)


def _parts_built_again(subject: Subject, most: int = 8) -> Iterator[_Found]:
    """Build the nodes inside of the object again, one of each type."""
    kinds = {type(node): node for _, node in nodes(subject.obj) if node is not subject.obj}
    kinds.pop(type(subject.obj), None)
    for node in list(kinds.values())[:most]:
        part = take_apart(node)
        recipe = recipe_of(part, None, ())
        if recipe is not None and part.treedef.node_data() is not None:
            yield from construction_symptoms(part, recipe)


def _same_use(request: _Request, other: Any) -> bool:
    """Whether there is a probe, and it does not tell the object from ``other``."""
    probe = request.probe or default_probe(request.obj)
    try:
        return probe is not None and same_result(probe(request.obj), probe(other))
    except Exception:  # the user's probe cannot use the object: that is a difference
        return False


def _recipe(subject: Subject, request: _Request) -> tuple[Recipe | None, list[str]]:
    try:
        recipe = recipe_of(subject, request.build, request.args)
        if request.build is not None and recipe is not None:
            check_what_it_builds(subject, recipe.twin)
        return recipe, []
    except InvalidArgumentError:
        raise
    except Exception as error:
        if request.build is None:
            return None, [f"construction: {first_line(error)}"]
        raise InvalidArgumentError(
            f"build must be a function of args, {len(request.args)} of them, "
            f"that makes the object again, and raises {first_line(error)}"
        ) from error


def _on_demand(name: str, found: Iterator[Symptom], request: _Request) -> Iterator[Symptom]:
    """Make breakage of limits that the caller asked for by name."""
    demanded = name in request.through
    for symptom in found:
        yield dataclasses.replace(symptom, broken=symptom.broken or demanded)


def _in_motion(subject: Subject, request: _Request) -> Iterator[_Found]:
    """Send the object through transformations, and use it there."""
    given = request.probe is not None
    probe = request.probe or default_probe(subject.obj)
    expected = None
    if probe is not None:
        try:
            expected = probe(subject.obj)
        except Exception as error:
            cause = cause_of(error, f"probe of {type_name(subject.obj)}")
            yield Symptom(
                "through",
                f"the probe fails on the object itself: {first_line(error)}",
                cause,
                implied_by=frozenset(CONTRACTS),
            )
            probe = None
        else:
            probe = probe if has_arrays(expected, given) else None
    used = take_apart(subject.obj)
    steady_now = treedef_difference(used.treedef, jax.tree.structure(subject.obj)) is None
    if steady_now and treedef_difference(subject.treedef, used.treedef):
        yield changed_by_use(subject.obj)
    subject = used
    if not any(subject.data):
        yield "transformations: it has no arrays among its leaves"
        return
    for name in ROUTES:
        if name in request.through:
            found = run_route(name, subject, probe, expected)
            yield from steady(found, probe, subject.obj, expected, given)
    for name in RARE_ROUTES:
        yield from run_rare_route(name, subject, name in request.through)
