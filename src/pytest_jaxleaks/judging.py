"""Judge the gradients of an example and of the rows by differences of values."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from pytest_jaxleaks.gradients import Terms, check_gradient, nan_gradients
from pytest_jaxleaks.numeric import Prober
from pytest_jaxleaks.plan import SEED, Plan
from pytest_jaxleaks.tolerances import NUMERIC_RTOL, machine_epsilon
from pytest_jaxleaks.worlds import World, make_world

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
    """Check the gradient of the example by differences, and that of every row for NaN.

    Args:
        plan: what the caller asked for.
        expected: the references.
        orders: the orders with grad; the first one is blamed, the others have been compared with
            it.
    """
    judgement = Judgement()
    ran = orders if "rev" in plan.modes else orders[:1]
    example = expected.batch.example
    if not plan.numeric or not expected.batch.rows or not expected_names(expected):
        return judgement
    world = _world(expected, example)
    if world is None:
        judgement.notes.append(
            "the gradient was not judged by differences: the function could not be run again"
        )
        return judgement
    trapped = _nan_rows(expected, orders[0]) if "rev" in plan.modes else None
    if trapped is not None:
        judgement.failures.append(_alike(trapped, ran))
        return judgement
    rtol = plan.tolerances.rtol if isinstance(plan.tolerances.rtol, float) else NUMERIC_RTOL
    terms = Terms(orders[0], plan.modes, plan.chosen_modes, SEED, rtol)
    found = check_gradient(world, terms)
    judgement.failures += [_alike(failure, ran) for failure in found.failures]
    judgement.notes += found.notes
    if plan.second_order and not found.failures:
        again = replace(terms, order="grad(grad)", staircases=False)
        second = check_gradient(world.of_gradient(SEED), again)
        judgement.failures += second.failures
        judgement.notes += second.notes
    return judgement


def _alike(failure: Failure, orders: tuple[str, ...]) -> Failure:
    if len(orders) == 1:
        return failure
    fact = (
        f"{len(orders) - 1} longer orders agree with it and are as wrong: {', '.join(orders[1:])}"
    )
    return replace(failure, detail=(*failure.detail, fact))


def _world(expected: Expectations, args: tuple[Any, ...]) -> World | None:
    """See an example in float64 if the function runs in it and is finite there, as it is
    otherwise."""
    for double in (True, False):
        try:
            world = make_world(expected.subject, expected.names, args, double)
            value = world.value(world.point)
        except Exception:  # a function may insist on its dtypes
            continue
        if np.isfinite(value) or not double:
            return world
    return None


def _nan_rows(expected: Expectations, order: str) -> Failure | None:
    rows = expected.batch.rows
    for number in [-1, *range(len(rows))]:
        try:
            gradient = expected.gradient(number)
        except Exception:  # the orders report it
            return None
        count = sum(leaf.path in set(expected_names(expected)) for leaf in gradient.leaves)
        leaves = [leaf.value for leaf in gradient.leaves[:count]]
        if all(np.isfinite(np.asarray(leaf, complex)).all() for leaf in leaves):
            continue
        world = _world(expected, expected.batch.example if number < 0 else rows[number])
        if not all(map(_finite, expected.value(number).leaves)):
            continue
        if world is None or len(world.point) != len(leaves):
            continue
        wide = [np.asarray(v, complex if np.iscomplexobj(v) else float) for v in leaves]
        found = nan_gradients(Prober(world, world.precision), wide, order)
        if found is not None:
            return found
    return None


def _finite(leaf: Leaf) -> bool:
    if not leaf.is_array or machine_epsilon(leaf.dtype) == 0.0:
        return True
    return bool(np.isfinite(np.asarray(leaf.value, complex)).all())


def expected_names(expected: Expectations) -> tuple[str, ...]:
    """Return the names of the differentiated leaves."""
    return make_world(expected.subject, expected.names, expected.batch.example, False).names
