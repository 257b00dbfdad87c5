"""The same labelled programs as functions, methods, unittest, absl and async tests."""

from __future__ import annotations

import pytest
from labelled_programs import KINDS, PROGRAMS, as_tests
from suite_runs import LEAKY, run_suite


@pytest.mark.parametrize("kind", list(KINDS))
def test_every_kind_of_test(pytester: pytest.Pytester, kind: str) -> None:
    """Each leaking program is reported once with its holder in each kind, no clean one is."""
    mode = ("-o", "asyncio_default_fixture_loop_scope=function")
    run = run_suite(pytester, LEAKY + as_tests(kind), *mode)
    found: dict[str, list[str]] = {}
    for name, leaks in run.leaks().items():
        program = name.rpartition("test_")[2].removesuffix("_only")
        found[program] = [leak["holder"] for leak in leaks]
    found.pop("", None)  # the context of this process keeps what an earlier run has set in it
    leaking = {program.name: program.holder for program in PROGRAMS if program.holder}
    if kind == "async":  # a coroutine runs in a copy of the context, which is gone afterwards
        del leaking["context_variable"]
    assert set(found) == set(leaking)
    for name, holders in found.items():
        assert len(holders) == 1, (name, holders)
        assert holders[0].endswith(leaking[name]), (name, holders)
    assert "JaxLeaksWarning" not in run.text
