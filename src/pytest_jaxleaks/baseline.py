"""Known leaks: reading the file that lists them, and comparing it with what a run found.

A known leak is a holder together with the traced function whose value it keeps. Neither the test
in which it shows nor a line number is part of it: random order, xdist and edits elsewhere do not
shake the file. The format is TOML, one table per leak, sorted:

    [[leak]]
    holder = "models.Model.cache"
    function = "step"
    reason = "kept until the sampler is rewritten"

In an entry written by hand, ``*`` and ``?`` match as in file names, and one without a function is
meant for all of them.
"""

from __future__ import annotations

import re
import tomllib
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Any

from pytest_jaxleaks.errors import InvalidArgumentError

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping
    from pathlib import Path

__all__ = ["ANY", "KnownLeak", "Listed", "key_of", "merged", "parse", "text_of"]

# The function of an entry that does not name one.
ANY = "*"
_REQUIRED = ("holder",)
_OPTIONAL = ("function", "reason")
_WILDCARDS = frozenset("*?[")
_FIELDS = (*_REQUIRED, *_OPTIONAL)


@dataclass(frozen=True, order=True)
class KnownLeak:
    """One entry of a baseline.

    Attributes:
        holder: what keeps the value, as a report names it, or a pattern of such names.
        function: the traced function, or a pattern; empty where JAX did not record it.
        reason: why the leak is accepted, for people.
        line: line of the entry in the file, from 1; 0 for one that is not from a file.
    """

    holder: str
    function: str = ANY
    reason: str = ""
    line: int = 0

    @property
    def key(self) -> tuple[str, str]:
        """Return what makes two entries the same leak."""
        return self.holder, self.function

    def among(self, keys: Collection[tuple[str, str]]) -> bool:
        """Tell whether one of the keys of leaks is meant by this entry."""
        if self.key in keys:
            return True
        return self.is_pattern and any(map(self._fits, keys))

    @property
    def is_pattern(self) -> bool:
        """Tell whether this entry can mean more than one leak."""
        return not _WILDCARDS.isdisjoint(self.holder + self.function)

    def _fits(self, key: tuple[str, str]) -> bool:
        return all(
            pattern == text or fnmatchcase(text, pattern)
            for text, pattern in zip(key, self.key, strict=True)
        )


def key_of(leak: Mapping[str, Any]) -> tuple[str, str]:
    """Return the key of a leak as the JSON report has it."""
    traced = leak.get("traced") or {}
    return str(leak["holder"]), str(traced.get("function", ""))


def text_of(path: Path) -> str:
    """Return the text of a baseline.

    Raises:
        InvalidArgumentError: the file cannot be read, or is no UTF-8; the message has the line.
    """
    try:
        content = path.read_bytes()
    except OSError as error:
        raise InvalidArgumentError(f"{path}: cannot be read: {error}") from None
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = error.object.count(b"\n", 0, error.start) + 1
        byte = error.object[error.start]
        raise InvalidArgumentError(
            f"{path}:{line}: byte 0x{byte:02x} is no UTF-8. Expected a text file in UTF-8."
        ) from None
    return text.replace("\r\n", "\n")


def parse(text: str, name: str) -> tuple[KnownLeak, ...]:
    """Return the entries of a baseline, in the order of the text.

    Args:
        text: the file's content.
        name: the file's name, for messages.

    Raises:
        InvalidArgumentError: the text is no baseline.
    """
    try:
        document = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        where = re.search(r"line (\d+)", str(error))
        line = where[1] if where else text.count("\n") + 1
        raise InvalidArgumentError(
            f"{name}:{line}: this is no TOML ({error}). Expected tables like\n"
            f'[[leak]]\nholder = "models.Model.cache"\nfunction = "step"'
        ) from None
    lines = _entry_lines(text)
    _check_top(document, name, text)
    entries = [
        _entry(raw, name, lines[i] if i < len(lines) else 1)
        for i, raw in enumerate(document.get("leak", []))
    ]
    _check_duplicates(entries, name)
    return tuple(entries)


def _entry_lines(text: str) -> list[int]:
    heads = re.compile(r"\s*\[\[\s*leak\s*\]\]")
    return [number for number, line in enumerate(text.split("\n"), 1) if heads.match(line)]


def _check_top(document: Mapping[str, Any], name: str, text: str) -> None:
    for key in document:
        if key != "leak":
            raise InvalidArgumentError(
                f"{name}:{_line_of(key, text)}: unknown {key!r}. Expected [[leak]] tables only."
            )
    entries = document.get("leak", [])
    if not isinstance(entries, list) or not all(isinstance(each, dict) for each in entries):
        raise InvalidArgumentError(
            f"{name}:{_line_of('leak', text)}: 'leak' must be [[leak]] tables, one per leak, "
            f"but was {_shortened(entries)}."
        )


def _line_of(key: str, text: str) -> int:
    pattern = re.compile(rf"\s*\[*\s*[\"']?{re.escape(key)}\b")
    found = (number for number, line in enumerate(text.split("\n"), 1) if pattern.match(line))
    return next(found, 1)


def _entry(raw: Mapping[str, Any], name: str, line: int) -> KnownLeak:
    for key, value in raw.items():
        if key not in _FIELDS:
            raise InvalidArgumentError(
                f"{name}:{line}: unknown {key!r} in this [[leak]]. Expected {', '.join(_FIELDS)}."
            )
        if not isinstance(value, str):
            raise InvalidArgumentError(
                f"{name}:{line}: {key} must be a string, but was {_shortened(value)}."
            )
    if not raw.get("holder", "").strip():
        raise InvalidArgumentError(
            f"{name}:{line}: this [[leak]] has no holder. Expected the dotted name that a report "
            'gives after "kept by", such as holder = "models.Model.cache".'
        )
    return KnownLeak(raw["holder"], raw.get("function", ANY), raw.get("reason", ""), line)


def _check_duplicates(entries: Iterable[KnownLeak], name: str) -> None:
    first: dict[tuple[str, str], int] = {}
    for entry in entries:
        if entry.key in first:
            raise InvalidArgumentError(
                f"{name}:{entry.line}: holder {entry.holder!r} with function {entry.function!r} "
                f"stands here a second time (first in line {first[entry.key]}). Expected it once."
            )
        first[entry.key] = entry.line


def _shortened(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "..."


def merged(
    known: Iterable[KnownLeak],
    found: Collection[tuple[str, str]],
    *,
    keep_gone: bool,
) -> list[KnownLeak]:
    """Return the entries of a new baseline.

    Args:
        known: entries of the old one; those that mean a leak of the run stay.
        found: keys of the leaks that a run found.
        keep_gone: keep entries that the run did not find, since it did not run every test.
    """
    entries = [entry for entry in known if keep_gone or entry.among(found)]
    listed = Listed(entries)
    return sorted([*entries, *(KnownLeak(*key) for key in set(found) if key not in listed)])


class Listed:
    """The leaks that entries of a baseline mean; ``key in listed`` asks for one of them."""

    def __init__(self, entries: Iterable[KnownLeak]) -> None:
        entries = tuple(entries)
        self._keys = {entry.key for entry in entries}
        self._patterns = [entry for entry in entries if entry.is_pattern]

    def __contains__(self, key: tuple[str, str]) -> bool:
        return key in self._keys or any(entry.among((key,)) for entry in self._patterns)
