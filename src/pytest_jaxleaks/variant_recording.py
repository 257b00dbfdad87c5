"""pytest's side of ``jax_record``: the fixture, and the comparison at the end of a test."""

from __future__ import annotations

import tempfile
import traceback
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from pytest_jaxleaks.errors import VariantMismatchError
from pytest_jaxleaks.variant_exchange import Exchange

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from pytest_jaxleaks.variant_records import Record
    from pytest_jaxleaks.variants import Variant

__all__ = ["JaxVariantWarning", "Recorder", "SharedFolder", "start_recording"]

_RECORDS = pytest.StashKey[list["Record"]]()


class JaxVariantWarning(pytest.PytestWarning):
    """Something about a test keeps its variants from telling what they should."""


def start_recording(item: pytest.Item) -> Callable[[Any], Any]:
    """Make the function that the fixture ``jax_record`` is; earlier attempts are forgotten."""
    from pytest_jaxleaks.variant_records import record_of

    records: list[Record] = []
    item.stash[_RECORDS] = records

    def record(value: Any) -> Any:
        records.append(record_of(value))
        return value

    return record


class Recorder:
    """Compares what the variants of a test recorded, as they end."""

    def __init__(self, config: pytest.Config) -> None:
        self._config = config
        self._exchange: Exchange | None = None

    def compare(
        self,
        item: pytest.Item,
        test: str,
        name: str,
        others: Sequence[str],
        known: Mapping[str, Variant],
    ) -> None:
        """Compare a run that has just passed with those that ended before it.

        Args:
            item: the item that ran.
            test: the name that all variants of the test share.
            name: the item's variant.
            others: the variants it has to agree with.
            known: the variants there are, by name.

        Raises:
            VariantMismatchError: if they differ.
        """
        __tracebackhide__ = True
        records = item.stash.get(_RECORDS, [])
        if not records:
            text = "compare=True, but the test recorded nothing to compare; call jax_record(value)"
            item.warn(JaxVariantWarning(f"{item.nodeid}: {text}"))
        try:
            found = self._differences(
                test, known[name], [known[other] for other in others], records
            )
        except Exception:
            text = f"its records could not be compared:\n{traceback.format_exc()}"
            item.warn(JaxVariantWarning(f"{item.nodeid}: {text}"))
            return
        if found:
            raise VariantMismatchError("\n".join(found))

    def _differences(
        self, test: str, variant: Variant, others: Sequence[Variant], records: Sequence[Record]
    ) -> list[str]:
        from pytest_jaxleaks.variant_records import differences

        exchange = self._exchange_of_run()
        exchange.put(test, variant.name, records)
        found = []
        for other in others:
            theirs = exchange.get(test, other.name)
            if theirs is not None:
                loose = variant.other_dtypes != other.other_dtypes
                lines = differences(theirs, records, loose=loose)
                names = f"recorded under {other.name} and under {variant.name}"
                found += [f"{names}: {line}" for line in lines]
        return found

    def _exchange_of_run(self) -> Exchange:
        if self._exchange is None:
            given = getattr(self._config, "workerinput", {}).get(SharedFolder.KEY)
            self._exchange = Exchange(Path(given or _temporary_folder(self._config)))
        return self._exchange


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
