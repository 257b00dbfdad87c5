#!/usr/bin/env python3
"""Run the demonstration, the tests or the linters, each in an environment of its own.

    python3 dev.py demo                 the leak check on the shipped examples
    python3 dev.py test                 the tests
    python3 dev.py lint                 ruff and mypy

Nothing but Python, pip and git is needed: the environments are made under ``.envs/`` (from
whatever package index pip is configured to use), kept, and made anew when ``pyproject.toml``
changes. Arguments after ``--`` go to pytest.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

ROOT = Path(__file__).resolve().parent
ENVIRONMENTS = ROOT / ".envs"
OLDEST = (3, 11)
# What the demonstration runs. Each folder has files `*_broken.py` and `*_mended.py`: of the tests
# in the former each must be reported, of those in the latter none.
DEMO = (
    "batched_gradient",
    "cached_constant",
    "class_with_cache",
    "module_level_key",
    "returned_distribution",
)
_ASK = """
import sys, venv, ensurepip
print(sys.executable, ".".join(map(str, sys.version_info[:3])), sys.base_prefix, sep="\\n")
"""


class DevError(Exception):
    """Something that the user of this script can put right; the message says how."""


class Interpreter(NamedTuple):
    """A Python that runs and can make virtual environments."""

    path: str
    version: str
    home: str

    @property
    def series(self) -> str:
        """Return ``3.11`` for version ``3.11.7``."""
        return ".".join(self.version.split(".")[:2])


# -- finding a Python ---------------------------------------------------------------------------


def find_interpreter(wanted: str | None) -> Interpreter:
    """Return the Python that ``wanted`` (a path, ``python3.11``, ``3.11``, or nothing) stands for.

    Raises:
        DevError: there is none, or it is too old.
    """
    if wanted is None or os.sep in wanted:
        series: tuple[int, ...] = ()
    elif re.fullmatch(r"(python)?3?(\.\d+)*", wanted):
        series = _numbers(wanted.replace("python", "", 1))
    else:
        raise DevError(f"--python: expected a path, python3.11 or 3.11, but got {wanted!r}.")
    tried: dict[str, Interpreter | None] = {}
    for command in _commands(wanted, series):
        found = tried[command] = tried.get(command) or ask(command)
        if found and _fits(found, series):
            return found
    seen = [
        f"{command} ({found.version if found else 'does not run'})"
        for command, found in tried.items()
    ]
    oldest = ".".join(map(str, OLDEST))
    raise DevError(
        f"found no Python {'.'.join(map(str, series)) or oldest} that is {oldest} or newer and has "
        f"the modules venv and ensurepip. Tried: {', '.join(seen)}. "
        "Install one, or name one with --python PATH."
    )


def _fits(found: Interpreter, series: tuple[int, ...]) -> bool:
    version = _numbers(found.version)
    return version >= OLDEST and version[: len(series)] == series


def _commands(wanted: str | None, series: tuple[int, ...]) -> Iterator[str]:
    """Yield the commands to try, the likeliest first."""
    if wanted is not None and os.sep in wanted:
        yield str(Path(wanted).expanduser())
        return
    name = ".".join(map(str, series))
    if series:
        yield from _on_path(f"python{name}")
        yield from _of_pyenv(name)
    yield sys.executable
    yield from _on_path("python3")
    if not series:
        for newer in ("3.13", "3.12", "3.11"):
            yield from _on_path(f"python{newer}")
            yield from _of_pyenv(newer)


def _on_path(name: str) -> Iterator[str]:
    """Yield every command of that name: the first may be a shim that refuses."""
    for folder in os.get_exec_path():
        found = shutil.which(name, path=folder)
        if found is not None:
            yield found


def _of_pyenv(series: str) -> Iterator[str]:
    """Yield the interpreters of a series that pyenv has, newest first."""
    pyenv = shutil.which("pyenv")
    if pyenv is None:
        return
    listed = subprocess.run(
        [pyenv, "versions", "--bare"], capture_output=True, text=True, check=False
    )
    versions = [v for v in listed.stdout.split() if v == series or v.startswith(series + ".")]
    for version in sorted(versions, key=_numbers, reverse=True):
        prefix = subprocess.run(
            [pyenv, "prefix", version], capture_output=True, text=True, check=False
        )
        if prefix.returncode == 0:
            yield str(Path(prefix.stdout.strip()) / "bin" / "python")


def ask(command: str) -> Interpreter | None:
    """Return what ``command`` is, or None if it does not run or cannot make environments."""
    try:
        answer = subprocess.run(
            [command, "-c", _ASK],
            capture_output=True,
            text=True,
            check=False,
            stdin=subprocess.DEVNULL,
            env=_environment(),
        )
    except OSError:
        return None
    return Interpreter(*answer.stdout.split("\n")[:3]) if answer.returncode == 0 else None


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in version.split(".") if part.isdigit())


# -- environments -------------------------------------------------------------------------------


class Environment(NamedTuple):
    """A virtual environment with this project and one of its extras, made or still to be made."""

    extra: str
    interpreter: Interpreter
    jax: str | None

    @property
    def folder(self) -> Path:
        """Return where it is."""
        return ENVIRONMENTS / f"{self.extra}-py{self.interpreter.series}-jax{self.jax or '-newest'}"

    @property
    def python(self) -> Path:
        """Return its interpreter."""
        return self.folder / ("Scripts/python.exe" if os.name == "nt" else "bin/python")

    @property
    def stamp(self) -> Path:
        """Return the file that is written last, and says what it was made from."""
        return self.folder / "made-from"

    def recipe(self) -> str:
        """Return what it has to be made from."""
        project = hashlib.sha256((ROOT / "pyproject.toml").read_bytes()).hexdigest()
        made_by = [self.interpreter.version, self.interpreter.home]
        return json.dumps([str(ROOT), project, self.extra, self.jax, *made_by])

    def is_ready(self) -> bool:
        """Tell whether it is there, complete and of today's ``pyproject.toml``."""
        return self.stamp.is_file() and self.stamp.read_text() == self.recipe()

    def make(self) -> None:
        """Make it anew.

        Raises:
            DevError: pip or venv fails.
        """
        say(f"making {self.folder.relative_to(ROOT)} (this takes a minute or more)")
        started = time.monotonic()
        if self.folder.exists():
            shutil.rmtree(self.folder)
        _do([self.interpreter.path, "-m", "venv", str(self.folder)])
        requirements = ["-e", f".[{self.extra}]", *([f"jax=={self.jax}"] if self.jax else [])]
        pip = [str(self.python), "-m", "pip", "install", "-qq", "--progress-bar=off"]
        _do([*pip, *requirements])
        self.stamp.write_text(self.recipe())
        say(f"made in {time.monotonic() - started:.0f} s")


