"""What the leak check costs: pytest's time with it, without it, and with JAX's own checker.

    python benchmarks/leak_check.py
    python benchmarks/leak_check.py --suites trivial-300 diffrax --repeats 5

Run it with the Python of an environment that has the extra ``test``. The ways of running a suite
take turns, so that a machine that gets slower is unfair to none of them; what is compared are
medians. Wall time is what a user waits for; CPU time is steadier on a busy machine.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

from suites import CONFTEST, SUITES

# How a suite is run: options of pytest, and whether JAX's own checker is on.
MODES: dict[str, tuple[list[str], bool]] = {
    "absent": (["-p", "no:jaxleaks"], False),
    "off": ([], False),
    "on": (["--jax-leaks"], False),
    "jax": ([], True),
}
_KIB_OF_RSS = 1024 if sys.platform == "darwin" else 1


class Run(NamedTuple):
    """One run of pytest: seconds of wall and CPU time, peak MiB, pytest's last line, per test."""

    wall: float
    cpu: float
    peak: float
    summary: str
    tests: list[tuple[str, float]]


def run(arguments: list[str], mode: str, folder: Path, limit: float) -> Run | None:
    """Run pytest once in a process of its own; None if it takes longer than ``limit`` seconds."""
    options, checker = MODES[mode]
    times, output = folder / "times.json", folder / "output.txt"
    times.unlink(missing_ok=True)
    fixed = ["-q", "--tb=no", "-p", "no:cacheprovider", "-p", "no:warnings", "-c", os.devnull]
    command = [sys.executable, "-m", "pytest", *fixed, f"--rootdir={folder}", *options, *arguments]
    environment = {**os.environ, "BENCHMARK_TIMES": str(times), "PYTHONPATH": _path(folder)}
    environment |= {"JAX_PLATFORMS": "cpu", "JAX_CHECK_TRACER_LEAKS": str(int(checker))}
    # An installed plugin is compiled once, and not at the start of each run.
    environment.pop("PYTHONDONTWRITEBYTECODE", None)
    started = time.perf_counter()
    with output.open("w") as file:
        process = subprocess.Popen(
            [*command, "-p", "record_times"],
            cwd=folder,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=file,
            stderr=subprocess.STDOUT,
        )
        while True:
            done, _, usage = os.wait4(process.pid, os.WNOHANG)
            if done:
                break
            if time.perf_counter() - started > limit:
                process.kill()
                os.wait4(process.pid, 0)
                return None
            time.sleep(0.01)
    wall = time.perf_counter() - started
    last = output.read_text().strip().splitlines()[-1:]
    ends = json.loads(times.read_text()) if times.exists() else []
    tests = [(nodeid, end - start) for nodeid, start, end in ends if end]
    cpu = usage.ru_utime + usage.ru_stime
    summary = re.sub(r" in [\d.]+s.*", "", "".join(last))
    return Run(wall, cpu, usage.ru_maxrss / _KIB_OF_RSS / 1024, summary, tests)


def _path(folder: Path) -> str:
    return os.pathsep.join(filter(None, [str(folder), os.environ.get("PYTHONPATH")]))


def measure(
    name: str, modes: list[str], repeats: int, limit: float, extra: list[str]
) -> dict[str, list[Run]]:
    """Run one suite in each mode ``repeats`` times, taking turns."""
    runs: dict[str, list[Run]] = {mode: [] for mode in modes}
    with tempfile.TemporaryDirectory() as outer:
        folder = Path(outer, name)
        folder.mkdir()
        (folder / "record_times.py").write_text(CONFTEST, encoding="utf-8")
        arguments = [*SUITES[name].lay(folder), *extra]
        # Write byte code and fill the disk's cache before anything counts.
        run([*arguments, "--collect-only"], modes[0], folder, limit)
        for turn in range(repeats):
            # Every other turn goes backwards: none always runs after the same one.
            for mode in modes if turn % 2 == 0 else modes[::-1]:
                result = run(arguments, mode, folder, limit)
                if result is not None:
                    runs[mode].append(result)
    return runs


def rows(name: str, runs: dict[str, list[Run]]) -> list[str]:
    """Return the table's rows of one suite: medians, and ratios to the run that is off."""
    found = []
    base = runs.get("off") or next(filter(None, runs.values()), [])
    for mode, results in runs.items():
        if not results:
            found.append(f"| {name} | {mode} | over the limit | | | | | | |")
            continue
        wall, cpu, peak = (_median(results, field) for field in ("wall", "cpu", "peak"))
        ratios = [
            f"{value / _median(base, field):.2f}" if base else ""
            for field, value in (("wall", wall), ("cpu", cpu))
        ]
        growth, leaking = _growth(results), _leaking(results)
        cells = [name, mode, f"{wall:.1f}", ratios[0], f"{cpu:.1f}", ratios[1], f"{peak:.0f}"]
        found.append("| " + " | ".join([*cells, growth or leaking, results[-1].summary]) + " |")
    return found


def _median(results: list[Run], field: str) -> float:
    return statistics.median(getattr(result, field) for result in results)


def _growth(results: list[Run]) -> str:
    """Compare the tests of the second tenth of a run with those of its last tenth."""
    tests = results[-1].tests
    if len(tests) < 200:
        return ""
    tenth = len(tests) // 10
    early = statistics.median(seconds for _, seconds in tests[tenth : 2 * tenth])
    late = statistics.median(seconds for _, seconds in tests[-tenth:])
    return f"{early * 1e3:.1f} -> {late * 1e3:.1f} ms"


def _leaking(results: list[Run]) -> str:
    leaking = [
        seconds for run in results for nodeid, seconds in run.tests if "::test_leaks" in nodeid
    ]
    return f"{statistics.median(leaking) * 1e3:.0f} ms" if leaking else ""


def main() -> None:
    """Read the options, run, print."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--suites", nargs="+", choices=SUITES, default=list(SUITES))
    parser.add_argument("--modes", nargs="+", choices=MODES, default=list(MODES))
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--workers", type=int, default=0, help="run with pytest-xdist's -n")
    parser.add_argument("--limit", type=float, default=900.0, help="seconds for one run")
    options = parser.parse_args()
    print(f"Python {sys.version.split()[0]}, {options.repeats} runs each, medians")
    print("absent: -p no:jaxleaks; off: plain pytest; on: --jax-leaks; jax: JAX_CHECK_TRACER_LEAKS")
    print("Ratios are to `off`. 'one test' is a test's time early and late, or a leaking test's.\n")
    print("| suite | mode | wall s | ratio | CPU s | ratio | peak MiB | one test | pytest |")
    print("| --- | --- | --- | --- | --- | --- | --- | --- | --- |", flush=True)
    extra = [f"-n{options.workers}"] if options.workers else []
    for name in options.suites:
        found = measure(name, options.modes, options.repeats, options.limit, extra)
        for row in rows(name, found):
            print(row, flush=True)
    print()
    for name in options.suites:
        print(f"{name}: {SUITES[name].what}")


if __name__ == "__main__":
    main()
