"""Does a custom derivative rule return the function's own value beside the derivative?

A ``custom_jvp`` rule, and the ``fwd`` of a ``custom_vjp``, stand in for the function while it is
differentiated: what they return as its value is the loss that ``jax.value_and_grad`` gives.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from pytest_jaxleaks.failures import Failure

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pytest_jaxleaks.worlds import World

__all__ = ["wrong_rule_value"]

RULES = {"rev": "jax.value_and_grad", "fwd": "jax.jvp"}


def wrong_rule_value(world: World, modes: Sequence[str], order: str, rtol: float) -> Failure | None:
    """Compare the outputs under differentiation with those of the function alone.

    Args:
        world: the function at a point.
        modes: ``rev`` and ``fwd``, or one of them: the first is looked at, for both use the same
            rules.
        order: the order to blame.
        rtol: allowed relative deviation, per element: a rule may compute the value another way.
    """
    if not modes or not world.has_rules():
        return None
    rounding = 64 * world.precision()
    pairs = zip(world.outputs(), world.outputs_by_rule(modes[0]), strict=True)
    for number, (want, got) in enumerate(pairs):
        with np.errstate(all="ignore"):
            gap = np.where(np.isfinite(want) & np.isfinite(got), np.abs(got - want), 0.0)
            size = np.where(np.isfinite(want), np.abs(want), 0.0)
        excess = gap - rtol * size - rounding * size.max(initial=0.0)
        if not excess.size or excess.max() <= 0:
            continue
        index = tuple(int(i) for i in np.unravel_index(int(excess.argmax()), excess.shape))
        where = "result" if len(world.program.cotangents) == 1 else f"leaf {number} of the result"
        return Failure(
            order, "rule value",
            f"{RULES[modes[0]]} gives {got[index]:.6g} for {where}{list(index) if index else ''}, "
            f"the function itself {want[index]:.6g}",
            ("the rule of a custom_jvp, or the fwd of a custom_vjp, returns another value than "
             "the function",),
            where, index, want[index], got[index],
            f"{rtol:g} per element: a rule may compute the value another way",
            "return the function's own value from the rule, beside the tangent or the residuals",
        )  # fmt: skip
    return None
