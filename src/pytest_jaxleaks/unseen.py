"""References that the garbage collector does not report.

The context variables of the running context, thread-local values, local variables of functions that
still run, and the elements of numpy object arrays all keep objects alive without being a referrer.
"""

from __future__ import annotations

import contextvars
import itertools
import re
import signal
import sys
import threading
from typing import TYPE_CHECKING, Any, NamedTuple

from pytest_jaxleaks import collector as gc
from pytest_jaxleaks.frames import frame_locals
from pytest_jaxleaks.jax_internals import is_jax_module, is_jitted
from pytest_jaxleaks.links import array_elements, type_and_subclasses
from pytest_jaxleaks.object_kinds import types_among
from pytest_jaxleaks.roots import Root

if TYPE_CHECKING:
    from collections.abc import Iterator, Set
    from types import FrameType

__all__ = [
    "Unseen",
    "context_values",
    "local_values",
    "other_threads",
    "signal_handlers",
    "thread_local_values",
    "top_frames",
    "unseen_containers",
]


def context_values() -> Iterator[tuple[Any, Root]]:
    """Yield the value of each context variable of the current context."""
    for variable, value in contextvars.copy_context().items():
        text = f"context variable '{variable.name}'"
        yield value, Root("context", text, named_by=variable.name)


def local_values(frame: FrameType, where: str = "") -> Iterator[tuple[Any, Root]]:
    """Yield the value of each local variable of a function that still runs."""
    function = frame.f_code.co_qualname.replace("<locals>.", "")
    module = frame.f_globals.get("__name__", "")
    for name, value in frame_locals(frame).items():
        text = f"local variable '{name}' of {function}{where}"
        yield value, Root("local", text, f"{module}.{function}.{name}", module)


def other_threads() -> Iterator[tuple[str, list[FrameType]]]:
    """Yield name and frames of every other thread that is not inside of JAX.

    A thread with a frame of JAX on its stack may be tracing: what it holds is no leak yet.
    """
    if threading.active_count() == 1:
        return
    names = {thread.ident: thread.name for thread in threading.enumerate()}
    for ident, frame in top_frames().items():
        stack: list[FrameType] = []
        walker: FrameType | None = frame
        while walker is not None:
            stack.append(walker)
            walker = walker.f_back
        if not any(is_jax_module(each.f_globals.get("__name__")) for each in stack):
            yield _without_number(names.get(ident, "?")), stack


def top_frames() -> dict[int, FrameType]:
    """Return the innermost frame of every other thread.

    That of this thread is left out: a frame with itself among its locals is cyclic garbage, and so
    is all that the functions below it hold.
    """
    frames = sys._current_frames()
    frames.pop(threading.get_ident(), None)
    return frames


def _without_number(name: str) -> str:
    """Return ``worker`` for ``Thread-3 (worker)``: the number depends on what ran before."""
    match = re.fullmatch(r"Thread-\d+ \((.+)\)", name)
    return name if match is None else match[1]


def thread_local_values(heap: list[Any]) -> Iterator[tuple[Any, Root]]:
    """Yield this thread's dict of each thread-local object in ``heap``."""
    for obj in heap:
        if issubclass(type(obj), threading.local):
            values = threading.local.__getattribute__(obj, "__dict__")
            yield values, Root("thread-local", "", module=type(obj).__module__)


def signal_handlers() -> Iterator[tuple[Any, Root]]:
    """Yield the handler of each signal that the program has given one."""
    for number in signal.valid_signals():
        handler = signal.getsignal(number)
        if callable(handler) and not isinstance(handler, signal.Handlers):
            name = getattr(number, "name", number)
            yield handler, Root("handler", f"handler of signal {name}")


class Unseen(NamedTuple):
    """Containers whose references the collector does not report when it is asked for referrers.

    Attributes:
        arrays: numpy object arrays.
        untracked: dicts and tuples that the collector has stopped to track, because they hold
            nothing that it tracks; a numpy array is such a thing.
        jitted: functions made by ``jax.jit``. Since Python 3.12 ``gc.get_referrers`` misses that
            they have attributes, while ``gc.get_referents`` tells.
    """

    arrays: list[Any]
    untracked: list[Any]
    jitted: list[Any]


def unseen_containers(heap: list[Any]) -> Unseen:
    """Return the containers that are not seen by asking for referrers.

    Args:
        heap: the objects that the collector tracks.
    """
    arrays = _array_types()
    wanted = arrays | {id(dict), id(tuple)}
    found: dict[int, Any] = {}
    jitted = {type_id for type_id, cls in types_among(heap).items() if is_jitted(cls)}
    result = Unseen([], [], list(_of_types(heap, jitted)))
    level = list(_of_types(heap, arrays)) + _untracked(gc.get_referents(*heap), wanted)
    while level:
        new = {id(obj): obj for obj in level if id(obj) not in found}
        found.update(new)
        level = list(_of_types(list(new.values()), arrays))
        holding = list(filter(_refers_to_objects, level))
        result.arrays.extend(holding)
        plain = list(_of_types(list(new.values()), wanted - arrays))
        result.untracked.extend(plain)
        children = gc.get_referents(*plain)
        for array in holding:
            children += [element for _, element in array_elements(array)]
        level = _untracked(children, wanted)
    return result


def _array_types() -> frozenset[int]:
    numpy = sys.modules.get("numpy")
    if numpy is None:
        return frozenset()
    return type_and_subclasses(numpy.ndarray) | type_and_subclasses(numpy.void)


def _of_types(objects: list[Any], type_ids: Set[int]) -> Iterator[Any]:
    flags = map(type_ids.__contains__, map(id, map(type, objects)))
    return itertools.compress(objects, flags)


def _untracked(objects: list[Any], type_ids: Set[int]) -> list[Any]:
    return list(_of_types(list(itertools.filterfalse(gc.is_tracked, objects)), type_ids))


def _refers_to_objects(array: Any) -> bool:
    numpy = sys.modules["numpy"]
    base = numpy.ndarray if issubclass(type(array), numpy.ndarray) else numpy.generic
    return bool(base.dtype.__get__(array).hasobject)
