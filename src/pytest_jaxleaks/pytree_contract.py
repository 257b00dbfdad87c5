"""What a node promises at rest: pure flatten, a round trip that changes nothing, equal treedefs."""

from __future__ import annotations

import functools
import types
from typing import TYPE_CHECKING, Any

import jax
import numpy as np

from pytest_jaxleaks import pytree_hints as hints
from pytest_jaxleaks.links import attributes
from pytest_jaxleaks.pytree_causes import AuxDifference, cause_of, describe, treedef_difference
from pytest_jaxleaks.pytree_findings import Cause, Symptom
from pytest_jaxleaks.pytree_subject import first_line, same_value, type_name

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pytest_jaxleaks.pytree_findings import Contract
    from pytest_jaxleaks.pytree_subject import Subject

__all__ = ["difference_symptom", "purity_symptoms", "round_trip_symptoms"]


def purity_symptoms(subject: Subject) -> Iterator[Symptom]:
    """Flatten a second time: it must give the same leaves and an equal treedef."""
    name = type_name(subject.obj)
    try:
        leaves, treedef = jax.tree.flatten(subject.obj)
    except Exception as error:
        cause = cause_of(error, f"flatten of {name}", hints.register_dataclass(subject.obj))
        yield Symptom("round-trip", f"flattened twice: {first_line(error)}", cause)
        return
    if len(leaves) != len(subject.leaves):
        yield Symptom(
            "round-trip",
            f"flattened twice: {len(subject.leaves)} leaves at first, {len(leaves)} after",
            Cause(
                "flatten",
                f"flattening changes {name}: each flatten must give the same structure",
                hints.register_dataclass(subject.obj),
            ),
        )
    else:
        yield from difference_symptom(
            subject.treedef, treedef, "flattened twice", subject.obj, always=True
        )


def difference_symptom(
    left: Any,
    right: Any,
    doing: str,
    obj: Any,
    always: bool = False,
    contract: Contract = "treedef",
) -> Iterator[Symptom]:
    """Compare two treedefs that should be equal, and name the part that differs.

    Args:
        left: the first treedef.
        right: the second.
        doing: how the two came to be.
        obj: the object, for the hint.
        always: a difference in identity alone is breakage too: nothing was copied.
        contract: the part of the contract that demands it.
    """
    found = treedef_difference(left, right)
    if found is None:
        return
    broken = always or not found.by_identity
    yield Symptom(
        "treedef" if found.raises else contract,
        f"{doing}: the treedefs differ, so jit traces again and cond and scan refuse the pair",
        Cause(f"aux:{found.where.partition('[')[0]}", _blame(found), _mend(found, obj)),
        broken,
        implied_by=frozenset({"nothing-hides", "round-trip"}),
        raises=found.raises,
    )


def _blame(found: AuxDifference) -> str:
    left, right = describe(found.left), describe(found.right)
    pair = f"{left} and {right}" if left != right else f"{left}, two of them"
    if found.where == "the structure":
        return f"the structure differs: {found.reason}"
    return f"{found.where}: {pair}: {found.reason}"


def _mend(found: AuxDifference, obj: Any) -> str | None:
    if isinstance(found.left, (jax.Array, np.ndarray)):
        return hints.register_dataclass(obj, _attributes_that_hold(obj, found))
    if isinstance(found.left, (types.FunctionType, types.MethodType, functools.partial)):
        return hints.NAMED_FUNCTION
    return hints.EQUAL_BY_CONTENT if found.by_identity or found.raises else None


def _attributes_that_hold(obj: Any, found: AuxDifference) -> list[str]:
    return [name for name, value in attributes(obj) if type(value) is type(found.left)]


def round_trip_symptoms(subject: Subject) -> Iterator[Symptom]:
    """Unflatten copies of the leaves, flatten again, and compare."""
    values = subject.fresh_values()
    try:
        rebuilt = subject.rebuilt_with(values)
        leaves, treedef = jax.tree.flatten(rebuilt)
        jax.tree.map(lambda leaf: leaf, subject.obj)
    except Exception as error:
        cause = cause_of(error, "unflatten", hints.skip_init(subject.obj))
        yield Symptom("round-trip", f"unflatten of its own leaves: {first_line(error)}", cause)
        return
    if type(rebuilt) is not type(subject.obj):
        name = type_name(subject.obj)
        yield Symptom(
            "round-trip",
            f"unflatten gives {type_name(rebuilt)} instead of {name}",
            Cause("type", f"unflatten of {name} builds another type: {type_name(rebuilt)}"),
        )
        return
    yield from _leaf_symptoms(subject, subject.leaves_with(values), leaves)
    yield from difference_symptom(
        subject.treedef, treedef, "after unflatten and flatten", subject.obj, always=True
    )


def _leaf_symptoms(subject: Subject, given: list[Any], found: list[Any]) -> Iterator[Symptom]:
    if len(given) != len(found):
        return  # the treedefs differ as well, and say more
    position = {id(leaf): index for index, leaf in enumerate(given)}
    obj = subject.obj
    moved = [
        (index, position[id(leaf)])
        for index, leaf in enumerate(found)
        if leaf is not given[index]
        and id(leaf) in position
        and found[position[id(leaf)]] is not leaf
    ]
    if moved:
        text = ", ".join(f"leaf {come} comes back as leaf {goes}" for goes, come in moved)
        cause = Cause(
            "swapped",
            f"unflatten of {type_name(obj)} takes its children in another order than flatten",
            hints.register_dataclass(obj),
        )
        yield Symptom("round-trip", text, cause)
        return
    for index, (before, after) in enumerate(zip(given, found, strict=True)):
        if type(before) is not type(after) or not (before is after or same_value(before, after)):
            cause = Cause(
                "changed",
                f"a round trip changes the leaves of {type_name(obj)}",
                hints.skip_init(obj),
            )
            yield Symptom("round-trip", f"leaf {index} comes back with another value", cause)
