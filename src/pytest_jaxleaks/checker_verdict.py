"""Is what JAX's own leak checker reports held by user code, or by JAX's caches alone?"""

from __future__ import annotations

import gc
import re
from typing import TYPE_CHECKING, Any

from pytest_jaxleaks.escaped import by_holder
from pytest_jaxleaks.holders import find_holders
from pytest_jaxleaks.jax_internals import tracer_types
from pytest_jaxleaks.leaks import leaks_from

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pytest_jaxleaks.leaks import CodeUnderTest, Leak
    from pytest_jaxleaks.roots import Surroundings

__all__ = ["HELD_BY_JAX", "REASON", "describe_verdict", "explain_checker", "named_tracers"]

HELD_BY_JAX = "held by JAX's own trace cache, not by your code: harmless"
REASON = (
    "JAX keeps what it has traced in order not to trace it again; a value that an inner function "
    "closed over stays there until the cache lets go of it, and no code can use it"
)
_MOST_TYPES = 5


def named_tracers(message: str) -> set[int]:
    """Return the object ids of the tracers that the checker's message names."""
    return set(map(int, re.findall(r"(?:<\w*Tracer |with object id )(\d+)", message)))


def explain_checker(message: str, around: Surroundings, code: CodeUnderTest) -> list[str]:
    """Say who holds the tracers that JAX's checker complains of.

    Args:
        message: the checker's message; if it names no tracer, every living one counts.
        around: how the program can reach values.
        code: what belongs to the project.
    """
    # What was frozen by a watch is looked at, too; the watch freezes it again.
    gc.unfreeze()
    kinds, named = tracer_types(), named_tracers(message)
    living: list[Any] = [obj for obj in gc.get_objects() if id(type(obj)) in kinds]
    tracers = [obj for obj in living if not named or id(obj) in named]
    leaks = leaks_from(find_holders(tracers, around).holdings, code) if tracers else []
    return describe_verdict(message, leaks)


def describe_verdict(message: str, leaks: Sequence[Leak]) -> list[str]:
    """Return the text: a holder in user code, or JAX's caches alone."""
    if leaks:
        return [
            "JAX's leak checker is right: a value of a trace can still be reached.",
            *by_holder(leaks),
        ]
    lines = [
        f"JAX's leak checker reports a value that is {HELD_BY_JAX}.",
        f"  why         {REASON}",
    ]
    types = list(dict.fromkeys(re.findall(r"referred to by <(\w+) \d+>", message)))
    own = [name for name in types if name not in ("list", "tuple", "dict", "set")]
    if own:
        lines.append(f"  chain       {' <- '.join(own[:_MOST_TYPES])}")
    lines.append("  instead     pytest --jax-leaks, which counts only what user code can reach")
    return lines
