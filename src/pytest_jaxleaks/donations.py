"""Functions that give the memory of their arguments away: they are called with copies."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp

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
    """Read what ``jax.jit`` was asked for.

    No public name tells it: ``_jit_info`` was seen in jax 0.10.2 and 0.12.0.1, ``donate_first`` and
    ``donate_rest`` in equinox 0.13. Where they are missing, nothing is donated as far as we know.
    """
    info = getattr(value, "_jit_info", None) if callable(value) else None
    if getattr(info, "donate_argnums", ()) or getattr(info, "donate_argnames", ()):
        return True
    if type(value).__module__.partition(".")[0] != "equinox":
        return False
    return bool(getattr(value, "donate_first", False) or getattr(value, "donate_rest", False))


def copies(values: Sequence[Any]) -> tuple[Any, ...]:
    """Copy every array of JAX's among some arguments, traced ones too."""

    def copied(leaf: Any) -> Any:
        return jnp.array(leaf, copy=True) if isinstance(leaf, jax.Array) else leaf

    return tuple(jax.tree.map(copied, value) for value in values)
