"""The course of one check: plain calls, then every order, then the gradient against differences."""

from __future__ import annotations

import functools
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import jax
import numpy as np

from pytest_jaxleaks.blocks import RepeatedLooks
from pytest_jaxleaks.compare import Context, compare
from pytest_jaxleaks.errors import InvalidArgumentError
from pytest_jaxleaks.failures import PLAIN, Failure, TransformReport
from pytest_jaxleaks.guarding import guarded
from pytest_jaxleaks.judging import Judgement, judge_gradients
from pytest_jaxleaks.leaves import is_array_like, is_inexact, is_key, short_type
from pytest_jaxleaks.meanings import Expectations
from pytest_jaxleaks.memos import memories
from pytest_jaxleaks.order_names import parts
from pytest_jaxleaks.orders import Subject, fixed_cotangents
from pytest_jaxleaks.plan import SEED, Plan
from pytest_jaxleaks.purity import Snapshot, changes, snapshot
from pytest_jaxleaks.references import Plain, PlainCallError, run_plain
from pytest_jaxleaks.running import exception_failure, run_order
from pytest_jaxleaks.signature import function_name
from pytest_jaxleaks.stale import stale_globals
from pytest_jaxleaks.transform_report import sorted_failures

if TYPE_CHECKING:
    from collections.abc import Callable

    from pytest_jaxleaks.batches import Batch
    from pytest_jaxleaks.signature import Arguments

__all__ = ["run_check", "subject_of"]


def run_check(plan: Plan) -> tuple[TransformReport, Any]:
    """Carry out a check.

    Returns:
        The report, and what the plain call returned.
    """
    watch = _Watch(plan.arguments)
    try:
        batch, plain = _plain(plan)
    except PlainCallError as error:
        return TransformReport((), {}, (), (_plain_failure(plan, error),)), None
    if plan.has_aux and not _is_pair(plain.output):
        raise InvalidArgumentError(
            "has_aux=True: expected a function that returns (output, aux), and "
            f"{function_name(plan.arguments.fn)} returned {type(plain.output).__name__}"
        )
    failures = [*watch.look(PLAIN), *_nondeterministic(plan, plain)]
    subject = subject_of(plan, batch, plain.output)
    expected = Expectations(subject, plan.arguments.names, batch, plain, SEED)
    skipped = _not_applicable(plan, batch, plain)
    _forget(plan)
    orders = tuple(order for order in plan.orders if order not in skipped)
    failures += _run_orders(plan, orders, expected, watch)
    if any(failure.kind == "leak" for failure in failures):
        _forget(plan)  # or the tracers in them fail the tests that follow
    if failures or all("grad" in parts(order) for order in orders):
        failures += _frozen(plan, plain)  # which the orders of values see, too
    failures += guarded("the search for stale globals", lambda: _stale(plan, orders), [])
    found = _judge(plan, expected, skipped)
    notes = tuple(dict.fromkeys([*plain.notes, *found.notes]))
    ordered = sorted_failures([*failures, *found.failures])
    return TransformReport(orders, skipped, notes, ordered), plain.output


def _is_pair(output: Any) -> bool:
    return isinstance(output, tuple) and len(output) == 2


def _forget(plan: Plan) -> None:
    """Empty the function's memories, so that a trace fills them as if it were the first call."""

    def clear() -> None:
        for memory in memories(plan.arguments.fn):
            memory.cache_clear()

    guarded("the clearing of memories", clear, None)


def _run_orders(
    plan: Plan, orders: tuple[str, ...], expected: Expectations, watch: _Watch
) -> list[Failure]:
    failures: list[Failure] = []
    with RepeatedLooks() as looks:
        for order in orders:
            run = functools.partial(run_order, order, expected, plan.tolerances, looks)
            failures += guarded(f"the check of {order}", run, [])
            failures += watch.look(order)
    return failures


def _judge(plan: Plan, expected: Expectations, skipped: dict[str, str]) -> Judgement:
    judged = tuple(
        order
        for order in plan.orders
        if "grad" in parts(order) and skipped.get(order, NO_REVERSE) == NO_REVERSE
    )
    if not judged:
        return Judgement()
    judge = functools.partial(judge_gradients, plan, expected, judged)
    return guarded("the check of the gradient", judge, Judgement())