def _do(command: Sequence[str]) -> None:
    if subprocess.run(command, cwd=ROOT, env=_environment(), check=False).returncode:
        raise DevError(f"this command failed: {' '.join(command)}")


def _environment() -> dict[str, str]:
    """Return the environment for what is run: as it is, but without other Pythons' settings."""
    left_out = {"PYTHONPATH", "PYTHONHOME", "VIRTUAL_ENV", "__PYVENV_LAUNCHER__"}
    # The tests start Python often: each would compile everything anew.
    left_out.add("PYTHONDONTWRITEBYTECODE")
    kept = {name: value for name, value in os.environ.items() if name not in left_out}
    return {
        "JAX_PLATFORMS": "cpu",  # no test needs more, and looking for more takes time
        **kept,
        "PIP_USER": "0",
        "PIP_DISABLE_PIP_VERSION_CHECK": "1",
    }


# -- commands -----------------------------------------------------------------------------------


def run_pytest(python: Path, arguments: Sequence[str]) -> int:
    """Run pytest in the project's folder and return its exit status."""
    command = [str(python), "-m", "pytest", *arguments]
    say("python -m pytest " + " ".join(arguments))
    done = subprocess.run(
        command, cwd=ROOT, env=_environment(), check=False, stdin=subprocess.DEVNULL
    )
    return done.returncode


