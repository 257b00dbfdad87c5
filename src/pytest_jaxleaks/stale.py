"""Globals that a function reads and that other code assigns: compiled code keeps the old value."""

from __future__ import annotations

import dis
import functools
import sysconfig
import types
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pytest_jaxleaks.stale_parts import assigned_parts, data_at, read_parts

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["StaleGlobal", "named_by", "stale_globals", "user_functions"]

LIBRARIES = tuple({sysconfig.get_path(name) for name in ("stdlib", "purelib", "platlib")})
CODE = (types.FunctionType, types.BuiltinFunctionType, types.ModuleType, type)


@dataclass(frozen=True)
class StaleGlobal:
    """A global variable, who reads it and who assigns it."""

    name: str
    reader: str
    writer: str


def stale_globals(fn: Any) -> list[StaleGlobal]:
    """Return the globals that ``fn``, or a function it names, reads and another function
    assigns."""
    found: dict[str, StaleGlobal] = {}
    called = set(user_functions(fn))
    for reader in sorted(called, key=lambda one: one.__qualname__):
        written = _writers(reader.__globals__)
        for name in sorted(_globals(reader.__code__, "LOAD_GLOBAL") & set(written)):
            if (
                isinstance(reader.__globals__.get(name), CODE)
                or written[name] == reader.__qualname__
            ):
                continue
            found.setdefault(name, StaleGlobal(name, reader.__qualname__, written[name]))
        for part, writer in _stale_parts(reader, called):
            found.setdefault(part, StaleGlobal(part, reader.__qualname__, writer))
    return list(found.values())


def _stale_parts(
    reader: types.FunctionType, called: set[types.FunctionType]
) -> Iterator[tuple[str, str]]:
    """Yield each ``CONFIG['scale']`` or ``config.scale`` that a function reads, and who assigns it.

    What the checked function assigns itself, or a function that it calls, is a matter of purity.
    """
    wanted = {part for part in read_parts(reader.__code__) if data_at(part, reader.__globals__)}
    if not wanted:
        return
    for writer in _functions_of(reader.__globals__):
        if writer in called:
            continue
        for name, kind, key in sorted(wanted & assigned_parts(writer.__code__), key=str):
            spelt = f"{name}.{key}" if kind == "." else f"{name}[{key!r}]"
            yield spelt, writer.__qualname__


def user_functions(fn: Any) -> Iterator[types.FunctionType]:
    """Yield a function and the functions of the user's that it names, and that those name."""
    waiting, seen = [fn], set()
    while waiting:
        one = _unwrapped(waiting.pop())
        if not isinstance(one, types.FunctionType) or one in seen:
            continue
        seen.add(one)
        if one.__code__.co_filename.startswith(LIBRARIES):
            continue
        yield one
        waiting += named_by(one)


def named_by(fn: types.FunctionType) -> list[Any]:
    """Return the values of the globals and closure variables that a function names."""
    found = [fn.__globals__.get(name) for name in sorted(_globals(fn.__code__, "LOAD_GLOBAL"))]
    return found + [cell.cell_contents for cell in fn.__closure__ or () if _filled(cell)]


def _filled(cell: Any) -> bool:
    try:
        return cell.cell_contents is not None
    except ValueError:
        return False


def _unwrapped(fn: Any) -> Any:
    for _ in range(10):
        if isinstance(fn, functools.partial):
            fn = fn.func
        elif isinstance(fn, types.MethodType):
            fn = fn.__func__
        elif isinstance(getattr(fn, "__wrapped__", None), types.FunctionType):
            fn = fn.__wrapped__
        else:
            break
    return fn


def _writers(module: dict[str, Any]) -> dict[str, str]:
    """Return, by name of a global, a function of the same module that assigns it."""
    found: dict[str, str] = {}
    for candidate in _functions_of(module):
        for name in _globals(candidate.__code__, "STORE_GLOBAL"):
            found.setdefault(name, candidate.__qualname__)
    return found


def _functions_of(module: dict[str, Any]) -> Iterator[types.FunctionType]:
    """Yield the functions and methods that a module defines."""
    for value in list(module.values()):
        candidates = [value, *vars(value).values()] if isinstance(value, type) else [value]
        for candidate in map(_unwrapped, candidates):
            if isinstance(candidate, types.FunctionType) and candidate.__globals__ is module:
                yield candidate


def _globals(code: types.CodeType, operation: str) -> set[str]:
    names = {str(i.argval) for i in dis.get_instructions(code) if i.opname == operation}
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            names |= _globals(constant, operation)
    return names
