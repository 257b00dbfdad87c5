"""The one place that knows how JAX names its private types and attributes.

Everything here is read defensively: what a newer JAX does not have is simply not told. The names
were seen on jax 0.10.2 and jax 0.12.0.1; ``tests/test_jax_internals.py`` fails where one is gone.
"""

from __future__ import annotations

import contextlib
import functools
import itertools
import re
import sys
import sysconfig
import types
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from pytest_jaxleaks.links import at_home, module_name, type_and_subclasses

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

__all__ = [
    "Place",
    "TracerRecord",
    "blocks_reference",
    "checks_leaks_itself",
    "children_of_node",
    "containers_of_jax",
    "donates_arguments",
    "hear_of_leak_checking",
    "is_book_keeping",
    "is_internal_file",
    "is_jax_cache",
    "is_jax_function",
    "is_jax_module",
    "is_jax_type",
    "is_jaxpr",
    "is_jitted",
    "is_traceback",
    "is_tracing",
    "jax_is_imported",
    "may_be_jax_cache",
    "record_of",
    "trace_of",
    "traced_by",
    "tracer_types",
]

# Types of JAX that a user holds as data or as a function: what they refer to counts as held by
# whoever holds them. All other types of JAX are its own book-keeping (jaxprs, equations, wrapped
# functions, stages, cache entries), which users keep without keeping a value of theirs alive.
_TRANSPARENT = frozenset(
    {
        "PyTreeDef",
        "Partial",
        "VJP",
        "_IndexUpdateHelper",
        "_IndexUpdateRef",
        "custom_jvp",
        "custom_transpose",
        "custom_vjp",
        "custom_vmap",
    }
)
_JITTED = "PjitFunction"
# A jaxpr shows its constants to everybody; since jax 0.12 there is one class for both.
_WITH_CONSTANTS = frozenset({"ClosedJaxpr", "Jaxpr"})
_NONE = object()


def jax_is_imported() -> bool:
    """Tell whether this process has imported JAX far enough to make a tracer."""
    return "jax" in sys.modules and hasattr(sys.modules.get("jax.core"), "Tracer")


def tracer_types() -> frozenset[int]:
    """Return the ids of ``jax.core.Tracer`` and every subclass of it that exists now.

    Types are told by their ids wherever a program's own are looked at: a metaclass may have an
    ``__eq__`` and no ``__hash__``.
    """
    return type_and_subclasses(sys.modules["jax.core"].Tracer)


def is_jax_module(name: object) -> bool:
    """Tell whether ``name`` is that of a module of jax or jaxlib."""
    return isinstance(name, str) and name.partition(".")[0] in ("jax", "jaxlib")


def checks_leaks_itself() -> bool:
    """Tell whether JAX's own leak checker is on in this thread."""
    config = getattr(sys.modules.get("jax"), "config", None)
    return bool(getattr(config, "jax_check_tracer_leaks", False))


def is_tracing() -> bool:
    """Tell whether this thread is inside of a transformation."""
    is_clean = getattr(sys.modules.get("jax._src.core"), "trace_state_clean", None)
    return is_clean is not None and not is_clean()


def children_of_node(obj: Any) -> list[Any]:
    """Return what JAX sees in a pytree node, one level of it; nothing if its flattening fails."""
    jax = sys.modules.get("jax")
    with contextlib.suppress(Exception):
        if jax is not None:
            return list(jax.tree_util.tree_leaves(obj, is_leaf=lambda each: each is not obj))
    return []


def containers_of_jax() -> dict[int, Any]:
    """Return the dicts, lists and sets that modules of JAX have in variables, by ``id``.

    They are JAX's, whoever else refers to them: flax looks into JAX's registry of pytree nodes.
    """
    return _containers_of_jax(len(sys.modules))


# They are looked up again when something was imported. What is found is kept: no id is used again.
@functools.lru_cache(maxsize=1)
def _containers_of_jax(_modules: int) -> dict[int, Any]:
    found = {}
    for name, module in list(sys.modules.items()):
        if is_jax_module(name):
            variables = dict(getattr(module, "__dict__", {}))
            are_containers = map(_CONTAINERS.__contains__, map(id, map(type, variables.values())))
            for variable in itertools.compress(variables, are_containers):
                if not variable.startswith("__"):
                    found[id(variables[variable])] = variables[variable]
    return found


_CONTAINERS = frozenset(map(id, (dict, list, set)))


def is_jax_type(cls: type) -> bool:
    """Tell whether ``cls`` is defined in jax or jaxlib."""
    return is_jax_module(module_name(cls))


def is_jax_function(obj: Any) -> bool:
    """Tell whether ``obj`` is a plain function that is defined in jax or jaxlib."""
    return type(obj) is types.FunctionType and is_jax_module(obj.__globals__.get("__name__"))