def demo(options: argparse.Namespace) -> int:
    """Run the leak check on the examples, and tell whether it found just what is broken."""
    python = _prepare("examples", options)
    report = ENVIRONMENTS / "demo-report.json"
    report.unlink(missing_ok=True)
    folders = [f"conftest_examples/{name}" for name in DEMO]
    report_option = f"--jax-leaks-report={report.relative_to(ROOT)}"
    status = run_pytest(python, ["--jax-leaks", report_option, *folders, *options.pytest])
    if not report.is_file():
        say(f"pytest stopped with exit status {status} before it could write a report")
        return 1
    leaks = _leaking_tests(report)
    missed = [
        path
        for name in DEMO
        for path in _relative((ROOT / "conftest_examples" / name).glob("*_broken.py"))
        if path not in leaks
    ]
    mistaken = [path for path in leaks if not path.endswith("_broken.py")]
    if missed or mistaken or status != 1:
        say(f"not as expected (exit status {status}): missed {missed}, mistaken {mistaken}")
        return 1
    print()
    say(f"as expected: the {len(leaks)} broken examples leak, and their mended twins pass.")
    for path, holders in sorted(leaks.items()):
        print(f"  {path}: {', '.join(holders)}")
    return 0


def _leaking_tests(report: Path) -> dict[str, list[str]]:
    """Return the holders that a JSON report names, by test file."""
    found: dict[str, list[str]] = {}
    for test in json.loads(report.read_text(encoding="utf-8"))["tests"]:
        for leak in test["leaks"]:
            holders = found.setdefault(test["path"], [])
            if leak["holder"] not in holders:
                holders.append(leak["holder"])
    return found


def _relative(paths: Iterator[Path]) -> list[str]:
    return sorted(path.relative_to(ROOT).as_posix() for path in paths)


def test(options: argparse.Namespace) -> int:
    """Run the tests."""
    # One process per core; files of slow tests are shared out.
    return run_pytest(
        _prepare("test", options), ["-n", "auto", "--dist", "worksteal", *options.pytest]
    )


def lint(options: argparse.Namespace) -> int:
    """Run the linter, the formatter's check and the strict type checker; report all failures."""
    python = str(_prepare("dev", options))
    checks = (["ruff", "check", "."], ["ruff", "format", "--check", "."], ["mypy"])
    failed = 0
    for check in checks:
        say(" ".join(check))
        failed |= subprocess.run(
            [python, "-m", *check], cwd=ROOT, env=_environment(), check=False
        ).returncode
    return min(failed, 1)


def _prepare(extra: str, options: argparse.Namespace) -> Path:
    """Return the Python of an environment with an extra, made now if there is none."""
    interpreter = find_interpreter(options.python)
    # What is made for the linters has all that the tests need.
    extras = (extra, "dev") if extra == "test" else (extra,)
    choices = [Environment(name, interpreter, options.jax) for name in extras]
    if not options.fresh:
        for choice in choices:
            if choice.is_ready():
                return choice.python
    choices[0].make()
    return choices[0].python


def say(text: str) -> None:
    """Print a line of this script's own."""
    print(f"[dev] {text}", flush=True)


def main(arguments: Sequence[str]) -> int:
    """Read the command line and run one command."""
    own, for_pytest = _split(arguments)
    parser = argparse.ArgumentParser(
        prog="dev.py", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("command", choices=sorted(COMMANDS))
    parser.add_argument("--python", metavar="PATH|NAME", help="a path, python3.13, or 3.13")
    parser.add_argument("--jax", metavar="VERSION", help="a version of JAX (default: the newest)")
    parser.add_argument("--fresh", action="store_true", help="make the environment anew")
    options = parser.parse_args(own)
    options.pytest = for_pytest
    try:
        return COMMANDS[options.command](options)
    except DevError as problem:
        say(str(problem))
        return 2


def _split(arguments: Sequence[str]) -> tuple[list[str], list[str]]:
    """Return the arguments before and after ``--``."""
    given = list(arguments)
    at = given.index("--") if "--" in given else len(given)
    return given[:at], given[at + 1 :]


COMMANDS = {"demo": demo, "test": test, "lint": lint}

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
