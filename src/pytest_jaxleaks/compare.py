"""Compare two results leaf by leaf: treedef, shape, dtype, weak type, value."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from pytest_jaxleaks.closeness import comparable, outside
from pytest_jaxleaks.failures import Failure

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from pytest_jaxleaks.results import Leaf, Result
    from pytest_jaxleaks.tolerances import Tolerance

__all__ = ["Context", "compare"]


@dataclass(frozen=True)
class Context:
    """How one comparison is made.

    Attributes:
        order: the order that is judged.
        what: ``result`` or ``gradient``, for the message.
        tolerance: from a dtype to a tolerance.
        allowance: extra absolute tolerance for a leaf, asked for only where the plain one is
            exceeded.
        alternative: returns a result whose dtypes and weak types are as good as the reference's
            own; asked for only where those differ.
        weak: whether weak types are compared.
        treedef: tells whether treedefs are compared beyond their key paths.
    """

    order: str
    what: str
    tolerance: Callable[[Any], Tolerance]
    allowance: Callable[[int], float]
    alternative: Callable[[], Result | None] = lambda: None
    weak: bool = True
    treedef: Callable[[], bool] = lambda: True


def compare(expected: Result, actual: Result, context: Context) -> list[Failure]:
    """Return what differs; one failure per leaf at most."""
    structure = _compare_structure(expected, actual, context)
    if structure is not None:
        return [structure]
    failures = []
    for number, (want, got) in enumerate(zip(expected.leaves, actual.leaves, strict=True)):
        found = next(_compare_leaf(number, want, got, context), None)
        if found is not None:
            failures.append(found)
    return failures


def _compare_structure(expected: Result, actual: Result, context: Context) -> Failure | None:
    want, got = ([leaf.path for leaf in one.leaves] for one in (expected, actual))
    if want != got:
        missing, extra = sorted(set(want) - set(got)), sorted(set(got) - set(want))
        facts = [
            f"missing leaves: {', '.join(map(_shown, missing))}" if missing else "",
            f"unexpected leaves: {', '.join(map(_shown, extra))}" if extra else "",
        ]
        message = f"the {context.what} has other leaves than without transformation"
        return Failure(context.order, "treedef", message, tuple(filter(None, facts)))
    if expected.treedef != actual.treedef and context.treedef():
        facts = [f"expected: {expected.treedef}", f"actual:   {actual.treedef}"]
        message = f"the {context.what} has another treedef than without transformation"
        return Failure(context.order, "treedef", message, tuple(facts))
    return None


def _shown(path: str) -> str:
    return path or "the whole value"


def _compare_leaf(number: int, want: Leaf, got: Leaf, context: Context) -> Iterator[Failure]:
    if not want.is_array or not got.is_array:
        if want.is_array != got.is_array or not _same_object(want.value, got.value):
            yield _differs("value", want, context, repr(want.value), repr(got.value))
        return
    if want.value.shape != got.value.shape:
        yield _differs("shape", want, context, want.value.shape, got.value.shape)
        return
    if got.dtype != want.dtype and got.dtype != _other(number, want, context).dtype:
        yield _differs("dtype", want, context, str(want.dtype), str(got.dtype))
    yield from _compare_values(number, want, got, context)
    known = None not in (want.weak, got.weak)
    weak_differs = context.weak and known and got.weak != want.weak
    if weak_differs and got.weak != _other(number, want, context).weak:
        yield _differs("weak type", want, context, _weak(want), _weak(got))


def _other(number: int, want: Leaf, context: Context) -> Leaf:
    """Return the leaf of the alternative, if there is one that has the same leaves."""
    found = context.alternative()
    leaves = found.leaves if found is not None else ()
    return leaves[number] if number < len(leaves) else want


def _same_object(want: Any, got: Any) -> bool:
    try:
        return bool(want is got or want == got or type(want) is type(got))
    except Exception:  # an __eq__ of the user's
        return type(want) is type(got)


def _weak(leaf: Leaf) -> str:
    return f"{leaf.dtype}, {'weak' if leaf.weak else 'strong'}"


def _differs(kind: str, leaf: Leaf, context: Context, want: Any, got: Any) -> Failure:
    where = f"leaf {leaf.path} of the {context.what}" if leaf.path else f"the {context.what}"
    return Failure(
        context.order,
        kind,
        f"the {kind} of {where} is {got}, expected {want}",
        path=leaf.path,
        expected=want,
        actual=got,
    )


def _compare_values(number: int, want: Leaf, got: Leaf, context: Context) -> Iterator[Failure]:
    if not want.value.size:
        return
    tolerance = context.tolerance(got.dtype)
    expected, actual = comparable(want.value), comparable(got.value)
    bound = tolerance.bound(expected, actual)
    wrong = outside(expected, actual, bound)
    if not wrong.any():
        return
    allowance = context.allowance(number)
    if allowance > 0.0:
        bound = bound + allowance
        wrong = outside(expected, actual, bound)
        if not wrong.any():
            return
    yield _value_failure(want, expected, actual, bound, wrong, f"{tolerance}", context)


def _value_failure(
    leaf: Leaf,
    expected: np.ndarray[Any, Any],
    actual: np.ndarray[Any, Any],
    bound: np.ndarray[Any, Any],
    wrong: np.ndarray[Any, Any],
    source: str,
    context: Context,
) -> Failure:
    with np.errstate(all="ignore"):
        distance = np.where(wrong, np.abs(actual - expected) - bound, -np.inf)
        distance = np.where(wrong & np.isnan(distance), np.inf, distance)
    worst = np.unravel_index(int(np.argmax(distance)), distance.shape)
    index = tuple(int(number) for number in worst)
    want, got = expected[worst], actual[worst]
    lost = bool(np.isnan(got) and not np.isnan(want))
    where = f"{context.what}{leaf.path}{list(index) if index else ''}"
    kind = "nan gradient" if lost and context.what == "gradient" else "value"
    message = f"{where} is {got:.9g}, expected {want:.9g}"
    with np.errstate(all="ignore"):
        facts = (
            f"largest deviation {abs(got - want):.3g} at {where}",
            f"{int(wrong.sum())} of {wrong.size} elements deviate by more than the tolerance",
        )
    return Failure(
        context.order, kind, message, facts, leaf.path, index, want, got,
        f"{float(bound[worst]):.3g}: {source}",
    )  # fmt: skip
