"""Copies: ``copy``, ``deepcopy`` and ``pickle`` keep leaves and treedef."""

from __future__ import annotations

import copy
import dataclasses
import pickle
from typing import TYPE_CHECKING, Any

import jax

from pytest_jaxleaks import pytree_hints as hints
from pytest_jaxleaks.pytree_causes import cause_of, treedef_difference
from pytest_jaxleaks.pytree_contract import difference_symptom
from pytest_jaxleaks.pytree_findings import Cause, Symptom
from pytest_jaxleaks.pytree_subject import first_line, nodes, same_value, type_name

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from pytest_jaxleaks.pytree_subject import Subject

__all__ = ["copy_symptoms"]

_FORBIDDEN = (TypeError, NotImplementedError, pickle.PicklingError, AttributeError)
_DEEPER = frozenset({"round-trip", "nothing-hides", "treedef", "copies"})


def copy_symptoms(subject: Subject) -> Iterator[Symptom | str]:
    """Copy the object in three ways; yield symptoms, and reasons (as text) for what was skipped."""
    for name, copied in (("copy", copy.copy), ("deepcopy", copy.deepcopy)):
        yield from _copied(name, copied, subject)
    try:
        stored = pickle.dumps(subject.obj)
    except _FORBIDDEN as error:
        yield f"pickle: {first_line(error)}"
    except Exception as error:
        yield from _raised("pickle", error, subject)
    else:
        yield from _copied("pickle", lambda _: pickle.loads(stored), subject)


def _copied(name: str, make: Callable[[Any], Any], subject: Subject) -> Iterator[Symptom | str]:
    try:
        found = make(subject.obj)
        leaves, treedef = jax.tree.flatten(found)
    except TypeError as error:
        if name != "pickle" and "cannot pickle" in str(error):
            yield f"{name}: {first_line(error)}"
            return
        yield from _raised(name, error, subject)
        return
    except Exception as error:
        yield from _raised(name, error, subject)
        return
    for symptom in _compared(name, subject, found, leaves, treedef):
        yield dataclasses.replace(symptom, broken=symptom.broken and not _is_a_librarys(subject))


def _compared(
    name: str, subject: Subject, found: Any, leaves: list[Any], treedef: Any
) -> Iterator[Symptom]:
    if type(found) is not type(subject.obj):
        yield _changed(name, subject, f"gives a {type_name(found)}")
    elif len(leaves) != len(subject.leaves):
        yield _changed(name, subject, f"gives {len(leaves)} leaves for {len(subject.leaves)}")
    elif not all(map(same_value, subject.leaves, leaves)):
        yield _changed(name, subject, "changes the leaves")
    elif treedef_difference(subject.treedef, treedef):
        yield from difference_symptom(
            subject.treedef, treedef, f"after {name}", subject.obj, contract="copies"
        )


def _changed(name: str, subject: Subject, what: str) -> Symptom:
    cause = Cause(f"copies:{what}", f"{name} of {type_name(subject.obj)} {what}")
    return Symptom("copies", f"{name} {what}", cause, implied_by=_DEEPER)


def _is_a_librarys(subject: Subject) -> bool:
    """Whether all classes are of installed packages: how they are copied is not the user's doing.

    The variables of flax, for one, delegate ``__deepcopy__`` to the array that they hold.
    """
    return all(hints.is_installed(type(node)) for _, node in nodes(subject.obj))


def _raised(name: str, error: Exception, subject: Subject) -> Iterator[Symptom]:
    cause = cause_of(error, f"{name} of {type_name(subject.obj)}")
    text = f"{name}: {first_line(error)}"
    yield Symptom("copies", text, cause, not _is_a_librarys(subject), implied_by=_DEEPER)
