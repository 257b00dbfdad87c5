"""What a node promises without any transformation: round trip, treedef, placeholders, key paths."""

from __future__ import annotations

import collections
import dataclasses
from typing import TYPE_CHECKING, Any

import jax
import numpy as np
from jax.sharding import PartitionSpec

from pytest_jaxleaks import pytree_hints as hints
from pytest_jaxleaks.pytree_causes import AuxDifference, cause_of, describe, treedef_difference
from pytest_jaxleaks.pytree_findings import Cause, Symptom
from pytest_jaxleaks.pytree_subject import first_line, nodes, same_value, type_name

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from pytest_jaxleaks.pytree_findings import Contract
    from pytest_jaxleaks.pytree_subject import Subject

__all__ = [
    "difference_symptom",
    "key_path_symptoms",
    "placeholder_symptoms",
    "purity_symptoms",
    "round_trip_symptoms",
]


def purity_symptoms(subject: Subject) -> Iterator[Symptom]:
    """Flatten a second time: it must give the same leaves and an equal treedef."""
    leaves, treedef = jax.tree.flatten(subject.obj)
    name = type_name(subject.obj)
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
    return hints.hash_by_content(found.where)


def _attributes_that_hold(obj: Any, found: AuxDifference) -> list[str]:
    fields = getattr(obj, "__dict__", {})
    return [name for name, value in fields.items() if type(value) is type(found.left)]


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
        if before is not after and not same_value(before, after):
            cause = Cause(
                "changed",
                f"a round trip changes the leaves of {type_name(obj)}",
                hints.skip_init(obj),
            )
            yield Symptom("round-trip", f"leaf {index} comes back with another value", cause)


def placeholder_symptoms(subject: Subject) -> Iterator[Symptom]:
    """Unflatten with everything that JAX itself puts in the place of leaves."""
    if not any(subject.data):
        return
    found: dict[tuple[str, str, bool], tuple[Symptom, list[str]]] = {}
    for name, make in _PLACEHOLDERS.items():
        values = make(subject)
        symptom = None if values is None else _placed(subject, name, values)
        if symptom is not None:
            same = symptom.text, symptom.cause.key, symptom.broken
            found.setdefault(same, (symptom, []))[1].append(name)
    for symptom, names in found.values():
        text = symptom.text.format(", ".join(names))
        yield dataclasses.replace(symptom, text=text)
    yield from _traced(subject)


def _placed(subject: Subject, name: str, values: list[Any]) -> Symptom | None:
    """Unflatten with one kind of placeholder; the symptom's text has a gap for its name."""
    obj = subject.obj
    try:
        rebuilt = subject.rebuilt_with(values)
    except Exception as error:
        cause = cause_of(error, f"unflatten with {name}", hints.skip_init(obj))
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
        return Symptom(
            "placeholders",
            f"flatten of an object filled with {{}}: {_text(error)}",
            cause_of(error, f"flatten with {name}", hints.register_dataclass(obj)),
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


def _traced(subject: Subject) -> Iterator[Symptom]:
    """Unflatten with tracers, and look whether that computes anything."""
    values = subject.data_leaves()
    try:
        jaxpr = jax.make_jaxpr(lambda *leaves: jax.tree.leaves(subject.rebuilt_with(leaves))[:0])(
            *values
        )
    except Exception as error:
        cause = cause_of(error, "unflatten with tracers", hints.skip_init(subject.obj))
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


_PLACEHOLDERS: dict[str, Callable[[Subject], list[Any] | None]] = {
    "object()": _each(lambda _: object()),
    "None": _each(lambda _: None),
    "PartitionSpec": _each(lambda _: PartitionSpec()),
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


def key_path_symptoms(subject: Subject) -> Iterator[Symptom]:
    """Compare the leaves found by key path with the flattened ones."""
    obj = subject.obj
    try:
        pairs, _ = jax.tree_util.tree_flatten_with_path(obj)
    except Exception as error:
        cause = cause_of(error, "tree_flatten_with_path", hints.register_dataclass(obj))
        yield Symptom("key-paths", f"tree_flatten_with_path: {first_line(error)}", cause)
        return
    leaves = jax.tree.leaves(obj)
    if len(pairs) != len(leaves) or any(
        not _same_leaf(leaf, found) for (_, found), leaf in zip(pairs, leaves, strict=True)
    ):
        yield Symptom(
            "key-paths",
            "tree_flatten_with_path gives other leaves, or another order, than flatten",
            _disagree(obj),
        )
        return
    yield from _path_symptoms(obj, pairs)


def _same_leaf(one: Any, other: Any) -> bool:
    return one is other or (type(one) is type(other) and same_value(one, other))


def _disagree(obj: Any) -> Cause:
    return Cause(
        "key paths",
        f"the key paths of {type_name(obj)} do not match its leaves",
        hints.register_dataclass(obj),
    )


def _path_symptoms(obj: Any, pairs: list[tuple[Any, Any]]) -> Iterator[Symptom]:
    counts = collections.Counter(jax.tree_util.keystr(path) for path, _ in pairs)
    twice = [text for text, count in counts.items() if count > 1]
    paths = [path for path, _ in pairs]
    if twice and any(path == other for i, path in enumerate(paths) for other in paths[:i]):
        yield Symptom("key-paths", f"several leaves have the key path {twice[0]}", _disagree(obj))
    by_id = {id(leaf): path for path, leaf in pairs}
    for path, leaf in pairs:
        found = _follow(obj, path)
        if found is not leaf and id(found) in by_id and len(by_id) == len(pairs):
            keys = jax.tree_util.keystr
            text = f"{keys(path)} leads to the leaf that is flattened as {keys(by_id[id(found)])}"
            yield Symptom("key-paths", text, _disagree(obj))
            break
    yield from _anonymous(obj)


def _follow(obj: Any, path: tuple[Any, ...]) -> Any:
    """Go where the key path says, or return None where it cannot be followed."""
    for key in path:
        try:
            if isinstance(key, jax.tree_util.GetAttrKey):
                obj = getattr(obj, key.name)
            elif isinstance(key, jax.tree_util.SequenceKey):
                obj = obj[key.idx]
            elif isinstance(key, jax.tree_util.DictKey):
                obj = obj[key.key]
            else:
                return None
        except Exception:  # a name that is no attribute still identifies the leaf
            return None
    return obj


def _anonymous(obj: Any) -> Iterator[Symptom]:
    for path, node in nodes(obj):
        children, _ = jax.tree_util.tree_flatten_with_path(
            node, is_leaf=lambda child, node=node: child is not node
        )
        flat = jax.tree_util.FlattenedIndexKey
        called = [
            jax.tree_util.keystr(keys) for keys, _ in children if keys and isinstance(keys[0], flat)
        ]
        if called:
            yield Symptom(
                "key-paths",
                f"a leaf of {type_name(node)} is called {path}{called[0]}",
                Cause(
                    f"anonymous:{type_name(node)}",
                    f"{type_name(node)} is registered without keys: its key paths are positions",
                    hints.register_dataclass(node),
                ),
                broken=False,
            )
