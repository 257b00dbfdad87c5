"""References from JAX's caches are told from those of a program."""

import functools

import jax
import jax.numpy as jnp

from pytest_jaxleaks.caches_of_jax import CachesOfJax
from pytest_jaxleaks.census import Census


def references(
    caches: CachesOfJax, missing: dict[int, int], but: tuple[int, ...] = ()
) -> list[int]:
    """Return what the caches are the reason for, counting down as a search does."""
    found = []
    for node_id in caches.references(missing, but):
        missing[node_id] -= 1
        found.append(node_id)
    return found


def test_every_reference_of_a_cache_counts() -> None:
    """Two caches that hold an object are the reason for two references to it, and for no other."""
    wanted, other = object(), object()
    caches = CachesOfJax([[other], [wanted], [wanted, other]])
    assert references(caches, {id(wanted): 3}) == [id(wanted)] * 2


def test_caches_are_asked_only_while_something_is_missing() -> None:
    """The caches that helped are asked first, and none once each reference is explained."""
    wanted = object()
    helpful: list[object] = [wanted]
    also: list[object] = []
    caches = CachesOfJax([also, [object()], helpful])
    assert references(caches, {id(wanted): 1}) == [id(wanted)]
    helpful.append(wanted)
    also.append(wanted)
    assert references(caches, {id(wanted): 2}) == [id(wanted)] * 2  # helpful, and not also
    assert references(caches, {id(wanted): 3}) == [id(wanted)] * 3
    assert references(caches, {id(wanted): 0}) == []


def test_caches_that_were_walked_through_are_not_asked() -> None:
    """A cache whose references were counted on the way is not counted twice."""
    wanted = object()
    walked, other = [wanted], [wanted]
    caches = CachesOfJax([walked, other])
    assert references(caches, {id(wanted): 2}, but=(id(walked),)) == [id(wanted)]


def test_jax_s_caches_are_found_in_the_heap() -> None:
    """A census knows the caches of JAX, and not those of a program."""
    mine = functools.lru_cache(lambda value: value)
    jax.jit(lambda x: x + 1)(jnp.ones(2))
    census = Census()
    census.start()
    try:
        ids = census.known_jax_caches().ids()
    finally:
        census.stop()
    assert len(ids) > 10
    assert id(mine) not in ids
