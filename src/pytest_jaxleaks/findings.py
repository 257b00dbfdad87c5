"""What the leak check has found in one phase of one test, and how pytest is told."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pytest
from _pytest.outcomes import Failed  # pytest.fail.Exception, under a name that can be typed

from pytest_jaxleaks.errors import TracerLeakError

if TYPE_CHECKING:
    from collections.abc import Callable, Container, Sequence
    from pathlib import Path

    from pytest_jaxleaks.leaks import Leak
    from pytest_jaxleaks.retelling import Retelling
    from pytest_jaxleaks.watching import Sighting

__all__ = ["FINDINGS", "Findings", "ReportedLeakError", "entries", "tell_place"]

_STRETCHES = {
    "collection": "importing the tests",
    "setup": "setting up the test's fixtures",
    "call": "the test",
    "teardown": "teardown",
}


class ReportedLeakError(TracerLeakError, Failed):
    """A tracer leak as pytest reports it: the message alone, without a traceback of ours."""

    def __init__(self, message: str, leaks: Sequence[Leak] = ()) -> None:
        Failed.__init__(self, message, pytrace=False)
        self.leaks = tuple(leaks)


# What users see, in reports and in ``raises=``, is the public name.
ReportedLeakError.__name__ = ReportedLeakError.__qualname__ = "TracerLeakError"
ReportedLeakError.__module__ = "builtins"


@dataclass
class Findings:
    """What was found in one phase of one test: leaks that fail it, and others.

    Attributes:
        phase: collection, setup, call or teardown.
        failing: leaks that fail the test.
        accepted: leaks that do not.
        known: those of the accepted ones that nothing but the baseline accepts.
        notes: lines about what is no leak.
        fixtures: descriptions of the fixtures that leaked while they were set up or torn down.
        held_by_jax: how many values only JAX's own caches keep alive.
    """

    phase: str
    failing: list[Leak] = field(default_factory=list)
    accepted: list[Leak] = field(default_factory=list)
    known: list[Leak] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    fixtures: list[str] = field(default_factory=list)
    held_by_jax: int = 0

    def __bool__(self) -> bool:
        return bool(self.failing or self.accepted or self.notes or self.held_by_jax)

    def add(
        self,
        leaks: Sequence[Leak],
        accepts: Callable[[Leak], bool],
        baseline: Container[Leak] = (),
    ) -> None:
        """Sort leaks into those that are accepted, by a pattern or the baseline, and others."""
        for leak in leaks:
            if accepts(leak):
                self.accepted.append(leak)
            elif leak in baseline:
                self.accepted.append(leak)
                self.known.append(leak)
            else:
                self.failing.append(leak)

    def add_sighting(
        self,
        sighting: Sighting,
        accepts: Callable[[Leak], bool],
        baseline: Container[Leak] = (),
    ) -> None:
        """Take over what a look has found."""
        self.add(sighting.leaks, accepts, baseline)
        if sighting.wanted:
            self.accepted += sighting.wanted
            self.notes.append(
                f"{len(sighting.wanted)} of these leaks came up in a block of "
                "jax.check_tracer_leaks(False): accepted."
            )
        self.held_by_jax += sighting.held_by_jax
        if sighting.kept_by_machinery:
            self.notes.append(
                f"{sighting.kept_by_machinery} traced value(s) are kept by the test run alone, "
                "such as by pytest's log capture: log shapes, or use jax.debug.print."
            )

    def stretch(self) -> str:
        """Return what the leaks came up in, in words."""
        if self.fixtures:
            verb = "setting up" if self.phase == "setup" else "tearing down"
            return f"{verb} {', '.join(dict.fromkeys(self.fixtures))}"
        return _STRETCHES[self.phase]

    def failure(self, retelling: Retelling, nodeid: str) -> ReportedLeakError:
        """Return the error that fails the test ``nodeid``."""
        text = retelling.describe(self.failing, self.stretch(), nodeid)
        return ReportedLeakError(text, self.failing)

    def add_section(self, item: pytest.Item, *, failed: bool) -> None:
        """Show what does not fail the test: accepted leaks, notes, leaks beside a failure."""
        from pytest_jaxleaks.leak_text import describe_leaks

        leaks = self.failing + self.accepted if failed else self.accepted
        parts = [describe_leaks(leaks, self.stretch())] if leaks else []
        if parts or self.notes:
            item.add_report_section(self.phase, "tracer leaks", "\n".join([*parts, *self.notes]))

    def as_attributes(self) -> dict[str, Any]:
        """Return what goes along with pytest's report, in a form that xdist carries."""
        return {
            "jax_leaks": [leak.as_dict() for leak in self.failing],
            "jax_leaks_accepted": [leak.as_dict() for leak in self.accepted],
            "jax_leaks_known": [leak.as_dict() for leak in self.known],
            "jax_leaks_held_by_jax": self.held_by_jax,
        }


