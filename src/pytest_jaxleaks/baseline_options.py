"""The options of known leaks, and what they register."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from pytest_jaxleaks.triage_child import is_triage_child

if TYPE_CHECKING:
    from pathlib import Path

    from pytest_jaxleaks.baseline_comparison import Known

__all__ = ["KNOWN", "add_options", "configure"]

KNOWN: pytest.StashKey[Known] = pytest.StashKey()


def add_options(parser: pytest.Parser) -> None:
    """Add the options and ini values of the baseline."""
    group = parser.getgroup("jax-leaks")
    group.addoption(
        "--jax-leaks-baseline",
        metavar="PATH",
        default=None,
        help="File with known leaks: those are reported and do not fail.",
    )
    group.addoption(
        "--jax-leaks-write-baseline",
        action="store_true",
        default=None,
        help="Write the leaks that this run finds to the baseline; none of them fails.",
    )
    parser.addini(
        "jax_leaks_baseline", "File with known leaks, relative to the root folder.", default=""
    )
    parser.addini(
        "jax_leaks_baseline_strict",
        "Fail a whole run that does not find a leak which the baseline lists.",
        type="bool",
        default=False,
    )


def configure(config: pytest.Config) -> None:
    """Read the baseline; the controller also compares it with what was found."""
    if is_triage_child():
        return
    path = _path(config)
    writes = bool(config.getoption("jax_leaks_write_baseline", None))
    if path is None:
        if writes:
            raise pytest.UsageError(
                "--jax-leaks-write-baseline: which file? Expected --jax-leaks-baseline=PATH, or "
                "jax_leaks_baseline in the ini file."
            )
        return
    # Workers of xdist are given the options, and may run in another folder.
    config.option.jax_leaks_baseline = str(path)
    from pytest_jaxleaks.baseline_comparison import compare

    config.stash[KNOWN] = compare(config, path, writes=writes)


def _path(config: pytest.Config) -> Path | None:
    option = config.getoption("jax_leaks_baseline", None)
    if option:
        return config.invocation_params.dir / str(option)
    ini = str(config.getini("jax_leaks_baseline"))
    return config.rootpath / ini if ini else None
