"""Programs made of every transformation and every holder: leaks are found, twins are clean."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING, Any

import jax
import pytest
from holder_programs import HOLDERS, NOT_FROM_A_THREAD, TRANSFORMS, Holder

from pytest_jaxleaks import TracerLeakError, no_tracer_leaks

if TYPE_CHECKING:
    from collections.abc import Callable


# Each transformation meets every other holder; which ones depends on the version of Python, so that
# all meet all on the two that CI runs. With this variable set they do at once.
_STEP = 1 if "JAXLEAKS_ALL_PROGRAMS" in os.environ else 2


def _holders(transform: str) -> dict[str, Holder]:
    unseen = NOT_FROM_A_THREAD if transform == "thread" else ()
    first = (list(TRANSFORMS).index(transform) + sys.version_info.minor // 2) % _STEP
    chosen = list(HOLDERS.items())[first::_STEP]
    return {kind: make() for kind, make in chosen if kind not in unseen}


def _keep_in_all(holders: dict[str, Holder]) -> Callable[[Any], None]:
    """Give each holder a value of its own, so that each must be found by itself."""

    def keep(value: Any) -> None:
        for number, holder in enumerate(holders.values()):
            holder.keep(value + number)

    return keep


@pytest.mark.parametrize("transform", TRANSFORMS)
def test_whatever_keeps_a_tracer_is_found_and_named(transform: str) -> None:
    """One value of the transformation in each kind of holder: every holder is named."""
    holders = _holders(transform)
    with pytest.raises(TracerLeakError) as caught, no_tracer_leaks():
        TRANSFORMS[transform](_keep_in_all(holders))
    for holder in holders.values():
        holder.drop()
    reported = [str(leak.as_dict()) for leak in caught.value.leaks]
    unnamed = [
        kind for kind, holder in holders.items() if not any(holder.name in r for r in reported)
    ]
    assert unnamed == []


@pytest.mark.parametrize("transform", TRANSFORMS)
def test_what_is_dropped_in_time_is_no_leak(transform: str) -> None:
    """The same program is clean when every holder forgets its value before the block ends.

    Shapes, types and what the transformation returns are kept: they are data.
    """
    holders = _holders(transform)
    kept: list[Any] = []
    keep_in_all = _keep_in_all(holders)

    def keep(value: Any) -> None:
        keep_in_all(value)
        kept.append((value.shape, value.dtype, jax.typeof(value)))

    with no_tracer_leaks():
        kept.append(TRANSFORMS[transform](keep))
        for holder in holders.values():
            holder.drop()
    assert kept
