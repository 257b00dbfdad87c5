"""One calling convention for every function: positional arguments that have names."""

from __future__ import annotations

import difflib
import inspect
import operator
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, SupportsIndex

import jax

from pytest_jaxleaks.donations import copies, donates
from pytest_jaxleaks.errors import InvalidArgumentError
from pytest_jaxleaks.leaves import is_array_like, is_differentiated

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

__all__ = [
    "Arguments",
    "bind",
    "choose_argnums",
    "choose_static",
    "function_name",
    "refuse_misspelt",
]


@dataclass(frozen=True)
class Arguments:
    """A function and its arguments, keyword arguments appended to the positional ones.

    Attributes:
        fn: the user's function.
        names: a name per argument.
        values: the arguments, those passed by keyword last.
        keywords: the names of those passed by keyword.
        donated: whether the function donates arguments, so that it is called with copies.
    """

    fn: Callable[..., Any]
    names: tuple[str, ...]
    values: tuple[Any, ...]
    keywords: tuple[str, ...]
    donated: bool = False

    def call(self, *values: Any) -> Any:
        """Call the function with every argument in position."""
        if self.donated:
            values = copies(values)
        split = len(values) - len(self.keywords)
        return self.fn(*values[:split], **dict(zip(self.keywords, values[split:], strict=True)))

    def position(self, which: int | str, option: str) -> int:
        """Return the position of an argument given by number or name."""
        if isinstance(which, str) and which in self.names:
            return self.names.index(which)
        size = len(self.values)
        number = which if isinstance(which, SupportsIndex) else None
        if number is not None and not isinstance(which, bool):
            index = operator.index(number)
            if -size <= index < size:
                return index % size
        raise InvalidArgumentError(
            f"{option}={which!r}: expected the number or name of an argument; "
            f"{function_name(self.fn)} was given {size}: {', '.join(self.names) or 'none'}"
        )

    def positions(self, which: int | str | Sequence[int | str], option: str) -> tuple[int, ...]:
        """Return the positions of one or more arguments."""
        if isinstance(which, Iterable) and not isinstance(which, str):
            return tuple(dict.fromkeys(self.position(one, option) for one in which))
        return (self.position(which, option),)


def function_name(fn: Any) -> str:
    """Return the name a programmer knows the function by."""
    inner = getattr(fn, "func", fn)
    return str(getattr(inner, "__qualname__", type(inner).__qualname__))


def bind(fn: Callable[..., Any], args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Arguments:
    """Name the arguments of a call."""
    if not callable(fn):
        raise InvalidArgumentError(f"fn={fn!r}: expected a function, got {type(fn).__name__}")
    names = [*_positional_names(fn, len(args)), *kwargs]
    return Arguments(fn, tuple(names), (*args, *kwargs.values()), tuple(kwargs), donates(fn))


def _positional_names(fn: Callable[..., Any], count: int) -> list[str]:
    try:
        parameters = list(inspect.signature(fn).parameters.values())
    except (TypeError, ValueError):
        parameters = []
    plain = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    names = [one.name for one in parameters if one.kind in plain][:count]
    rest = next((p.name for p in parameters if p.kind is inspect.Parameter.VAR_POSITIONAL), "args")
    return names + [f"{rest}[{index}]" for index in range(count - len(names))]


def refuse_misspelt(fn: Any, given: Iterable[str], options: Sequence[str]) -> None:
    """Refuse keyword arguments that look like an option and are no parameter of the function."""
    try:
        parameters = inspect.signature(fn).parameters
    except (TypeError, ValueError):
        return
    if any(one.kind is inspect.Parameter.VAR_KEYWORD for one in parameters.values()):
        return
    for name in given:
        close = difflib.get_close_matches(name, options, 1, 0.75)
        if name not in parameters and close:
            raise InvalidArgumentError(
                f"{name}: {function_name(fn)} has no such parameter, and check_transforms no such "
                f"option; expected {close[0]}"
            )


def choose_static(
    arguments: Arguments, static: int | str | Sequence[int | str] | None
) -> tuple[int, ...]:
    """Return the positions of the arguments that are no data; None means none."""
    if static is None:
        return ()
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
    if not chosen:
        raise InvalidArgumentError(
            f"argnums={argnums!r}: expected at least one argument; leave the orders with grad out "
            "with orders=lambda order: 'grad' not in order"
        )
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
