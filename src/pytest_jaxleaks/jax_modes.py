"""One test's stay in a JAX mode: enter it late, leave it once, and notice changed settings.

The settings are those of ``jax.config.values``: what JAX goes by in this thread.
"""

from __future__ import annotations

import inspect
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from pytest_jaxleaks.errors import InvalidArgumentError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from contextlib import AbstractContextManager

    from pytest_jaxleaks.variants import Variant

__all__ = ["ConfigChange", "Stay", "changed", "put_back", "settings"]

#: name of the setting, its value before and its value now
ConfigChange = tuple[str, object, object]


def settings() -> dict[str, Any]:
    """Read every setting of ``jax.config`` as it holds in this thread."""
    import jax

    return dict(jax.config.values)


def changed(before: Mapping[str, Any], now: Mapping[str, Any]) -> list[ConfigChange]:
    """List the settings that differ. One that was defined in between counts as unchanged."""
    return [
        (name, value, now[name])
        for name, value in before.items()
        if name in now and now[name] is not value and now[name] != value
    ]


def put_back(changes: list[ConfigChange]) -> list[str]:
    """Set settings to the values they had before.

    Args:
        changes: what :func:`changed` returned.

    Returns:
        The names of those that are still changed: JAX refuses some values once a backend runs, and
        a context manager that was entered and never left outdoes the global value.
    """
    import jax

    for name, before, _ in changes:
        try:
            jax.config.update(name, before)  # type: ignore[no-untyped-call]
        except Exception:
            continue  # the name is reported below
    return [name for name, _, _ in changed({n: v for n, v, _ in changes}, settings())]


class Stay:
    """A variant's mode around a test and its function-scoped fixtures.

    The mode is held in one piece from the first function-scoped fixture to the end of the test's
    teardown, and not per phase, because a fixture may hold a context manager of its own open in
    between: JAX's context managers have to be left in the reverse order.
    """

    def __init__(self, variant: Variant) -> None:
        self.variant = variant
        self._open: AbstractContextManager[object] | None = None
        self._before: dict[str, Any] | None = None

    @property
    def entered(self) -> bool:
        """Whether the mode is on."""
        return self._open is not None

    def enter(self) -> None:
        """Turn the mode on; what it replaces is remembered first."""
        __tracebackhide__ = True
        self._before = settings()
        self._turn_on()

    def leave(self) -> list[ConfigChange]:
        """Turn the mode off and list the settings that the test left changed."""
        before, self._before = self._before, None
        try:
            self._turn_off()
        finally:
            changes = [] if before is None else changed(before, settings())
        return changes

    @contextmanager
    def suspended(self) -> Iterator[None]:
        """Turn the mode off for a while; settings changed meanwhile are not the test's doing."""
        if not self.entered:
            yield
            return
        self._turn_off()
        outside = settings()
        try:
            yield
        finally:
            if self._before is not None:
                self._before.update({n: now for n, _, now in changed(outside, settings())})
            self._turn_on()

    def _turn_on(self) -> None:
        __tracebackhide__ = True
        try:
            manager = _context_manager(self.variant)
            manager.__enter__()
        except Exception as error:
            error.add_note(f"raised on entering the JAX variant {self.variant.name!r}")
            raise
        self._open = manager

    def _turn_off(self) -> None:
        manager, self._open = self._open, None
        if manager is None:
            return
        try:
            manager.__exit__(None, None, None)
        except Exception as error:
            error.add_note(f"raised on leaving the JAX variant {self.variant.name!r}")
            raise


def _context_manager(variant: Variant) -> AbstractContextManager[object]:
    """Call a variant's mode and check what it returns."""
    __tracebackhide__ = True
    manager: Any = variant.mode()
    if all(hasattr(type(manager), name) for name in ("__enter__", "__exit__")):
        return manager  # type: ignore[no-any-return]
    hint = ""
    if inspect.isgenerator(manager):
        hint = " (decorate the function with contextlib.contextmanager)"
    elif hasattr(type(manager), "__aenter__"):
        hint = " (an asynchronous one cannot be used)"
    raise InvalidArgumentError(
        f"mode of variant {variant.name!r}: expected a function that returns a new context manager"
        f"{hint}, but it returned {type(manager).__name__}: {manager!r}"
    )
