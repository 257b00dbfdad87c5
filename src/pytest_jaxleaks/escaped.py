"""Who holds the tracer of an ``UnexpectedTracerError`` now, and where it came from."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, NamedTuple

from pytest_jaxleaks import collector as gc
from pytest_jaxleaks.holders import find_holders
from pytest_jaxleaks.jax_internals import is_internal_file, record_of, tracer_types
from pytest_jaxleaks.leak_text import describe_holder
from pytest_jaxleaks.leaks import leaks_from

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from pytest_jaxleaks.jax_internals import Place, TracerRecord
    from pytest_jaxleaks.leaks import CodeUnderTest, Leak
    from pytest_jaxleaks.roots import Surroundings

__all__ = [
    "Origin",
    "by_holder",
    "describe_escaped",
    "escaped_tracers",
    "explain_escaped",
    "origin_in",
]

# An error names one tracer; all that its trace still keeps alive match its description.
_MOST_TRACERS = 64
_MOST_HOLDERS = 3


class Origin(NamedTuple):
    """What the message of an ``UnexpectedTracerError`` tells about the tracer.

    Attributes:
        function: the function that was traced; empty where the message has none.
        path: its file.
        line: its line.
        transform: what it was traced for.
        created: ``path:line`` where the value was made; empty where the message has none.
        tracer: class of the tracer.
        value: its shape and dtype, such as ``float32[3]``.
    """

    function: str = ""
    path: str = ""
    line: int = 0
    transform: str = ""
    created: str = ""
    tracer: str = ""
    value: str = ""


def origin_in(message: str) -> Origin:
    """Read what JAX's message says; fields stay empty where it says nothing."""
    text = " ".join(message.split())
    traced = re.search(r"when the value leaked was (\S+) at (.+?):(\d+) traced for (.+?)\. ", text)
    created = re.search(r"value was created on line (.+?:\d+)(?::\d+)? \(", text)
    kind = re.search(r"value with type (\S+) wrapped in an? (\w+)", text)
    return Origin(
        traced[1] if traced else "",
        traced[2] if traced else "",
        int(traced[3]) if traced else 0,
        traced[4] if traced else "",
        created[1] if created else "",
        kind[2] if kind else "",
        kind[1] if kind else "",
    )


def escaped_tracers(origin: Origin, objects: Iterable[Any]) -> list[Any]:
    """Return the tracers among ``objects`` that ``origin`` describes, closest match first."""
    kinds = tracer_types()
    found: list[tuple[bool, Any]] = []
    for obj in objects:
        if id(type(obj)) in kinds:
            record = record_of(obj)
            if _is(record, origin):
                found.append((_place_text(record.created) != origin.created, obj))
    exact = [tracer for differs, tracer in found if not differs]
    return (exact or [tracer for _, tracer in found])[:_MOST_TRACERS]


def _is(record: TracerRecord, origin: Origin) -> bool:
    if origin.tracer and (record.kind, record.value) != (origin.tracer, origin.value):
        return False
    if record.traced is None:
        # Functions of JAX's own and of the standard library are not told.
        return not origin.function or is_internal_file(origin.path)
    return (record.traced.path, record.traced.line) == (origin.path, origin.line)


def _place_text(place: Place | None) -> str:
    return "" if place is None else f"{place.path}:{place.line}"


def explain_escaped(message: str, around: Surroundings, code: CodeUnderTest) -> list[str]:
    """Explain an ``UnexpectedTracerError``: what made the value, and who holds it now.

    Args:
        message: the error's message.
        around: how the program can reach values; the frames of the traceback among it.
        code: what belongs to the project.
    """
    origin = origin_in(message)
    # What was frozen by a watch is looked at, too; the watch freezes it again.
    gc.unfreeze()
    tracers = escaped_tracers(origin, gc.get_objects())
    found = find_holders(tracers, around, exceptions=False).holdings
    if tracers and not found:
        found = find_holders(tracers, around).holdings
    leaks = leaks_from(found, code)
    return describe_escaped(origin, leaks)


def describe_escaped(origin: Origin, leaks: Sequence[Leak]) -> list[str]:
    """Return the text for an escaped tracer, given who holds it."""
    lines = ["A traced value was used after the transformation that made it had ended."]
    if not leaks:
        if origin.function:
            what = f"{origin.function} ({origin.path}:{origin.line}), for {origin.transform}"
            lines.append(f"  traced      {what}")
        if origin.created:
            lines.append(f"  made at     {origin.created}")
        lines.append("  held by     nothing that outlives the failing call: look there for it")
        return lines
    return lines + by_holder(leaks)


def by_holder(leaks: Sequence[Leak]) -> list[str]:
    """Return the lines about the first few holders."""
    groups: dict[str, list[Leak]] = {}
    for leak in leaks:
        groups.setdefault(leak.holder, []).append(leak)
    lines = []
    for same in list(groups.values())[:_MOST_HOLDERS]:
        # The accept line is about the leak check, which may not even run.
        lines += [line for line in describe_holder(same) if not line.startswith("  accept ")]
    if len(groups) > _MOST_HOLDERS:
        lines.append(f"  ... and {len(groups) - _MOST_HOLDERS} more holders")
    return lines
