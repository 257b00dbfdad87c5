"""The function as a real-valued map on a list of arrays, in float64 where that is possible.

``L(x) = Re(sum(cotangent * f(x)))``. A complex function is taken as a function of its real and
imaginary parts: no holomorphy is assumed, and the gradient ``g`` follows JAX's convention ``dL =
Re(sum(g * dx))``.
"""

from __future__ import annotations

import contextlib
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np

from pytest_jaxleaks.leaves import dtype_of, is_differentiated, is_inexact, key_path
from pytest_jaxleaks.orders import draw
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
        names: a name per differentiated leaf, such as ``model.weight``.
        point: the differentiated leaves, in float64 or complex128.
        dtypes: the dtypes with which the function is called.
        double: whether JAX's x64 mode is on for each evaluation.
        outputs: from the differentiated leaves to the inexact leaves of the output.
        compiled: the same, compiled if it can be.
    """

    subject: Subject
    names: tuple[str, ...]
    point: Point
    dtypes: tuple[Any, ...]
    double: bool
    outputs: Callable[[list[Any]], list[Any]]
    compiled: Callable[[list[Any]], list[Any]]

    def value(self, point: Point) -> float:
        """Return ``L`` at a point, summed in float64 on the host."""
        with _mode(self.double), np.errstate(all="ignore"):
            return self._weighted(self.compiled(self._cast(point)))

    def pullback(self) -> Callable[[float], Point]:
        """Return the function from a factor on the cotangents to the gradient of ``L``."""

        def pulled(leaves: list[Any], factor: Any) -> list[Any]:
            outputs, pull = jax.vjp(self.outputs, leaves)
            return list(pull(self._cotangents(outputs, factor))[0])

        compiled = _compiled(pulled, self.double)
        return lambda factor: [_wide(leaf) for leaf in compiled(self._leaves(), factor)]

    def of_gradient(self, seed: int) -> World:
        """Return the world whose function is the gradient of this one, with random cotangents."""
        random = np.random.default_rng(seed)
        weights = tuple(draw(random, x.shape, np.iscomplexobj(x)) for x in self.point)

        def gradient(leaves: list[Any]) -> list[Any]:
            outputs, pull = jax.vjp(self.outputs, leaves)
            return list(pull(self._cotangents(outputs, 1.0))[0])

        compiled = _compiled(gradient, self.double)
        subject = replace(self.subject, cotangents=weights)
        return replace(self, subject=subject, outputs=gradient, compiled=compiled)

    def _cotangents(self, outputs: Sequence[Any], factor: Any) -> list[Any]:
        pairs = zip(self.subject.cotangents, outputs, strict=True)
        return [
            jnp.broadcast_to(jnp.asarray(_one(ct) * factor, out.dtype), out.shape)
            for ct, out in pairs
        ]

    def pushforward(self) -> Callable[[Point], float]:
        """Return the function from a tangent to the derivative of ``L`` along it, by forward
        mode."""

        def pushed(leaves: list[Any], tangents: list[Any]) -> list[Any]:
            return list(jax.jvp(self.outputs, (leaves,), (tangents,))[1])

        compiled = _compiled(pushed, self.double)
        return lambda tangent: self._weighted(compiled(self._leaves(), self._cast(tangent)))

    def _cast(self, point: Point) -> list[Any]:
        with _mode(self.double):
            return [jnp.asarray(a, d) for a, d in zip(point, self.dtypes, strict=True)]

    def _weighted(self, outputs: Sequence[Any]) -> float:
        terms = [
            np.sum(np.real(_wide(out) * _one(ct)))
            for out, ct in zip(outputs, self.subject.cotangents, strict=True)
        ]
        return float(sum(terms))

    def implicit(self) -> bool:
        """Tell whether a primitive is differentiated implicitly, on purpose not along the path of
        its values."""
        with _mode(self.double):
            try:
                jaxpr = jax.make_jaxpr(self.outputs)(self._leaves()).jaxpr
            except Exception:  # control flow on values: nothing is known
                return False
            return any(equation.primitive.name in IMPLICIT for equation in equations(jaxpr))

    def precision(self) -> float:
        """Return the coarsest epsilon that appears anywhere in the function, casts inside it
        included."""
        with _mode(self.double):
            seen = [machine_epsilon(dtype) for dtype in self.dtypes]
            try:
                jaxpr = jax.make_jaxpr(self.outputs)(self._leaves()).jaxpr
            except Exception:  # control flow on values: judge by what comes out
                seen += [machine_epsilon(out.dtype) for out in self.outputs(self._leaves())]
            else:
                seen += [machine_epsilon(dtype) for dtype in _dtypes_in(jaxpr)]
        return max(seen)

    def at(self, point: Point) -> World:
        """Return the same function at another point."""
        return replace(self, point=point)

    def _leaves(self) -> list[Any]:
        return self._cast(self.point)


def _mode(double: bool) -> contextlib.AbstractContextManager[Any]:
    return jax.enable_x64(True) if double else contextlib.nullcontext()


def _compiled(fn: Callable[..., list[Any]], double: bool) -> Callable[..., list[Any]]:
    """Compile a function: many values of it are needed. Fall back to calling it as it is."""
    jitted: Callable[..., list[Any]] = jax.jit(fn)
    usable = [True]

    def call(*args: Any) -> list[Any]:
        with _mode(double):
            if usable[0]:
                try:
                    return jitted(*args)
                except Exception:  # control flow on values; or it raises in any case
                    usable[0] = False
            return fn(*args)

    return call


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

    def outputs(leaves: list[Any]) -> list[Any]:
        filled = _with_leaves(widened, subject.argnums, leaves, subject.filtered)
        result = subject.call(*filled)
        output = result[0] if subject.has_aux else result
        return [jnp.asarray(leaf) for leaf in jax.tree.leaves(output) if is_inexact(leaf)]

    compiled = _compiled(outputs, double)
    return World(subject, tuple(labels), point, tuple(dtypes), double, outputs, compiled)


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
