"""One calling convention for every function: positional arguments that have names."""

from __future__ import annotations

import inspect
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import jax

from pytest_jaxleaks.errors import InvalidArgumentError
from pytest_jaxleaks.leaves import is_array_like, is_differentiated

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

__all__ = ["Arguments", "bind", "choose_argnums", "choose_static", "function_name"]


@dataclass(frozen=True)
class Arguments:
    """A function and its arguments, keyword arguments appended to the positional ones.

    Attributes:
        fn: the user's function.
        names: a name per argument.
        values: the arguments, those passed by keyword last.
        keywords: the names of those passed by keyword.
    """

    fn: Callable[..., Any]
    names: tuple[str, ...]
    values: tuple[Any, ...]
    keywords: tuple[str, ...]

    def call(self, *values: Any) -> Any:
        """Call the function with every argument in position."""
        split = len(values) - len(self.keywords)
        return self.fn(*values[:split], **dict(zip(self.keywords, values[split:], strict=True)))

    def position(self, which: int | str, option: str) -> int:
        """Return the position of an argument given by number or name."""
        if isinstance(which, str) and which in self.names:
            return self.names.index(which)
        size = len(self.values)
        if isinstance(which, int) and not isinstance(which, bool) and -size <= which < size:
            return which % size
        raise InvalidArgumentError(
            f"{option}={which!r}: expected the number or name of an argument; "
            f"{function_name(self.fn)} was given {size}: {', '.join(self.names) or 'none'}"
        )

    def positions(self, which: int | str | Sequence[int | str], option: str) -> tuple[int, ...]:
        """Return the positions of one or more arguments."""
        if isinstance(which, int | str):
            which = (which,)
        return tuple(dict.fromkeys(self.position(one, option) for one in which))


def function_name(fn: Any) -> str:
    """Return the name a programmer knows the function by."""
    inner = getattr(fn, "func", fn)
    return str(getattr(inner, "__qualname__", type(inner).__qualname__))


def bind(fn: Callable[..., Any], args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Arguments:
    """Name the arguments of a call."""
    if not callable(fn):
        raise InvalidArgumentError(f"fn={fn!r}: expected a function, got {type(fn).__name__}")
    names = [*_positional_names(fn, len(args)), *kwargs]
    return Arguments(fn, tuple(names), (*args, *kwargs.values()), tuple(kwargs))


def _positional_names(fn: Callable[..., Any], count: int) -> list[str]:
    try:
        parameters = list(inspect.signature(fn).parameters.values())
    except (TypeError, ValueError):
        parameters = []
    plain = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    names = [one.name for one in parameters if one.kind in plain][:count]
    rest = next((p.name for p in parameters if p.kind is inspect.Parameter.VAR_POSITIONAL), "args")
    return names + [f"{rest}[{index}]" for index in range(count - len(names))]


def choose_static(arguments: Arguments, static: int | str | Sequence[int | str]) -> tuple[int, ...]:
    """Return the positions of the arguments that are no data."""
    return tuple(sorted(arguments.positions(static, "static_argnums")))


def choose_argnums(
    arguments: Arguments,
    argnums: int | str | Sequence[int | str] | None,
    static: Sequence[int],
    filtered: bool,
) -> tuple[int, ...]:
    """Return the arguments to differentiate; by default the first one with inexact leaves.

    An empty tuple means that there is nothing to differentiate.
    """
    if argnums is None:
        for position, value in enumerate(arguments.values):
            leaves = jax.tree.leaves(value)
            if position not in static and any(is_differentiated(one, filtered) for one in leaves):
                return (position,)
        return ()
    chosen = arguments.positions(argnums, "argnums")
    for position in chosen:
        if position in static:
            raise InvalidArgumentError(
                f"argnums={argnums!r}: argument {arguments.names[position]!r} is static, "
                "and a static argument has no derivative"
            )
        if not any(map(is_array_like, jax.tree.leaves(arguments.values[position]))):
            raise InvalidArgumentError(
                f"argnums={argnums!r}: argument {arguments.names[position]!r} holds no array "
                f"({type(arguments.values[position]).__name__})"
            )
    return chosen
