"""pytest's side of what a run leaves for machines and browsers: annotations, SARIF, a page."""

from __future__ import annotations

import contextlib
import json
import os
import sys
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from pytest_jaxleaks.report_files import writable, write_report
from pytest_jaxleaks.triage_child import is_triage_child

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from pytest_jaxleaks.gathering import Gathered

__all__ = ["add_options", "configure"]

_ANNOTATIONS = ("auto", "github", "off")


def add_options(parser: pytest.Parser) -> None:
    """Add the options that say what to write, and where."""
    group = parser.getgroup("jax-leaks")
    for name, what in (("sarif", "as SARIF 2.1.0"), ("html", "as one self-contained page")):
        group.addoption(
            f"--jax-leaks-{name}",
            metavar="PATH",
            default=None,
            help=f"Write the tracer leaks {what} to PATH.",
        )
    group.addoption(
        "--jax-leaks-annotations",
        choices=_ANNOTATIONS,
        default="auto",
        help="Print leaks as GitHub annotations: auto (if GITHUB_ACTIONS is true), github or off.",
    )


def configure(config: pytest.Config) -> None:
    """Gather leaks where they come together, if anything is to be made of them."""
    if hasattr(config, "workerinput") or is_triage_child():
        return
    targets: dict[str, Path] = {}
    for name in ("sarif", "html"):
        path = config.getoption(f"jax_leaks_{name}", None)
        if path is not None:
            target = config.invocation_params.dir / str(path)
            targets[name] = writable(f"--jax-leaks-{name}", target)
    wish = config.getoption("jax_leaks_annotations", "auto")
    in_github = os.environ.get("GITHUB_ACTIONS") == "true"
    annotates = wish == "github" or (wish == "auto" and in_github)
    if targets or annotates:
        plugin = _Outputs(config, targets, annotates=annotates)
        config.pluginmanager.register(plugin, "jaxleaks-outputs")


class _Outputs:
    def __init__(self, config: pytest.Config, targets: dict[str, Path], *, annotates: bool) -> None:
        from pytest_jaxleaks.gathering import Gathered

        self._config = config
        self._targets = targets
        self._annotates = annotates
        self._gathered: Gathered = Gathered()
        self._imports: set[tuple[str, bool]] = set()

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Take the leaks of one phase of one test, xdist workers' included."""
        for entry in getattr(report, "jax_leaks_collection", ()):
            self._take_import(entry)
        failing = getattr(report, "jax_leaks", [])
        accepted = getattr(report, "jax_leaks_accepted", [])
        if failing or accepted:
            from pytest_jaxleaks.gathering import SeenIn

            path, line, _ = report.location
            test = SeenIn(report.nodeid, Path(path).as_posix(), (line or 0) + 1, str(report.when))
            self._gathered.add(failing, test, accepted=False)
            self._gathered.add(accepted, test, accepted=True)

    def _take_import(self, entry: dict[str, Any]) -> None:
        """Take what was leaked before the first test."""
        from pytest_jaxleaks.gathering import SeenIn

        key = (entry["nodeid"], entry["accepted"])
        if key not in self._imports:  # each worker of xdist has imported it
            self._imports.add(key)
            test = SeenIn(entry["nodeid"] or ".", entry["path"], entry["line"], entry["phase"])
            self._gathered.add(entry["leaks"], test, accepted=entry["accepted"])

    @pytest.hookimpl(trylast=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        """Write the files and print the annotations."""
        for name, target in self._targets.items():
            text = _WRITERS[name](self._gathered, self._config.rootpath)
            write_report(session, f"--jax-leaks-{name}", target, text)
        if self._annotates and self._gathered:
            self._print_annotations()

    def _print_annotations(self) -> None:
        from pytest_jaxleaks.annotations import github_annotations

        lines = github_annotations(self._gathered.leaks(), self._config.rootpath, _workspace())
        with _uncaptured(self._config):
            text = "\n" + "\n".join(lines) + "\n"
            encoding = sys.stdout.encoding or "utf-8"
            sys.stdout.write(text.encode(encoding, "backslashreplace").decode(encoding))
            sys.stdout.flush()


@contextlib.contextmanager
def _uncaptured(config: pytest.Config) -> Iterator[None]:
    """Let output through to where the run writes to, with a terminal reporter or without."""
    capture: Any = config.pluginmanager.get_plugin("capturemanager")
    with capture.global_and_fixture_disabled() if capture else contextlib.nullcontext():
        yield


def _sarif(gathered: Gathered, root: Path) -> str:
    from pytest_jaxleaks.sarif import sarif

    log = sarif(gathered.leaks(), root, _own_version(), _workspace())
    return json.dumps(log, indent=1, ensure_ascii=False)


def _workspace() -> Path | None:
    """Return the folder of the repository, where GitHub runs the tests."""
    given = os.environ.get("GITHUB_WORKSPACE")
    return Path(given) if given else None


def _html(gathered: Gathered, root: Path) -> str:
    from pytest_jaxleaks.html_page import html_page

    return html_page(gathered.leaks(), root, left_out=gathered.left_out)


_WRITERS: dict[str, Callable[[Gathered, Path], str]] = {"sarif": _sarif, "html": _html}


def _own_version() -> str:
    try:
        return version("pytest-jaxleaks")
    except PackageNotFoundError:
        return "0.0.0"
