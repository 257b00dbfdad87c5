"""What usually mends an exception of JAX's."""

from __future__ import annotations

import traceback

__all__ = ["hint_for"]

TUPLES = "pass static arguments as tuples, not lists or arrays"

HINTS = {
    "Non-hashable static arguments": TUPLES,
    "unhashable type": TUPLES,
    "NonConcreteBooleanIndexError": (
        "use jnp.where with a value that does not count instead of a mask"
    ),
    "TracerBoolConversionError": "use jax.lax.cond or jnp.where; or make the argument static",
    "ConcretizationTypeError": (
        "the shape or the branch depends on a value; make that argument static"
    ),
    "TracerIntegerConversionError": "make the argument static (static_argnums)",
    "TracerArrayConversionError": "use jax.numpy instead of numpy",
    "UnexpectedTracerError": "something kept a traced value from an earlier call",
    "Reverse-mode differentiation does not work for lax.while_loop": (
        "use lax.scan, lax.fori_loop with constant bounds or a custom_vjp; "
        "modes=('fwd',) checks forward mode only"
    ),
    "Linearization failed to produce known values": (
        "an operation inside has no reverse mode; custom_vmap has none in this version of JAX, "
        "whatever its rule: wrap the function in a custom_vjp whose primal calls it, or check "
        "orders without grad"
    ),
    "requires real- or complex-valued inputs": (
        "the example is an integer array: give floating-point values (1. instead of 1)"
    ),
    "can't apply forward-mode": (
        "custom_vjp functions have no forward mode; use custom_jvp, or modes=('rev',)"
    ),
    "unbound axis name": (
        "the function mixes the examples of a batch and has no meaning for a single one"
    ),
    "Transpose rule": (
        "the JVP rule is not linear in the tangent, so reverse mode cannot transpose it"
    ),
}
"""From a part of JAX's message, or the name of its exception, to what mends it."""

CUSTOM_VMAP = (
    "a custom_vmap function must not close over a batched value: pass everything it uses as "
    "arguments, and return one flag per output from the rule"
)


def _in_custom_vmap(error: BaseException) -> bool:
    """Tell whether JAX's custom_vmap raised: its asserts have no message, and JAX may have removed
    its own frames, so that only the user's code that names it is left."""
    return any(
        "custom_batching" in frame.f_code.co_filename
        or not {"custom_vmap", "def_vmap"}.isdisjoint(frame.f_code.co_names)
        for frame, _ in traceback.walk_tb(error.__traceback__)
    )


def hint_for(error: BaseException) -> str:
    """Return a hint for an exception, or nothing."""
    text = f"{type(error).__name__}: {error}"
    if isinstance(error, AssertionError) and _in_custom_vmap(error):
        return CUSTOM_VMAP
    return next((hint for key, hint in HINTS.items() if key.lower() in text.lower()), "")
