"""Key paths: each leaf has one of its own, and it leads to the leaf."""

from __future__ import annotations

import collections
import warnings
from typing import TYPE_CHECKING, Any

import jax

from pytest_jaxleaks import pytree_hints as hints
from pytest_jaxleaks.pytree_causes import cause_of, describe, treedef_difference
from pytest_jaxleaks.pytree_findings import Cause, Symptom
from pytest_jaxleaks.pytree_subject import first_line, nodes, same_value, type_name

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pytest_jaxleaks.pytree_subject import Subject

__all__ = ["key_path_symptoms"]


def key_path_symptoms(subject: Subject) -> Iterator[Symptom]:
    """Compare the leaves found by key path with the flattened ones."""
    obj = subject.obj
    try:
        pairs, treedef = jax.tree_util.tree_flatten_with_path(obj)
    except Exception as error:
        cause = cause_of(error, "tree_flatten_with_path", hints.register_dataclass(obj))
        yield Symptom("key-paths", f"tree_flatten_with_path: {first_line(error)}", cause)
        return
    leaves = jax.tree.leaves(obj)
    if not _same_leaves(leaves, [found for _, found in pairs]) or _other_order(subject):
        yield Symptom(
            "key-paths",
            "tree_flatten_with_path gives other leaves, or another order, than flatten",
            _disagree(obj),
        )
        return
    yield from _other_structure(subject, treedef)
    yield from _path_symptoms(obj, pairs)


def _other_structure(subject: Subject, treedef: Any) -> Iterator[Symptom]:
    if treedef_difference(subject.treedef, jax.tree.structure(subject.obj)):
        return  # no two flattens agree
    found = treedef_difference(subject.treedef, treedef)
    if found is not None:
        left, right = describe(found.left), describe(found.right)
        text = f"{found.where} is {left} with flatten and {right} with tree_flatten_with_path"
        cause = _disagree(subject.obj)
        yield Symptom("key-paths", text, cause, implied_by=frozenset({"treedef", "round-trip"}))


def _other_order(subject: Subject) -> bool:
    """Tell whether key paths reorder leaves, which only other objects than equal ones show."""
    try:
        rebuilt = subject.rebuilt_with(subject.fresh_values())
        leaves = jax.tree.leaves(rebuilt)
        found = [leaf for _, leaf in jax.tree_util.tree_flatten_with_path(rebuilt)[0]]
    except Exception:  # reported by the contract that it breaks
        return False
    one, other = [id(leaf) for leaf in leaves], [id(leaf) for leaf in found]
    return one != other and len(set(one)) == len(one) and set(one) == set(other)


def _same_leaves(one: list[Any], other: list[Any]) -> bool:
    return len(one) == len(other) and all(map(_same_leaf, one, other))


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
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore")  # that an attribute is deprecated is no news
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
