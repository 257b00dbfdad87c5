"""The function as a real-valued map on a list of arrays, in float64 where that is possible.

``L(x) = Re(sum(cotangent * f(x)))``. A complex function is taken as a function of its real and
imaginary parts: no holomorphy is assumed, and the gradient ``g`` follows JAX's convention ``dL =
Re(sum(g * dx))``.
"""

from __future__ import annotations

import contextlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np

from pytest_jaxleaks.leaves import dtype_of, is_differentiated, is_inexact, key_path
from pytest_jaxleaks.tolerances import machine_epsilon

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from pytest_jaxleaks.orders import Subject

__all__ = ["World", "make_world"]

IMPLICIT = {"random_gamma"}
"""Samplers whose derivative is that of the distribution (Figurnov et al., Implicit
Reparameterization Gradients)."""

Point = list[np.ndarray[Any, Any]]


@dataclass(frozen=True)
class World:
    """One example, seen as a point in real (or complex) space.

    Attributes:
        subject: the function.
        args: the example, all arguments.
        names: a name per differentiated leaf, such as ``model.weight``.
        point: the differentiated leaves, in float64 or complex128.
        dtypes: the dtypes with which the function is called.
        double: whether JAX's x64 mode is on for each evaluation.
    """

    subject: Subject
    args: tuple[Any, ...]
    names: tuple[str, ...]
    point: Point
    dtypes: tuple[Any, ...]
    double: bool

    def value(self, point: Point) -> float:
        """Return ``L`` at a point, summed in float64 on the host."""
        with self._mode(), np.errstate(all="ignore"):
            outputs = self._outputs(
                [jnp.asarray(a, d) for a, d in zip(point, self.dtypes, strict=True)]
            )
            terms = [
                np.sum(np.real(_wide(out) * _one(ct)))
                for out, ct in zip(outputs, self.subject.cotangents, strict=True)
            ]
            return float(sum(terms))

    def pullback(self) -> Callable[[float], Point]:
        """Return the function from a factor on the cotangents to the gradient of ``L``."""
        with self._mode():
            outputs, pull = jax.vjp(self._outputs, self._leaves())

        def gradient(factor: float) -> Point:
            with self._mode():
                cotangents = [
                    jnp.broadcast_to(jnp.asarray(_one(ct) * factor, out.dtype), out.shape)
                    for ct, out in zip(self.subject.cotangents, outputs, strict=True)
                ]
                (grads,) = pull(cotangents)
                return [_wide(grad) for grad in grads]

        return gradient

    def pushforward(self, tangent: Point, factor: float = 1.0) -> float:
        """Return the derivative of ``L`` along a tangent, by forward mode."""
        with self._mode():
            tangents = [
                jnp.asarray(t * factor, d) for t, d in zip(tangent, self.dtypes, strict=True)
            ]
            _, moved = jax.jvp(self._outputs, (self._leaves(),), (tangents,))
            terms = [
                np.sum(np.real(_wide(out) * _one(ct)))
                for out, ct in zip(moved, self.subject.cotangents, strict=True)
            ]
            return float(sum(terms))

    def implicit(self) -> bool:
        """Tell whether a primitive is differentiated implicitly, on purpose not along the path of
        its values."""
        with self._mode():
            try:
                jaxpr = jax.make_jaxpr(self._outputs)(self._leaves()).jaxpr
            except Exception:  # control flow on values: nothing is known
                return False
            return any(equation.primitive.name in IMPLICIT for equation in equations(jaxpr))

    def precision(self) -> float:
        """Return the coarsest epsilon that appears anywhere in the function, casts inside it
        included."""
        with self._mode():
            seen = [machine_epsilon(dtype) for dtype in self.dtypes]
            try:
                jaxpr = jax.make_jaxpr(self._outputs)(self._leaves()).jaxpr
            except Exception:  # control flow on values: judge by what comes out
                seen += [machine_epsilon(out.dtype) for out in self._outputs(self._leaves())]
            else:
                seen += [machine_epsilon(dtype) for dtype in _dtypes_in(jaxpr)]
        return max(seen)

    def at(self, point: Point) -> World:
        """Return the same function at another point."""
        return World(self.subject, self.args, self.names, point, self.dtypes, self.double)

    def _leaves(self) -> list[Any]:
        return [jnp.asarray(a, d) for a, d in zip(self.point, self.dtypes, strict=True)]

    def _mode(self) -> contextlib.AbstractContextManager[Any]:
        return jax.enable_x64(True) if self.double else contextlib.nullcontext()

    def _outputs(self, leaves: Sequence[Any]) -> list[Any]:
        result = self.subject.call(
            *_with_leaves(self.args, self.subject.argnums, leaves, self.subject.filtered)
        )
        output = result[0] if self.subject.has_aux else result
        return [jnp.asarray(leaf) for leaf in jax.tree.leaves(output) if is_inexact(leaf)]


def _with_leaves(
    args: Sequence[Any], argnums: Sequence[int], leaves: Sequence[Any], filtered: bool
) -> tuple[Any, ...]:
    fresh = iter(leaves)
    changed = list(args)
    for position in argnums:
        changed[position] = jax.tree.map(
            lambda leaf: next(fresh) if is_differentiated(leaf, filtered) else leaf, args[position]
        )
    return tuple(changed)


def _wide(value: Any) -> np.ndarray[Any, Any]:
    array = np.asarray(value)
    return array.astype(np.complex128 if array.dtype.kind == "c" else np.float64)


def _one(cotangent: Any) -> Any:
    return 1.0 if cotangent is None else cotangent


def equations(jaxpr: Any) -> Iterator[Any]:
    """Yield every equation of a jaxpr, those of inner jaxprs included."""
    for equation in jaxpr.eqns:
        yield equation
        for parameter in equation.params.values():
            for inner in parameter if isinstance(parameter, tuple | list) else (parameter,):
                body = getattr(inner, "jaxpr", inner)
                if hasattr(body, "eqns"):
                    yield from equations(body)


def _dtypes_in(jaxpr: Any) -> set[Any]:
    variables = (var for equation in equations(jaxpr) for var in equation.outvars)
    return {var.aval.dtype for var in variables if hasattr(var.aval, "dtype")}


def make_world(
    subject: Subject, names: Sequence[str], args: Sequence[Any], double: bool = True
) -> World:
    """Look at one example as a point; ``double`` widens its leaves to float64 and complex128."""
    point, dtypes, labels = [], [], []
    for position in subject.argnums:
        for path, leaf in jax.tree_util.tree_leaves_with_path(args[position]):
            if is_differentiated(leaf, subject.filtered):
                point.append(_wide(leaf))
                dtypes.append(point[-1].dtype if double else dtype_of(leaf))
                labels.append(names[position] + key_path(path))
    widened = tuple(_widened(arg) if double else arg for arg in args)
    return World(subject, widened, tuple(labels), point, tuple(dtypes), double)


def _widened(arg: Any) -> Any:
    """Widen the floating-point arrays of an argument that is not differentiated, too."""

    def widen(leaf: Any) -> Any:
        return _wide(leaf) if is_inexact(leaf) and hasattr(leaf, "dtype") else leaf

    if not any(map(is_inexact, jax.tree.leaves(arg))):
        return arg
    with jax.enable_x64(True):
        return jax.tree.map(
            lambda leaf: jnp.asarray(widen(leaf)) if is_differentiated(leaf, True) else leaf, arg
        )
