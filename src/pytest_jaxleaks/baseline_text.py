"""The text of a baseline: written anew, or changed so that what people wrote into it stays."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING

from pytest_jaxleaks.baseline import ANY, KnownLeak, parse
from pytest_jaxleaks.errors import InvalidArgumentError

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

__all__ = ["render", "rewrite"]

_HEADING = """\
# Known tracer leaks: reported, but no failure. Written by pytest --jax-leaks-write-baseline;
# reasons and comments are kept. Remove an entry when its leak is mended.
"""
_ENTRY = re.compile(r"\s*\[\[\s*leak\s*\]\]")


def render(entries: Iterable[KnownLeak]) -> str:
    """Return the text of a new baseline: sorted, one table per leak, ending in a newline."""
    return _joined([_HEADING, *map(_table, sorted(entries))])


def rewrite(old: str, entries: Iterable[KnownLeak]) -> tuple[str, bool]:
    """Return the text of a baseline with other entries.

    Args:
        old: its text until now. Entries that stay keep theirs, comments above and in them
            included; so does what stands above the first entry and below the last one.
        entries: the new entries; those from ``old`` have their line.

    Returns:
        The text, and whether all comments of the entries that stay are in it. They are not where
        ``old`` is written in a way that only a TOML parser understands.
    """
    entries = sorted(entries)
    if not old.strip():
        return render(entries), True
    head, blocks, foot = _split(old.split("\n"))
    parts = [blocks.get(each.line) or _table(each) for each in entries]
    text = _joined([head, *parts, foot])
    if _says(text, entries):
        return text, True
    return render(entries), "#" not in old


def _says(text: str, entries: Sequence[KnownLeak]) -> bool:
    try:
        found = parse(text, "")
    except InvalidArgumentError:
        return False
    return [(*each.key, each.reason) for each in found] == [
        (*each.key, each.reason) for each in entries
    ]


def _split(lines: Sequence[str]) -> tuple[str, dict[int, str], str]:
    """Return what stands above the entries, each entry by its line (from 1), and what is below.

    Comments above an entry are the entry's, but for those at the top with a blank line below them;
    comments below its last line are its own as long as no blank line is between.
    """
    numbers = [number for number, line in enumerate(lines) if _ENTRY.match(line)]
    if not numbers:
        return "\n".join(lines), {}, ""
    ends = [
        _end(lines, number, following)
        for number, following in zip(numbers, [*numbers[1:], len(lines)], strict=True)
    ]
    starts = [_start(lines, numbers[0]), *ends[:-1]]
    blocks = {
        number + 1: "\n".join(lines[start:end])
        for number, start, end in zip(numbers, starts, ends, strict=True)
    }
    return "\n".join(lines[: starts[0]]), blocks, "\n".join(lines[ends[-1] :])


def _start(lines: Sequence[str], number: int) -> int:
    heading = _HEADING.splitlines()
    while number and _is_comment(lines[number - 1]) and lines[number - 1] not in heading:
        number -= 1
    return number


def _end(lines: Sequence[str], number: int, following: int) -> int:
    last = max(
        i for i in range(number, following) if lines[i].strip() and not _is_comment(lines[i])
    )
    while last + 1 < following and _is_comment(lines[last + 1]):
        last += 1
    return last + 1


def _is_comment(line: str) -> bool:
    return line.lstrip().startswith("#")


def _joined(parts: Iterable[str]) -> str:
    return "\n\n".join(part.strip("\n") for part in parts if part.strip()) + "\n"


def _table(entry: KnownLeak) -> str:
    fields = {
        "holder": entry.holder,
        "function": None if entry.function == ANY else entry.function,
        "reason": entry.reason or None,
    }
    lines = [f"{key} = {_quoted(value)}" for key, value in fields.items() if value is not None]
    return "\n".join(["[[leak]]", *lines])


def _quoted(value: str) -> str:
    """Return a TOML basic string; JSON's escapes are a subset of TOML's, but for DEL.

    TOML has no lone surrogates, as in a file name that is no UTF-8: a question mark matches them.
    """
    value = value.encode("utf-8", "replace").decode("utf-8")
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
