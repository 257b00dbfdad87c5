"""Functions that give the memory of their arguments away: they are called with copies."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp

from pytest_jaxleaks.jax_internals import donates_arguments
from pytest_jaxleaks.links import module_name
from pytest_jaxleaks.stale import named_by, user_functions

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["copies", "donates"]


def donates(fn: Any) -> bool:
    """Tell whether a function, or one that it or a function of the user's names, donates
    arguments."""
    named = [value for function in user_functions(fn) for value in named_by(function)]
    return any(map(_donates, [fn, *named]))


def _donates(value: Any) -> bool:
    """Read what ``jax.jit`` or ``equinox.filter_jit`` was asked for.

    No public name of equinox tells it: ``donate_first`` and ``donate_rest`` were seen in 0.13.
    Where they are missing, nothing is donated as far as we know.
    """
    if module_name(type(value)).partition(".")[0] != "equinox":
        return donates_arguments(value)
    return bool(getattr(value, "donate_first", False) or getattr(value, "donate_rest", False))


def copies(values: Sequence[Any]) -> tuple[Any, ...]:
    """Copy every array of JAX's among some arguments, traced ones too."""

    def copied(leaf: Any) -> Any:
        return jnp.array(leaf, copy=True) if isinstance(leaf, jax.Array) else leaf

    return tuple(jax.tree.map(copied, value) for value in values)
