"""Count traces with JAX's public monitoring events."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any

import jax

from pytest_jaxleaks.failures import Failure
from pytest_jaxleaks.leaves import is_array_like, short_type, weak_type_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

__all__ = ["TRACE_EVENT", "static_changes", "traces", "type_changes", "weak_type_feedback"]

TRACE_EVENT = "/jax/core/compile/jaxpr_trace_duration"
"""Recorded once per trace, silent on a cache hit; its ``fun_name`` says what was traced."""


@contextlib.contextmanager
def traces() -> Iterator[list[str]]:
    """Collect the names of the functions that JAX traces in the block."""
    seen: list[str] = []

    def listen(event: str, duration_secs: float, **facts: Any) -> None:  # noqa: ARG001
        if event == TRACE_EVENT:
            seen.append(str(facts.get("fun_name", "a function")))

    jax.monitoring.register_event_duration_secs_listener(listen)
    try:
        yield seen
    finally:
        jax.monitoring.unregister_event_duration_listener(listen)


def type_changes(
    before: tuple[Any, ...], after: tuple[Any, ...], names: tuple[str, ...]
) -> list[str]:
    """Say what differs in the types of two calls' arguments, by leaf: what makes JAX trace
    again."""
    changes = []
    for name, old, new in zip(names, before, after, strict=True):
        (old_leaves, old_def), (new_leaves, new_def) = map(jax.tree.flatten, (old, new))
        if bool(old_def != new_def):  # type: ignore[operator]
            changes.append(f"the treedef of argument {name!r}: {old_def} became {new_def}")
            continue
        paths = [path for path, _ in jax.tree_util.tree_leaves_with_path(old)]
        for path, one, two in zip(paths, old_leaves, new_leaves, strict=True):
            was, now = _describe(one), _describe(two)
            if was != now:
                changes.append(f"{name}{jax.tree_util.keystr(path)}: {was} became {now}")
    return changes


def static_changes(
    before: tuple[Any, ...], after: tuple[Any, ...], names: tuple[str, ...], static: Sequence[int]
) -> list[str]:
    """Name the static arguments that a rebuilt one does not equal."""
    return [
        f"static value of argument {names[i]!r}: {_short(before[i])} and its like made anew are "
        "not equal"
        for i in static
        if not _equal(before[i], after[i])
    ]


def _equal(one: Any, other: Any) -> bool:
    try:
        return bool(one == other) and hash(one) == hash(other)
    except Exception:  # an __eq__ or __hash__ of the user's
        return False


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."


def _describe(leaf: Any) -> str:
    if not is_array_like(leaf):
        return f"static value {leaf!r}"
    return f"{'weak ' if weak_type_of(leaf) else ''}{short_type(leaf)}"


def weak_type_feedback(
    order: str, result: Any, args: tuple[Any, ...], names: tuple[str, ...]
) -> list[Failure]:
    """Find a state that comes back with other weak types, so that the next step is traced again.

    A state is a container that comes back (alone, or first in a tuple) with the same treedef,
    shapes and dtypes.
    """
    returned = [result, result[0]] if isinstance(result, tuple) and result else [result]
    for name, arg in zip(names, args, strict=True):
        if jax.tree_util.all_leaves([arg]):
            continue
        for state in returned:
            changed = type_changes((arg,), (state,), (name,))
            if changed and all(_only_weak(change) for change in changed):
                return [
                    Failure(
                        order, "retrace",
                        f"a second call with the state that came back for {name!r} is traced again",
                        tuple(changed),
                        hint="begin with arrays of a dtype, not with Python numbers",
                    )
                ]  # fmt: skip
    return []


def _only_weak(change: str) -> bool:
    before, _, after = change.partition(": ")[2].partition(" became ")
    return before.removeprefix("weak ") == after.removeprefix("weak ") and "treedef" not in change
