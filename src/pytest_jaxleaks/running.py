"""Run one order and collect everything that is wrong with it."""

from __future__ import annotations

import re
import traceback
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import jax

from pytest_jaxleaks.compare import Context, compare
from pytest_jaxleaks.differenced import differenced_rows
from pytest_jaxleaks.errors import TracerLeakError
from pytest_jaxleaks.failures import Failure
from pytest_jaxleaks.meanings import Expectations, is_batched, label_gradient, meaning
from pytest_jaxleaks.order_names import parts
from pytest_jaxleaks.results import Result, flatten
from pytest_jaxleaks.retraces import static_changes, traces, type_changes, weak_type_feedback
from pytest_jaxleaks.second_calls import new_values, unhashable
from pytest_jaxleaks.tolerances import NUMERIC_RTOL, Tolerance
from pytest_jaxleaks.transform_hints import hint_for

if TYPE_CHECKING:
    from collections.abc import Callable

    from pytest_jaxleaks.blocks import RepeatedLooks
    from pytest_jaxleaks.tolerances import Tolerances

__all__ = ["exception_failure", "run_order"]

_wait: Any = jax.block_until_ready

HERE = str(Path(__file__).parent)


def run_order(
    order: str, expected: Expectations, tolerances: Tolerances, looks: RepeatedLooks
) -> list[Failure]:
    """Apply an order to the function and compare.

    Args:
        order: the order.
        expected: the references.
        tolerances: the caller's wishes.
        looks: looks for leaks.
    """
    args = expected.batch.args if is_batched(order) else expected.batch.example
    transformed = expected.built(order)
    failures: list[Failure] = []
    looks.begin()
    try:
        raw = _wait(transformed(*args))
    except Exception as error:
        failure = exception_failure(order, error)
        blamed = unhashable(args, expected.names, expected.subject.static)
        if not blamed or "jit" not in parts(order):
            return [failure]
        return [replace(failure, detail=(*blamed, *failure.detail), hint="")]
    try:
        looks.end()
    except TracerLeakError as error:
        failures.append(_leak_failure(order, error))
    failures += _compare(order, flatten(raw), expected, tolerances)
    if parts(order)[0] == "jit":
        failures += _retrace(order, transformed, args, expected)
    if order == "jit":
        failures += weak_type_feedback(order, raw, args, expected.names)
    return failures


def _leak_failure(order: str, error: TracerLeakError) -> Failure:
    return Failure(
        order, "leak", "a tracer outlives the transformation", tuple(str(error).splitlines()),
        exception=error,
    )  # fmt: skip


def exception_failure(order: str, error: BaseException) -> Failure:
    """Report what an order raised: JAX's own message, and where the function raised it."""
    text = "".join(traceback.format_exception_only(error)).strip()
    lines = re.sub(rf" at {re.escape(HERE)}\S*\.py:\d+", "", text).splitlines()
    where = [
        f"at {Path(frame.filename).name}:{frame.lineno}, in {frame.name}: {frame.line}"
        for frame in traceback.extract_tb(error.__traceback__)
        if not frame.filename.startswith(HERE) and "site-packages" not in frame.filename
    ]
    return Failure(
        order, "exception", f"raises {lines[0]}", (*where[-2:], *lines[1:12]),
        hint=hint_for(error), exception=error,
    )  # fmt: skip


def _compare(
    order: str, result: Result, expected: Expectations, tolerances: Tolerances
) -> list[Failure]:
    gradient = "grad" in parts(order)
    if gradient:
        result = label_gradient(result, expected.subject, expected.names)
        expected.keep(order, result)
    try:
        reference = expected.result(order)
    except Exception:  # jax.grad of the plain function raises, which is that order's failure
        return _compare_by_differences(order, result, expected)
    plain = expected.plain
    context = Context(
        order,
        "gradient" if gradient else "result",
        tolerance=lambda dtype: tolerances.of(dtype, order),
        allowance=lambda leaf: (
            expected.allowance(order, leaf) if tolerances.open_for(order) else 0.0
        ),
        alternative=plain.alternative if meaning(order) == "value" else lambda: None,
        weak=meaning(order) == "value",
        treedef=(lambda: False) if gradient else plain.stable_treedef,
    )
    failures = compare(reference, result, context)
    return [_diagnosed(failure, order, expected) for failure in failures]


