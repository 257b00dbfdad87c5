"""What a run costs in which every test leaks, with all outputs on: time, memory, sizes of files.

    python benchmarks/many_leaks.py
    python benchmarks/many_leaks.py --tests 1000 --workers 2

Run it with the Python of an environment that has the extra ``test``. A run in which the leaks fail
their tests comes first, then one that writes them to a baseline.
"""

from __future__ import annotations

import argparse
import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

_SUITE = """
import jax
import jax.numpy as jnp
import pytest

KEPT = []


@pytest.mark.parametrize("number", range({tests}))
def test_leak(number):
    jax.vmap(lambda x: (KEPT.append(x * 2), x)[1])(jnp.ones(2))
"""
_OUTPUTS = (
    "--jax-leaks-report=leaks.json",
    "--jax-leaks-sarif=leaks.sarif",
    "--jax-leaks-html=leaks.html",
    "--junitxml=junit.xml",
)
_FILES = ("output.txt", "leaks.json", "leaks.sarif", "leaks.html", "junit.xml", "known.toml")
_KIB_OF_RSS = 1024 if sys.platform == "darwin" else 1


def run(folder: Path, options: list[str]) -> None:
    """Run pytest once and print what it has cost; the peak is the largest process's."""
    fixed = ["--jax-leaks", "-p", "no:cacheprovider", "-c", os.devnull, f"--rootdir={folder}"]
    environment = {**os.environ, "GITHUB_ACTIONS": "true", "JAX_PLATFORMS": "cpu"}
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    started = time.perf_counter()
    with (folder / "output.txt").open("w") as output:
        subprocess.run(
            [sys.executable, "-m", "pytest", *fixed, *_OUTPUTS, *options],
            cwd=folder,
            env=environment,
            stdout=output,
            stderr=subprocess.STDOUT,
            check=False,
        )
    wall = time.perf_counter() - started
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    lines = (folder / "output.txt").read_text().splitlines()
    print(lines[-1].strip("= "))
    peak = after.ru_maxrss / 1024 / _KIB_OF_RSS
    print(f"  {wall:.0f} s, CPU {cpu:.0f} s, peak {peak:.0f} MiB")
    sizes = {name: (folder / name).stat().st_size for name in _FILES if (folder / name).exists()}
    print("  " + ", ".join(f"{name} {size / 1000:.0f} kB" for name, size in sizes.items()))


def main() -> None:
    """Read the command line and run."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--tests", type=int, default=10_000, help="how many tests (10000)")
    parser.add_argument("--workers", type=int, default=0, help="of pytest-xdist (0: none)")
    given = parser.parse_args()
    workers = ["-n", str(given.workers)] if given.workers else []
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        (folder / "test_many_leaks.py").write_text(_SUITE.format(tests=given.tests))
        run(folder, workers)
        baseline = ["--jax-leaks-baseline=known.toml", "--jax-leaks-write-baseline"]
        run(folder, [*workers, *baseline])


if __name__ == "__main__":
    main()