def may_be_jax_cache(cls: type) -> bool:
    """Tell whether an object of ``cls`` can be one of JAX's caches."""
    if cls is functools._lru_cache_wrapper:
        return True
    return is_jax_type(cls) and cls.__name__.endswith("LRUCache")


def is_jax_cache(obj: Any) -> bool:
    """Tell whether ``obj`` is a cache of JAX's own, whatever it is built on."""
    if type(obj) is functools._lru_cache_wrapper:
        module = getattr(obj, "__module__", None)
        return is_jax_module(module) and not _is_cache_of_anothers_function(obj, module)
    return may_be_jax_cache(type(obj))


def _is_cache_of_anothers_function(obj: Any, module: Any) -> bool:
    """Tell a user's ``functools.cache(jnp.eye)``, which is called ``jnp.eye``, from JAX's own.

    A function of JAX that is cached by JAX stands under its name with its cache, if at all.
    """
    wrapped = getattr(obj, "__wrapped__", None)
    found = at_home(obj, module, getattr(obj, "__qualname__", None))
    return wrapped is not None and found is wrapped


def is_jitted(cls: type) -> bool:
    """Tell whether ``cls`` is the type of what ``jax.jit`` returns."""
    return cls.__name__ == _JITTED and is_jax_type(cls)


def donates_arguments(obj: Any) -> bool:
    """Tell whether ``obj`` is a function that ``jax.jit`` was asked to let donate arguments."""
    if not is_jitted(type(obj)):
        return False
    info = getattr(obj, "_jit_info", None)
    return bool(getattr(info, "donate_argnums", ()) or getattr(info, "donate_argnames", ()))


def is_jaxpr(obj: Any) -> bool:
    """Tell whether ``obj`` is a jaxpr with its constants."""
    return is_jax_type(type(obj)) and type(obj).__name__ in _WITH_CONSTANTS


def is_traceback(obj: Any) -> bool:
    """Tell whether ``obj`` is a traceback that JAX keeps: the errors of checkify have one."""
    return is_jax_type(type(obj)) and type(obj).__name__ == "Traceback"


def is_book_keeping(cls: type) -> bool:
    """Tell whether objects of ``cls`` are JAX's own affair, whatever they refer to."""
    if not is_jax_type(cls) or cls.__name__ in _TRANSPARENT | _WITH_CONSTANTS:
        return False
    if cls.__name__ == _JITTED:
        return False
    return not _holds_user_data(cls)


def _holds_user_data(cls: type) -> bool:
    """Tell whether a type of JAX is a container for values: a named tuple or a pytree node.

    Such are ``SVDResult`` of ``jnp.linalg``, ``BCOO`` of ``jax.experimental.sparse`` and
    ``OptimizeResults``. A named tuple of JAX's internals does no harm here: users do not hold one.
    """
    if issubclass(cls, tuple):
        return True
    return bool(getattr(cls, "tree_flatten", None)) and bool(getattr(cls, "tree_unflatten", None))


def blocks_reference(parent: Any, child: Any) -> bool:
    """Tell whether a reference from ``parent`` to ``child`` is JAX's own affair.

    A jitted function holds the user's function and attributes, which count, and caches, which do
    not. Of a jaxpr its constants count, which are public.
    """
    cls = type(parent)
    if is_jaxpr(parent):
        return getattr(parent, "consts", None) is not child
    if cls is functools._lru_cache_wrapper:
        return is_jax_cache(parent)
    if is_jitted(cls):
        own = getattr(parent, "__dict__", {})
        return child is not own and all(child is not value for value in own.values())
    return is_book_keeping(cls)


class Place(NamedTuple):
    """A place in source code: absolute file name, line (from 1) and qualified function name."""

    path: str
    line: int
    function: str


class TracerRecord(NamedTuple):
    """What JAX recorded about a tracer; None for what it did not.

    Attributes:
        value: shape and dtype as JAX writes them, such as ``float32[3]``.
        kind: the name of the tracer's class.
        transform: jit, vmap, grad, jvp, remat, shard_map or other.
        traced: the traced function and where it is defined.
        created: where user code made the value.
        caller: where user code called the transformation.
    """

    value: str
    kind: str
    transform: str
    traced: Place | None
    created: Place | None
    caller: Place | None


_TRANSFORM_OF_TRACER = {
    "BatchTracer": "vmap",
    "LinearizeTracer": "grad",
    "JVPTracer": "jvp",
    "RematTracer": "remat",
    "ShardMapTracer": "shard_map",
    "JaxprTracer": "grad",
}
_TRANSFORM_OF_STAGE = {"checkpoint / remat": "remat", "shard_map": "shard_map", "vmap": "vmap"}


def record_of(tracer: Any) -> TracerRecord:
    """Collect what JAX recorded about ``tracer``, a ``jax.core.Tracer``."""
    kind = type(tracer).__name__
    debug = _debug_info(tracer)
    frames = _user_frames(tracer)
    return TracerRecord(
        value=_short(getattr(tracer, "aval", None)),
        kind=kind,
        transform=_transform(kind, debug),
        traced=_traced(debug),
        created=frames[0][1] if frames else None,
        caller=_caller(frames),
    )


