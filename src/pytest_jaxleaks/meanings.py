"""Which orders mean the same, and what each meaning is expected to give.

There are five: the value of an example, the values of a batch, the gradient of an example, the
gradients of each example of a batch (grad inside vmap), and the gradient of the sum over a batch
(grad outside vmap).
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import jax
import numpy as np

from pytest_jaxleaks.leaves import is_differentiated, is_inexact
from pytest_jaxleaks.order_names import parts
from pytest_jaxleaks.orders import Subject, build
from pytest_jaxleaks.references import Plain, nudged
from pytest_jaxleaks.results import Result, empty_batch, flatten, stack_rows, sum_rows
from pytest_jaxleaks.tolerances import machine_epsilon

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from pytest_jaxleaks.batches import Batch

__all__ = ["Expectations", "is_batched", "label_gradient", "meaning"]

SAFETY = 8.0
"""Reordered sums round differently at each step, nudged inputs only once: allow this many times
what those move."""


def meaning(order: str) -> str:
    """Return ``value``, ``values``, ``gradient``, ``gradients`` or ``gradient of the sum``."""
    names = parts(order)
    if "grad" not in names:
        return "values" if "vmap" in names else "value"
    if "vmap" not in names:
        return "gradient"
    return "gradient of the sum" if names.index("grad") < names.index("vmap") else "gradients"


def is_batched(order: str) -> bool:
    """Tell whether an order is called with the batch."""
    return "vmap" in parts(order)


@dataclass
class Expectations:
    """References, computed once per meaning and shared by the orders with that meaning."""

    subject: Subject
    names: tuple[str, ...]
    batch: Batch
    plain: Plain
    seed: int
    _results: dict[str, Result] = field(default_factory=dict)
    _movement: dict[str, list[float]] = field(default_factory=dict)
    _gradients: dict[int, Result] = field(default_factory=dict)
    _built: dict[str, Callable[..., Any]] = field(default_factory=dict)

    def result(self, order: str) -> Result:
        """Return what the order is expected to give."""
        kind = meaning(order)
        if kind not in self._results:
            self._results[kind] = self._combine(kind, self._rows(kind))
        return self._results[kind]

    def allowance(self, order: str, leaf: int) -> float:
        """Return how far rounding may move a leaf: what the function makes of inputs moved by a few
        ulps."""
        kind = meaning(order)
        if kind not in self._movement:
            self._movement[kind] = self._measure(order)
        return self._movement[kind][leaf] + self._input_rounding(order, leaf)

    def _input_rounding(self, order: str, leaf: int) -> float:
        """Return the rounding of the inputs where a leaf is no larger: nothing but cancellation is
        left of it."""
        reference = self.result(order).leaves[leaf]
        rounding = machine_epsilon(reference.dtype) * _largest(jax.tree.leaves(self.batch.args))
        return SAFETY * rounding if _largest([reference.value]) <= SAFETY * rounding else 0.0

    def built(self, order: str) -> Callable[..., Any]:
        """Return the function of an order, built once so that it is compiled once."""
        if order not in self._built:
            self._built[order] = build(order, self.subject)
        return self._built[order]

    def keep(self, order: str, result: Result) -> None:
        """Use the result of ``grad`` as the gradient of the example: it is judged by
        differences."""
        if order == "grad":
            self._gradients.setdefault(-1, result)

    def _rows(self, kind: str) -> list[Result]:
        if kind in ("value", "gradient") or not self.batch.rows:  # no rows: the structure counts
            return [self.gradient(-1) if "gradient" in kind else self.plain.example]
        one = self.value if kind == "values" else self.gradient
        return [one(row) for row in range(len(self.batch.rows))]

    def value(self, row: int) -> Result:
        """Return the value of one row (-1: the example), by a plain call."""
        if row < 0:
            return self.plain.example
        return self.plain.rows[row] or self._call(self.batch.rows[row])

    def gradient(self, row: int) -> Result:
        """Return the gradient of one row (-1: the example), by plain ``jax.grad``."""
        example = self.batch.example
        if row >= 0 and self.batch.rows[row] is example:
            row = -1
        if row not in self._gradients:
            args = example if row < 0 else self.batch.rows[row]
            self._gradients[row] = self._differentiate(args, plainly=row < 0)
        return self._gradients[row]

    def _call(self, args: Sequence[Any]) -> Result:
        return flatten(self._quick("jit")(*args) if self.plain.slow else self.subject.call(*args))

    def _differentiate(self, args: Sequence[Any], plainly: bool = False) -> Result:
        ready = "jit(grad)" in self._built and self.batch.shares_example
        compiled = (self.plain.slow or ready) and not plainly
        gradient = self._quick("jit(grad)") if compiled else self.built("grad")
        return label_gradient(flatten(gradient(*args)), self.subject, self.names)

    def _quick(self, order: str) -> Callable[..., Any]:
        """Return a compiled function that calls the plain one where it cannot be compiled."""
        compiled = self.built(order)
        plain = self.built("grad") if "grad" in order else self.subject.call

        def call(*args: Any) -> Any:
            try:
                return compiled(*args)
            except Exception:  # reported as that order's failure
                return plain(*args)

        return call

    def combine(self, order: str, rows: Sequence[Result]) -> Result:
        """Make what the order is expected to give out of the results of the rows."""
        return self._combine(meaning(order), rows)

    def _combine(self, kind: str, rows: Sequence[Result]) -> Result:
        axes = self._gradient_axes(len(rows[0].leaves)) if kind == "gradient of the sum" else None
        if not self.batch.rows:
            return empty_batch(rows[0], axes)
        if kind in ("value", "gradient"):
            return rows[0]
        if kind in ("values", "gradients"):
            return stack_rows(rows)
        return sum_rows(rows, axes or [])

    def _gradient_axes(self, leaves: int) -> list[int | None]:
        axes: list[int | None] = []
        for position in self.subject.argnums:
            values = jax.tree.leaves(self.batch.args[position])
            pairs = zip(values, self.batch.leaf_axes[position], strict=True)
            axes += [axis for leaf, axis in pairs if is_differentiated(leaf, self.subject.filtered)]
        return axes + [0] * (leaves - len(axes))  # aux has one entry per example

    def _measure(self, order: str) -> list[float]:
        kind = meaning(order)
        batched = is_batched(order)
        rows = self.batch.rows if batched else (self.batch.example,)
        run: Callable[..., Result] = self._differentiate if "grad" in kind else self._call
        before = [run(row) for row in rows]
        after = [run(nudged(row, self.seed)) for row in rows]
        one, other = self._combine(kind, before), self._combine(kind, after)
        return [
            SAFETY * _distance(a.value, b.value) if a.is_array else 0.0
            for a, b in zip(one.leaves, other.leaves, strict=True)
        ]


def _largest(leaves: Sequence[Any]) -> float:
    arrays = [np.abs(np.asarray(leaf, complex)) for leaf in leaves if is_inexact(leaf)]
    return max((float(a[np.isfinite(a)].max(initial=0.0)) for a in arrays), default=0.0)


def _distance(one: np.ndarray[Any, Any], other: np.ndarray[Any, Any]) -> float:
    if one.shape != other.shape or not one.size:
        return 0.0
    kind = np.complex128 if one.dtype.kind == "c" else np.float64
    with np.errstate(all="ignore"):
        gaps = np.abs(one.astype(kind) - other.astype(kind))
    gaps = gaps[np.isfinite(gaps)]
    return float(gaps.max()) if gaps.size else 0.0


def label_gradient(result: Result, subject: Subject, names: Sequence[str]) -> Result:
    """Give the leaves of a gradient the names of the arguments they belong to."""
    labels = {}
    for number, position in enumerate(subject.argnums):
        labels[f"[0][{number}]" if subject.has_aux else f"[{number}]"] = names[position]

    def rename(path: str) -> str:
        for prefix, name in labels.items():
            if path.startswith(prefix):
                return name + path[len(prefix) :]
        return path

    leaves = tuple(replace(leaf, path=rename(leaf.path)) for leaf in result.leaves)
    return Result(leaves, result.treedef)
