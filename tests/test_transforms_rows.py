"""Gradients are judged by differences in every row and every element, each order for its purity."""

from __future__ import annotations

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from pytest_jaxleaks import TransformCheckError, check_transforms


def failure_of(fn, *args, **options):
    """Return the error that a check of ``fn`` raises."""
    with pytest.raises(TransformCheckError) as caught:
        check_transforms(fn, *args, **options)
    return caught.value


def kinds(error):
    """Return ``(order, kind)`` of every failure."""
    return [(failure.order, failure.kind) for failure in error.failures]


# rules that are right for most values


@jax.custom_vjp
def right_below_two(x):
    """Its backward rule is wrong where x > 2."""
    return jnp.sum(x**3)


right_below_two.defvjp(
    lambda x: (jnp.sum(x**3), x), lambda x, ct: (ct * jnp.where(x > 2.0, 2.0, 3.0) * x**2,)
)


@jax.custom_jvp
def right_below_two_jvp(x):
    """Its JVP rule is wrong where x > 2."""
    return jnp.sum(x**3)


right_below_two_jvp.defjvp(
    lambda p, t: (
        jnp.sum(p[0] ** 3),
        jnp.sum(jnp.where(p[0] > 2.0, 2.0, 3.0) * p[0] ** 2 * t[0]),
    )
)


@pytest.mark.parametrize("fn", [right_below_two, right_below_two_jvp])
def test_a_gradient_that_is_wrong_in_another_row_only(fn):
    """The row is named as the caller numbers it, also where only some rows are looked at."""
    xs = np.ones((40, 2), np.float32)
    xs[39, 1] = 2.5
    error = failure_of(fn, jnp.asarray(xs), in_axes=0)
    assert ("grad", "gradient") in kinds(error)
    assert "in row 39 of the batch: the gradient of x[1]" in str(error)


def test_a_nan_gradient_in_another_row():
    """The where trap of one row is named with its row."""
    error = failure_of(
        lambda x: jnp.where(x != 0, jnp.sin(x) / x, 1.0), jnp.array([1.0, 2.0, 0.0, 1.0]), in_axes=0
    )
    assert ("grad", "nan gradient") in kinds(error)
    assert "in row 2 of the batch" in str(error)


def test_forward_mode_alone_is_judged_in_every_row():
    """Without reverse mode too."""
    error = failure_of(right_below_two_jvp, jnp.array([[1.0], [2.5]]), in_axes=0, modes=("fwd",))
    assert "in row 1 of the batch: forward mode gives" in str(error)


def test_rows_with_other_data_share_a_program():
    """What is not differentiated may differ from row to row: integers, keys, floats."""

    def fn(x, n, key, scale):
        return jnp.sum(x * scale) * n + jax.random.normal(key) * x[0]

    keys = jax.random.split(jax.random.key(0), 3)
    report = check_transforms(
        fn, jnp.ones((3, 2)), jnp.arange(1, 4), keys, jnp.linspace(1.0, 2.0, 3), in_axes=0
    )
    assert len(report.orders) == 15
    assert report.notes == ()


# one element of a large array


def half_at(index, rule):
    """Return ``sin`` whose derivative is half of what it should be in one element."""

    def slope(x):
        return jnp.cos(x).at[index].multiply(0.5)

    if rule == "vjp":
        fn = jax.custom_vjp(jnp.sin)
        fn.defvjp(lambda x: (jnp.sin(x), x), lambda x, ct: (ct * slope(x),))
        return lambda x: fn(x).sum()
    fn = jax.custom_jvp(jnp.sin)
    fn.defjvp(lambda p, t: (jnp.sin(p[0]), slope(p[0]) * t[0]))
    return lambda x: fn(x).sum()


@pytest.mark.parametrize(
    ("rule", "modes"), [("vjp", ("rev",)), ("jvp", ("fwd", "rev")), ("jvp", ("fwd",))]
)
def test_one_wrong_element_of_a_large_array(rule, modes):
    """Tolerances are per element, and the element is named, in both modes."""
    x = jnp.linspace(0.1, 1.2, 30_000).reshape(100, 300)
    error = failure_of(half_at((61, 7), rule), x, orders=["grad"], modes=modes)
    assert kinds(error) == [("grad", "gradient")]
    assert error.failures[0].index == (61, 7)
    ratio = error.failures[0].actual / error.failures[0].expected
    assert ratio == pytest.approx(0.5, abs=1e-3)


# purity


class Counter:
    """Counts its calls under one transformation only."""

    def __init__(self):
        self.calls = 0


def test_the_order_that_changed_something_is_named():
    """Also a longer one, and though others come after it."""
    counter = Counter()

    def fn(x):
        if type(x).__name__ == "BatchTracer":
            counter.calls += 1
        return jnp.sum(x * 2.0)

    error = failure_of(fn, jnp.ones(2), orders=["jit", "jit(vmap)", "grad(vmap)"])
    assert kinds(error) == [("jit(vmap)", "impure")]
    assert error.failures[0].path == "closure variable 'counter' of fn.calls"


# what is differentiated by default


class Affine(eqx.Module):
    """Has a static name, and an activation that is no array."""

    weight: jax.Array
    act: object
    name: str = eqx.field(static=True, default="affine")


AFFINE = Affine(jnp.ones(2), jnp.tanh)


@pytest.mark.parametrize(
    ("fn", "args", "kwargs"),
    [
        (lambda n, x: x * n, (3, 2.0), {}),
        (lambda n, x: x * n, (jnp.arange(2), np.float32(2.0)), {}),
        (lambda n, x: x * n, (True, np.array([1.0, 2.0])), {}),
        (lambda n, x: x * n, (np.arange(3), np.ones(3)), {}),
        (lambda n, x: x["a"][0]["b"] * n, (1, {"a": [{"b": 2.0, "n": 3}]}), {}),
        (lambda n, *, x: x * n, (jnp.arange(2),), {"x": 1.5}),
        (lambda n, x: x["w"] * n, (2, {"none": None, "w": jnp.bfloat16(1.5)}), {}),
        (lambda n, x: x * n, (2, jnp.complex64(1 + 2j)), {}),
        (lambda key, x: jax.random.normal(key) * x, (jax.random.key(0), 2.0), {}),
        (lambda n, x: x.act(x.weight) * n, (2, AFFINE), {}),
        (lambda n, x: x.act(x.weight) * n, (0.5, AFFINE), {}),
    ],
)
def test_the_first_argument_with_inexact_leaves_is_differentiated(fn, args, kwargs):
    """Whatever form they have: Python and NumPy numbers, nested containers, models, keywords."""
    report = check_transforms(fn, *args, **kwargs, orders=["grad", "jit(vmap(grad))"])
    assert report.orders == ("grad", "jit(vmap(grad))")
    assert report.not_applicable == {}
