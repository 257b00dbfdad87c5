"""Placeholders: unflatten takes everything that JAX itself puts in the place of leaves."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

import jax
import numpy as np
from jax.sharding import PartitionSpec

from pytest_jaxleaks import pytree_hints as hints
from pytest_jaxleaks.pytree_causes import cause_of, outermost_code, treedef_difference
from pytest_jaxleaks.pytree_findings import Cause, Symptom
from pytest_jaxleaks.pytree_subject import first_line, type_name

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from pytest_jaxleaks.pytree_subject import Subject

__all__ = ["placeholder_symptoms"]


def placeholder_symptoms(subject: Subject) -> Iterator[Symptom]:
    """Unflatten with everything that JAX itself puts in the place of leaves."""
    if not any(subject.data):
        return
    found: dict[tuple[str, str, bool], tuple[Symptom, list[str]]] = {}
    refused: _Refused = {}
    for name, make in _PLACEHOLDERS.items():
        values = make(subject)
        symptom = None if values is None else _placed(subject, name, values, refused)
        if symptom is not None:
            same = symptom.text, symptom.cause.key, symptom.broken
            found.setdefault(same, (symptom, []))[1].append(name)
    for symptom, names in found.values():
        text = symptom.text.format(", ".join(names))
        yield dataclasses.replace(symptom, text=text)
    yield from _traced(subject, refused)


_Refused = dict[str, Cause]
"""What has refused a placeholder already, by the function through which its errors come out."""


def _placed(subject: Subject, name: str, values: list[Any], refused: _Refused) -> Symptom | None:
    """Unflatten with one kind of placeholder; the symptom's text has a gap for its name."""
    obj = subject.obj
    try:
        rebuilt = subject.rebuilt_with(values)
    except Exception as error:
        cause = _refusal(error, f"unflatten with {name}", hints.skip_init(obj), refused)
        text = f"unflatten with {{}}: {_text(error)}"
        return Symptom("placeholders", text, cause, implied_by=_CONVERTS)
    ids = {id(value) for value in values}
    expected = subject.leaves_with(values)
    try:
        leaves, treedef = jax.tree.flatten(rebuilt, is_leaf=lambda child: id(child) in ids)
        if name == "None":  # the object's own Nones are no leaves otherwise
            before = jax.tree.leaves(subject.obj, is_leaf=lambda child: child is None)
            given = iter(expected)
            expected = [None if leaf is None else next(given) for leaf in before]
    except Exception as error:
        cause = _refusal(error, f"flatten with {name}", hints.register_dataclass(obj), refused)
        return Symptom(
            "placeholders",
            f"flatten of an object filled with {{}}: {_text(error)}",
            cause,
            broken=name == "object()",
            implied_by=_CONVERTS,
        )
    if len(leaves) == len(expected) and any(
        after is not before and not any(after is leaf for leaf in subject.leaves)
        for before, after in zip(expected, leaves, strict=True)
    ):
        return Symptom(
            "placeholders",
            "unflatten with {} does not keep the leaves as they are",
            Cause(
                "converts",
                f"unflatten of {type_name(obj)} converts or exchanges its leaves",
                hints.skip_init(obj),
            ),
            implied_by=frozenset({"round-trip", "placeholders"}),
        )
    if len(leaves) != len(expected) or (
        name != "None" and treedef_difference(subject.treedef, treedef)
    ):
        return Symptom(
            "placeholders",
            "filled with {}, its treedef changes",
            _leaves_by_type(obj),
            broken=False,
            implied_by=_UNEQUAL,
        )
    return None


def _refusal(error: Exception, doing: str, hint: str | None, refused: _Refused) -> Cause:
    """Blame the code that refused a placeholder; one function that refuses several is one cause.

    It is told by its outermost frame: how deep it comes depends on the placeholder.
    """
    return refused.setdefault(outermost_code(error), cause_of(error, doing, hint))


def _fail_alone(values: list[Any]) -> bool:
    """Whether the leaves cannot be traced at all: then the object is not to blame."""
    try:
        jax.make_jaxpr(lambda *leaves: leaves[:0])(*values)
    except Exception:
        return True
    return False


def _text(error: Exception) -> str:
    return first_line(error).replace("{", "{{").replace("}", "}}")


_CONVERTS = frozenset({"flatten", "changed", "converts"})  # an unflatten or flatten that computes
_UNEQUAL = frozenset({"round-trip", "treedef"})  # such treedefs differ without placeholders too


def _leaves_by_type(obj: Any) -> Cause:
    return Cause(
        "leaves by type",
        f"{type_name(obj)} tells leaves from static fields by their type, "
        "so its treedef changes when leaves are placeholders",
        hints.register_dataclass(obj) or hints.differentiate_parameters(obj),
    )


def _traced(subject: Subject, refused: _Refused) -> Iterator[Symptom]:
    """Unflatten with tracers, and look whether that computes anything."""
    values = subject.data_leaves()
    try:
        jaxpr = jax.make_jaxpr(lambda *leaves: jax.tree.leaves(subject.rebuilt_with(leaves))[:0])(
            *values
        )
    except Exception as error:
        if _fail_alone(values):
            return
        cause = _refusal(error, "unflatten with tracers", hints.skip_init(subject.obj), refused)
        text = f"unflatten with tracers: {first_line(error)}"
        yield Symptom("placeholders", text, cause, implied_by=_CONVERTS)
        return
    if jaxpr.jaxpr.eqns:
        names = ", ".join(sorted({eqn.primitive.name for eqn in jaxpr.jaxpr.eqns}))
        yield Symptom(
            "placeholders",
            f"unflatten with tracers runs operations on them: {names}",
            Cause(
                "computes",
                f"unflatten of {type_name(subject.obj)} computes with its leaves",
                hints.skip_init(subject.obj),
            ),
            implied_by=_CONVERTS | {"placeholders"},
        )


def _each(make: Callable[[Any], Any]) -> Callable[[Subject], list[Any] | None]:
    def values(subject: Subject) -> list[Any] | None:
        try:
            return [make(leaf) for leaf in subject.data_leaves()]
        except Exception:  # a leaf that has no such placeholder: a key array is no numpy array
            return None

    return values


_SPEC: Any = PartitionSpec  # untyped in some versions of JAX

_PLACEHOLDERS: dict[str, Callable[[Subject], list[Any] | None]] = {
    "object()": _each(lambda _: object()),
    "None": _each(lambda _: None),
    "PartitionSpec": _each(lambda _: _SPEC()),
    "ShapedArray": _each(jax.typeof),
    "ArgInfo": _each(lambda leaf: jax.stages.ArgInfo(jax.typeof(leaf), donated=False)),
    "ShapeDtypeStruct": _each(lambda leaf: jax.eval_shape(lambda x: x, leaf)),
    "int": _each(lambda _: 7),
    "numpy arrays": _each(lambda leaf: np.array(leaf)),
    "the node itself": lambda subject: [subject.obj] * sum(subject.data),
}
"""What JAX passes to unflatten, as seen in jax 0.10.2 and 0.12.0: ``object()`` in vmap and
custom_vjp, None and PartitionSpec in jacfwd, jacrev and hessian, ShapedArray in jit and cond,
ArgInfo in lower and export, ShapeDtypeStruct in eval_shape, int in transpose, numpy arrays in
device_get, and the node itself in jacfwd."""
