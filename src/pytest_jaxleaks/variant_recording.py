"""pytest's side of ``jax_record``: the fixture, and the comparison at the end of a test."""

from __future__ import annotations

import tempfile
import traceback
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from pytest_jaxleaks.errors import InvalidArgumentError, VariantMismatchError
from pytest_jaxleaks.variant_exchange import Exchange

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from pytest_jaxleaks.variant_marks import VariantChoice
    from pytest_jaxleaks.variant_records import Record
    from pytest_jaxleaks.variants import Variant

__all__ = ["JaxVariantWarning", "Recorder", "SharedFolder", "comparison_note", "start_recording"]

_RECORDS = pytest.StashKey[list["Record"]]()
_NOTE = pytest.StashKey[dict[str, Any]]()


class JaxVariantWarning(pytest.PytestWarning):
    """Something about a test keeps its variants from telling what they should."""


def start_recording(item: pytest.Item) -> Callable[[Any], Any]:
    """Make the function that the fixture ``jax_record`` is; earlier attempts are forgotten."""
    from pytest_jaxleaks.variant_records import record_of

    records: list[Record] = []
    item.stash[_RECORDS] = records

    def record(value: Any) -> Any:
        if _NOTE in item.stash:
            raise InvalidArgumentError(
                f"jax_record: {item.nodeid} is over, and what it recorded has been compared; call "
                "it in the test or before, not in a teardown"
            )
        records.append(record_of(value))
        return value

    return record


def comparison_note(item: pytest.Item) -> dict[str, Any]:
    """Return what the comparison of an item came to, in plain data for its report.

    Returns:
        ``recorded``: whether it recorded something; ``agrees``: by variant that ended earlier,
        whether it recorded the same; ``late``: if the item is the reference, by variant that ended
        earlier and differs, the message. Empty if nothing is compared.
    """
    return item.stash.get(_NOTE, {})


class Recorder:
    """Compares what the variants of a test recorded, as they end."""

    def __init__(self, config: pytest.Config) -> None:
        given = getattr(config, "workerinput", {}).get(SharedFolder.KEY)
        # Made at once: plugins may run each test in a child of this process.
        self._exchange = Exchange(Path(given or _temporary_folder(config)))

    @staticmethod
    def forget(item: pytest.Item) -> None:
        """Forget what an earlier attempt at an item recorded."""
        if _RECORDS in item.stash:
            del item.stash[_RECORDS]
        if _NOTE in item.stash:
            del item.stash[_NOTE]

    def compare(
        self,
        item: pytest.Item,
        test: str,
        name: str,
        choice: VariantChoice,
        known: Mapping[str, Variant],
    ) -> None:
        """Compare a run that has just passed with those that ended before it.

        Args:
            item: the item that ran.
            test: the name that all variants of the test share.
            name: the item's variant.
            choice: the variants of the test.
            known: the variants there are, by name.

        Raises:
            VariantMismatchError: if the run differs from the reference's.
            InvalidArgumentError: if the test is marked for comparing and recorded nothing.
        """
        __tracebackhide__ = True
        records = item.stash.get(_RECORDS, [])
        if not choice.compare:
            if records and choice.compare is None and len(choice.names) > 1:
                _warn(item, _NOT_COMPARED)
            return
        found: Mapping[str, Sequence[str]] = {}
        try:
            found = self._differences(item, test, known[name], choice, records, known)
        except Exception:
            _warn(item, f"its records could not be compared:\n{traceback.format_exc()}")
        item.stash[_NOTE] = {
            "recorded": bool(records),
            "agrees": {other: not lines for other, lines in found.items()},
            "late": {},
        }
        if name == choice.reference:
            late = {other: "\n".join(lines) for other, lines in found.items() if lines}
            item.stash[_NOTE]["late"] = late
        elif found.get(choice.reference):
            raise VariantMismatchError("\n".join(found[choice.reference]))
        if not records and not any(found.values()):
            _nothing_recorded(item)

    def _differences(
        self,
        item: pytest.Item,
        test: str,
        variant: Variant,
        choice: VariantChoice,
        records: Sequence[Record],
        known: Mapping[str, Variant],
    ) -> dict[str, list[str]]:
        """Return by variant that ended before this one what differs."""
        from pytest_jaxleaks.variant_records import differences

        self._exchange.put(test, variant.name, records)
        order = [*choice.names, variant.name]  # a test that parametrizes itself may be in neither
        found = {}
        for other in choice.names:
            theirs = None if other == variant.name else self._exchange.get(test, other)
            if theirs is None:
                continue
            loose = variant.other_dtypes != known[other].other_dtypes
            pair = {variant.name: records, other: theirs}
            first, second = sorted(pair, key=order.index)
            lines, notes = differences(pair[first], pair[second], loose=loose)
            names = f"recorded under {first} and under {second}"
            found[other] = [f"{names}: {line}" for line in lines]
            if first == choice.reference:
                for note in notes:
                    _warn(item, f"{names}: {note}")
        return found


_NOTHING = (
    "compare=True, but the test recorded nothing to compare: call jax_record(value), a fixture, "
    "in it, or take compare=True out of its jax_variants marker"
)

_NOT_COMPARED = (
    "jax_record was called, but nothing is compared: mark the test with "
    "@pytest.mark.jax_variants(..., compare=True), or with compare=False if that is intended"
)


def _nothing_recorded(item: pytest.Item) -> None:
    """Fail a test that claims to compare and does not; if its class or module claims it, warn."""
    __tracebackhide__ = True
    if any(mark.name == "jax_variants" for mark in item.own_markers):
        raise InvalidArgumentError(f"{item.nodeid}: {_NOTHING}")
    _warn(item, _NOTHING)


def _warn(item: pytest.Item, text: str) -> None:
    item.warn(JaxVariantWarning(f"{item.nodeid}: {text}"))


class SharedFolder:
    """Gives the workers of pytest-xdist one directory for their records."""

    KEY = "jaxleaks_records"

    def __init__(self, config: pytest.Config) -> None:
        self._config = config
        self._folder: str | None = None

    def pytest_configure_node(self, node: Any) -> None:
        """Tell a worker the directory, made for the first one."""
        if self._folder is None:
            self._folder = _temporary_folder(self._config)
        node.workerinput[self.KEY] = self._folder


def _temporary_folder(config: pytest.Config) -> str:
    """Make a directory that is removed at the end of the run."""
    folder = tempfile.TemporaryDirectory(prefix="jaxleaks-")
    config.add_cleanup(folder.cleanup)
    return folder.name
