"""The suites that the benchmark runs: generated ones, installed ones, and source archives'."""

from __future__ import annotations

import subprocess
import sys
import tarfile
from dataclasses import dataclass
from importlib.metadata import version
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

__all__ = ["SUITES", "Suite"]

# Writes down when each test ended, so that a run's first and last tests can be compared.
CONFTEST = """
import json, os, time

times = []

def pytest_runtest_logstart(nodeid):
    times.append([nodeid, time.perf_counter(), None])

def pytest_runtest_logfinish(nodeid):
    times[-1][2] = time.perf_counter()

def pytest_sessionfinish():
    with open(os.environ["BENCHMARK_TIMES"], "w") as file:
        json.dump(times, file)
"""

TRIVIAL = """
import jax
import jax.numpy as jnp
import pytest


@pytest.mark.parametrize("number", range({count}))
def test_jitted(number):
    assert jax.jit(lambda x: x * 2 + number)(jnp.ones(3)).shape == (3,)
"""

METHODS = """
import jax
import jax.numpy as jnp
import pytest


class TestJitted:
    @pytest.fixture
    def ones(self):
        return jnp.ones(3)

    @pytest.mark.parametrize("number", range({count}))
    def test_jitted(self, ones, number):
        assert jax.jit(lambda x: x * 2 + number)(ones).shape == (3,)
"""

ABSL = """
import jax
import jax.numpy as jnp
from absl.testing import parameterized


class JittedTest(parameterized.TestCase):
    @parameterized.parameters(*range({count}))
    def test_jitted(self, number):
        self.assertEqual(jax.jit(lambda x: x * 2 + number)(jnp.ones(3)).shape, (3,))
"""

ASYNC = """
import asyncio

import jax
import jax.numpy as jnp
import pytest


@pytest.mark.anyio
@pytest.mark.parametrize("anyio_backend", ["asyncio"])
@pytest.mark.parametrize("number", range({count}))
async def test_jitted(number, anyio_backend):
    await asyncio.sleep(0)
    assert jax.jit(lambda x: x * 2 + number)(jnp.ones(3)).shape == (3,)
"""

DIFFRAX = """
import diffrax
import jax
import jax.numpy as jnp
import pytest

SOLVERS = ["Euler", "Heun", "Tsit5", "Dopri5"]


def solve(rate, y0, solver):
    term = diffrax.ODETerm(lambda t, y, args: -rate * y)
    solver = getattr(diffrax, solver)()
    return diffrax.diffeqsolve(term, solver, 0.0, 1.0, 0.05, y0).ys


@pytest.mark.parametrize("solver", SOLVERS)
def test_solve(solver):
    assert jnp.isfinite(solve(0.5, jnp.ones(2), solver)).all()


@pytest.mark.parametrize("solver", SOLVERS)
def test_gradient(solver):
    gradient = jax.grad(lambda rate: solve(rate, jnp.ones(2), solver).sum())(0.5)
    assert jnp.isfinite(gradient)


@pytest.mark.parametrize("solver", SOLVERS)
def test_batched_gradient(solver):
    def loss(rate):
        return jax.vmap(lambda y0: solve(rate, y0, solver))(jnp.ones((3, 2))).sum()

    assert jnp.isfinite(jax.jit(jax.grad(loss))(0.5))
"""

HEAP = """
import jax
import jax.numpy as jnp
import pytest

HEAP = [[number] for number in range(500_000)]
KEPT = []


@jax.jit
def warm(x):
    return x + 1


def test_warm_up():
    warm(jnp.ones(3))


@pytest.mark.parametrize("number", range(5))
def test_leaks(number):
    def step(x):
        KEPT.append(x)
        return x + number

    jax.jit(step)(jnp.ones(3))
"""


@dataclass(frozen=True)
class Suite:
    """Something that pytest can run.

    Attributes:
        what: what it stands for, in a few words.
        lay: writes files into an empty folder and returns pytest's arguments.
    """

    what: str
    lay: Callable[[Path], list[str]]


def _generated(text: str) -> Callable[[Path], list[str]]:
    def lay(folder: Path) -> list[str]:
        (folder / "test_generated.py").write_text(text, encoding="utf-8")
        return ["test_generated.py"]

    return lay


def _installed(*modules: str) -> Callable[[Path], list[str]]:
    return lambda _folder: ["--pyargs", *modules]


def _from_archive(package: str, *files: str) -> Callable[[Path], list[str]]:
    """Take test files out of the source archive of the version that is installed."""

    def lay(folder: Path) -> list[str]:
        archives = folder.parent / f"{package}-archive"
        if not archives.exists():
            wanted = f"{package}=={version(package)}"
            command = [sys.executable, "-m", "pip", "download", "-qq", "--no-deps"]
            options = ["--no-binary", package, "--dest", str(archives)]
            subprocess.run([*command, *options, wanted], check=True)
        (archive,) = archives.glob("*.tar.gz")
        with tarfile.open(archive) as file:
            file.extractall(folder, filter="data")
        (top,) = (path for path in folder.iterdir() if path.name.startswith(package))
        return [f"{top.name}/{name}" for name in files]

    return lay


_DISTRAX = "distrax._src.distributions"

SUITES = {
    "trivial-300": Suite("300 trivial jitted tests", _generated(TRIVIAL.format(count=300))),
    "trivial-3000": Suite("3,000 trivial jitted tests", _generated(TRIVIAL.format(count=3000))),
    "methods": Suite("300 methods of a class", _generated(METHODS.format(count=300))),
    "absl": Suite("300 absl parameterized cases", _generated(ABSL.format(count=300))),
    "async": Suite("300 async tests", _generated(ASYNC.format(count=300))),
    "diffrax": Suite("12 diffrax solves and gradients", _generated(DIFFRAX)),
    "distrax": Suite(
        "distrax's own tests of 3 files",
        _installed(
            "distrax._src.bijectors.scalar_affine_test",
            f"{_DISTRAX}.mvn_diag_test",
            f"{_DISTRAX}.bernoulli_test",
        ),
    ),
    "optax": Suite(
        "optax's own tests of 3 files",
        _from_archive(
            "optax",
            "optax/transforms/_masking_test.py",
            "optax/_src/linear_algebra_test.py",
            "optax/losses/_classification_test.py",
        ),
    ),
    "numpyro": Suite(
        "numpyro's own tests of 2 files",
        _from_archive("numpyro", "test/test_optimizers.py", "test/test_handlers.py"),
    ),
    "heap": Suite("5 leaking tests, 500,000 objects", _generated(HEAP)),
}
