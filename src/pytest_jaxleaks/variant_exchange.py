"""Where the runs of one test leave their records for each other: a directory of small files.

A directory, because under pytest-xdist the runs may be in different processes. Each run writes its
own file before it looks for the others', so that of two that run at once at least one sees both.
"""

from __future__ import annotations

import hashlib
import os
import pickle
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pytest_jaxleaks.variant_records import Record

__all__ = ["Exchange"]


class Exchange:
    """The records of all tests of one session, by test and variant."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory

    def put(self, test: str, variant: str, records: Sequence[Record]) -> None:
        """Keep what ``variant`` of ``test`` recorded, in place of an earlier attempt's records."""
        folder = self._folder(test)
        folder.mkdir(exist_ok=True)
        handle, name = tempfile.mkstemp(dir=self.directory)
        with os.fdopen(handle, "wb") as file:
            pickle.dump(tuple(records), file)
        Path(name).replace(folder / variant)

    def get(self, test: str, variant: str) -> tuple[Record, ...] | None:
        """Return what ``variant`` of ``test`` recorded; ``None`` if it did not get that far."""
        path = self._folder(test) / variant
        if not path.exists():
            return None
        records: tuple[Record, ...] = pickle.loads(path.read_bytes())
        return records

    def _folder(self, test: str) -> Path:
        return self.directory / hashlib.sha256(test.encode()).hexdigest()
