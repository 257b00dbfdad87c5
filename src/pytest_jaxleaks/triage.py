"""What it means that a leak shows in one mode and not in another: runs, and verdicts on them.

A leaking test is run again alone in fresh processes: as it is, with JIT disabled, under JAX's own
checker, and with JAX's caches cleared just before it.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pytest_jaxleaks.triage_child import CHILD, CHILD_MODE

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

__all__ = [
    "MODES",
    "Outcome",
    "culprit",
    "next_modes",
    "outcome_of",
    "reason_in",
    "run",
    "verdict",
]

# What is set in the environment, by mode.
MODES: dict[str, dict[str, str]] = {
    "alone": {},
    "nojit": {"JAX_DISABLE_JIT": "1"},
    "checker": {"JAX_CHECK_TRACER_LEAKS": "1"},
    "fresh": {},
}
_TIME_LIMIT = 300
_LONGEST_MESSAGE = 150


@dataclass(frozen=True)
class Outcome:
    """What became of a test in one mode.

    Attributes:
        kind: ``leaks``, ``clean``, ``failed`` (for another reason) or ``not run``.
        message: the failure's first line, or why the test did not run.
        place: ``path:line`` where JAX's checker raised; empty otherwise.
        source: the source of that line.
    """

    kind: str
    message: str = ""
    place: str = ""
    source: str = ""


def run(arguments: Sequence[str], folder: Path, mode: str) -> list[dict[str, Any]] | str:
    """Run pytest in a process of its own.

    Args:
        arguments: pytest's.
        folder: where to run.
        mode: one of ``MODES``.

    Returns:
        What the process wrote, one record per phase of a test; or why there is none.
    """
    with tempfile.TemporaryDirectory(prefix="jaxleaks-") as scratch:
        target = Path(scratch, "phases.json")
        environment = {**os.environ, **MODES[mode], CHILD: str(target), CHILD_MODE: mode}
        environment.pop("PYTEST_ADDOPTS", None)  # given as arguments
        command = [sys.executable, "-m", "pytest", *arguments, "-o", f"cache_dir={scratch}/cache"]
        try:
            done = subprocess.run(
                command,
                cwd=folder,
                env=environment,
                stdin=subprocess.DEVNULL,
                capture_output=True,
                timeout=_TIME_LIMIT,
                check=False,
            )
        except subprocess.TimeoutExpired:
            return f"it was stopped after {_TIME_LIMIT} s"
        if not target.exists():
            return reason_in(done.stderr, done.stdout) or f"exit status {done.returncode}"
        found = json.loads(target.read_text("utf-8"))
        return found or reason_in(done.stderr, done.stdout) or "no test was found"


def reason_in(*outputs: bytes) -> str:
    """Return why pytest ran no test: its error, that of an import, or else its last line.

    Args:
        outputs: what it wrote, to standard error and to standard output.
    """
    texts = [output.decode("utf-8", "replace").splitlines() for output in outputs]
    lines = [line.strip() for text in texts for line in text if line.strip()]
    for start in ("ERROR: ", "E  "):
        told = [line for line in lines if line.startswith(start)]
        if told:
            return _cut(told[-1].removeprefix(start).strip())
    return _cut(lines[-1]) if lines else ""


def _cut(text: str) -> str:
    return text if len(text) <= _LONGEST_MESSAGE else text[: _LONGEST_MESSAGE - 3] + "..."


def outcome_of(phases: Sequence[Mapping[str, Any]] | str, holder: str, mode: str) -> Outcome:
    """Return what became of the leak that ``holder`` keeps.

    Args:
        phases: what ``run`` returned, of the one test in question.
        holder: the holder of the leak.
        mode: one of ``MODES``.
    """
    if isinstance(phases, str):
        return Outcome("not run", phases)
    for phase in phases:
        if mode == "checker" and str(phase["message"]).startswith("Leaked "):
            return Outcome("leaks", "", phase["place"], phase["source"])
        if mode != "checker" and holder in phase["holders"]:
            return Outcome("leaks")
    for phase in phases:
        if phase["outcome"] == "failed" and not phase["holders"]:
            return Outcome("failed", _cut(f"{phase['error']}: {phase['message']}"), phase["place"])
        if phase["outcome"] == "skipped":
            return Outcome("not run", "it was skipped")
    return Outcome("clean")


def next_modes(alone: Outcome) -> tuple[str, ...]:
    """Return the modes that tell something, given what became of the test when it ran alone.

    A fresh process has fresh caches, but for what was traced at import: clearing them matters only
    where the leak did not show.
    """
    if alone.kind == "not run":
        return ()
    return ("fresh",) if alone.kind == "clean" else ("nojit", "checker")


def verdict(outcomes: Mapping[str, Outcome], before: str | None = None) -> list[str]:
    """Return what the outcomes mean, one line each.

    Args:
        outcomes: by mode; ``alone`` and the modes that ``next_modes`` names.
        before: the test that has to run first for the leak to show, if one was found.
    """
    alone = outcomes["alone"]
    if alone.kind == "not run":
        return [f"cannot be run alone: {alone.message}"]
    lines = [_ALONE[alone.kind].format(message=alone.message)]
    if alone.kind == "clean":
        lines[0] += f", only after {before} ran first" if before else ""
        if outcomes["fresh"].kind == "leaks":
            lines.append("leaks with fresh caches: something had traced its function before it")
        elif before is None:
            lines.append("does not leak with fresh caches either: another test has a part in it")
        return lines
    lines.append(_told(_NOJIT, outcomes["nojit"]))
    lines.append(_told(_CHECKER, outcomes["checker"]))
    return lines


_ALONE = {
    "leaks": "leaks when it runs alone in a fresh process, too: no other test has a part in it",
    "clean": "does not leak when it runs alone in a fresh process",
    "failed": "fails when it runs alone, for another reason: {message}",
}
_NOJIT = {
    "leaks": "stays with JIT disabled: it is no matter of jit alone (vmap, grad or jvp makes it)",
    "clean": "goes away with JIT disabled: the value is kept while jit traces",
    "failed": "with JIT disabled the test fails for another reason: {message}",
    "not run": "could not be run with JIT disabled: {message}",
}
_CHECKER = {
    "leaks": "JAX's own checker sees it when `{source}` at {place} returns",
    "clean": "JAX's own checker does not see it",
    "failed": "under JAX's own checker the test fails for another reason: {message}",
    "not run": "could not be run under JAX's own checker: {message}",
}


def _told(texts: Mapping[str, str], outcome: Outcome) -> str:
    text = texts[outcome.kind]
    if not outcome.source:
        text = text.replace("`{source}`", "the call")
    return text.format(message=outcome.message, place=outcome.place, source=outcome.source)


def culprit(
    before: Sequence[str], leaks_after: Callable[[Sequence[str]], bool], most_runs: int = 8
) -> str | None:
    """Return the earlier test that makes a test leak, by halving.

    Args:
        before: the tests that ran before, in order.
        leaks_after: runs some of them and then the test; tells whether it leaks.
        most_runs: how many runs it may take.

    Returns:
        The one test, or None: no single one does it, or it took too many runs.
    """
    if not before or not leaks_after(before):
        return None
    runs = 1
    while len(before) > 1:
        if runs >= most_runs:
            return None
        half = len(before) // 2
        runs += 1
        before = before[half:] if leaks_after(before[half:]) else before[:half]
    return before[0] if runs == 1 or leaks_after(before) else None
