"""Leaks as GitHub annotations: one line of output each, shown at the line that keeps the value."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

from pytest_jaxleaks.keeping_line import project_line

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pytest_jaxleaks.gathering import GatheredLeak

__all__ = ["github_annotations"]

# GitHub shows ten of a kind per step and ignores the others.
_MOST = 50


def github_annotations(
    found: Sequence[GatheredLeak], root: Path, workspace: Path | None
) -> list[str]:
    """Return workflow commands, one line per leak and place.

    Args:
        found: what a run found.
        root: folder that paths in ``found`` are relative to.
        workspace: folder that GitHub wants paths relative to, if it is another.
    """
    lines = dict.fromkeys(_annotation(each, root, workspace) for each in found)
    kept = list(lines)[:_MOST]
    if len(lines) > _MOST:
        kept.append(f"::notice title=tracer leaks::{len(lines) - _MOST} more leaks are not shown")
    return kept


def _annotation(each: GatheredLeak, root: Path, workspace: Path | None) -> str:
    place = project_line(each.leak, root)
    path, line = place or (each.tests[0].path, each.tests[0].line)
    fields = {
        "file": _below(root / path, workspace or root),
        "line": str(line),
        "title": f"tracer leak: {each.leak['holder']}",
    }
    command = "warning" if each.accepted else "error"
    properties = ",".join(f"{key}={_property(value)}" for key, value in fields.items())
    return f"::{command} {properties}::{_data(_message(each))}"


def _below(path: Path, folder: Path) -> str:
    path = Path(os.path.normpath(path))  # a test beside the root folder starts with ``..``
    return (path.relative_to(folder) if path.is_relative_to(folder) else path).as_posix()


def _message(each: GatheredLeak) -> str:
    leak = each.leak
    tests = f"{each.tests[0].nodeid}" + (f" and {each.count - 1} more" if each.count > 1 else "")
    traced = f" of {leak['traced']['function']}" if leak.get("traced") else ""
    return (
        f"{leak['value']} of {leak['transform']}{traced} is kept by {leak['holder']}\n"
        f"reached by {' -> '.join(leak['chain'])}\nmend: {leak['hint']}\nseen in {tests}"
    )


def _data(text: str) -> str:
    """Escape the message of a workflow command as GitHub's toolkit does."""
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _property(text: str) -> str:
    return _data(text).replace(":", "%3A").replace(",", "%2C")