class _Watch:
    """Compares snapshots, and reports each change once: for the order that made it first."""

    def __init__(self, arguments: Arguments) -> None:
        self._arguments = arguments
        self._reported: set[str] = set()
        self._last: Snapshot = guarded("the purity check", self._snapshot, {})

    def _snapshot(self) -> Snapshot:
        named = dict(zip(self._arguments.names, self._arguments.values, strict=True))
        return snapshot(self._arguments.fn, named)

    def look(self, order: str) -> list[Failure]:
        """Return what changed since the last look and was not reported before."""
        return guarded("the purity check", lambda: self._look(order), [])

    def _look(self, order: str) -> list[Failure]:
        barrier: Any = jax.effects_barrier
        barrier()
        now = self._snapshot()
        found = [
            (name, what) for name, what in changes(self._last, now) if name not in self._reported
        ]
        self._last = now
        if not found:
            return []
        self._reported |= {name for name, _ in found}
        name, what = found[0]
        return [
            Failure(
                order, "impure", f"a call changes {name}: it {what}",
                tuple(f"{other} {happened}" for other, happened in found[1:6]),
                name,
                hint="return new state instead of storing it; jit stores it once, at trace time",
            )
        ]  # fmt: skip


def _plain(plan: Plan) -> tuple[Batch, Plain]:
    """Run the function on the example and the rows, and fall back where the inputs are to blame.

    Scaled copies that the function cannot take become plain copies; NumPy arrays that it cannot
    take become JAX arrays.
    """
    try:
        batch, plain = _attempt(plan, plan.arguments, scaled=True)
    except PlainCallError as error:
        if not _has_numpy(plan.arguments):
            raise
        values = tuple(_as_jax(value) for value in plan.arguments.values)
        try:
            batch, plain = _attempt(plan, replace(plan.arguments, values=values), scaled=True)
        except PlainCallError:
            raise error from None
        plain.notes.append("NumPy arguments were passed as JAX arrays: the function takes no other")
    return batch, plain


def _attempt(plan: Plan, arguments: Arguments, scaled: bool) -> tuple[Batch, Plain]:
    batch = plan.make_batch(arguments, scaled)
    retry = plan.single and scaled
    try:
        plain = run_plain(arguments.call, batch.example, batch.rows)
    except PlainCallError as error:
        if retry and error.row > 0:
            return _attempt(plan, arguments, scaled=False)
        raise
    if retry and _copies_leave_the_domain(plain):
        return _attempt(plan, arguments, scaled=False)
    return batch, plain


def _copies_leave_the_domain(plain: Plain) -> bool:
    def finite(one: Any) -> bool:
        values = [leaf.value for leaf in one.leaves if leaf.is_array and is_inexact(leaf.value)]
        return all(np.isfinite(np.asarray(value, complex)).all() for value in values)

    return finite(plain.example) and not all(finite(row) for row in plain.rows if row is not None)


def _has_numpy(arguments: Arguments) -> bool:
    leaves = jax.tree.leaves(arguments.values)
    return any(isinstance(leaf, np.ndarray | np.generic) for leaf in leaves)


def _as_jax(value: Any) -> Any:
    def convert(leaf: Any) -> Any:
        return jax.numpy.asarray(leaf) if isinstance(leaf, np.ndarray | np.generic) else leaf

    return jax.tree.map(convert, value)


def _plain_failure(plan: Plan, error: PlainCallError) -> Failure:
    failure = exception_failure(PLAIN, error.error)
    types = [
        f"{name}: {', '.join(short_type(leaf) for leaf in jax.tree.leaves(value)[:6]) or value!r}"
        for name, value in zip(plan.arguments.names, plan.arguments.values, strict=True)
    ]
    facts: tuple[str, ...] = (
        "the function itself fails on a single example, without any transformation",
    )
    if not plan.single:
        facts += (f"one row was taken of each batch by in_axes={plan.in_axes!r}: is that right?",)
    return replace(failure, detail=(*facts, *failure.detail, "arguments: " + "; ".join(types)))


def _plain_context(plan: Plan) -> Context:
    return Context(
        PLAIN, "result", tolerance=lambda dtype: plan.tolerances.of(dtype, PLAIN),
        allowance=lambda _: 0.0, weak=False, treedef=lambda: False,
    )  # fmt: skip


