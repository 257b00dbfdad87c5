"""The function as a real-valued map on a list of arrays, in float64 where that is possible.

``L(x) = Re(sum(cotangent * f(x)))``. A complex function is taken as a function of its real and
imaginary parts: no holomorphy is assumed, and the gradient ``g`` follows JAX's convention ``dL =
Re(sum(g * dx))``.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np

from pytest_jaxleaks.leaves import dtype_of, is_differentiated, is_inexact, key_path, short_type
from pytest_jaxleaks.orders import draw
from pytest_jaxleaks.tolerances import machine_epsilon

if TYPE_CHECKING:
    from pytest_jaxleaks.orders import Subject

__all__ = ["World", "Worlds"]

IMPLICIT = {"random_gamma"}
"""Samplers whose derivative is that of the distribution (Figurnov et al., Implicit
Reparameterization Gradients)."""

QUICK = {"xla_backend_optimization_level": 0, "xla_llvm_disable_expensive_passes": True}
"""These programs are compiled to be run a few times."""

Point = list[np.ndarray[Any, Any]]
Outputs = Callable[[list[Any], list[Any]], list[Any]]
LeafAxes = Sequence[Sequence[int | None]]


class Program:
    """A function of the differentiated leaves, and its compiled forms, shared by the rows.

    Args:
        outputs: from the differentiated leaves, and the other arrays that differ from row to row,
            to the inexact leaves of the output.
        cotangents: one array per leaf of the output; None stands for the number 1.
        double: whether JAX's x64 mode is on for each evaluation.
    """

    def __init__(self, outputs: Outputs, cotangents: Sequence[Any], double: bool) -> None:
        self.outputs = outputs
        self.cotangents = tuple(cotangents)
        self.double = double
        self.values = _compiled(outputs, double)
        self.pulled = _compiled(self._pulled, double)
        self.pushed = _compiled(self._pushed, double)
        self._seen: list[tuple[set[str], set[Any]] | None] = []

    def _pulled(self, leaves: list[Any], others: list[Any], factor: Any) -> list[Any]:
        outputs, pull = jax.vjp(lambda varied: self.outputs(varied, others), leaves)
        pairs = zip(self.cotangents, outputs, strict=True)
        weights = [
            jnp.broadcast_to(jnp.asarray(_one(ct) * factor, out.dtype), out.shape)
            for ct, out in pairs
        ]
        return [*pull(weights)[0], *outputs]

    def _pushed(self, leaves: list[Any], others: list[Any], tangents: list[Any]) -> list[Any]:
        function = functools.partial(_swapped, self.outputs, others)
        outputs, moved = jax.jvp(function, (leaves,), (tangents,))
        return [*moved, *outputs]

    def weighted(self, outputs: Sequence[Any]) -> float:
        """Return the real part of ``sum(cotangent * output)``, summed on the host."""
        terms = [
            np.sum(np.real(_wide(out) * _one(ct)))
            for out, ct in zip(outputs, self.cotangents, strict=True)
        ]
        return float(sum(terms))

    def seen(self, leaves: list[Any], others: list[Any]) -> tuple[set[str], set[Any]] | None:
        """Return the names of the primitives and the dtypes in the function; None where control
        flow on values hides them."""
        if not self._seen:
            try:
                jaxpr = jax.make_jaxpr(self.outputs)(leaves, others).jaxpr
            except Exception:  # control flow on values: nothing is known
                self._seen.append(None)
            else:
                names = {equation.primitive.name for equation in equations(jaxpr)}
                self._seen.append((names, _dtypes_in(jaxpr)))
        return self._seen[0]


def _swapped(outputs: Outputs, others: list[Any], leaves: list[Any]) -> list[Any]:
    return outputs(leaves, others)


@dataclass(frozen=True)
class World:
    """One example, seen as a point in real (or complex) space.

    Attributes:
        program: the function.
        names: a name per differentiated leaf, such as ``model.weight``.
        point: the differentiated leaves, in float64 or complex128.
        others: the other arrays that differ from row to row.
        dtypes: the dtypes with which the function is called.
    """

    program: Program
    names: tuple[str, ...]
    point: Point
    others: list[Any]
    dtypes: tuple[Any, ...]

    @property
    def double(self) -> bool:
        """Tell whether the function is evaluated in float64."""
        return self.program.double

    def value(self, point: Point) -> float:
        """Return ``L`` at a point, summed in float64 on the host."""
        with _mode(self.double), np.errstate(all="ignore"):
            outputs = self.program.values(self._cast(point), self.others)
            return self.program.weighted(outputs)

    def outputs(self) -> Point:
        """Return the function's outputs at the point."""
        values = self.program.values(self._cast(self.point), self.others)
        return [_wide(value) for value in values]

    def outputs_by_rule(self, mode: str) -> Point:
        """Return the outputs as they are while the function is differentiated (``rev`` or ``fwd``):
        custom rules return them, too."""
        leaves = self._cast(self.point)
        if mode == "rev":
            found = self.program.pulled(leaves, self.others, 1.0)[len(leaves) :]
        else:
            found = self.program.pushed(leaves, self.others, leaves)
            found = found[len(found) // 2 :]
        return [_wide(value) for value in found]

    def pullback(self) -> Callable[[float], Point]:
        """Return the function from a factor on the cotangents to the gradient of ``L``."""
        pulled, leaves = self.program.pulled, self._cast(self.point)
        return lambda factor: [
            _wide(leaf) for leaf in pulled(leaves, self.others, factor)[: len(leaves)]
        ]

    def pushforward(self) -> Callable[[Point], float]:
        """Return the function from a tangent to the derivative of ``L`` along it, by forward
        mode."""
        program, leaves = self.program, self._cast(self.point)

        def push(tangent: Point) -> float:
            moved = program.pushed(leaves, self.others, self._cast(tangent))
            return program.weighted(moved[: len(moved) // 2])

        return push

    def of_gradient(self, seed: int) -> World:
        """Return the world whose function is the gradient of this one, with random cotangents."""
        random = np.random.default_rng(seed)
        weights = tuple(draw(random, x.shape, np.iscomplexobj(x)) for x in self.point)
        pulled = self.program._pulled

        def gradient(leaves: list[Any], others: list[Any]) -> list[Any]:
            return pulled(leaves, others, 1.0)[: len(leaves)]

        return replace(self, program=Program(gradient, weights, self.double))

    def implicit(self) -> bool:
        """Tell whether a primitive is differentiated implicitly, on purpose not along the path of
        its values."""
        seen = self._seen()
        return seen is not None and not IMPLICIT.isdisjoint(seen[0])

    def has_rules(self) -> bool:
        """Tell whether there may be a custom derivative rule in the function."""
        seen = self._seen()
        return seen is None or any(name.startswith("custom_") for name in seen[0])

    def precision(self) -> float:
        """Return the coarsest epsilon that appears anywhere in the function, casts inside it
        included."""
        found = set(self.dtypes)
        seen = self._seen()
        if seen is not None:
            found |= seen[1]
        else:  # judge by what comes out
            outputs = self.program.values(self._cast(self.point), self.others)
            found |= {out.dtype for out in outputs}
        return max(map(machine_epsilon, found))

    def _seen(self) -> tuple[set[str], set[Any]] | None:
        with _mode(self.double):
            return self.program.seen(self._cast(self.point), self.others)

    def at(self, point: Point) -> World:
        """Return the same function at another point."""
        return replace(self, point=point)

    def _cast(self, point: Point) -> list[Any]:
        with _mode(self.double):
            return [jnp.asarray(a, d) for a, d in zip(point, self.dtypes, strict=True)]


def _mode(double: bool) -> contextlib.AbstractContextManager[Any]:
    return jax.enable_x64(True) if double else contextlib.nullcontext()


def _compiled(fn: Callable[..., list[Any]], double: bool) -> Callable[..., list[Any]]:
    """Compile a function: many values of it are needed. Fall back to calling it as it is."""
    jitted: Callable[..., list[Any]] = jax.jit(fn, compiler_options=QUICK)
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


class Worlds:
    """The rows of a batch as points of one function, which is compiled once for all of them.

    Args:
        subject: the function.
        names: the names of its arguments.
        leaf_axes: per argument and leaf, the axis that is mapped, or None.
        double: whether leaves are widened to float64 and complex128.
    """

    def __init__(
        self, subject: Subject, names: Sequence[str], leaf_axes: LeafAxes, double: bool = True
    ) -> None:
        self._subject = subject
        self._names = names
        self._axes = [axis for axes in leaf_axes for axis in axes]
        self._double = double
        self._programs: list[tuple[Any, Program]] = []

    def world(self, args: Sequence[Any]) -> World:
        """Look at one example as a point."""
        point: Point = []
        dtypes, labels, others, roles, kinds = [], [], [], [], []
        widened = tuple(
            _widened(arg) if self._double and i not in self._subject.argnums else arg
            for i, arg in enumerate(args)
        )
        for position, path, leaf, axis in self._leaves(widened):
            if position in self._subject.argnums and is_differentiated(
                leaf, self._subject.filtered
            ):
                point.append(_wide(leaf))
                dtypes.append(point[-1].dtype if self._double else dtype_of(leaf))
                labels.append(self._names[position] + key_path(path))
                roles.append("varied")
            elif axis is not None and isinstance(leaf, jax.Array):
                others.append(leaf)
                roles.append("other")
            else:
                roles.append("fixed")
            differs = roles[-1] == "fixed" and axis is not None
            kinds.append((short_type(leaf), id(leaf) if differs else None))
        key = (roles, kinds)
        return World(
            self._program(key, roles, widened), tuple(labels), point, others, tuple(dtypes)
        )

    def _leaves(self, args: Sequence[Any]) -> Iterator[tuple[int, Any, Any, int | None]]:
        axes = iter(self._axes)
        for position, arg in enumerate(args):
            for path, leaf in jax.tree_util.tree_leaves_with_path(arg):
                yield position, path, leaf, next(axes)

    def _program(self, key: Any, roles: Sequence[str], args: tuple[Any, ...]) -> Program:
        for known, program in self._programs:
            if known == key:
                return program
        subject = self._subject

        def outputs(varied: list[Any], others: list[Any]) -> list[Any]:
            supplies = {"varied": iter(varied), "other": iter(others)}
            result = subject.call(*_refilled(args, roles, supplies))
            output = result[0] if subject.has_aux else result
            return [jnp.asarray(leaf) for leaf in jax.tree.leaves(output) if is_inexact(leaf)]

        program = Program(outputs, subject.cotangents, self._double)
        self._programs.append((key, program))
        return program


def _refilled(
    args: tuple[Any, ...], roles: Sequence[str], supplies: Mapping[str, Iterator[Any]]
) -> tuple[Any, ...]:
    """Put other leaves in place of some; an argument that keeps all of its own stays the very
    object it was."""
    waiting = iter(roles)
    filled = []
    for arg in args:
        leaves, treedef = jax.tree.flatten(arg)
        wanted = [next(waiting) for _ in leaves]
        if set(wanted) <= {"fixed"}:
            filled.append(arg)
            continue
        fresh = [
            next(supplies[role]) if role in supplies else leaf
            for role, leaf in zip(wanted, leaves, strict=True)
        ]
        filled.append(jax.tree.unflatten(treedef, fresh))
    return tuple(filled)


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
