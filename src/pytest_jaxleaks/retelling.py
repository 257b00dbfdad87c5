"""A leak that thousands of tests have is told in full a few times, and briefly after that."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pytest_jaxleaks.leaks import Leak

__all__ = ["Retelling"]

# So many tests get a full report of one and the same leak.
_IN_FULL = 20


class Retelling:
    """Remembers what was told in full, and for which test first."""

    def __init__(self) -> None:
        self._told: dict[tuple[object, ...], tuple[str, int]] = {}

    def describe(self, leaks: Sequence[Leak], stretch: str, nodeid: str) -> str:
        """Return the text of a failure.

        Args:
            leaks: the leaks, shortest chains first; there is at least one.
            stretch: what was watched, such as ``the test``.
            nodeid: of the test that fails.
        """
        from pytest_jaxleaks.leak_text import describe_leaks

        known = [self._know(leak, nodeid) for leak in leaks]
        if any(times <= _IN_FULL for _, times in known):
            return describe_leaks(leaks, stretch)
        first, _ = known[0]
        opening = describe_leaks(leaks, stretch).partition("\n")[0]
        return f"{opening}\nThe same as in {first} and other tests: see the report there."

    def _know(self, leak: Leak, nodeid: str) -> tuple[str, int]:
        """Count a leak, and return the test that had it first."""
        from pytest_jaxleaks.chains import without_positions

        way = tuple(map(without_positions, leak.chain))
        key = (leak.holder, way, leak.traced, leak.created, leak.transform)
        first, times = self._told.get(key, (nodeid, 0))
        self._told[key] = (first, times + 1)
        return self._told[key]
