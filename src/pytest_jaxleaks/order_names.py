"""The names of the orders, which pytest needs at collection, before anything imports JAX."""

from __future__ import annotations

import itertools

__all__ = ["ORDERS", "parts"]


def _orders() -> tuple[str, ...]:
    names = [
        chosen
        for count in (1, 2, 3)
        for chosen in itertools.permutations(("jit", "vmap", "grad"), count)
    ]
    return tuple("(".join(chosen) + ")" * (len(chosen) - 1) for chosen in names)


ORDERS = _orders()
"""All 15, the shortest first: every composition of a non-empty subset of jit, vmap and grad."""


def parts(order: str) -> tuple[str, ...]:
    """Return the transformations of an order, the outermost first."""
    return tuple(order.rstrip(")").split("("))
