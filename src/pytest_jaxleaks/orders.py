"""Orders of jit, vmap and grad: their names, and the functions they stand for."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from pytest_jaxleaks.errors import InvalidArgumentError
from pytest_jaxleaks.leaves import is_array_like, is_differentiated, is_inexact
from pytest_jaxleaks.order_names import ORDERS, parts

__all__ = ["Subject", "build", "draw", "fixed_cotangents", "select"]

OrderChoice = str | Callable[[str], bool]


@dataclass(frozen=True)
class Subject:
    """A function, and how each transformation is to be applied to it.

    Attributes:
        call: takes every argument by position.
        axes: per argument, a prefix pytree of axes for vmap.
        static: positions of static arguments.
        argnums: positions of the differentiated arguments.
        has_aux: whether the function returns ``(output, aux)``.
        filtered: whether equinox's transformations are used.
        cotangents: one array per inexact leaf of the output; None stands for the number 1.
        name: the function's name.
    """

    call: Callable[..., Any]
    axes: tuple[Any, ...]
    static: tuple[int, ...] = ()
    argnums: tuple[int, ...] = ()
    has_aux: bool = False
    filtered: bool = False
    cotangents: tuple[Any, ...] = field(default=(), compare=False)
    name: str = "f"


def select(wanted: OrderChoice | Iterable[OrderChoice] | None) -> tuple[str, ...]:
    """Return the chosen orders, the shortest first.

    Args:
        wanted: a name such as ``"jit(vmap)"``, a predicate on names, several of both, or None for
            all 15.

    Raises:
        InvalidArgumentError: a name is unknown, or nothing is chosen.
    """
    if wanted is None:
        return ORDERS
    if isinstance(wanted, str) or callable(wanted):
        choices: list[OrderChoice] = [wanted]
    elif isinstance(wanted, Iterable):
        choices = list(wanted)
    else:
        raise InvalidArgumentError(
            f"orders={wanted!r}: expected names of orders, predicates on names, or None for all"
        )
    chosen: set[str] = set()
    for choice in choices:
        if isinstance(choice, str) and choice in ORDERS:
            chosen.add(choice)
        elif callable(choice):
            chosen.update(order for order in ORDERS if choice(order))
        else:
            raise InvalidArgumentError(
                f"orders={choice!r}: expected a predicate or one of {', '.join(ORDERS)}"
            )
    if not chosen:
        raise InvalidArgumentError(f"orders={wanted!r} chooses none of {', '.join(ORDERS)}")
    return tuple(order for order in ORDERS if order in chosen)


def build(order: str, subject: Subject) -> Callable[..., Any]:
    """Return the function that ``order`` stands for: ``jit(vmap(grad))`` is
    ``jit(vmap(grad(f)))``."""
    appliers = {"jit": _jit, "vmap": _vmap, "grad": _grad}
    built = subject.call
    for name in reversed(parts(order)):
        built = appliers[name](built, subject)
    return built


def _named(made: Callable[..., Any], subject: Subject) -> Callable[..., Any]:
    """Let JAX's messages call a function of ours by the name of the user's."""
    made.__name__ = made.__qualname__ = subject.name
    return made


def _jit(fn: Callable[..., Any], subject: Subject) -> Callable[..., Any]:
    def jitted(*args: Any) -> Any:
        return fn(*args)

    _named(jitted, subject)
    if subject.filtered:
        import equinox as eqx

        return _callable(eqx.filter_jit(jitted))
    return _callable(jax.jit(jitted, static_argnums=subject.static))


def _callable(made: Any) -> Callable[..., Any]:
    result: Callable[..., Any] = made
    return result


def _vmap(fn: Callable[..., Any], subject: Subject) -> Callable[..., Any]:
    if subject.filtered:
        return _filter_vmap(fn, subject)
    dynamic = [i for i in range(len(subject.axes)) if i not in subject.static]
    in_axes = tuple(subject.axes[i] for i in dynamic)

    def mapped(*args: Any) -> Any:
        def one(*rows: Any) -> Any:
            merged = list(args)
            for position, row in zip(dynamic, rows, strict=True):
                merged[position] = row
            return fn(*merged)

        return jax.vmap(one, in_axes=in_axes)(*(args[i] for i in dynamic))

    return _named(mapped, subject)


def _filter_vmap(fn: Callable[..., Any], subject: Subject) -> Callable[..., Any]:
    import equinox as eqx

    def lift(axis: Any) -> Any:
        return eqx.if_array(axis) if isinstance(axis, int) else axis

    in_axes = tuple(
        jax.tree.map(lift, axis, is_leaf=lambda node: node is None) for axis in subject.axes
    )

    def mapped(*args: Any) -> Any:
        return eqx.filter_vmap(lambda *rows: fn(*rows), in_axes=in_axes)(*args)

    return _named(mapped, subject)


def _grad(fn: Callable[..., Any], subject: Subject) -> Callable[..., Any]:
    def scalar(*args: Any) -> Any:
        result = fn(*args)
        output, aux = result if subject.has_aux else (result, None)
        return _reduced(output, subject.cotangents), aux

    def gradient(*args: Any) -> Any:
        leaves = [leaf for i in subject.argnums for leaf in jax.tree.leaves(args[i])]
        plain = not subject.filtered and all(map(is_inexact, leaves))
        if plain or not any(is_differentiated(leaf, subject.filtered) for leaf in leaves):
            grads, aux = jax.grad(scalar, subject.argnums, has_aux=True)(*args)  # or JAX's error
        else:
            grads, aux = _gradient_of_inexact(scalar, subject, args)
        return (grads, aux) if subject.has_aux else grads

    return _named(gradient, subject)


def _gradient_of_inexact(
    scalar: Callable[..., Any], subject: Subject, args: Sequence[Any]
) -> tuple[Any, Any]:
    """Differentiate the inexact leaves only; the gradient has None for the others, as equinox's
    has."""
    import equinox as eqx

    def of_chosen(varied: Any, fixed: Any) -> Any:
        merged = list(args)
        for position, value in zip(subject.argnums, eqx.combine(varied, fixed), strict=True):
            merged[position] = value
        return scalar(*merged)

    chosen = tuple(args[position] for position in subject.argnums)
    varied, fixed = eqx.partition(chosen, lambda leaf: is_differentiated(leaf, subject.filtered))
    result: tuple[Any, Any] = jax.grad(of_chosen, has_aux=True)(varied, fixed)
    return result


def _reduced(output: Any, cotangents: Sequence[Any]) -> Any:
    """Return the real part of ``sum(cotangent * leaf)`` over the inexact leaves of an output.

    The one real scalar stays as it is. Cotangents have the shapes of a single example's output and
    are broadcast over a batch axis in front of it, so that a batch is reduced to the sum over its
    examples.
    """
    leaves = [jnp.asarray(leaf) for leaf in jax.tree.leaves(output) if is_inexact(leaf)]
    if len(leaves) == 1 and cotangents[0] is None:
        return leaves[0] if leaves[0].ndim == 0 else jnp.sum(leaves[0])
    terms = []
    for leaf, cotangent in zip(leaves, cotangents, strict=True):
        wide = leaf.astype(jnp.promote_types(leaf.dtype, jnp.float32))
        factor = 1.0 if cotangent is None else cotangent
        terms.append(jnp.sum(jnp.real(wide * jnp.asarray(factor, wide.dtype))))
    return sum(terms[1:], terms[0]) if terms else jnp.zeros(())


def fixed_cotangents(output: Any, seed: int) -> tuple[Any, ...]:
    """Draw a cotangent for each inexact leaf of an output: magnitudes from 0.5 to 1.5, random
    signs."""
    leaves = [leaf for leaf in jax.tree.leaves(output) if is_array_like(leaf) and is_inexact(leaf)]
    if len(leaves) == 1 and np.shape(leaves[0]) == () and not np.iscomplexobj(leaves[0]):
        return (None,)
    random = np.random.default_rng(seed)
    return tuple(draw(random, np.shape(leaf), np.iscomplexobj(leaf)) for leaf in leaves)


def draw(random: np.random.Generator, shape: tuple[int, ...], is_complex: bool) -> Any:
    """Draw numbers whose (parts') magnitudes lie between 0.5 and 1.5, so that none hides an
    error."""

    def real() -> Any:
        return random.uniform(0.5, 1.5, shape) * random.choice([-1.0, 1.0], shape)

    return real() + 1j * real() if is_complex else np.asarray(real())
