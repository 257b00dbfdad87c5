"""The arguments of ``check_pytree``, refused at once where they cannot be used."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from pytest_jaxleaks.errors import InvalidArgumentError
from pytest_jaxleaks.pytree_rare_routes import RARE_ROUTES
from pytest_jaxleaks.pytree_routes import ROUTES
from pytest_jaxleaks.pytree_subject import type_name

if TYPE_CHECKING:
    from pytest_jaxleaks.pytree_subject import Subject

__all__ = ["check_arguments", "check_what_it_builds", "checked_names"]


def checked_names(through: Any) -> tuple[str, ...]:
    """Return the names of transformations, each of which is known."""
    known = [*ROUTES, *RARE_ROUTES, "key-paths", "optional-fields"]
    if isinstance(through, (str, bytes)):
        raise InvalidArgumentError(
            f"through must be a sequence of names, and is the text {through!r}"
        )
    if not isinstance(through, Iterable):
        raise InvalidArgumentError(
            f"through must be a sequence of names, and is {type(through).__name__}"
        )
    names = tuple(through)
    unknown = [name for name in names if name not in known]
    if unknown:
        raise InvalidArgumentError(
            f"through has an unknown name {unknown[0]!r}; known are {', '.join(known)}"
        )
    return names


def check_arguments(probe: Any, build: Any, args: Any) -> None:
    """Refuse what cannot be called, and arguments for nothing."""
    for name, value in (("probe", probe), ("build", build)):
        if value is not None and not callable(value):
            raise InvalidArgumentError(
                f"{name} must be a function or None, and is {type(value).__name__}"
            )
    if not isinstance(args, (tuple, list)):
        raise InvalidArgumentError(f"args must be a tuple or list, and is {type(args).__name__}")
    if args and build is None:
        raise InvalidArgumentError("args are the arguments of build, and build is None")


def check_what_it_builds(subject: Subject, twin: Any) -> None:
    """Refuse a ``build`` that makes something else than the object."""
    if type(twin) is not type(subject.obj):
        raise InvalidArgumentError(
            f"build must be a function that makes the object again, a {type_name(subject.obj)}, "
            f"and makes a {type_name(twin)}"
        )
