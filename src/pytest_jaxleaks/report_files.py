"""Files that a run writes: known to be writable at its start, and written at once at its end."""

from __future__ import annotations

import os
import tempfile
import warnings
from pathlib import Path

import pytest

from pytest_jaxleaks.guarding import JaxLeaksWarning

__all__ = ["check_targets", "writable", "write_atomically", "write_report"]

_WRITING = (
    "--jax-leaks-baseline",
    "--jax-leaks-html",
    "--jax-leaks-report",
    "--jax-leaks-sarif",
)
# A file name may have 255 bytes; a character has four of them at most.
_LONGEST_PREFIX = 50


def writable(option: str, target: Path) -> Path:
    """Return ``target`` if a report can be written there, at the start of a run.

    Raises:
        pytest.UsageError: it cannot; the message names the option and the path.
    """
    try:
        problem = _problem(target)
    except (OSError, RuntimeError) as error:  # the latter for links in a circle, before Python 3.13
        problem = getattr(error, "strerror", None) or str(error)
    if problem:
        raise pytest.UsageError(
            f"{option}: cannot write {str(target)!r} ({problem}). "
            "Expected a file name in a folder that exists and can be written to."
        )
    return target


def _problem(target: Path) -> str:
    """Return what is in the way of a file; where only trying tells, the attempt raises."""
    if target.is_dir():
        return "it is a folder"
    if target.exists() and not target.is_file():
        return ""  # a device or a pipe
    folder = target.resolve().parent
    if not folder.is_dir():
        return "there is no such folder"
    if target.exists() and not os.access(target, os.W_OK):
        return "it is write-protected"
    with tempfile.NamedTemporaryFile(dir=folder, prefix=_prefix(target)):
        return ""


def check_targets(config: pytest.Config) -> None:
    """See that no two options of ours write to one file.

    Raises:
        pytest.UsageError: two do; the message names both.
    """
    taken: dict[Path, str] = {}
    for option in _WRITING:
        path = config.getoption(option.lstrip("-").replace("-", "_"), None)
        target = None if path is None else Path(config.invocation_params.dir, str(path))
        if target is None or _is_special(target):
            continue
        target = Path(os.path.realpath(target))
        if target in taken:
            raise pytest.UsageError(
                f"{option}: {str(target)!r} is the file of {taken[target]} as well. "
                "Expected a file of its own for each."
            )
        taken[target] = option


def _is_special(target: Path) -> bool:
    """Tell whether a target is no file: several reports may go to a pipe, or to /dev/null."""
    return os.path.exists(target) and not os.path.isfile(target)  # noqa: PTH110, PTH113 (no error)


def write_report(session: pytest.Session, option: str, target: Path, text: str) -> None:
    """Write a file at the end of a run; if that cannot be done any more, warn and fail the run."""
    try:
        write_atomically(target, text)
    except OSError as error:
        with warnings.catch_warnings():
            warnings.simplefilter("always", JaxLeaksWarning)
            message = f"{option}: {str(target)!r} could not be written: {error}"
            warnings.warn(message, JaxLeaksWarning, stacklevel=2)
        if session.exitstatus == pytest.ExitCode.OK:
            session.exitstatus = pytest.ExitCode.INTERNAL_ERROR


def write_atomically(target: Path, text: str) -> None:
    """Write a file so that a reader sees the old content or the new one, and nothing between.

    A link is followed. What is no regular file, such as a pipe, is written to as it is. A lone
    surrogate, as in the name of a file that is no UTF-8, is written as an escape.
    """
    content = text.encode("utf-8", "backslashreplace")
    target = target.resolve()
    if target.exists() and not target.is_file():
        target.write_bytes(content)
        return
    with tempfile.NamedTemporaryFile(
        dir=target.parent, prefix=_prefix(target), delete=False
    ) as file:
        temporary = Path(file.name)
        try:
            file.write(content)
            file.flush()
            # A temporary file is private; a report has the permissions of any new file.
            mask = os.umask(0)
            os.umask(mask)
            temporary.chmod(0o666 & ~mask)
        except BaseException:
            temporary.unlink()
            raise
    temporary.replace(target)


def _prefix(target: Path) -> str:
    return f".{target.name[:_LONGEST_PREFIX]}."
