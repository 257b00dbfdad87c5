"""Rarer transformations, which put unusual placeholders into an object: what fails is a limit."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import jax
import jax.export
import jax.numpy as jnp

from pytest_jaxleaks.pytree_causes import cause_of
from pytest_jaxleaks.pytree_findings import Symptom
from pytest_jaxleaks.pytree_routes import DEEPER, fails_for_bare_leaves
from pytest_jaxleaks.pytree_subject import first_line, type_name

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from pytest_jaxleaks.pytree_subject import Subject

__all__ = ["RARE_ROUTES", "run_rare_route"]


def _floating(subject: Subject) -> Any:
    """The object with floating leaves only: a Jacobian exists for nothing else."""

    def converted(leaf: Any) -> Any:
        array = jnp.asarray(leaf)
        if jnp.issubdtype(array.dtype, jax.dtypes.prng_key):
            return jnp.zeros(array.shape)
        return array if jnp.issubdtype(array.dtype, jnp.floating) else jnp.ones(array.shape)

    return jax.tree.map(converted, subject.dynamic)


def _sum(obj: Any) -> Any:
    leaves = [jnp.asarray(leaf) for leaf in jax.tree.leaves(obj)]
    numbers = [x for x in leaves if not jnp.issubdtype(x.dtype, jax.dtypes.prng_key)]
    return sum((jnp.sum(jnp.real(x)).astype(jnp.float32) for x in numbers), jnp.zeros(()))


def _traced(transformed: Callable[[Any], Any], obj: Any) -> None:
    """Trace without compiling: what goes wrong with a node goes wrong while tracing."""
    jax.make_jaxpr(lambda given: jax.tree.leaves(transformed(given)))(obj)


def _lower(subject: Subject) -> None:
    lowered = jax.jit(lambda obj: obj).lower(subject.dynamic)
    _ = lowered.args_info, lowered.out_info
    lowered.compile()(subject.dynamic)


def _export(subject: Subject) -> None:
    exported: Any = jax.export.export(jax.jit(_sum))(subject.dynamic)
    jax.eval_shape(exported.call, subject.dynamic)


RARE_ROUTES: dict[str, Callable[[Subject], Any]] = {
    "jacfwd": lambda subject: _traced(jax.jacfwd(_sum), _floating(subject)),
    "jacrev": lambda subject: _traced(jax.jacrev(_sum), _floating(subject)),
    "hessian": lambda subject: _traced(jax.hessian(_sum), _floating(subject)),
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
    try:
        RARE_ROUTES[name](subject)
    except Exception as error:
        if fails_for_bare_leaves(RARE_ROUTES[name], subject, error):
            yield f"{name}: {first_line(error)}"
            return
        cause = cause_of(error, f"{name} of {type_name(subject.obj)}")
        deeper = DEEPER | {"leaves by type"}
        yield Symptom("through", f"{name}: {first_line(error)}", cause, demanded, deeper)
