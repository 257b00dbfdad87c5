"""The words in which a leak is reported."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pytest_jaxleaks.leaks import Leak, Location

__all__ = ["describe_leak", "describe_leaks", "where"]

_MOST_LEAKS = 10
_MOST_LINKS = 12


def where(place: Location) -> str:
    """Return ``path:line``, which terminals and editors make a link of."""
    return f"{place.path}:{place.line}"


def describe_leaks(leaks: Sequence[Leak], stretch: str) -> str:
    """Return the text of a failure: one paragraph per leak.

    Args:
        leaks: the leaks, shortest chains first.
        stretch: what was watched, such as ``the test``.
    """
    count = len(leaks)
    holders = list(dict.fromkeys(leak.holder for leak in leaks))
    named = ", ".join(holders[:3]) + (", ..." if len(holders) > 3 else "")
    lines = [
        f"tracer leak after {stretch}, kept by {named}",
        "A value that JAX made while it traced a function can still be reached. Used again, it "
        "raises UnexpectedTracerError.",
    ]
    for leak in leaks[:_MOST_LEAKS]:
        lines += ["", *describe_leak(leak)]
    if count > _MOST_LEAKS:
        lines += ["", f"... and {count - _MOST_LEAKS} more."]
    return "\n".join(lines)


def describe_leak(leak: Leak) -> list[str]:
    """Return the lines that report one leak."""
    lines = [f"{leak.value} of {_transformation(leak)}, kept by {leak.holder}"]
    lines.append(f"  reached by  {_chain(leak.chain)}")
    if leak.count > 1:
        lines.append(f"              and {leak.count - 1} more in the same way")
    lines += _place("made at", leak.created)
    lines += _place("called at", leak.caller)
    lines.append(f"  mend        {leak.hint}")
    accept = "a third party's code; " if leak.owner == "third-party" else ""
    lines.append(f"  accept      {accept}jax_leaks_ignore = {leak.holder}")
    return lines


def _transformation(leak: Leak) -> str:
    if leak.traced is None:
        return leak.transform
    return f"{leak.transform} of {leak.traced.function} ({where(leak.traced)})"


def _chain(labels: Sequence[str]) -> str:
    if len(labels) > _MOST_LINKS:
        left_out = len(labels) - _MOST_LINKS + 1
        half = _MOST_LINKS // 2
        labels = [*labels[:half], f"({left_out} links)", *labels[half + left_out :]]
    return " -> ".join(labels)


def _place(title: str, place: Location | None) -> list[str]:
    if place is None:
        return []
    lines = [f"  {title:<11} {where(place)} in {place.function}"]
    if place.source:
        lines.append(f"                  {place.source}")
    return lines
