"""Running small suites under the leak check, for the end-to-end tests.

``LEAKY`` is the head of such a suite: a class that keeps values, and a function that leaks one of
``float32[3]`` into an object of it.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jax
import jax.numpy  # noqa: F401
import pytest

import pytest_jaxleaks.watching  # noqa: F401

LEAKY = """
import asyncio
import contextlib
import functools
import gc
import queue
import sys
import threading
import unittest

import jax
import jax.numpy as jnp
import pytest


class Box:
    def __init__(self):
        self.kept = []


def leak_into(box):
    @jax.jit
    def traced(x):
        box.kept.append(x * 2)
        return x + 1

    return traced(jnp.ones(3))

"""


@dataclass(frozen=True)
class SuiteRun:
    """The outcome of a run.

    Attributes:
        result: what pytest printed, and its exit status.
        entries: the tests of the JSON report.
    """

    result: pytest.RunResult
    entries: list[dict[str, Any]]

    @property
    def text(self) -> str:
        """Everything that pytest printed."""
        return self.result.stdout.str() + self.result.stderr.str()

    def leaks(self) -> dict[str, list[dict[str, Any]]]:
        """Return the leaks by the part of the node id behind the file name."""
        found: dict[str, list[dict[str, Any]]] = {}
        for entry in self.entries:
            name = entry["nodeid"].partition("::")[2]
            found.setdefault(name, []).extend(entry["leaks"])
        return found

    def roots(self) -> dict[str, list[str]]:
        """Return what the leaks of each test are reached by."""
        return {name: [leak["root"] for leak in found] for name, found in self.leaks().items()}

    def phases(self) -> list[tuple[str, str, str]]:
        """Return name, phase and outcome of each entry."""
        return [
            (entry["nodeid"].partition("::")[2], entry["phase"], entry["outcome"])
            for entry in self.entries
        ]


def run_suite(
    pytester: pytest.Pytester,
    source: str,
    *args: str,
    subprocess: bool = False,
    option: str = "--jax-leaks",
) -> SuiteRun:
    """Write a test file and run it under the leak check.

    Args:
        pytester: pytest's own fixture.
        source: the test file's text.
        args: further arguments for pytest.
        subprocess: run in a process of its own (slower), not in this one.
        option: what turns the check on.
    """
    if source:
        pytester.makepyfile(test_suite=source)
    report = Path(pytester.path) / "report.json"
    report.unlink(missing_ok=True)
    common = (option, f"--jax-leaks-report={report}", "-p", "no:cacheprovider")
    if subprocess:
        result = pytester.runpytest_subprocess(*common, *args)
    else:
        result = pytester.runpytest_inprocess(*common, *args, plugins=[_Forgetter()])
    entries = json.loads(report.read_text())["tests"] if report.exists() else []
    return SuiteRun(result, entries)


class _Forgetter:
    """Empties the modules of an inner run at its end, so that the next one does not find them."""

    @pytest.hookimpl(trylast=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        modules = {getattr(item, "module", None) for item in session.items} - {None}
        session.config.add_cleanup(lambda: [self._empty(module) for module in modules])

    def _empty(self, module: Any) -> None:
        for value in list(vars(module).values()):
            if type(value) is type and value.__module__ == module.__name__:
                for name in [name for name in vars(value) if not name.startswith("__")]:
                    delattr(value, name)
        vars(module).clear()
