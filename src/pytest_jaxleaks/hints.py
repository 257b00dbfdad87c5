"""One piece of advice per kind of holder."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pytest_jaxleaks.chains import Chain

__all__ = ["hint_for"]

_RETURN_IT = "return it from the traced function and store what the call returns"

_HINTS = {
    "attribute": f"do not assign traced values to attributes: {_RETURN_IT}",
    "class attribute": f"do not assign traced values to class attributes: {_RETURN_IT}",
    "function attribute": f"do not store traced values on a function: {_RETURN_IT}",
    "module variable": f"do not write to a module's variable while tracing: {_RETURN_IT}",
    "local variable": f"a traced function changed a variable outside of it: {_RETURN_IT}",
    "closure variable": (
        "the function closes over a traced value: pass the value as an argument, "
        "or return it beside the function"
    ),
    "default argument": (
        "a mutable default argument lives as long as the function: "
        "use None and make the container inside"
    ),
    "cache": (
        "the cached function ran while JAX traced its caller: wrap its body in "
        "jax.ensure_compile_time_eval(), build a numpy constant, or call it once before jit"
    ),
    "generator variable": (
        "a generator that started while tracing is still suspended: "
        "exhaust or close it inside the traced function"
    ),
    "context variable": (
        "put the old value back before the traced function returns: variable.reset(token)"
    ),
    "thread-local": f"do not store traced values in thread-local storage: {_RETURN_IT}",
    "fixture": f"the fixture's value outlives the traced function: {_RETURN_IT}",
    "object array": f"do not write traced values into a numpy array: {_RETURN_IT}",
}

_BY_CLASS = {
    "LogRecord": "log shapes and dtypes, or use jax.debug.print for values",
    "Mock": "call reset_mock() after the traced call, or record shapes instead of values",
    "MagicMock": "call reset_mock() after the traced call, or record shapes instead of values",
}


def hint_for(chain: Chain) -> str:
    """Return how to mend a leak that is kept in the way that ``chain`` tells."""
    for name in chain.through:
        if name in _BY_CLASS:
            return _BY_CLASS[name]
    if "method" in chain.through:
        return (
            "a bound method keeps its object, traced values included: compute it on access, and "
            "return the parameters from jit to build the object outside"
        )
    return _HINTS.get(chain.kind, f"do not keep traced values: {_RETURN_IT}")
