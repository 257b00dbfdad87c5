"""Leaks as SARIF 2.1.0, the format that code scanning reads."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import quote

from pytest_jaxleaks.baseline import key_of
from pytest_jaxleaks.keeping_line import project_line

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from pytest_jaxleaks.gathering import GatheredLeak

__all__ = ["sarif"]

_SCHEMA = (
    "https://docs.oasis-open.org/sarif/sarif/v2.1.0/errata01/os/schemas/sarif-schema-2.1.0.json"
)
_RULE = "tracer-leak"
_MOST_TESTS = 20
_RULE_TEXT = (
    "A value that JAX made while it traced a function can still be reached after the "
    "transformation has ended. Used again, it raises UnexpectedTracerError."
)


class _Folders(NamedTuple):
    """The folder that paths are relative to, and the one that the log's are: the repository."""

    root: Path
    top: Path

    def artifact(self, path: str) -> dict[str, str]:
        """Return the place of a file, by what a repository calls it if it is in there."""
        absolute = Path(os.path.normpath(self.root / path))
        if not absolute.is_relative_to(self.top):
            return {"uri": absolute.as_uri()}
        return {"uri": quote(absolute.relative_to(self.top).as_posix()), "uriBaseId": "SRCROOT"}


def sarif(
    found: Iterable[GatheredLeak], root: Path, version: str, workspace: Path | None = None
) -> dict[str, Any]:
    """Return a SARIF log with one result per leak.

    Args:
        found: what a run found; accepted leaks become suppressed results.
        root: folder that paths in ``found`` are relative to.
        version: version of this package.
        workspace: the repository's folder, if it is known and ``root`` may be a part of it.
    """
    inside = workspace is not None and root.is_relative_to(workspace)
    folders = _Folders(root, workspace if workspace is not None and inside else root)
    rule = {
        "id": _RULE,
        "name": "TracerLeak",
        "shortDescription": {"text": "A tracer outlives its transformation."},
        "fullDescription": {"text": _RULE_TEXT},
        "help": {"text": f"{_RULE_TEXT} Return the value from the traced function instead."},
        "defaultConfiguration": {"level": "error"},
    }
    driver = {"name": "pytest-jaxleaks", "semanticVersion": version, "rules": [rule]}
    run = {
        "tool": {"driver": driver},
        "columnKind": "unicodeCodePoints",
        "originalUriBaseIds": {"SRCROOT": {"uri": f"{folders.top.as_uri()}/"}},
        "invocations": [{"executionSuccessful": True}],
        "results": [_result(each, folders) for each in found],
    }
    return {"$schema": _SCHEMA, "version": "2.1.0", "runs": [run]}


def _result(each: GatheredLeak, folders: _Folders) -> dict[str, Any]:
    leak = each.leak
    place = project_line(leak, folders.root) or (each.tests[0].path, each.tests[0].line)
    location = _location(*place, folders)
    location["logicalLocations"] = [{"fullyQualifiedName": leak["holder"]}]
    result: dict[str, Any] = {
        "ruleId": _RULE,
        "ruleIndex": 0,
        "level": "note" if each.accepted else "error",
        "message": {"text": _message(leak)},
        "locations": [location],
        "relatedLocations": _related(each, folders),
        "partialFingerprints": {"tracerLeak/v1": _fingerprint(leak)},
        "properties": {
            "chain": leak["chain"],
            "tests": [test.nodeid for test in each.tests[:_MOST_TESTS]],
            "testCount": each.count,
        },
    }
    if each.accepted:
        result["suppressions"] = [{"kind": "external", "justification": "accepted in this project"}]
    return result


def _message(leak: Mapping[str, Any]) -> str:
    traced = f" of {leak['traced']['function']}" if leak.get("traced") else ""
    return (
        f"{leak['value']} of {leak['transform']}{traced} is kept by {leak['holder']}, reached by "
        f"{' -> '.join(leak['chain'])}. To mend it: {leak['hint']}."
    )


def _related(each: GatheredLeak, folders: _Folders) -> list[dict[str, Any]]:
    places = [
        (f"{title} {leak_place['function']}", leak_place["path"], leak_place["line"])
        for title, key in (
            ("the value was made here, in", "created"),
            ("traced function", "traced"),
        )
        if (leak_place := each.leak.get(key))
    ]
    places += [(f"seen in {test.nodeid}", test.path, test.line) for test in each.tests[:3]]
    return [
        {"id": number, "message": {"text": text}, **_location(path, line, folders)}
        for number, (text, path, line) in enumerate(places, 1)
    ]


def _location(path: str, line: int, folders: _Folders) -> dict[str, Any]:
    return {
        "physicalLocation": {
            "artifactLocation": folders.artifact(path),
            "region": {"startLine": max(1, line)},
        }
    }


def _fingerprint(leak: Mapping[str, Any]) -> str:
    """Return what makes it the same leak in the next run, whatever moved in the file."""
    return hashlib.sha256("\0".join(key_of(leak)).encode("utf-8", "replace")).hexdigest()
