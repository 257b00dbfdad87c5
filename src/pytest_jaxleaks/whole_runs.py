"""Did a run cover the whole suite? Only then does a leak that was not found mean anything."""

from __future__ import annotations

import fnmatch
import os
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

    import pytest

__all__ = ["is_whole"]

# Options of pytest's, by what they are stored as, with which not every test runs.
_NARROWING = (
    "collectonly",
    "deselect",
    "ignore",
    "ignore_glob",
    "keyword",
    "lf",
    "markexpr",
    "setuponly",
    "setupplan",
    "stepwise",
)
_MOST_FOLDERS = 5_000


def is_whole(session: pytest.Session, deselected: int) -> bool:
    """Tell whether every test of the suite was meant to run, and none was left out.

    Args:
        session: the session, at its end.
        deselected: how many tests were collected and not run (``-k``, ``-m``, ``--lf``).

    Returns:
        False if tests were deselected, ignored or named one by one, if a file was given, if a
        folder of ``testpaths`` or with test files was left out, if nothing was run at all
        (``--collect-only``), or if the run stopped early.
    """
    if deselected or session.shouldstop or session.shouldfail:
        return False
    config = session.config
    # Under xdist the workers deselect, and the controller does not hear of it.
    if any(getattr(config.option, name, None) for name in _NARROWING):
        return False
    if getattr(getattr(config, "args_source", None), "name", "") == "TESTPATHS":
        return True
    given = [_absolute(config.invocation_params.dir, each) for each in config.args]
    if not all(path.is_dir() for path in given):
        return False
    wanted = [config.rootpath / each for each in config.getini("testpaths")]
    if wanted:
        return all(any(each.is_relative_to(path) for path in given) for each in wanted)
    return not _has_tests_beside(config, given)


def _has_tests_beside(config: pytest.Config, given: list[Path]) -> bool:
    """Tell whether there are test files below the root folder, outside of the given folders."""
    if any(config.rootpath.is_relative_to(path) for path in given):
        return False
    files, skipped = config.getini("python_files"), config.getini("norecursedirs")
    for number, (folder, folders, names) in enumerate(os.walk(config.rootpath)):
        if number > _MOST_FOLDERS:
            return True
        folders[:] = [
            name
            for name in folders
            if not _matches(name, skipped)
            and Path(folder, name) not in given
            and not Path(folder, name, "pyvenv.cfg").exists()
        ]
        if any(_matches(name, files) for name in names):
            return True
    return False


def _matches(name: str, patterns: Iterable[str]) -> bool:
    return any(fnmatch.fnmatch(name, pattern) for pattern in patterns)


def _absolute(folder: Path, argument: str) -> Path:
    return Path(folder, argument)
