"""Check that a function is the same function under every order of jit, vmap and grad."""

from __future__ import annotations

import importlib
import importlib.util
from typing import TYPE_CHECKING, Any

from pytest_jaxleaks.errors import TransformCheckError
from pytest_jaxleaks.plan import SEED, UNSET, make_plan
from pytest_jaxleaks.signature import bind
from pytest_jaxleaks.transform_checking import run_check
from pytest_jaxleaks.transform_report import DEFAULTS, describe, script

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from pytest_jaxleaks.failures import TransformReport

__all__ = ["check_transforms"]


def check_transforms(
    fn: Callable[..., Any],
    *args: Any,
    in_axes: Any = UNSET,
    argnums: int | str | Sequence[int | str] | None = None,
    orders: Any = None,
    rtol: float | Mapping[Any, float] | None = None,
    atol: float | Mapping[Any, float] | None = None,
    batch: int | None = None,
    filtered: bool | None = None,
    has_aux: bool = False,
    static_argnums: int | str | Sequence[int | str] = (),
    modes: Sequence[str] | None = None,
    second_order: bool = False,
    numeric: bool = True,
    pytree: bool = False,
    **kwargs: Any,
) -> TransformReport:
    """TODO docs."""
    __tracebackhide__ = True
    options: dict[str, Any] = {
        "in_axes": in_axes,
        "argnums": argnums,
        "orders": orders,
        "rtol": rtol,
        "atol": atol,
        "batch": batch,
        "filtered": filtered,
        "has_aux": has_aux,
        "static_argnums": static_argnums,
        "modes": modes,
        "second_order": second_order,
        "numeric": numeric,
    }
    arguments = bind(fn, args, kwargs)
    report, output = run_check(make_plan(arguments, options))
    if report.failures:
        raise TransformCheckError(
            describe(report, arguments), report, script(report, arguments, options, SEED)
        )
    if pytree:
        _check_returned_pytree(output)
    return report


def pytree_check() -> Callable[..., Any] | None:
    """Return the round trip's check; None while there is no such room."""
    if importlib.util.find_spec("pytest_jaxleaks.pytrees") is None:
        return None
    found: Callable[..., Any] = importlib.import_module("pytest_jaxleaks.pytrees").check_pytree
    return found


def single_result(fn: Callable[..., Any], *args: Any, **options: Any) -> Any:
    """Return what a function gives for one example; arguments and options as for
    :func:`check_transforms`."""
    known = {key: options.pop(key, value) for key, value in DEFAULTS.items()}
    arguments = bind(fn, args, options)
    return arguments.call(*make_plan(arguments, known).make_batch(arguments, scaled=True).example)


def _check_returned_pytree(value: Any) -> None:
    """Give what the function returned to the pytree round trip."""
    __tracebackhide__ = True
    check = pytree_check()
    if check is not None:
        check(value)