def traced_by(tracer: Any) -> tuple[str, Place | None]:
    """Return the transformation that made a tracer and the function that it traced."""
    debug = _debug_info(tracer)
    return _transform(type(tracer).__name__, debug), _traced(debug)


def trace_of(tracer: Any) -> Any:
    """Return the trace that a tracer belongs to, or None."""
    return getattr(tracer, "_trace", None)


def hear_of_leak_checking(hear: Callable[[bool | None], None]) -> Callable[[], None]:
    """Have ``hear`` called when ``jax.check_tracer_leaks(...)`` begins or ends in a thread.

    Args:
        hear: takes the value that counts in the thread from now on, None for the process's own.

    Returns:
        Takes ``hear`` back.
    """
    setting: Any = getattr(sys.modules["jax"], "check_tracer_leaks", None)
    name = "_update_thread_local_hook"
    earlier: Any = getattr(setting, name, _NONE)
    if earlier is _NONE:
        return lambda: None

    def both(value: bool | None) -> None:
        hear(value)
        if earlier is not None:
            earlier(value)

    try:
        setattr(setting, name, both)
    except (AttributeError, TypeError):
        return lambda: None

    def take_back() -> None:
        if getattr(setting, name) is both:
            setattr(setting, name, earlier)

    return take_back


def _short(aval: Any) -> str:
    with contextlib.suppress(Exception):
        return str(aval.str_short())
    return "value of unknown type"


def _transform(kind: str, debug: Any) -> str:
    if kind in _TRANSFORM_OF_TRACER:
        return _TRANSFORM_OF_TRACER[kind]
    stage = getattr(debug, "traced_for", None)
    if kind == "DynamicJaxprTracer":
        # Loops and branches are traced to a jaxpr in just the way that jit is.
        return _TRANSFORM_OF_STAGE.get(stage, "jit") if isinstance(stage, str) else "jit"
    return "other"


def _debug_info(tracer: Any) -> Any:
    """Return JAX's debug info, for a reverse-mode tracer that of its tangent."""
    for holder in (tracer, getattr(tracer, "tangent", None)):
        debug = getattr(holder, "_debug_info", None)
        if debug is not None:
            return debug
    return None


def _traced(debug: Any) -> Place | None:
    match = re.fullmatch(r"(\S+)(?: at (.+):(\d+))?", str(getattr(debug, "func_src_info", "")))
    if match is None or match[2] is None or is_internal_file(match[2]):
        return None
    return Place(match[2], int(match[3]), match[1])


def _user_frames(tracer: Any) -> list[tuple[int, Place]]:
    """Return the frames of user code when the value was made, innermost first, with positions."""
    for holder in (tracer, getattr(tracer, "tangent", None)):
        info = getattr(holder, "_line_info", None) or getattr(holder, "source_info", None)
        frames = getattr(getattr(info, "traceback", None), "frames", None) or ()
        found = [
            (index, Place(frame.file_name, frame.line_num, _plain(frame.function_name)))
            for index, frame in enumerate(frames)
            if not is_internal_file(frame.file_name)
        ]
        if found:
            return found
    return []


def _plain(function: str) -> str:
    return function.replace("<locals>.", "")


def _caller(frames: Sequence[tuple[int, Place]]) -> Place | None:
    """Return the innermost user frame outside the transformation's own frames.

    A wrapper in an installed package (``eqx.filter_grad``) calls the transformation on behalf of
    somebody: where there is a frame that is not installed, that one is meant.
    """
    indices = [index for index, _ in frames]
    gap = next((i for i in range(1, len(frames)) if indices[i] > indices[i - 1] + 1), None)
    if gap is None:
        return None
    outside = [place for _, place in frames[gap:]]
    return next((place for place in outside if not _is_installed(place.path)), outside[0])


def _is_installed(path: str) -> bool:
    return not {"site-packages", "dist-packages"}.isdisjoint(Path(path).parts)


def _folder(name: str) -> str | None:
    module = sys.modules.get(name)
    found = getattr(module, "__file__", None)
    return str(Path(found).parent) if isinstance(found, str) else None


@functools.lru_cache(maxsize=4096)
def is_internal_file(path: str) -> bool:
    """Tell whether a source file is none that a user would edit to mend a leak.

    Those are JAX, the test machinery, this package and the standard library.
    """
    if path.startswith("<frozen"):
        return True
    own = str(Path(__file__).parent)
    packages = ("jax", "jaxlib", "_pytest", "pluggy", "pytest")
    folders = [own, *filter(None, map(_folder, packages))]
    if any(path.startswith((folder + "/", folder + "\\")) for folder in folders):
        return True
    standard = sysconfig.get_path("stdlib")
    return path.startswith(standard) and "site-packages" not in path
