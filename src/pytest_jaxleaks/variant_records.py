"""What ``jax_record`` keeps of a value, and how the records of two runs are compared."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pytest_jaxleaks.snapshot_differences import Difference, Manner, compare_snapshots
from pytest_jaxleaks.snapshot_kinds import Tree
from pytest_jaxleaks.snapshots import tree_of

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["Record", "differences", "record_of"]

#: A recorded value: its leaves and its treedef.
Record = Tree


def record_of(value: object) -> Record:
    """Describe a pytree so that it can be compared with another run's.

    Args:
        value: any pytree of arrays, scalars, typed PRNG keys, references, exceptions and other
            leaves. A Python number counts as the weakly typed array that JAX makes of it, since
            ``jit`` returns one.

    Returns:
        The record, which can be pickled; it holds no JAX object.

    Raises:
        InvalidArgumentError: if a leaf is a tracer.
    """
    return tree_of(value)


def differences(
    one: Sequence[Record], other: Sequence[Record], *, loose: bool
) -> tuple[list[str], list[str]]:
    """Compare what two runs of a test recorded.

    Args:
        one: the records of one run, in order.
        other: those of the other.
        loose: count 32 and 64 bits as the same, at the coarser tolerance.

    Returns:
        One line per difference, none if the runs agree; and one line per place where only types
        could be compared.
    """
    if len(one) != len(other):
        return [f"number of recorded values: {len(one)} and {len(other)}"], []
    found: list[Difference] = []
    for index, (left, right) in enumerate(zip(one, other, strict=True)):
        name = "value" if len(one) == 1 else f"value {index}"
        found += compare_snapshots(left, right, Manner(loose=loose), name)
    known = [each.line for each in found if each.known]
    return known, [each.line for each in found if not each.known]
