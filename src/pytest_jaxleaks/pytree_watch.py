"""Construction leaks nothing: the leak check runs while the object goes through everything else."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

from pytest_jaxleaks.blocks import no_tracer_leaks
from pytest_jaxleaks.errors import TracerLeakError
from pytest_jaxleaks.pytree_findings import Cause, Symptom

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from pytest_jaxleaks.leaks import Leak

__all__ = ["watched"]

_T = TypeVar("_T")


def watched(found: Iterable[_T], name: str) -> Iterator[_T | Symptom]:
    """Run through ``found``, then report the tracers that it left within reach of user code.

    Args:
        found: what does the work while it is iterated over.
        name: the type of the object.
    """
    kept: list[_T] = []
    try:
        with no_tracer_leaks():
            kept.extend(found)
    except TracerLeakError as error:
        yield from kept
        for leak in error.leaks:
            yield _symptom(leak, name)
    else:
        yield from kept


def _symptom(leak: Leak, name: str) -> Symptom:
    made = f", made by {leak.created.function}" if leak.created else ""
    return Symptom(
        "construction",
        f"{leak.value} of a finished {leak.transform} at {' -> '.join(leak.chain)}{made}",
        Cause(f"leak:{leak.holder}", f"building {name} keeps a tracer in {leak.holder}"),
        implied_by=frozenset({"nothing-hides"}),
    )
