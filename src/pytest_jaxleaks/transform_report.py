"""The text of a failed check: the smallest failing order first, then the rest in groups."""

from __future__ import annotations

import math
import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import jax
import numpy as np

from pytest_jaxleaks.failures import PLAIN, Failure, TransformReport
from pytest_jaxleaks.leaves import is_array_like, is_key, short_type
from pytest_jaxleaks.order_names import ORDERS
from pytest_jaxleaks.plan import UNSET
from pytest_jaxleaks.signature import Arguments, function_name

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["DEFAULTS", "describe", "script", "sorted_failures"]


DEFAULTS: dict[str, Any] = {
    "in_axes": UNSET, "argnums": None, "orders": None, "rtol": None, "atol": None, "batch": None,
    "filtered": None, "has_aux": False, "static_argnums": (), "modes": None, "second_order": False,
    "numeric": True,
}  # fmt: skip
"""The options of ``check_transforms`` that a script need not repeat."""


def sorted_failures(failures: Sequence[Failure]) -> tuple[Failure, ...]:
    """Put the smallest order first; what is wrong with the function itself comes before all
    orders."""
    rank = {PLAIN: -1, **{order: i for i, order in enumerate(ORDERS)}}
    return tuple(sorted(failures, key=lambda failure: rank.get(failure.order, len(rank))))


def describe(report: TransformReport, arguments: Arguments) -> str:
    """Write the message of a :class:`TransformCheckError`."""
    groups: dict[tuple[str, str, str], list[Failure]] = {}
    for failure in report.failures:
        groups.setdefault(failure.signature, []).append(failure)
    lines = [f"{function_name(arguments.fn)} is not the same function under transformations"]
    for group in groups.values():
        lines += ["", *_paragraph(group)]
    if report.not_applicable:
        lines += ["", "not applicable:"]
        reasons: dict[str, list[str]] = {}
        for order, reason in report.not_applicable.items():
            reasons.setdefault(reason, []).append(order)
        lines += [f"  {', '.join(orders)}: because {why}" for why, orders in reasons.items()]
    lines += [f"note: {note}" for note in report.notes]
    return "\n".join(lines)


def _paragraph(group: Sequence[Failure]) -> list[str]:
    first = group[0]
    others = [order for order in dict.fromkeys(f.order for f in group) if order != first.order]
    lines = [f"{first.order}: {first.message}"]
    if others:
        many = "order fails" if len(others) == 1 else "orders fail"
        alone = f"{first.order} alone already fails; " if first.order != PLAIN else ""
        lines.append(f"  {alone}{len(others)} longer {many} the same way: {', '.join(others)}")
    lines += [f"  {line}" for line in first.detail]
    if first.tolerance:
        lines.append(f"  tolerance {first.tolerance}")
    if first.hint:
        lines.append(f"  hint: {first.hint}")
    return lines


def script(
    report: TransformReport, arguments: Arguments, options: dict[str, Any], seed: int
) -> str:
    """Write a program that reproduces the smallest failure, with arrays of the same shapes and
    dtypes."""
    order = report.failures[0].order
    lines = ["import jax", "import jax.numpy as jnp", "import numpy as np"]
    lines += ["from pytest_jaxleaks import check_transforms", _import(arguments.fn), ""]
    split = len(arguments.values) - len(arguments.keywords)
    values, passed = [], []
    for position, (name, value) in enumerate(zip(arguments.names, arguments.values, strict=True)):
        variable = "".join(c if c.isalnum() else "_" for c in name).strip("_") or "arg"
        while variable in (*TAKEN, _variable(arguments.fn)):
            variable += "_"
        spelt = _spell(value)
        facts = "" if "..." not in spelt else f"  # {name}: {_types(value)}"
        values.append(f"{variable} = {spelt}{facts}")
        passed.append(variable if position < split else f"{name}={variable}")
    if any("asarray(random.normal" in line for line in values):
        lines.append(f"random = np.random.default_rng({seed})")
    chosen = {
        key: value
        for key, value in options.items()
        if key != "orders" and repr(value) != repr(DEFAULTS[key])
    }
    if order in ORDERS:
        chosen["orders"] = [order]
    if order == "grad(grad)":
        chosen["orders"] = ["grad"]
    passed += [f"{key}={_spell_option(value)}" for key, value in chosen.items()]
    call = f"check_transforms({', '.join([_variable(arguments.fn), *passed])})"
    return "\n".join([*lines, *values, call])


TAKEN = ("jax", "jnp", "np", "random", "check_transforms")
"""Names that the script needs for itself."""


def _types(value: Any) -> str:
    leaves = ", ".join(short_type(leaf) for leaf in jax.tree.leaves(value)[:8])
    return f"{type(value).__name__} with leaves {leaves}"


def _spell_option(value: Any) -> str:
    """Write an option, whose mappings may have dtypes for keys."""
    if isinstance(value, Mapping):
        pairs = (f"{_spell_key(key)}: {_spell_option(part)}" for key, part in value.items())
        return "{" + ", ".join(pairs) + "}"
    return repr(float(value)) if isinstance(value, np.floating) else repr(value)


def _spell_key(key: Any) -> str:
    if isinstance(key, str | int):
        return repr(key)
    return repr(str(np.dtype(key)))


def _import(fn: Any) -> str:
    name, module = getattr(fn, "__qualname__", ""), getattr(fn, "__module__", "")
    if name.isidentifier() and hasattr(sys.modules.get(module), name):
        return f"from {module} import {name}"
    return f"fn = ...  # {function_name(fn)}, which cannot be imported by name"


def _variable(fn: Any) -> str:
    name = str(getattr(fn, "__qualname__", ""))
    return name if _import(fn).startswith("from") else "fn"


def _spell(value: Any) -> str:
    """Write an expression for an argument: exact for small arrays, of the same type for large
    ones."""
    if is_key(value):
        bits = _spell(jax.random.key_data(value))
        return f"jax.random.wrap_key_data({bits}, impl={str(jax.random.key_impl(value))!r})"
    if isinstance(value, (jax.Array, np.ndarray, np.generic)) and is_array_like(value):
        module, dtype = "jnp" if isinstance(value, jax.Array) else "np", str(value.dtype)
        if value.size > 64:
            return f"{module}.asarray(random.normal(size={value.shape})).astype({dtype!r})"
        content = f"{module}.array({_spell_content(np.asarray(value).tolist())}, {dtype!r})"
        if isinstance(value, np.generic):
            return f"{content}[()]"
        return content if value.size else f"{module}.zeros({value.shape}, {dtype!r})"
    if isinstance(value, dict):
        return "{" + ", ".join(f"{key!r}: {_spell(part)}" for key, part in value.items()) + "}"
    if type(value) is tuple:
        return "(" + "".join(f"{_spell(part)}, " for part in value) + ")"
    if type(value) is list:
        return "[" + ", ".join(map(_spell, value)) + "]"
    if value is None or type(value) in (bool, int, float, complex, str):
        return _spell_content(value)
    return "..."


def _spell_content(value: Any) -> str:
    """Write numbers, of which some have no literal."""
    if isinstance(value, list):
        return "[" + ", ".join(map(_spell_content, value)) + "]"
    if isinstance(value, float) and not math.isfinite(value):
        return f"np.{value}" if value > 0 or value != value else "-np.inf"
    if isinstance(value, complex):
        return f"complex({_spell_content(value.real)}, {_spell_content(value.imag)})"
    return repr(value)
