"""Is what JAX's own leak checker reports held by user code, or by JAX's caches alone?"""

from __future__ import annotations

import dataclasses
import re
from typing import TYPE_CHECKING, Any

from pytest_jaxleaks import collector as gc
from pytest_jaxleaks.escaped import by_holder
from pytest_jaxleaks.holders import find_holders
from pytest_jaxleaks.jax_internals import tracer_types
from pytest_jaxleaks.leaks import leaks_from
from pytest_jaxleaks.watching import Watch

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pytest_jaxleaks.leaks import CodeUnderTest, Leak
    from pytest_jaxleaks.roots import Surroundings

__all__ = [
    "HELD_BY_JAX",
    "REASON",
    "describe_verdict",
    "explain_checker",
    "know_living",
    "named_tracers",
    "with_variant",
]

HELD_BY_JAX = "held by JAX's own trace cache, not by your code: harmless"
REASON = (
    "JAX keeps what it has traced in order not to trace it again; a value that an inner function "
    "closed over stays there until the cache lets go of it, and no code can use it"
)
_MOST_TYPES = 5


def named_tracers(message: str) -> set[int]:
    """Return the object ids of the tracers that the checker's message names."""
    return set(map(int, re.findall(r"(?:<\w*Tracer |with object id )(\d+)", message)))


def know_living() -> None:
    """Do not count what is alive now among the leaks of the test that comes next."""
    kinds, watch = tracer_types(), Watch()
    for obj in gc.get_objects():
        if id(type(obj)) in kinds:
            watch.know(obj)


def explain_checker(
    message: str,
    around: Surroundings,
    code: CodeUnderTest,
    own: Sequence[Leak] | None = None,
) -> list[str]:
    """Say who holds the tracers that JAX's checker complains of.

    Args:
        message: the checker's message; if it names no tracer, every living one counts.
        around: how the program can reach values.
        code: what belongs to the project.
        own: what the leak check has found in this test; None if the test is not checked.
    """
    # What was frozen by a watch is looked at, too; the watch freezes it again.
    gc.unfreeze()
    kinds, named = tracer_types(), named_tracers(message)
    living: list[Any] = [obj for obj in gc.get_objects() if id(type(obj)) in kinds]
    leaks = _held([obj for obj in living if not named or id(obj) in named], around, code)
    if own is None:
        watch = Watch()
        if named and not leaks:
            # The checker stops at the first value that it comes upon, and that may be a harmless
            # one. Functions that were being traced hold theirs rightly: only the frame of the test
            # itself counts.
            new = [tracer for tracer in living if not watch.knows(tracer)]
            own = _held(new, dataclasses.replace(around, frames=around.frames[:1]), code)
        for tracer in living:
            watch.know(tracer)  # it is not the next test's
    return describe_verdict(message, leaks, own or ())


def _held(tracers: list[Any], around: Surroundings, code: CodeUnderTest) -> list[Leak]:
    return leaks_from(find_holders(tracers, around).holdings, code) if tracers else []


def describe_verdict(
    message: str, leaks: Sequence[Leak], besides: Sequence[Leak] = ()
) -> list[str]:
    """Return the text: a holder in user code, or JAX's caches alone.

    Args:
        message: the checker's message.
        leaks: who holds the values that it names.
        besides: other leaks that showed when it was raised.
    """
    if leaks:
        return [
            "JAX's leak checker is right: a value of a trace can still be reached.",
            *by_holder(leaks),
        ]
    if besides:
        return [
            "JAX's leak checker stopped at a value that only JAX's own trace cache holds, but your "
            "code keeps a traced value, too:",
            *by_holder(besides),
        ]
    lines = [
        f"JAX's leak checker reports a value that is {HELD_BY_JAX}.",
        f"  why         {REASON}",
    ]
    types = list(dict.fromkeys(re.findall(r"referred to by <(\w+) \d+>", message)))
    own = [name for name in types if name not in ("list", "tuple", "dict", "set")]
    if own:
        lines.append(f"  chain       {' <- '.join(own[:_MOST_TYPES])}")
    lines.append(
        "  instead     pytest --jax-leaks, which runs the test to its end and counts only what "
        "user code can reach"
    )
    return lines


def with_variant(lines: Sequence[str], nodeid: str) -> list[str]:
    """Return a verdict for a test of which another variant leaks: it is not harmless then."""
    if HELD_BY_JAX not in lines[0]:
        return list(lines)
    return [
        "JAX's leak checker stopped at a value that only JAX's own trace cache holds, but the test "
        f"leaks: see {nodeid}."
    ]
