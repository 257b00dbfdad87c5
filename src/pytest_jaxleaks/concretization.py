"""What to do about JAX's errors that a traced value has no concrete value.

Pure: from the error's class, its message and the line that raised it to a few lines of text.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, NamedTuple

from pytest_jaxleaks.jax_internals import is_internal_file

if TYPE_CHECKING:
    from collections.abc import Iterable
    from types import CodeType

__all__ = ["CONCRETIZATION_ERRORS", "Concretization", "explain", "numbered_parameters"]

CONCRETIZATION_ERRORS = (
    "TracerBoolConversionError",
    "TracerIntegerConversionError",
    "TracerArrayConversionError",
    "NonConcreteBooleanIndexError",
    "ConcretizationTypeError",
)


class Concretization(NamedTuple):
    """What is known about an error.

    Attributes:
        error: name of the error's class, one of ``CONCRETIZATION_ERRORS``.
        message: what JAX says.
        line: source of the innermost line of user code, without indentation; may be empty.
        parameters: those of the traced function that can be given by position, in order, if one of
            them cannot be given by name.
    """

    error: str
    message: str
    line: str = ""
    parameters: tuple[str, ...] = ()


def explain(failure: Concretization) -> list[str]:
    """Return what a traced value is needed for, what it depends on, and the usual mends."""
    need, mends = _need_and_mends(failure)
    lines = [f"{need}, but while JAX traces a function its value is not known."]
    traced = re.search(_TRACED, _flat(failure.message))
    place = (traced[2] or "") if traced else ""
    if _is_of_equinox(place):
        # What is traced is equinox's own function: its arguments are not the user's.
        mend = _UNDER_EQUINOX if failure.error not in _NEVER_STATIC else None
        return [*lines, *(f"  mend        {each}" for each in (*mends, mend) if each)]
    if is_internal_file(place.rpartition(":")[0]):
        # A function of JAX's own, around the user's: its arguments say nothing to anybody.
        return [*lines, *(f"  mend        {mend}" for mend in mends)]
    if traced:
        where = f" ({place})" if place else ""
        lines.append(f"  traced      {traced[1]}{where}, for {traced[3]}")
    arguments = _arguments(failure)
    if arguments:
        lines.append(f"  depends on  {_named(arguments)}")
    lines += [f"  mend        {mend}" for mend in mends]
    if traced and traced[3] == "jit" and failure.error not in _NEVER_STATIC:
        lines += _as_static(arguments, failure.parameters)
    return lines


_UNDER_EQUINOX = (
    "if it is a setting and no data: give it as a Python bool, int or str, which eqx.filter_jit "
    "does not trace, or make the field eqx.field(static=True)"
)


def _is_of_equinox(place: str) -> bool:
    return bool(re.search(r"[/\\]equinox[/\\]", place))


def _as_static(arguments: list[str], parameters: tuple[str, ...]) -> list[str]:
    """Return the advice to make arguments static; a part of an argument cannot be."""
    if not arguments or not all(map(str.isidentifier, arguments)):
        return []
    # A positional-only parameter has no name for JAX; and beside numbers, a name stands only for
    # what the call gives by name.
    numbers = [str(parameters.index(name)) for name in arguments if name in parameters]
    names = [repr(name) for name in arguments if name not in parameters]
    given = [
        f"{option}={values[0] if len(values) == 1 else '(' + ', '.join(values) + ')'}"
        for option, values in (("static_argnums", numbers), ("static_argnames", names))
        if values
    ]
    lines = [f"  mend        if it is a setting and no data: jax.jit(..., {', '.join(given)})"]
    if numbers and parameters[0] in ("self", "cls"):
        lines.append(f"              (counted with {parameters[0]}; one less for a bound method)")
    return lines


# An array cannot be a static argument.
_NEVER_STATIC = ("TracerArrayConversionError", "NonConcreteBooleanIndexError")


_TRACED = r"while tracing the function (\S+)(?: at (.+?:\d+))? for ([^.]+)\."


def numbered_parameters(message: str, codes: Iterable[CodeType]) -> tuple[str, ...]:
    """Return the parameters of the function that an error's message names, if some have no name.

    Args:
        message: what JAX says.
        codes: code of the functions on the error's traceback, the traced one among them.

    Returns:
        The parameters that can be given by position, if one of them is positional-only; else none.
    """
    traced = re.search(_TRACED, _flat(message))
    for code in codes:
        place = _flat(f"{code.co_filename}:{code.co_firstlineno}")
        if traced and (traced[1], traced[2]) == (code.co_name, place):
            return code.co_varnames[: code.co_argcount] if code.co_posonlyargcount else ()
    return ()


def _flat(message: str) -> str:
    return " ".join(message.split())


def _arguments(failure: Concretization) -> list[str]:
    """Return the arguments, or the parts of them, that the value depends on."""
    found = re.search(r"depends on the values? of the arguments? (.*)", _flat(failure.message))
    names = []
    rest = found[1] if found else ""
    while match := re.match(rf"{_ARGUMENT}(?:, and | and |, )?", rest):
        if match[1] != "unknown":  # what JAX says for want of a signature
            names.append(match[1])
        rest = rest[match.end() :]
    return list(dict.fromkeys(names))


# A name and the way into it, as JAX writes it: params['layer 1'][0].weight
_ARGUMENT = (
    r"([^\W\d]\w*(?:\[(?:'(?:[^'\\]|\\.)*'|\"(?:[^\"\\]|\\.)*\"|[^\]'\"]*)\]|\.[^\W\d]\w*)*)"
)


def _named(arguments: list[str]) -> str:
    if len(arguments) == 1:
        return f"argument {arguments[0]}"
    return f"arguments {', '.join(arguments[:-1])} and {arguments[-1]}"


_BOOL = (
    (
        r"(el)?if\b",
        "`if` chooses by a traced value",
        (
            "jnp.where(condition, a, b) to choose between values",
            "jax.lax.cond(condition, f, g, *args) to choose between computations",
        ),
    ),
    (
        r"while\b",
        "`while` repeats by a traced value",
        ("jax.lax.while_loop(condition, body, start)",),
    ),
    (
        r"assert\b",
        "`assert` checks a traced value",
        (
            "equinox.error_if(x, condition, message) checks at run time",
            "check outside of jit, or check shapes and dtypes, which are known",
        ),
    ),
    (
        r".*\bif\b.+\belse\b",
        "a conditional expression chooses by a traced value",
        (
            "jnp.where(condition, a, b) to choose between values",
            "jax.lax.cond(condition, f, g, *args) to choose between computations",
        ),
    ),
    (
        r".*(?<![\w.])(min|max|sorted)\(",
        "min, max or sorted compares traced values",
        ("jnp.minimum, jnp.maximum or jnp.sort",),
    ),
    (
        r".*\b(and|or|not)\b",
        "`and`, `or` or `not` decides by a traced value",
        ("jnp.logical_and, jnp.logical_or or jnp.logical_not (also &, | and ~)",),
    ),
)


def _need_and_mends(failure: Concretization) -> tuple[str, tuple[str, ...]]:
    line = _code_of(failure.line)
    if failure.error == "TracerBoolConversionError":
        for pattern, need, mends in _BOOL:
            if re.match(pattern, line):
                return need, mends
        return "bool() decides by a traced value", _BOOL[0][2]
    if failure.error == "TracerIntegerConversionError":
        return _integer(line)
    if failure.error == "TracerArrayConversionError":
        return "a numpy function was given a traced value", (
            "the function of the same name in jax.numpy",
            "jax.pure_callback(function, jax.ShapeDtypeStruct(...), x) for code that is no JAX",
        )
    if failure.error == "NonConcreteBooleanIndexError":
        return "x[mask] has as many elements as the mask has True", (
            "jnp.where(mask, x, 0) keeps the shape; sums and the like take where=mask",
            "jnp.nonzero(mask, size=n) has a size that is known",
        )
    return _number(line)


def _code_of(line: str) -> str:
    """Return a line without its comment, and without what its strings say."""
    bare = re.sub(r"\"(?:[^\"\\]|\\.)*\"|'(?:[^'\\]|\\.)*'", "''", line)
    return bare.partition("#")[0].rstrip()


def _integer(line: str) -> tuple[str, tuple[str, ...]]:
    if re.search(r"\brange\(", line):
        return "range() needs a number", ("jax.lax.fori_loop(0, n, body, start)",)
    return "a Python index must be a number", (
        "jnp.asarray(sequence)[i], or jax.lax.switch(i, functions, *args) for functions",
        "jax.lax.dynamic_slice_in_dim(x, start, size) for a slice that starts at a traced index",
    )


def _number(line: str) -> tuple[str, tuple[str, ...]]:
    if re.search(r"\.item\(|\.tolist\(|\b(float|int|complex)\(", line):
        return "a Python number is made of a traced value", (
            "leave it an array: x.astype(float) instead of float(x), x instead of x.item()",
            "return it from the traced function and convert what the call returns",
        )
    return "a concrete value is needed here", (
        "shapes, sizes and axes from x.shape (known) and not from values",
        "return the value from the traced function and use what the call returns",
    )
