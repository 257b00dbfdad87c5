"""The memories of a function: ``functools.lru_cache`` wrappers of the user's that it calls.

A memory that the plain call has filled hides what a trace would have put there: a first call under
``jax.jit`` leaves its tracers in it.
"""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any

from pytest_jaxleaks.stale import named_by, user_functions

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["memories"]

Memory = type(functools.lru_cache(len))


def memories(fn: Any) -> Iterator[Any]:
    """Yield the memories that a function, or a function of the user's that it calls, names."""
    seen: set[int] = set()
    for function in user_functions(fn):
        for value in [*named_by(function), function]:
            if isinstance(value, Memory) and id(value) not in seen:
                seen.add(id(value))
                if any(True for _ in user_functions(value)):
                    yield value
