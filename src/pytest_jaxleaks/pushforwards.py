"""Is what forward mode computes the derivative that reverse mode, or the values, promise?"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from pytest_jaxleaks.failures import Failure
from pytest_jaxleaks.numeric import Deviation, Prober, by_pushforward, dot, judge, spread

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from pytest_jaxleaks.gradients import GradientCheck, Terms
    from pytest_jaxleaks.worlds import Point

__all__ = ["LINEARITY_FACTOR", "judge_forward"]

LINEARITY_FACTOR = -2.5
"""The cotangent and the tangent are scaled by this; a linear rule scales its result by the same."""


def judge_forward(
    prober: Prober, tangent: Point, gradient: Point | None, terms: Terms, check: GradientCheck
) -> None:
    """Compare forward mode with the gradient, or with differences where there is none."""
    world, order = prober.world, terms.order
    try:
        push = world.pushforward()
        along = push(tangent)
    except Exception as error:
        if terms.strict_fwd:
            check.failures.append(
                Failure(order, "exception", f"forward mode raises {type(error).__name__}: {error}",
                        exception=error)
            )  # fmt: skip
        return
    check.modes.append("fwd")
    if not np.isfinite(along):
        return
    if gradient is None or not all(np.isfinite(leaf).all() for leaf in gradient):
        check.failures.extend(_forward_by_differences(prober, push, tangent, terms))
        return
    expected = dot(gradient, tangent)
    size = max(abs(expected), abs(along), spread(gradient, tangent))
    bound = 1e-6 * size
    if abs(along - expected) <= bound:
        return
    if abs(along - expected) <= 256 * world.precision() * max(size, prober.scale()):
        return
    nonlinear = _nonlinear_pushforward(push, tangent, f"reverse mode {expected:.6g}", order)
    check.failures.append(
        nonlinear
        or Failure(
            order, "gradient",
            f"forward mode gives {along:.6g} along a random direction, reverse mode "
            f"{expected:.6g}",
            ("grad and jvp disagree: <v, grad f> should equal jvp(f, v)",),
            ", ".join(world.names), None, expected, along, f"{bound:.2g}",
            hint=RULES_HINT,
        )
    )  # fmt: skip


def _forward_by_differences(
    prober: Prober, push: Callable[[Point], float], tangent: Point, terms: Terms
) -> Iterator[Failure]:
    """Judge forward mode where there is no gradient to compare it with."""
    world, order = prober.world, terms.order
    outcome = judge(prober, by_pushforward(push), tangent, terms.rtol)
    if not isinstance(outcome, Deviation) or prober.has_kink(tangent) or world.implicit():
        return
    differences = f"differences of the values {outcome.expected:.6g}"
    nonlinear = _nonlinear_pushforward(push, tangent, differences, order)
    if nonlinear is not None:
        yield nonlinear
        return
    where, name = "along a random direction", ", ".join(world.names)
    if outcome.leaf is not None:
        name = world.names[outcome.leaf]
        where = f"as the derivative by {name}{list(outcome.index) if outcome.index else ''}"
    yield Failure(
        order, "gradient",
        f"forward mode gives {outcome.actual:.6g} {where}, {differences}", (),
        name, outcome.index, outcome.expected, outcome.actual, f"{outcome.bound:.2g}",
        hint=RULES_HINT,
    )  # fmt: skip


RULES_HINT = "look at the custom_jvp rules on the way"


def _nonlinear_pushforward(
    push: Callable[[Point], float], tangent: Point, wanted: str, order: str
) -> Failure | None:
    along = push(tangent)
    scaled = push([LINEARITY_FACTOR * leaf for leaf in tangent])
    if abs(scaled - LINEARITY_FACTOR * along) <= 1e-3 * max(abs(scaled), abs(along)):
        return None
    return Failure(
        order, "nonlinear jvp",
        "a JVP rule is not linear in the tangent, so it cannot be transposed: with the tangent "
        f"times {LINEARITY_FACTOR:g} it gives {scaled:.6g}, "
        f"expected {LINEARITY_FACTOR * along:.6g}",
        (f"along a random direction it gives {along:.6g}, {wanted}",),
        expected=LINEARITY_FACTOR * along, actual=scaled,
        hint="use the tangent only in products and sums in a custom_jvp rule",
    )  # fmt: skip
