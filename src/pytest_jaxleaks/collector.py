"""The garbage collector, for us and for the program under test.

We freeze what is old, and frozen objects are out of the collector's sight: ``gc.collect`` does not
free them, ``gc.get_objects`` and ``gc.get_referrers`` do not show them. A test that asks (is this
object freed? who holds it?) must get the answer that it gets without us. So as long as the heap is
frozen by us, these functions of the module ``gc`` thaw it first. The rest of this package takes
them from here, as they are. JAX's own leak checker gets them as they are as well: it asks thousands
of times for a message, and what a test has made is in sight.
"""

from __future__ import annotations

import contextlib
import functools
import gc
import threading
from gc import (
    collect,
    freeze,
    get_freeze_count,
    get_objects,
    get_referents,
    get_referrers,
    is_tracked,
    unfreeze,
)
from typing import TYPE_CHECKING, Any

from pytest_jaxleaks.jax_internals import checks_leaks_itself

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

__all__ = [
    "Asked",
    "busy",
    "collect",
    "freeze",
    "get_freeze_count",
    "get_objects",
    "get_referents",
    "get_referrers",
    "is_tracked",
    "unfreeze",
]

_ASKING = ("collect", "get_objects", "get_referrers")
# Only the oldest generation has anything that can be frozen.
_OLDEST = 2
# While one of our own looks goes on, what it works with must not be frozen or thawed.
_looks: set[int] = set()


@contextlib.contextmanager
def busy() -> Iterator[None]:
    """Leave the heap to whoever runs this block, in this thread and in others."""
    me = threading.get_ident()
    if me in _looks:
        yield
        return
    _looks.add(me)
    try:
        yield
    finally:
        _looks.discard(me)


class Asked:
    """Puts the asking functions of ``gc`` behind ones that thaw the heap first, and back.

    Args:
        thaw: called before a question; returns what is to be called after it.
    """

    def __init__(self, thaw: Callable[[], Callable[[], None]]) -> None:
        self._thaw = thaw
        self._before: dict[str, Any] = {}
        self._ours: dict[str, Any] = {}

    def start(self) -> None:
        """Answer for the whole heap from now on."""
        for name in _ASKING:
            self._before[name] = getattr(gc, name)
            self._ours[name] = self._thawing(name, self._before[name])
            setattr(gc, name, self._ours[name])

    def stop(self) -> None:
        """Put back what was there, unless the program has put something else in its place."""
        for name, ours in self._ours.items():
            if getattr(gc, name) is ours:
                setattr(gc, name, self._before[name])
        self._ours.clear()

    def _thawing(self, name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        def answer(args: tuple[Any, ...], options: dict[str, Any]) -> Any:
            found = function(*args, **options)
            # Our own tuple refers to what is asked for: without us there is none.
            return [obj for obj in found if obj is not args] if name == "get_referrers" else found

        @functools.wraps(function)
        def asked(*args: Any, **options: Any) -> Any:
            is_ours = _looks or not self._ours or checks_leaks_itself()
            if is_ours or _asks_for_the_young(name, args, options):
                return answer(args, options)
            freeze_again = self._thaw()
            try:
                return answer(args, options)
            finally:
                if not _looks:  # one may have begun in another thread: it finds more to look at
                    freeze_again()

        return asked


def _asks_for_the_young(function: str, args: tuple[Any, ...], options: dict[str, Any]) -> bool:
    """Tell whether a call is about one of the younger generations only."""
    if function == "get_referrers":
        return False
    generation = next(iter((*args, *options.values())), _OLDEST)
    return isinstance(generation, int) and generation < _OLDEST
