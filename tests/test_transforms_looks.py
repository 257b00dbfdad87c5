"""The looks for leaks after each order, in a test that is itself watched."""

from __future__ import annotations

import gc

import jax
import jax.numpy as jnp
import pytest

from pytest_jaxleaks import TransformCheckError, check_transforms
from pytest_jaxleaks.blocks import RepeatedLooks

PROGRAM = """
import jax
import jax.numpy as jnp
import pytest
from pytest_jaxleaks import check_transforms

OLD = []
KEPT = []


def keeper(kept):
    def step(x):
        kept.append(x)
        return x

    return step


def closing(x):  # JAX's caches keep the tracer that the inner function closes over
    inner = jax.custom_jvp(lambda y: y * x)
    inner.defjvp(lambda primals, tangents: (primals[0] * x, tangents[0] * x))
    return inner(x).sum()


jax.jit(keeper(OLD))(1.0)


def test_orders():
    kept_before = []
    {before}
    report = check_transforms(closing, jnp.ones(3), orders=["jit", "vmap", "jit(vmap)"])
    assert len(report.orders) == 3
    {after}
"""


@pytest.mark.parametrize("before", ["", "jax.jit(keeper(kept_before))(1.0)"])
@pytest.mark.parametrize("after", ["", "jax.jit(keeper(KEPT))(1.0)"])
def test_a_check_neither_takes_nor_hides_the_leaks_of_the_test_around_it(
    pytester: pytest.Pytester, before: str, after: str
) -> None:
    """What the test keeps before and after a check is its own, and what is older nobody's."""
    pytester.makepyfile(test_it=PROGRAM.format(before=before, after=after))
    result = pytester.runpytest_inprocess("--jax-leaks")
    outcome = "failed" if before or after else "passed"
    assert result.parseoutcomes() == {outcome: 1}
    if before:
        result.stdout.fnmatch_lines(["*kept by *kept_before*"])
    if after:
        result.stdout.fnmatch_lines(["*kept by *KEPT*"])


def test_each_order_that_leaks_is_told():
    """A holder that every order fills anew is reported once per order, under its name."""
    kept = {}

    def keeping(x):
        kept["x"] = x
        inner = jax.custom_jvp(lambda y: y * 2.0)
        inner.defjvp(lambda primals, tangents: (primals[0] * 2.0, tangents[0] * 2.0))
        return inner(x).sum()

    with pytest.raises(TransformCheckError) as caught:
        check_transforms(keeping, jnp.ones(3), orders=["jit", "vmap", "grad"])
    leaks = [failure.order for failure in caught.value.failures if failure.kind == "leak"]
    assert leaks == ["jit", "vmap", "grad"]


def test_the_collector_is_left_as_it_was_found():
    """Nothing stays frozen that was not, although a look that searches freezes what it has seen."""
    if gc.get_freeze_count():
        pytest.skip("the leak check of this very run freezes the heap")

    def closing(x):
        inner = jax.custom_jvp(lambda y: y * x)
        inner.defjvp(lambda primals, tangents: (primals[0] * x, tangents[0] * x))
        return inner(x)

    with RepeatedLooks() as looks:
        looks.begin()
        jax.jit(closing)(1.0)
        looks.end()
        assert gc.get_freeze_count() > 0
    assert gc.get_freeze_count() == 0
