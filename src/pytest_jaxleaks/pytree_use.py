"""Use of the object by a probe: what a probe must be, and what use does to the object."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import jax

from pytest_jaxleaks.errors import InvalidArgumentError
from pytest_jaxleaks.leaves import is_array_like
from pytest_jaxleaks.pytree_findings import Cause, Symptom
from pytest_jaxleaks.pytree_routes import OTHER_RESULT, same_result
from pytest_jaxleaks.pytree_subject import type_name

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

__all__ = ["changed_by_use", "has_arrays", "steady"]


def has_arrays(result: Any, given: bool) -> bool:
    """Refuse a probe whose result can never be compared, as there is no array in it.

    Args:
        result: what the probe returned; nothing at all is fine: then it must not raise, no more.
        given: whether the caller has given the probe, and should hear of it.

    Returns:
        False for a result that has leaves, and none of them an array or a number.

    Raises:
        InvalidArgumentError: so it is, and the probe is the caller's.
    """
    leaves = jax.tree.leaves(result)
    useful = not leaves or any(map(is_array_like, leaves))
    if given and not useful:
        kind = type(result).__name__
        raise InvalidArgumentError(f"probe must return arrays, and what it returns is {kind}")
    return useful


def steady(
    found: Iterator[Symptom | str],
    probe: Callable[[Any], Any] | None,
    obj: Any,
    expected: Any,
    given: bool,
) -> Iterator[Symptom | str]:
    """Pass on what a route found, unless the probe is to blame for it.

    A result that differs says something about the object only if the probe gives the same result
    when it uses the object itself once more.

    Args:
        found: what one route found.
        probe: the probe, or None.
        obj: the object.
        expected: what the probe returned the first time.
        given: whether the caller has given the probe, and should hear of it.

    Raises:
        InvalidArgumentError: a probe of the caller's gives another result each time.
    """
    for item in found:
        differs = isinstance(item, Symptom) and item.cause.key == f"route:{OTHER_RESULT}"
        if differs and probe is not None and not same_result(expected, probe(obj)):
            if not given:
                yield "use: the result is another one each time"
                return
            raise InvalidArgumentError(
                "probe must give the same result each time, and gives another one for the same "
                "object: use a fixed PRNG key, and change nothing"
            )
        yield item


def changed_by_use(obj: Any) -> Symptom:
    """Note that the treedef of ``obj`` is another one since the probe has used it."""
    return Symptom(
        "treedef",
        "its treedef after the probe differs from the one before: an object that has been used "
        "and one that has not cannot meet in cond or scan",
        Cause("use", f"using {type_name(obj)} changes its treedef: it keeps a result in itself"),
        broken=False,
        implied_by=frozenset({"treedef", "round-trip"}),
    )
