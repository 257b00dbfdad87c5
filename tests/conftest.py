"""What every test file shares: the ``pytester`` fixture, for tests that run pytest itself.

``pytester`` forgets what a run in this process imported. JAX cannot be imported twice, and others
take long: they are imported here, once.
"""

import functools
import gc
from collections.abc import Iterator
from pathlib import Path

import absl.testing.parameterized  # noqa: F401
import equinox as eqx
import hypothesis  # noqa: F401
import jax
import jax.experimental
import pytest

from pytest_jaxleaks.census import Census
from pytest_jaxleaks.watching import Watch

pytest_plugins = ["pytester"]


@pytest.fixture(autouse=True)
def _earlier_leaks_are_known(request: pytest.FixtureRequest) -> None:
    """Keep runs in this process from finding what the tests before have leaked on purpose."""
    if "pytester" in request.fixturenames:
        watch = Watch()
        for tracer in Census().living():
            watch.know(tracer)


@pytest.fixture(autouse=True, scope="module")
def _what_a_file_has_traced_is_dropped() -> Iterator[None]:
    """Keep the heap small: a search for holders goes through it, and files would pay for others."""
    yield
    eqx.clear_caches()
    jax.clear_caches()
    gc.collect()


@pytest.fixture(autouse=True)
def _runs_of_pytest_start_quickly(
    request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Leave hypothesis out of runs that have no use for it: it is a third of their start."""
    if "pytester" in request.fixturenames and not _mentions_hypothesis(request.path):
        request.getfixturevalue("pytester")  # which drops the variable
        monkeypatch.setenv("PYTEST_ADDOPTS", "-p no:hypothesispytest")


@functools.cache
def _mentions_hypothesis(file: Path) -> bool:
    return "hypothesis" in file.read_text(encoding="utf-8")