# By phase, of a test that is checked.
FINDINGS = pytest.StashKey[dict[str, Findings]]()


def tell_place(report: pytest.TestReport, error: ReportedLeakError, root: Path) -> None:
    """Give pytest the place of a leak, and one line of its text to repeat.

    pytest shows them in its short summary, with ``--tb=line`` and to other plugins. It cuts the
    text itself, but not where the variable ``CI`` is set: there each leak would be told twice in
    full. Of the place it knows only that of the hook that raised the error.

    Args:
        report: the report of a phase that failed with ``error``.
        error: the error.
        root: the folder that the places of leaks are relative to.
    """
    crash = getattr(report.longrepr, "reprcrash", None)
    if crash is None:
        return
    crash.message = crash.message.partition("\n")[0]
    path, line, _ = report.location
    for leak in error.leaks[:1]:
        place = leak.created or leak.traced or leak.caller
        # Code that was compiled from a string may have any name: os.path has no error for it.
        if place is not None and os.path.isfile(root / place.path):  # noqa: PTH113
            path, line = place.path, place.line - 1
    crash.path, crash.lineno = str(root / path), (line or 0) + 1


def entries(findings: Findings, session: pytest.Session) -> list[dict[str, Any]]:
    """Return what was leaked before the first test as entries of the JSON report.

    Each leak goes with the test module that has it, if there is one; ``accepted``, ``known`` and
    ``text`` are no part of the report's format.
    """
    modules = {}
    for item in session.items:
        module = item.getparent(pytest.Module)
        if module is not None:
            modules[module.nodeid] = str(getattr(module.obj, "__name__", ""))
    found: dict[tuple[str, bool], list[Leak]] = {}
    for accepted, leaks in ((False, findings.failing), (True, findings.accepted)):
        for leak in leaks:
            found.setdefault((_module_of(leak, modules), accepted), []).append(leak)
    return [
        _entry(nodeid, leaks, findings.known, accepted=accepted)
        for (nodeid, accepted), leaks in found.items()
    ]


def _module_of(leak: Leak, modules: dict[str, str]) -> str:
    """Return the node id of the test module that leaked at import, or an empty string."""
    for nodeid, name in modules.items():
        if any(dotted.startswith(f"{name}.") for dotted in (*leak.names, leak.holder)):
            return nodeid
    places = [place.path for place in (leak.traced, leak.created, leak.caller) if place]
    return next((path for path in places if path in modules), "")


def _entry(
    nodeid: str, leaks: list[Leak], baseline: Sequence[Leak], *, accepted: bool
) -> dict[str, Any]:
    from pytest_jaxleaks.leak_text import describe_leaks

    known = [leak.as_dict() for leak in leaks if leak in baseline]
    return {
        "nodeid": nodeid,
        "path": nodeid or ".",
        "line": 1,
        "phase": "collection",
        "outcome": "passed" if accepted else "failed",
        "leaks": [leak.as_dict() for leak in leaks],
        "accepted": accepted,
        "known": known,
        "text": describe_leaks(leaks, _STRETCHES["collection"]),
    }
