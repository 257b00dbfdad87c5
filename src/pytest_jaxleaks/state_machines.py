"""What is kept of a stateful test of hypothesis: the first machine that seems to hold a tracer.

A machine is to its rules what a test's instance is to the methods: values go from rule to rule on
it. Hypothesis makes one per example and drops it after ``teardown``.
"""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any

from pytest_jaxleaks.glance import ways_to_tracers
from pytest_jaxleaks.links import class_name, dotted_name, module_name
from pytest_jaxleaks.roots import Root

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["Machines", "machine_class"]


def machine_class(function: Any) -> Any:
    """Return the class that ``runTest`` of hypothesis' test case runs, or None."""
    # A private name of hypothesis, seen from 6.0 to 6.170.
    found = getattr(function, "_hypothesis_state_machine_class", None)
    is_machine = isinstance(found, type) and callable(getattr(found, "teardown", None))
    return found if is_machine else None


class Machines:
    """A context manager that looks at each machine after its ``teardown``.

    Args:
        cls: the class of the machines.
    """

    def __init__(self, cls: Any) -> None:
        self._cls = cls
        self._own = vars(cls).get("teardown")
        self._kept: Any = None

    def __enter__(self) -> Machines:
        self._cls.teardown = self._looking(self._cls.teardown)
        return self

    def __exit__(self, *_: object) -> None:
        if self._own is None:
            del self._cls.teardown
        else:
            self._cls.teardown = self._own

    def _looking(self, teardown: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(teardown)
        def torn_down(machine: Any) -> Any:
            try:
                return teardown(machine)
            finally:
                if self._kept is None and ways_to_tracers([machine]):
                    self._kept = machine

        return torn_down

    def roots(self) -> dict[int, Root]:
        """Return the kept machine, by ``id``."""
        if self._kept is None:
            return {}
        text = f"state machine {class_name(self._cls)}"
        return {id(self._kept): Root("local", text, dotted_name(self._cls), module_name(self._cls))}
