"""Judge the gradients of an example and of the rows by differences of values."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from pytest_jaxleaks.gradients import check_gradient, nan_gradients
from pytest_jaxleaks.numeric import Prober
from pytest_jaxleaks.order_names import parts
from pytest_jaxleaks.plan import SEED, Plan
from pytest_jaxleaks.worlds import World, make_world

if TYPE_CHECKING:
    from pytest_jaxleaks.failures import Failure
    from pytest_jaxleaks.meanings import Expectations

__all__ = ["Judgement", "judge_gradients"]


@dataclass
class Judgement:
    """What was found, and what could not be said."""

    failures: list[Failure] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)


def judge_gradients(plan: Plan, expected: Expectations, orders: tuple[str, ...]) -> Judgement:
    """Check the gradient of the example by differences, and that of every row for NaN.

    The failures are those of the shortest order with grad: longer ones have been compared with it.
    """
    judgement = Judgement()
    differentiated = [order for order in orders if "grad" in parts(order)]
    if not plan.numeric or not expected.batch.rows:
        return judgement
    if not make_world(expected.subject, expected.names, expected.batch.example).point:
        return judgement
    shortest = differentiated[0]
    world = _world(expected, expected.batch.example)
    if world is None:
        judgement.notes.append(
            "the gradient was not judged by differences: the function could not be run again"
        )
        return judgement
    trapped = _nan_rows(expected, shortest)
    if trapped is not None:
        judgement.failures.append(_alike(trapped, differentiated))
        return judgement
    rtol = plan.tolerances.rtol if isinstance(plan.tolerances.rtol, float) else None
    found = check_gradient(world, shortest, plan.modes, plan.chosen_modes, SEED, rtol)
    judgement.failures += [_alike(failure, differentiated) for failure in found.failures]
    judgement.notes += found.notes
    return judgement


def _alike(failure: Failure, orders: list[str]) -> Failure:
    from dataclasses import replace

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
        world = make_world(expected.subject, expected.names, args, double)
        try:
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
        if world is None or len(world.point) != len(leaves):
            continue
        wide = [np.asarray(v, complex if np.iscomplexobj(v) else float) for v in leaves]
        found = nan_gradients(Prober(world, world.precision), wide, order)
        if found is not None:
            return found
    return None


def expected_names(expected: Expectations) -> tuple[str, ...]:
    """Return the names of the differentiated leaves."""
    return make_world(expected.subject, expected.names, expected.batch.example, False).names
