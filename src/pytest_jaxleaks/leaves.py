"""Small questions about leaves, asked all over the harness."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

__all__ = [
    "dtype_of",
    "is_array_like",
    "is_differentiated",
    "is_inexact",
    "is_key",
    "key_path",
    "short_type",
    "weak_type_of",
]

SCALARS = (bool, int, float, complex)


def is_array_like(leaf: Any) -> bool:
    """Tell whether ``jax.jit`` would trace this leaf: an array or a Python or NumPy number."""
    if isinstance(leaf, np.ndarray | np.generic):
        return leaf.dtype.kind in "biufcV" and leaf.dtype.names is None
    return isinstance(leaf, (jax.Array, *SCALARS))


def is_key(leaf: Any) -> bool:
    """Tell whether this leaf is a typed PRNG key."""
    return isinstance(leaf, jax.Array) and jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key)


def dtype_of(leaf: Any) -> Any:
    """Return the dtype of an array-like leaf; that of a Python number is JAX's default one."""
    if isinstance(leaf, SCALARS) and not isinstance(leaf, np.generic):
        return jax.dtypes.canonicalize_dtype(np.asarray(leaf).dtype)
    return leaf.dtype


def weak_type_of(leaf: Any) -> bool | None:
    """Tell whether the leaf is weakly typed; None for NumPy's values, which do not know."""
    if isinstance(leaf, np.ndarray | np.generic):
        return None
    return bool(jax.typeof(leaf).weak_type) if not is_key(leaf) else False


def is_inexact(leaf: Any) -> bool:
    """Tell whether the leaf is a real or complex floating-point array or number."""
    if not is_array_like(leaf) or is_key(leaf):
        return False
    return bool(jnp.issubdtype(dtype_of(leaf), jnp.inexact))


def is_differentiated(leaf: Any, filtered: bool) -> bool:
    """Tell whether grad gives this leaf a gradient: equinox gives none to Python numbers."""
    return is_inexact(leaf) and (hasattr(leaf, "dtype") or not filtered)


def short_type(leaf: Any) -> str:
    """Describe a leaf as JAX prints types: ``float32[3]``; others by their type's name."""
    if not is_array_like(leaf):
        return type(leaf).__name__
    shape = ",".join(str(size) for size in np.shape(leaf))
    return f"{dtype_of(leaf)}[{shape}]"


def key_path(path: Any) -> str:
    """Write a key path as Python would: ``.layers[0].weight``; the root is the empty string."""
    return jax.tree_util.keystr(path)
