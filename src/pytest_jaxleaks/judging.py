"""Judge the gradients of an example and of the rows by differences of values."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from pytest_jaxleaks.gradients import (
    GradientCheck,
    Terms,
    check_gradient,
    check_row,
    nan_gradients,
)
from pytest_jaxleaks.numeric import Prober
from pytest_jaxleaks.plan import SEED, Plan
from pytest_jaxleaks.tolerances import NUMERIC_RTOL, machine_epsilon
from pytest_jaxleaks.worlds import Worlds

if TYPE_CHECKING:
    from pytest_jaxleaks.failures import Failure
    from pytest_jaxleaks.meanings import Expectations
    from pytest_jaxleaks.results import Leaf

__all__ = ["Judgement", "judge_gradients"]


@dataclass
class Judgement:
    """What was found, and what could not be said."""

    failures: list[Failure] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)


def judge_gradients(plan: Plan, expected: Expectations, orders: tuple[str, ...]) -> Judgement:
    """Check the gradient of the example and of every row by differences.

    Args:
        plan: what the caller asked for.
        expected: the references.
        orders: the orders with grad; the first one is blamed, the others have been compared with
            it.
    """
    judgement = Judgement()
    ran = orders if "rev" in plan.modes else orders[:1]
    example = expected.batch.example
    if not plan.numeric or not expected.batch.rows:
        return judgement
    worlds = _worlds(expected, example)
    if worlds is None:
        judgement.notes.append(
            "the gradient was not judged by differences: the function could not be run again"
        )
        return judgement
    world = worlds.world(example)
    if not world.names:
        return judgement
    trapped = None
    if "rev" in plan.modes:
        trapped = _nan_rows(expected, orders[0], worlds, set(world.names))
    if trapped is not None:
        judgement.failures.append(_alike(trapped, ran))
        return judgement
    asked = plan.tolerances.relative(orders[0])
    rtol = NUMERIC_RTOL if asked is None else asked
    terms = Terms(orders[0], plan.modes, plan.chosen_modes, SEED, rtol)
    found = check_gradient(world, terms)
    if not found.failures:
        found = _other_rows(expected, worlds, replace(terms, modes=tuple(found.modes)), found)
    judgement.failures += [_alike(failure, ran) for failure in found.failures]
    judgement.notes += found.notes
    if plan.second_order and not found.failures:
        again = replace(terms, order="grad(grad)", staircases=False)
        second = check_gradient(world.of_gradient(SEED), again)
        judgement.failures += second.failures
        judgement.notes += second.notes
    return judgement


def _other_rows(
    expected: Expectations, worlds: Worlds, terms: Terms, found: GradientCheck
) -> GradientCheck:
    """Judge the rows that are not the example, up to the first one that fails."""
    batch = expected.batch
    for number, row in enumerate(batch.rows):
        if row is batch.example or not all(map(_finite, expected.value(number).leaves)):
            continue
        one = check_row(worlds.world(row), terms)
        notes = [*found.notes, *one.notes]
        failures = [_in_row(failure, batch.numbers[number]) for failure in one.failures]
        found = replace(found, notes=notes, failures=failures)
        if failures:
            break
    return found


def _in_row(failure: Failure, number: int) -> Failure:
    return replace(failure, message=f"in row {number} of the batch: {failure.message}")


def _alike(failure: Failure, orders: tuple[str, ...]) -> Failure:
    if len(orders) == 1:
        return failure
    fact = (
        f"{len(orders) - 1} longer orders agree with it and are as wrong: {', '.join(orders[1:])}"
    )
    return replace(failure, detail=(*failure.detail, fact))


def _worlds(expected: Expectations, example: tuple[Any, ...]) -> Worlds | None:
    """See examples in float64 if the function runs in it and is finite there, as they are
    otherwise."""
    for double in (True, False):
        worlds = Worlds(expected.subject, expected.names, expected.batch.leaf_axes, double)
        try:
            world = worlds.world(example)
            value = world.value(world.point)
        except Exception:  # a function may insist on its dtypes
            continue
        if np.isfinite(value) or not double:
            return worlds
    return None


def _nan_rows(
    expected: Expectations, order: str, worlds: Worlds, names: set[str]
) -> Failure | None:
    rows = expected.batch.rows
    for number in [-1, *range(len(rows))]:
        try:
            gradient = expected.gradient(number)
        except Exception:  # the orders report it
            return None
        count = sum(leaf.path in names for leaf in gradient.leaves)
        leaves = [leaf.value for leaf in gradient.leaves[:count]]
        if all(np.isfinite(np.asarray(leaf, complex)).all() for leaf in leaves):
            continue
        if not all(map(_finite, expected.value(number).leaves)):
            continue
        world = worlds.world(expected.batch.example if number < 0 else rows[number])
        if len(world.point) != len(leaves):
            continue
        wide = [np.asarray(v, complex if np.iscomplexobj(v) else float) for v in leaves]
        found = nan_gradients(Prober(world, world.precision), wide, order)
        if found is not None:
            return found if number < 0 else _in_row(found, expected.batch.numbers[number])
    return None


def _finite(leaf: Leaf) -> bool:
    if not leaf.is_array or machine_epsilon(leaf.dtype) == 0.0:
        return True
    return bool(np.isfinite(np.asarray(leaf.value, complex)).all())
