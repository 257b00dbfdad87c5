"""The line of source that keeps a value, found by reading the functions that were traced.

JAX records where a value was made, and the search who holds it; neither says which line stored it.
That is an assignment to the holder's name, or a call of a method that adds to it.
"""

from __future__ import annotations

import ast
import functools
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["SourceLine", "keeping_line", "project_line"]

_ADDS = frozenset(
    (
        *("add", "append", "appendleft", "extend", "extendleft", "insert", "put", "put_nowait"),
        *("register", "set", "set_result", "setdefault", "update", "__setitem__"),
    )
)
_LARGEST_FILE = 2_000_000
_Function: TypeAlias = ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda
_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)


class SourceLine(NamedTuple):
    """A line of a file: path as the report has it, and line from 1."""

    path: str
    line: int


def keeping_line(leak: Mapping[str, Any], root: Path) -> SourceLine | None:
    """Return the line that stores the value, or None where none can be told.

    The functions around the place where the value was made and around the start of the traced
    function are read first; then the class of the holder, for assignments to the attribute.

    Args:
        leak: a leak as the JSON report has it.
        root: folder that relative paths are relative to.
    """
    owner, _, name = str(leak["holder"]).rpartition(".")
    places = [leak[key] for key in ("created", "traced") if leak.get(key)]
    for place in places:
        tree = _tree(root / place["path"])
        for function in _functions_around(tree, place["line"]):
            lines = _stores(function, name)
            if lines:
                nearest = min(lines, key=lambda line: (abs(line - place["line"]), line))
                return SourceLine(place["path"], nearest)
    paths = [_file_of_holder(str(leak["holder"]), root), *(place["path"] for place in places)]
    for path in filter(None, paths):
        for cls in _classes(_tree(root / path), owner.rpartition(".")[2]):
            lines = _stores(cls, name)
            if lines:
                return SourceLine(path, lines[0])
    return None


def project_line(leak: Mapping[str, Any], root: Path) -> SourceLine | None:
    """Return the best line of the project's own code to show a leak at, or None.

    That is the line that keeps the value; else the line that made it; else the traced function.
    """
    kept = keeping_line(leak, root)
    places = [kept] if kept is not None else []
    for key in ("created", "traced"):
        if leak.get(key):
            places.append(SourceLine(leak[key]["path"], leak[key]["line"]))
    return next((place for place in places if not _is_foreign(place.path, root)), None)


def _is_foreign(path: str, root: Path) -> bool:
    return Path(path).is_absolute() or not (root / path).is_file()


def _file_of_holder(holder: str, root: Path) -> str | None:
    parts = holder.split(".")
    for count in range(len(parts) - 1, 0, -1):
        for start in ("", "src/"):
            path = f"{start}{'/'.join(parts[:count])}.py"
            if (root / path).is_file():
                return path
    return None


def _stores(tree: ast.AST, name: str) -> list[int]:
    """Return the lines in which something other than a constant is stored under ``name``.

    If there is none: the lines in which it is called, which is how a mock or a cache stores.
    """
    found = [node for node in ast.walk(tree) if _is_store(node, name)]
    if not found:
        calls = (node for node in ast.walk(tree) if isinstance(node, ast.Call))
        found = [node for node in calls if _mentions(node.func, name)]
    return sorted({node.lineno for node in found if isinstance(node, (ast.stmt, ast.expr))})


def _is_store(node: ast.AST, name: str) -> bool:
    if isinstance(node, ast.Assign):
        stored = node.value
        return any(_mentions(target, name) for target in node.targets) and not _is_empty(stored)
    if isinstance(node, (ast.AugAssign, ast.AnnAssign, ast.NamedExpr)):
        return _mentions(node.target, name) and not _is_empty(node.value)
    return isinstance(node, ast.Call) and _is_adding_call(node, name)


def _is_empty(value: ast.AST | None) -> bool:
    """Tell whether a value is a constant or an empty container, which keep nothing."""
    if value is None or isinstance(value, ast.Constant):
        return True
    if isinstance(value, ast.Dict):
        return not value.values
    return isinstance(value, (ast.List, ast.Set, ast.Tuple)) and not value.elts


def _is_adding_call(node: ast.Call, name: str) -> bool:
    function = node.func
    if isinstance(function, ast.Name) and function.id == "setattr":
        arguments = [arg.value for arg in node.args if isinstance(arg, ast.Constant)]
        return name in arguments
    return (
        isinstance(function, ast.Attribute)
        and function.attr in _ADDS
        and _mentions(function.value, name)
    )


def _mentions(target: ast.AST, name: str) -> bool:
    """Tell whether a target is ``name``, ``x.name``, ``name[...]``, ``name.x`` or a tuple of it."""
    if isinstance(target, ast.Name):
        return target.id == name
    if isinstance(target, ast.Attribute):
        return target.attr == name or _mentions(target.value, name)
    if isinstance(target, (ast.Subscript, ast.Starred)):
        return _mentions(target.value, name)
    if isinstance(target, (ast.Tuple, ast.List)):
        return any(_mentions(element, name) for element in target.elts)
    return False


def _functions_around(tree: ast.AST | None, line: int) -> list[_Function]:
    """Return the functions around ``line``, innermost first; decorators belong to a function."""
    found = [node for node in (ast.walk(tree) if tree else ()) if isinstance(node, _FUNCTIONS)]
    around = [node for node in found if _start(node) <= line <= (node.end_lineno or node.lineno)]
    return sorted(around, key=lambda node: (node.end_lineno or 0) - _start(node))


def _start(node: _Function) -> int:
    decorators = [] if isinstance(node, ast.Lambda) else node.decorator_list
    return min([node.lineno, *(decorator.lineno for decorator in decorators)])


def _classes(tree: ast.AST | None, name: str) -> list[ast.ClassDef]:
    found = (node for node in (ast.walk(tree) if tree else ()) if isinstance(node, ast.ClassDef))
    return [node for node in found if node.name == name]


def _tree(path: Path) -> ast.Module | None:
    try:
        state = path.stat()
        key = (state.st_mtime_ns, state.st_size)
        return _parsed(path, key) if state.st_size <= _LARGEST_FILE else None
    except (OSError, SyntaxError, ValueError, RecursionError):
        return None


@functools.lru_cache(maxsize=64)
def _parsed(path: Path, _state: tuple[int, int]) -> ast.Module:
    return ast.parse(path.read_bytes())
