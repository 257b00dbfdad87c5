"""The reference: the function itself, row by row in a Python loop, with JIT disabled."""

from __future__ import annotations

import functools
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np

from pytest_jaxleaks.deadline import DeadlineError, deadline
from pytest_jaxleaks.leaves import dtype_of, is_inexact
from pytest_jaxleaks.results import Result, flatten
from pytest_jaxleaks.tolerances import machine_epsilon

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

__all__ = ["Plain", "PlainCallError", "nudged", "run_plain"]

SECONDS = 1.0
"""With JIT disabled a long loop is run step by step in Python. After this long the plain call takes
over."""

MANY = 20
"""A row is not watched while there is time for this many like the last one."""

NUDGE_ULPS = 4
"""By how many ulps inputs are moved to see how much rounding a function amplifies."""


class PlainCallError(Exception):
    """The function fails on a single example without any transformation."""

    def __init__(self, error: BaseException, row: int) -> None:
        super().__init__(str(error))
        self.error = error
        self.row = row


@dataclass
class Plain:
    """What the function does on its own.

    Attributes:
        output: what it returned for the example.
        example: the same, flattened; from the run with JIT disabled where there was one.
        call_eagerly: calls the function on the example as it is, inner jits compiled.
        rows: the flattened result of each row; None for one that waits for a compiled function,
            because plain calls take too long.
        again: a second call with equal inputs, JIT disabled; None if there was no time.
        slow: whether calls with JIT disabled take too long.
        notes: how the reference was made, where that needs saying.
    """

    output: Any
    example: Result
    call_eagerly: Callable[[], Result]
    rows: list[Result | None] = field(default_factory=list)
    again: Result | None = None
    slow: bool = False
    notes: list[str] = field(default_factory=list)

    @functools.cached_property
    def eager(self) -> Result | Exception:
        """A call as the function is, or what it raised.

        Compiles what the function compiles, so it is made only where it tells something: where an
        order differs from the call with JIT disabled.
        """
        try:
            return self.call_eagerly()
        except Exception as error:  # reported by the caller
            return error

    def alternative(self) -> Result | None:
        """Return the eager call's result, None where it raised."""
        return None if isinstance(self.eager, Exception) else self.eager

    def stable_treedef(self) -> bool:
        """Tell whether the function returns equal treedefs for equal inputs."""
        others = [one for one in (self.again, self.alternative()) if one is not None]
        return all(one.treedef == self.example.treedef for one in others)


def run_plain(
    call: Callable[..., Any], example: Sequence[Any], rows: Sequence[Sequence[Any]]
) -> Plain:
    """Run the function on an example and on each row of a batch, without transformations.

    Raises:
        PlainCallError: the function raises both with JIT disabled and as it is.
    """
    runner = _Runner(call)
    output = runner.first(example)
    flat = flatten(output)
    plain = Plain(output, flat, lambda: flatten(call(*example)) if runner.gave_result else flat)
    if runner.jitless:
        plain.again = runner.repeat(example)
    elif not runner.slow:
        plain.again = flatten(call(*example))
    for number, row in enumerate(rows):
        plain.rows.append(plain.example if row is example else runner.row(row, number))
    plain.slow, plain.notes = runner.slow, runner.notes
    return plain


class _Runner:
    """Calls with JIT disabled while that is possible and quick, and as it is afterwards."""

    def __init__(self, call: Callable[..., Any]) -> None:
        self.call = call
        # Whether calls with JIT disabled are (still) made, and whether the first one was one.
        self.jitless = True
        self.gave_result = False
        self.slow = False
        self.notes: list[str] = []
        self._end = time.process_time() + SECONDS
        self._usual = SECONDS

    def first(self, example: Sequence[Any]) -> Any:
        try:
            output = self._without_jit(example)
        except DeadlineError:
            self.slow = True
            self._give_up(f"takes more than {SECONDS:g} s")
        except Exception as error:
            self._give_up(f"raises {type(error).__name__}")
        else:
            self.gave_result = True
            return output
        try:
            return self.call(*example)
        except Exception as error:
            raise PlainCallError(error, 0) from error

    def repeat(self, example: Sequence[Any]) -> Result | None:
        begin = time.process_time()
        try:
            result = flatten(self._without_jit(example))
            self._usual = time.process_time() - begin
            return result
        except DeadlineError:
            return None
        except Exception:  # a function that raises only the second time has state; see purity
            return None

    def row(self, row: Sequence[Any], number: int) -> Result | None:
        if self.slow:
            return None
        try:
            return flatten(self._without_jit(row) if self.jitless else self.call(*row))
        except DeadlineError:
            self.slow = True
            self._give_up(f"takes more than {SECONDS:g} s for all rows")
            return None
        except Exception as error:
            raise PlainCallError(error, number) from error

    def _without_jit(self, args: Sequence[Any]) -> Any:
        left = max(self._end - time.process_time(), 0.0)
        if self._usual < left / MANY:  # watching the time takes time, too
            with jax.disable_jit():
                return self.call(*args)
        with deadline(left), jax.disable_jit():
            return self.call(*args)

    def _give_up(self, why: str) -> None:
        self.jitless = False
        self.notes.append(
            f"the reference is the plain call (for the rows of a batch, jit of it), since the call "
            f"with JIT disabled {why}"
            if self.slow
            else f"the reference is the plain call, since the call with JIT disabled {why}"
        )


def nudged(args: Sequence[Any], seed: int) -> tuple[Any, ...]:
    """Move every floating-point leaf by a few ulps in random directions.

    How far results move then shows how much rounding the function amplifies, which is how far
    reordered sums may move it (the backward-error view: Higham, Accuracy and Stability of Numerical
    Algorithms, section 1.5).
    """
    random = np.random.default_rng(seed)

    def nudge(leaf: Any) -> Any:
        if not is_inexact(leaf) or not hasattr(leaf, "dtype"):
            return leaf
        eps = machine_epsilon(dtype_of(leaf))
        value = np.asarray(leaf)
        wide = value.astype(np.complex128 if value.dtype.kind == "c" else np.float64)
        signs = random.choice([-1.0, 1.0], value.shape)
        moved = np.asarray(wide * (1 + NUDGE_ULPS * eps * signs)).astype(value.dtype)
        return moved if isinstance(leaf, np.ndarray) else jnp.asarray(moved)

    return tuple(
        jax.tree.map(nudge, arg) if any(map(is_inexact, jax.tree.leaves(arg))) else arg
        for arg in args
    )