def _compare_by_differences(order: str, result: Result, expected: Expectations) -> list[Failure]:
    """Compare a gradient that ``jax.grad`` of the plain function cannot give."""
    rows = expected.batch.rows if is_batched(order) else (expected.batch.example,)
    found = None if expected.subject.has_aux else differenced_rows(expected, rows)
    if found is None:
        note = f"{order} runs, but was not judged: jax.grad of the plain function raises"
        expected.plain.notes.append(note)
        return []
    source = Tolerance(NUMERIC_RTOL, 0.0, NUMERIC_RTOL, "differences of the values")
    dtypes = [leaf.dtype for leaf in result.leaves]
    reference = expected.combine(order, found)
    typed = [replace(leaf, dtype=d) for leaf, d in zip(reference.leaves, dtypes, strict=True)]
    context = Context(
        order, "gradient", lambda _: source, lambda _: 0.0, weak=False, treedef=lambda: False
    )
    return compare(Result(tuple(typed), result.treedef), result, context)


def _diagnosed(failure: Failure, order: str, expected: Expectations) -> Failure:
    """Add what a second look tells: do the rows of a batch influence one another?"""
    if failure.kind != "value" or not is_batched(order) or "grad" in parts(order):
        return failure
    if not _rows_influence_each_other(failure, expected):
        return failure
    fact = "the rows influence one another: a row's result changes when only the other rows do"
    return replace(failure, detail=(*failure.detail, fact), hint=ROWS_HINT)


ROWS_HINT = (
    "a statistic over the batch, a callback that reduces over the batch axis (see vmap_method) "
    "or a custom_vmap rule mixes the examples"
)


def _rows_influence_each_other(failure: Failure, expected: Expectations) -> bool:
    batch = expected.batch
    if len(batch.rows) < 2 or not failure.index:
        return False
    row = failure.index[0]
    numbers = [row] * len(batch.rows)
    try:
        repeated = flatten(expected.built("vmap")(*batch.choose(numbers)))
    except Exception:  # the failure stands all the same; only this explanation of it does not
        return False
    both = zip(repeated.leaves, expected.result("vmap").leaves, strict=True)
    for leaf, reference in both:
        if leaf.path == failure.path and leaf.is_array:
            got, want = leaf.value[failure.index], reference.value[failure.index]
            return bool(abs(got - failure.actual) > abs(failure.actual - want) / 100)
    return False


def _retrace(
    order: str, transformed: Callable[..., Any], args: tuple[Any, ...], expected: Expectations
) -> list[Failure]:
    """Call again with new values of the same types: nothing may be traced."""
    subject = expected.subject
    try:
        again = new_values(args, subject.static, subject.filtered)
        with traces() as seen:
            _wait(transformed(*again))
    except Exception as error:
        return [exception_failure(order, error)]
    if not seen:
        return []
    named = static_changes(args, again, expected.names, subject.static)
    data = [i for i in range(len(args)) if i not in subject.static]
    changed = named + type_changes(
        tuple(args[i] for i in data),
        tuple(again[i] for i in data),
        tuple(expected.names[i] for i in data),
    )
    return [
        Failure(
            order, "retrace",
            "traces again when it is called a second time with new values of the same types",
            (*(changed or ["no argument changed its type"]),
             f"traced: {', '.join(dict.fromkeys(seen))}"),
            hint=STATIC_HINT if named else RETRACE_HINT,
        )
    ]  # fmt: skip


RETRACE_HINT = (
    "static data must compare equal after a rebuild: no bound methods, lambdas or arrays in it"
)

STATIC_HINT = (
    "a static argument is looked up by == and hash: pass a function with a name, or an object of a "
    "frozen dataclass"
)