def _nondeterministic(plan: Plan, plain: Plain) -> list[Failure]:
    """Compare two plain calls with equal inputs."""
    if plain.again is None:
        return []
    return [
        replace(
            found,
            kind="nondeterministic",
            message=f"two calls with equal inputs give different results: {found.message}",
            hint="draw with jax.random and pass the key; jit keeps the first draw for ever",
        )
        for found in compare(plain.example, plain.again, _plain_context(plan))[:1]
    ]


def _frozen(plan: Plan, plain: Plain) -> list[Failure]:
    """Compare the plain call with the one that had JIT disabled, if two of those were alike."""
    if _nondeterministic(plan, plain):
        return []
    if isinstance(plain.eager, Exception):
        failure = exception_failure(PLAIN, plain.eager)
        fact = "works with JIT disabled and fails as it is: a jit inside it fails"
        return [replace(failure, detail=(fact, *failure.detail))]
    context = replace(_plain_context(plan), allowance=_loose(plain))
    return [
        replace(
            failure,
            message=f"with the jits inside it {failure.message} (JIT disabled)",
            detail=(
                *failure.detail,
                "something compiled has frozen a value, or depends on being traced",
            ),
        )
        for failure in compare(plain.example, plain.eager, context)
        if failure.kind in ("value", "shape")
    ]


def _loose(plain: Plain) -> Callable[[int], float]:
    """Allow a hundredth of a leaf's scale: loops whose rounding is amplified are no frozen
    values."""

    def allowance(leaf: int) -> float:
        value = plain.example.leaves[leaf].value
        finite = np.abs(np.asarray(value, complex))
        finite = finite[np.isfinite(finite)]
        return 1e-2 * float(finite.max()) if finite.size else 0.0

    return allowance


def subject_of(plan: Plan, batch: Batch, result: Any) -> Subject:
    """Return how the orders are to be applied to the function, which returned ``result``."""
    output = result
    if plan.has_aux:
        output = output[0]
    return Subject(
        plan.arguments.call,
        batch.axes,
        plan.static,
        plan.argnums,
        plan.has_aux,
        plan.filtered or not all(map(is_array_like, jax.tree.leaves(result))),
        fixed_cotangents(output, SEED),
        function_name(plan.arguments.fn).rpartition(".")[2],
    )


def _not_applicable(plan: Plan, batch: Batch, plain: Plain) -> dict[str, str]:
    reasons = {}
    for order in plan.orders:
        names = parts(order)
        reason = _no_vmap(batch) if "vmap" in names else None
        if reason is None and "vmap" not in names and not batch.rows:
            reason = "the batch has no rows, so there is no example"
        if reason is None and "grad" in names:
            reason = _no_grad(plan, plain)
        if reason is not None:
            reasons[order] = reason
    return reasons


def _no_vmap(batch: Batch) -> str | None:
    if not batch.mapped:
        return "no argument has an array to map over"
    keys = [leaf for leaf in jax.tree.leaves(batch.args) if is_key(leaf)]
    for key in keys:
        if "rbg" in str(jax.random.key_impl(key)):
            return "JAX documents that rbg keys give other numbers under vmap than one by one"
    return None


def _no_grad(plan: Plan, plain: Plain) -> str | None:
    if not plan.argnums:
        data = [v for i, v in enumerate(plan.arguments.values) if i not in plan.static]
        if plan.filtered and any(map(is_inexact, jax.tree.leaves(data))):
            return "to equinox's transformations Python numbers are static data: pass arrays"
        return "no argument has floating-point leaves to differentiate"
    output = plain.output[0] if plan.has_aux else plain.output
    leaves = jax.tree.leaves(output)
    if not any(map(is_inexact, leaves)):
        types = ", ".join(short_type(leaf) for leaf in leaves[:3]) or "empty"
        return f"the output has no floating-point leaves (it is {types})"
    return None if "rev" in plan.modes else NO_REVERSE


NO_REVERSE = "modes leaves out reverse mode"
"""Why a gradient is not computed, though the function may be checked in forward mode."""


def _stale(plan: Plan, orders: tuple[str, ...]) -> list[Failure]:
    jitted = [order for order in orders if "jit" in parts(order)]
    if not jitted:
        return []
    return [
        Failure(
            jitted[0], "stale global",
            f"{one.reader} reads the global {one.name!r}, which {one.writer} assigns: a compiled "
            "function keeps the value it had when it was traced",
            path=f"global {one.name!r}",
            hint="pass the value as an argument",
        )
        for one in stale_globals(plan.arguments.fn)
    ]  # fmt: skip
