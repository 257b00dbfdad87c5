"""The same labelled programs as functions, methods, unittest, absl and async tests."""

from __future__ import annotations

from typing import TYPE_CHECKING

from labelled_programs import KINDS, PROGRAMS, as_tests
from suite_runs import LEAKY, run_suite

if TYPE_CHECKING:
    import pytest


def test_every_kind_of_test(pytester: pytest.Pytester) -> None:
    """Each leaking program is reported once with its holder in each kind, no clean one is."""
    pytester.makepyfile(**{f"test_{kind}": LEAKY + as_tests(kind) for kind in KINDS})
    run = run_suite(pytester, "", "-o", "asyncio_default_fixture_loop_scope=function")
    found: dict[tuple[str, str], list[str]] = {}
    for entry in run.entries:
        path, _, name = entry["nodeid"].partition("::")
        program = name.rpartition("test_")[2].removesuffix("_only")
        holders = [leak["holder"] for leak in entry["leaks"]]
        found.setdefault((path[len("test_") : -len(".py")], program), []).extend(holders)
    leaking = {program.name: program.holder for program in PROGRAMS if program.holder}
    expected = {(kind, name) for kind in KINDS for name in leaking}
    # A coroutine runs in a copy of the context, which is gone when the test has ended.
    assert set(found) == expected - {("async", "context_variable")}
    for (kind, name), holders in found.items():
        assert len(holders) == 1, (kind, name, holders)
        assert holders[0].endswith(leaking[name]), (kind, name, holders)
    assert "JaxLeaksWarning" not in run.text
