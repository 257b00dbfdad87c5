"""Did a run cover the whole suite? Only then does a leak that was not found mean anything."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pytest

__all__ = ["is_whole"]


def is_whole(session: pytest.Session, deselected: int) -> bool:
    """Tell whether every test of the suite was meant to run, and none was left out.

    Args:
        session: the session, at its end.
        deselected: how many tests were collected and not run (``-k``, ``-m``, ``--lf``).

    Returns:
        False if tests were deselected or named one by one, if a file was given, if a folder of
        ``testpaths`` was left out, or if the run stopped early.
    """
    if deselected or session.shouldstop or session.shouldfail:
        return False
    config = session.config
    chosen = (getattr(config.option, name, None) for name in ("keyword", "markexpr", "lf"))
    if any(chosen):  # under xdist the workers deselect, and the controller does not hear of it
        return False
    if getattr(getattr(config, "args_source", None), "name", "") == "TESTPATHS":
        return True
    given = [_absolute(config.invocation_params.dir, each) for each in config.args]
    if not all(path.is_dir() for path in given):
        return False
    wanted = [config.rootpath / each for each in config.getini("testpaths")]
    return all(any(each.is_relative_to(path) for path in given) for each in wanted)


def _absolute(folder: Path, argument: str) -> Path:
    return Path(folder, argument)
