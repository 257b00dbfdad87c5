"""The words in which a leak is reported."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pytest_jaxleaks.leaks import Leak, Location

__all__ = ["describe_holder", "describe_leaks", "where"]

_MOST_HOLDERS = 10
_MOST_OTHERS = 4
_MOST_LINKS = 12


def where(place: Location) -> str:
    """Return ``path:line``, which terminals and editors make a link of."""
    return f"{place.path}:{place.line}"


def describe_leaks(leaks: Sequence[Leak], stretch: str) -> str:
    """Return the text of a failure: one paragraph per holder.

    Args:
        leaks: the leaks, shortest chains first.
        stretch: what was watched, such as ``the test``.
    """
    by_holder: dict[str, list[Leak]] = {}
    for leak in leaks:
        by_holder.setdefault(leak.holder, []).append(leak)
    named = ", ".join(list(by_holder)[:3]) + (", ..." if len(by_holder) > 3 else "")
    lines = [
        f"tracer leak after {stretch}, kept by {named}",
        "A value that JAX made while it traced a function can still be reached. Used again, it "
        "raises UnexpectedTracerError.",
    ]
    for same in list(by_holder.values())[:_MOST_HOLDERS]:
        lines += ["", *describe_holder(same)]
    if len(by_holder) > _MOST_HOLDERS:
        lines += ["", f"... and {len(by_holder) - _MOST_HOLDERS} more holders."]
    return "\n".join(lines)


def describe_holder(leaks: Sequence[Leak]) -> list[str]:
    """Return the lines that report the leaks into one holder, the first of them in full."""
    leak = leaks[0]
    lines = [f"{leak.value} of {_transformation(leak)}, kept by {leak.holder}"]
    lines.append(f"  reached by  {_chain(leak.chain)}")
    lines += _place("made at", leak.created)
    lines += _place("called at", leak.caller)
    lines += _others(leaks)
    lines.append(f"  mend        {leak.hint}")
    whose = " of a third party's code" if leak.owner == "third-party" else ""
    lines.append(
        f"  accept      to accept this leak{whose}, add this line to jax_leaks_ignore: "
        f"{leak.holder}"
    )
    return lines


def _others(leaks: Sequence[Leak]) -> list[str]:
    """Tell what else the same holder keeps."""
    lines = []
    if leaks[0].count > 1:
        lines.append(f"  and         {leaks[0].count - 1} more made in the same trace or like it")
    for leak in leaks[1 : _MOST_OTHERS + 1]:
        times = f" ({leak.count} values)" if leak.count > 1 else ""
        lines.append(f"  and         {leak.value} of {_transformation(leak)}{times}")
    if len(leaks) > _MOST_OTHERS + 1:
        lines.append(f"  and         values of {len(leaks) - _MOST_OTHERS - 1} more functions")
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
