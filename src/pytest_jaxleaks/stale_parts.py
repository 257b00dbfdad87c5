"""Parts of globals that code reads and assigns: ``CONFIG["scale"]`` and ``config.scale``."""

from __future__ import annotations

import dis
import types
from typing import TYPE_CHECKING, Any

import jax
import numpy as np

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["assigned_parts", "data_at", "read_parts"]

Part = tuple[str, str, Any]
"""The name of a global, ``.`` or ``[``, and the attribute or the constant key."""

DATA = (bool, int, float, complex, str, np.ndarray, np.generic, jax.Array)


def read_parts(code: types.CodeType) -> set[Part]:
    """Return the parts that the code, or code nested in it, reads straight from a global."""
    return set(_parts(code, "LOAD_ATTR", ("BINARY_SUBSCR", "BINARY_OP")))


def assigned_parts(code: types.CodeType) -> set[Part]:
    """Return the parts that the code, or code nested in it, assigns."""
    return set(_parts(code, "STORE_ATTR", ("STORE_SUBSCR",)))


def _parts(code: types.CodeType, attribute: str, item: tuple[str, ...]) -> Iterator[Part]:
    steps = list(dis.get_instructions(code))
    for first, second, third in zip(steps, steps[1:], [*steps[2:], None], strict=False):
        if first.opname not in ("LOAD_GLOBAL", "LOAD_NAME"):
            continue
        if second.opname == attribute:
            yield str(first.argval), ".", str(second.argval)
        elif second.opname in ("LOAD_CONST", "LOAD_SMALL_INT") and third is not None:
            subscribed = third.opname in item and third.argrepr in ("", "[]")
            if subscribed and isinstance(second.argval, str | int):
                yield str(first.argval), "[", second.argval
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            yield from _parts(constant, attribute, item)


def data_at(part: Part, module: dict[str, Any]) -> bool:
    """Tell whether a part is a number, a text or an array: what a compiled function freezes."""
    name, kind, key = part
    owner = module.get(name)
    try:
        if kind == "[":
            return isinstance(owner, dict | list) and isinstance(owner[key], DATA)
        return isinstance(vars(owner).get(key), DATA)
    except Exception:  # no such key, or no attributes
        return False
