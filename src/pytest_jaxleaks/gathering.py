"""What a run found, gathered by holder from test reports, in bounded memory."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from pytest_jaxleaks.chains import without_positions

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

__all__ = ["Gathered", "GatheredLeak", "SeenIn"]

_MOST_LEAKS = 2_000
_MOST_TESTS = 200


@dataclass(frozen=True)
class SeenIn:
    """A test in which a leak showed: node id, file, line (from 1) and phase."""

    nodeid: str
    path: str
    line: int
    phase: str


@dataclass
class GatheredLeak:
    """One way in which a program keeps traced values, and where it showed.

    Attributes:
        leak: the first such leak, as the JSON report has it.
        accepted: whether it fails no test.
        tests: the first tests in which it showed.
        count: the number of all of them.
    """

    leak: Mapping[str, Any]
    accepted: bool
    tests: list[SeenIn] = field(default_factory=list)
    count: int = 0


class Gathered:
    """Takes leaks as tests report them; keeps one of each kind.

    Attributes:
        left_out: how many different leaks there were beyond those that are kept.
    """

    def __init__(self) -> None:
        self._found: dict[tuple[object, ...], GatheredLeak] = {}
        self.left_out = 0

    def __bool__(self) -> bool:
        return bool(self._found)

    def add(self, leaks: Iterable[Mapping[str, Any]], test: SeenIn, *, accepted: bool) -> None:
        """Take the leaks of one phase of one test."""
        for leak in leaks:
            entry = self._entry(leak, accepted=accepted)
            if entry is not None:
                entry.count += 1
                if len(entry.tests) < _MOST_TESTS:
                    entry.tests.append(test)

    def _entry(self, leak: Mapping[str, Any], *, accepted: bool) -> GatheredLeak | None:
        traced = leak.get("traced") or {}
        chain = tuple(without_positions(label) for label in leak["chain"][1:])
        place = (traced.get("path"), traced.get("function"))
        key = (accepted, leak["holder"], leak["transform"], place, chain)
        if key not in self._found:
            if len(self._found) >= _MOST_LEAKS:
                self.left_out += 1
                return None
            self._found[key] = GatheredLeak(leak, accepted)
        return self._found[key]

    def leaks(self) -> list[GatheredLeak]:
        """Return what was gathered: failing ones first, then by holder."""
        found = self._found.values()
        return sorted(found, key=lambda each: (each.accepted, each.leak["holder"], -each.count))
