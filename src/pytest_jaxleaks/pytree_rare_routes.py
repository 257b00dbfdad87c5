"""Rarer transformations, which put unusual placeholders into an object: what fails is a limit."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import jax
import jax.export
import jax.numpy as jnp

from pytest_jaxleaks.pytree_causes import cause_of
from pytest_jaxleaks.pytree_findings import Symptom
from pytest_jaxleaks.pytree_routes import DEEPER, fails_for_bare_leaves, is_wide
from pytest_jaxleaks.pytree_subject import first_line, type_name

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from pytest_jaxleaks.pytree_subject import Subject

__all__ = ["RARE_ROUTES", "run_rare_route"]


_MOST_LEAVES = 30
"""A Hessian is traced for so many leaves at most: it grows with the square of their number."""


def _floating(subject: Subject) -> Any:
    """The object with a single number in each leaf: the Jacobian of a large array is huge."""
    return jax.tree.map(lambda leaf: jnp.ones((1,) * jnp.ndim(leaf)), subject.dynamic)


def _sum(obj: Any) -> Any:
    return sum(jnp.sum(leaf) for leaf in jax.tree.leaves(obj))


def _hessian(subject: Subject) -> None:
    if len(subject.leaves) <= _MOST_LEAVES:
        _traced(jax.hessian(_sum), _floating(subject))


def _traced(transformed: Callable[[Any], Any], obj: Any) -> None:
    """Trace without compiling: what goes wrong with a node goes wrong while tracing."""
    jax.make_jaxpr(lambda given: jax.tree.leaves(transformed(given)))(obj)


def _lower(subject: Subject) -> None:
    lowered = jax.jit(lambda obj: obj).lower(subject.dynamic)
    _ = lowered.args_info, lowered.out_info
    lowered.compile()(subject.dynamic)


def _export(subject: Subject) -> None:
    exported: Any = jax.export.export(jax.jit(lambda obj: len(jax.tree.leaves(obj))))(
        subject.dynamic
    )
    jax.eval_shape(exported.call, subject.dynamic)


RARE_ROUTES: dict[str, Callable[[Subject], Any]] = {
    "jacfwd": lambda subject: _traced(jax.jacfwd(_sum), _floating(subject)),
    "jacrev": lambda subject: _traced(jax.jacrev(_sum), _floating(subject)),
    "hessian": _hessian,
    "lower": _lower,
    "export": _export,
}
"""Transformations that put unusual placeholders into the object. What fails here is a limit."""


def run_rare_route(name: str, subject: Subject, demanded: bool) -> Iterator[Symptom | str]:
    """Send the object through one of the rarer transformations.

    Args:
        name: a key of ``RARE_ROUTES``.
        subject: the object.
        demanded: the caller asked for it, so that a failure is breakage and no limit.
    """
    if is_wide(subject) and not demanded:
        yield f"{name}: not tried, as there are {sum(subject.data)} arrays"
        return
    try:
        RARE_ROUTES[name](subject)
    except Exception as error:
        if fails_for_bare_leaves(RARE_ROUTES[name], subject, error):
            yield f"{name}: {first_line(error)}"
            return
        cause = cause_of(error, f"{name} of {type_name(subject.obj)}")
        deeper = DEEPER | {"leaves by type"}
        yield Symptom("through", f"{name}: {first_line(error)}", cause, demanded, deeper)
