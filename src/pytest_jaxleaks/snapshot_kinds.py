"""The records that are kept of values: plain data, NumPy arrays and pickles, nothing of JAX's."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import numpy as np

__all__ = [
    "Array",
    "Exact",
    "Function",
    "Items",
    "Node",
    "Number",
    "Pickled",
    "Snapshot",
    "Tree",
    "Unknown",
]


@dataclass(frozen=True, eq=False)
class Snapshot:
    """What was kept of one value.

    Attributes:
        kind: what has to be equal before anything else is compared, as shown: ``float32[3]`` and
            the like with ``weak`` in front for a weak type, else the qualified name of a type.
    """

    kind: str


@dataclass(frozen=True, eq=False)
class Array(Snapshot):
    """An array of JAX or NumPy at its own dtype; of typed keys, their data.

    Attributes:
        value: a copy of the data.
        is_numpy: whether it was NumPy's.
    """

    value: np.ndarray[Any, Any]
    is_numpy: bool


@dataclass(frozen=True, eq=False)
class Number(Snapshot):
    """A Python number, not narrowed.

    Attributes:
        value: the number.
        array_kind: the kind of the array that ``jit`` would return for it; ``None`` if JAX finds
            it too large.
        dtype: the dtype that JAX computes with by default: the number may come from an array.
    """

    value: complex
    array_kind: str | None
    dtype: np.dtype[Any]


@dataclass(frozen=True, eq=False)
class Exact(Snapshot):
    """Text, or the name that tells a function, a type or a member of an enumeration.

    Attributes:
        value: the text or the name.
        is_text: whether it is the value itself.
    """

    value: object
    is_text: bool = False


@dataclass(frozen=True, eq=False)
class Function(Snapshot):
    """A Python function.

    Attributes:
        place: its name and line.
        names: of the plain values that it closes over.
        parts: those values.
    """

    place: str
    names: tuple[str, ...]
    parts: tuple[Snapshot, ...]


@dataclass(frozen=True, eq=False)
class Items(Snapshot):
    """Something with named parts: a dataclass, a NumPy array of objects, a partial function."""

    names: tuple[str, ...]
    parts: tuple[Snapshot, ...]


@dataclass(frozen=True, eq=False)
class Pickled(Snapshot):
    """An object whose class says what equal means."""

    pickle: bytes


@dataclass(frozen=True, eq=False)
class Unknown(Snapshot):
    """An object of which only the type can be compared, and why."""

    why: str


@dataclass(frozen=True, eq=False)
class Node:
    """One node of a treedef.

    Attributes:
        kind: its type; ``*`` for a leaf.
        data: its static data (keys of a dict, static fields).
        children: its children.
    """

    kind: str
    data: Snapshot
    children: tuple[Node, ...]


@dataclass(frozen=True, eq=False)
class Tree(Snapshot):
    """A pytree.

    Attributes:
        text: its treedef as JAX prints it; for messages only, since it abbreviates arrays.
        root: its treedef.
        paths: the key path of each leaf.
        leaves: its leaves.
    """

    text: str
    root: Node
    paths: tuple[str, ...]
    leaves: tuple[Snapshot, ...]
