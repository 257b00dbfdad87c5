"""A gradient out of nothing but differences, for functions that ``jax.grad`` cannot differentiate.

``jax.grad`` of a ``custom_vmap`` function raises, while ``grad`` of its ``vmap`` runs: the rule is
differentiated instead. Such an order has no other reference.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from pytest_jaxleaks.results import Leaf, Result
from pytest_jaxleaks.worlds import Worlds

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pytest_jaxleaks.meanings import Expectations
    from pytest_jaxleaks.worlds import Point, World

__all__ = ["differenced_rows"]

MOST_ELEMENTS = 256
"""Two values are computed for each element of each row."""

STEP = 2.0**-14
"""Relative to an element's size; see :data:`pytest_jaxleaks.numeric.STEPS`."""


def differenced_rows(
    expected: Expectations, rows: Sequence[tuple[Any, ...]]
) -> list[Result] | None:
    """Return the gradient of each row, element by element; None where that takes too long."""
    worlds = Worlds(expected.subject, expected.names, expected.batch.leaf_axes)
    points = [worlds.world(row) for row in rows]
    if not points or sum(leaf.size for leaf in points[0].point) > MOST_ELEMENTS:
        return None
    return [_gradient(world) for world in points]


def _gradient(world: World) -> Result:
    leaves = []
    for number, name in enumerate(world.names):
        at = world.point[number]
        gradient = np.zeros_like(at)
        for index in np.ndindex(at.shape):
            gradient[index] = _slope(world, number, index, 1.0)
            if np.iscomplexobj(at):
                gradient[index] -= 1j * _slope(world, number, index, 1j)
        leaves.append(Leaf(name, gradient, gradient.dtype))
    return Result(tuple(leaves), None)


def _slope(world: World, number: int, index: tuple[int, ...], unit: complex) -> float:
    step = STEP * max(float(np.abs(world.point[number][index])), 1.0)

    def moved(by: float) -> Point:
        point = [leaf.copy() for leaf in world.point]
        point[number][index] += by * unit
        return point

    return (world.value(moved(step)) - world.value(moved(-step))) / (2 * step)
