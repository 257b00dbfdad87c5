"""Check that a function is the same function under every order of jit, vmap and grad."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pytest_jaxleaks.errors import TransformCheckError
from pytest_jaxleaks.plan import SEED, UNSET, check_flag, make_plan
from pytest_jaxleaks.signature import bind, refuse_misspelt
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
    pytree: bool = True,
    **kwargs: Any,
) -> TransformReport:
    """Check a function under every order of jit, vmap and grad.

    The reference uses no transformation: the function with JIT disabled, a Python loop instead of
    vmap, and central differences (in float64 where the function runs in it) for the gradient. Each
    order is compared with it leaf by leaf (value per element, shape, dtype, weak type, treedef) and
    is watched for tracer leaks; orders that begin with jit are called twice and must not trace
    again; and no call may change anything but its result.

    A non-scalar output is reduced with a fixed random cotangent. With grad outside vmap the sum
    over the batch is differentiated: that is a stack of gradients for batched arguments and their
    sum for shared ones. A complex function is taken as one of real and imaginary parts, holomorphic
    or not, with JAX's convention ``dL = Re(sum(grad * dx))``.

    Args:
        fn: the function; of arrays of any shape and dtype, pytrees, PRNG keys (typed or legacy),
            equinox modules, None and static arguments.
        *args: its arguments. Without ``in_axes`` they are a single example, of which a batch is
            made; with ``in_axes`` they are batches, and a batch longer than 8 is checked on 8 of
            its rows.
        in_axes: as for ``jax.vmap``, prefix pytrees included; or a dict from the names of arguments
            to axes. Arguments that a dict or a tuple does not mention are mapped over axis 0 if all
            their leaves are arrays with axes.
        argnums: the arguments to differentiate, by number or name; by default the first one with
            floating-point leaves.
        orders: names such as ``"jit(vmap)"``, or predicates on names; all 15 by default.
        rtol: allowed relative deviation per element: a number, or a mapping from dtypes or orders
            to numbers. By default 64 eps of the dtype (8 for bfloat16 and float16, one
            representable value for float8 and narrower types), relative to the
            largest element of a leaf: jit and vmap reorder sums, whose rounding grows like the
            square root of their length. Where that is exceeded, 8 times the change that inputs
            moved by 4 ulps bring is allowed. Gradients may differ by 1e-2 per element from
            differences of the values, which is what solvers that stop at a tolerance need.
        atol: allowed absolute deviation, in the same forms.
        batch: the number of rows to make of a single example, 3 by default: scaled copies, split
            keys. With ``in_axes``, the axes say where the rows are put.
        filtered: whether to use equinox's filtered transformations; by default if a leaf is neither
            an array nor a number, or an equinox module holds something other than arrays.
        has_aux: whether the function returns ``(output, aux)``.
        static_argnums: arguments that are no data, by number or name.
        modes: ``("fwd", "rev")`` by default; forward mode is skipped where a ``custom_vjp`` has
            none, unless it is asked for.
        second_order: whether the gradient of the gradient is compared with differences, too.
        numeric: False for gradients that are meant to differ from those of the values, such as
            straight-through estimators.
        pytree: whether what the function returns is given to the pytree round trip; an array, or
            arrays in Python's own containers, cannot fail it and are not.
        **kwargs: arguments of the function by name. One that has the name of an option must be
            given by position.

    Returns:
        Which orders were run, and which were not applicable, because of what.

    Raises:
        TransformCheckError: an order fails; the message has the smallest one first, and
            ``failures`` one record for each.
        PytreeCheckError: every order works, and what the function returns breaks the pytree
            contract.
        InvalidArgumentError: an option cannot be used.

    Example:
        >>> import jax.numpy as jnp
        >>> def loss(w, x):
        ...     return jnp.sum(jnp.tanh(x @ w) ** 2)
        >>> w, xs = jnp.ones((3, 2)), jnp.linspace(0.0, 1.0, 12).reshape(4, 3)
        >>> report = check_transforms(loss, w, xs, in_axes=(None, 0))
        >>> len(report.orders)
        15
    """
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
    check_flag("pytree", pytree)
    refuse_misspelt(fn, kwargs, (*options, "pytree"))
    arguments = bind(fn, args, kwargs)
    report, output = run_check(make_plan(arguments, options))
    if report.failures:
        raise TransformCheckError(
            describe(report, arguments), report, script(report, arguments, options, SEED)
        )
    if pytree:
        _check_returned_pytree(output)
    return report


def single_result(fn: Callable[..., Any], *args: Any, **options: Any) -> Any:
    """Return what a function gives for one example; arguments and options as for
    :func:`check_transforms`."""
    known = {key: options.pop(key, value) for key, value in DEFAULTS.items()}
    refuse_misspelt(fn, options, tuple(known))
    arguments = bind(fn, args, options)
    return arguments.call(*make_plan(arguments, known).make_batch(arguments, scaled=True).example)


def _check_returned_pytree(value: Any) -> None:
    """Give what the function returned to the pytree round trip, if it has a node that can break."""
    __tracebackhide__ = True
    if has_custom_nodes(value):
        from pytest_jaxleaks.pytrees import check_pytree

        check_pytree(value)


def has_custom_nodes(value: Any) -> bool:
    """Tell whether a value has other pytree nodes than Python's own containers."""
    import jax

    if type(value) is dict:
        return any(map(has_custom_nodes, value.values()))
    if type(value) in (list, tuple):
        return any(map(has_custom_nodes, value))
    return value is not None and not jax.tree_util.all_leaves([value])
