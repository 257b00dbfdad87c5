"""What the caller asked for, checked and with every default filled in."""

from __future__ import annotations

import operator
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, SupportsIndex

import equinox as eqx
import jax

from pytest_jaxleaks.batches import Batch, axes_by_argument, batch_of_copies, take_rows
from pytest_jaxleaks.errors import InvalidArgumentError
from pytest_jaxleaks.leaves import is_array_like
from pytest_jaxleaks.orders import select
from pytest_jaxleaks.signature import Arguments, choose_argnums, choose_static
from pytest_jaxleaks.tolerances import Tolerances

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

__all__ = ["COPIES", "SEED", "UNSET", "Plan", "check_flag", "make_plan"]

COPIES = 3
"""Rows of a batch made from a single example: two could be taken for a pair of features."""

SEED = 0
"""Of every random direction and cotangent, so that a check gives the same verdict each time."""


class _Unset:
    """Stands for ``in_axes`` that was not given: None means something else."""

    def __repr__(self) -> str:
        return "<not given>"


UNSET: Any = _Unset()


@dataclass(frozen=True)
class Plan:
    """The options of one check; see :func:`pytest_jaxleaks.check_transforms`."""

    arguments: Arguments
    static: tuple[int, ...]
    argnums: tuple[int, ...]
    chosen_argnums: bool
    orders: tuple[str, ...]
    tolerances: Tolerances
    modes: tuple[str, ...]
    chosen_modes: bool
    in_axes: Any
    batch: int | None
    filtered: bool
    has_aux: bool
    numeric: bool
    second_order: bool

    @property
    def single(self) -> bool:
        """Tell whether the arguments are a single example, of which a batch is to be made."""
        return self.in_axes is UNSET or self.batch is not None

    def make_batch(self, arguments: Arguments, scaled: bool) -> Batch:
        """Return the batch, its rows and the example."""
        given = self.in_axes is not UNSET
        axes = axes_by_argument(arguments, self.in_axes, self.static) if given else None
        if not self.single:
            assert axes is not None
            return take_rows(arguments, axes)
        size = COPIES if self.batch is None else self.batch
        return batch_of_copies(arguments, axes, self.static, size, scaled)


def make_plan(arguments: Arguments, options: Mapping[str, Any]) -> Plan:
    """Check the options and fill in the defaults.

    Raises:
        InvalidArgumentError: an option cannot be used; the message names it.
    """
    for name in ("has_aux", "second_order", "numeric"):
        check_flag(name, options[name])
    if options["filtered"] is not None:
        check_flag("filtered", options["filtered"])
    static = choose_static(arguments, options["static_argnums"])
    filtered = options["filtered"]
    if filtered is None:
        values = [value for i, value in enumerate(arguments.values) if i not in static]
        filtered = any(_needs_filters(leaf) for leaf in jax.tree.leaves(values, is_leaf=_is_module))
    argnums = choose_argnums(arguments, options["argnums"], static, filtered)
    return Plan(
        arguments=arguments,
        static=static,
        argnums=argnums,
        chosen_argnums=options["argnums"] is not None,
        orders=select(options["orders"]),
        tolerances=Tolerances(options["rtol"], options["atol"]),
        modes=_modes(options["modes"]),
        chosen_modes=options["modes"] is not None,
        in_axes=options["in_axes"],
        batch=_batch(options["batch"]),
        filtered=filtered,
        has_aux=options["has_aux"],
        numeric=options["numeric"],
        second_order=options["second_order"],
    )


def check_flag(name: str, value: Any) -> None:
    """Refuse what is no bool: a text such as "no" would count as true."""
    if not isinstance(value, bool):
        expected = "True, False or None" if name == "filtered" else "True or False"
        raise InvalidArgumentError(f"{name}={value!r}: expected {expected}")


def _is_module(node: Any) -> bool:
    return isinstance(node, eqx.Module)


def _needs_filters(leaf: Any) -> bool:
    """Tell whether JAX's own transformations do not take a leaf; equinox counts Python numbers
    so."""
    if _is_module(leaf):
        return not all(map(eqx.is_array, jax.tree.leaves(leaf)))
    return not is_array_like(leaf)


def _modes(modes: Sequence[str] | None) -> tuple[str, ...]:
    if modes is None:
        return ("fwd", "rev")
    several = isinstance(modes, Iterable) and not isinstance(modes, str)
    chosen: tuple[Any, ...] = tuple(modes) if several else (modes,)
    if not chosen or not all(mode in ("fwd", "rev") for mode in chosen):
        raise InvalidArgumentError(f"modes={modes!r}: expected 'fwd', 'rev' or both")
    return chosen


def _batch(size: int | None) -> int | None:
    if size is None:
        return None
    usable = isinstance(size, SupportsIndex) and not isinstance(size, bool)
    if not usable or operator.index(size) < 0:
        raise InvalidArgumentError(f"batch={size!r}: expected the number of rows to make, or None")
    return operator.index(size)
