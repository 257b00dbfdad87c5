"""Right functions pass every order that applies, and the others say why they do not apply."""

from __future__ import annotations

import functools
from typing import NamedTuple

import diffrax
import distrax
import equinox as eqx
import jax
import jax.numpy as jnp
import lineax
import numpy as np
import optax
import optimistix
import pytest
from jax.experimental import checkify

from pytest_jaxleaks import check_transforms
from pytest_jaxleaks.donations import donates

SOME = ["jit", "vmap", "grad", "jit(vmap(grad))", "grad(jit(vmap))"]
KEY = jax.random.key(3)


def ramp(*shape, dtype=jnp.float32):
    """Return distinct values of both signs, none of them zero."""
    size = int(np.prod(shape))
    return jnp.asarray(np.linspace(-1.3, 1.7, size).reshape(shape), dtype)


def test_all_fifteen_orders_of_a_batched_loss():
    """Shared parameters and mapped data: gradients of the sum are sums or stacks of gradients."""

    def loss(params, x, y):
        return jnp.mean((jnp.tanh(x @ params["w"] + params["b"]) - y) ** 2)

    params = {"w": ramp(3, 2), "b": jnp.zeros(2)}
    report = check_transforms(
        loss, params, ramp(4, 3), ramp(4, 2), in_axes=(None, 0, 0), argnums=(0, 1)
    )
    assert len(report.orders) == 15
    assert report.not_applicable == {}


class Point(NamedTuple):
    """A structured result."""

    a: jax.Array
    b: jax.Array


def recurrent(weights, xs):
    """Return the last state of a small recurrent network."""

    def step(state, x):
        state = jnp.tanh(state @ weights + x)
        return state, state.sum()

    return jax.lax.scan(step, jnp.zeros(2), xs)


FUNCTIONS = {
    "recurrent network": (recurrent, (ramp(2, 2), ramp(3, 2))),
    "cond": (lambda x: jax.lax.cond(x.sum() > 0, jnp.sin, jnp.square, x), (ramp(3),)),
    "cholesky": (lambda a: jnp.linalg.cholesky(a @ a.T + 3 * jnp.eye(2)), (ramp(2, 2),)),
    "several outputs": (lambda x: {"s": x.sum(), "n": jnp.int32(2), "p": Point(x, -x)}, (ramp(3),)),
    "kink": (lambda x: jax.nn.relu(x).sum(), (jnp.zeros(3),)),
    "ties": (lambda x: jnp.sort(x) * jnp.max(x), (jnp.array([1.0, 2.0, 1.0, 1.0]),)),
    "small kink": (jnp.sort, (jnp.array([1.0, 1.0, 0.0]),)),
    "dead relu": (lambda x: jax.nn.relu(x).sum(), (-jnp.ones(3),)),
    "cancelling sum": (lambda x: (x - x.mean()).sum(), (ramp(200) * 100,)),
    "domain edge": (jnp.sqrt, (jnp.float32(0.0),)),
    "nan": (lambda x: x * 2.0, (jnp.array([1.0, jnp.nan]),)),
    "0-d": (lambda x: x**2, (0.5,)),
    "empty": (lambda x: x * 2.0, (jnp.zeros((0, 2)),)),
    "scan": (lambda x: jax.lax.scan(lambda c, v: (0.9 * c + v, c), 0.0, x), (ramp(6),)),
    "empty scan": (lambda x: jax.lax.scan(lambda c, v: (c + v, c), 1.0, x)[0], (jnp.zeros(0),)),
    "complex": (lambda z: jnp.abs(z).sum() * z, (ramp(3) + 1j * ramp(3)[::-1],)),
    "to complex": (lambda x: jnp.exp(1j * x), (ramp(3),)),
    "typed key": (lambda key, x: x * jax.random.normal(key, x.shape), (KEY, ramp(3))),
    "legacy key": (
        lambda key, x: x + jax.random.normal(key, x.shape),
        (jax.random.PRNGKey(1), ramp(3)),
    ),
    "numpy float64": (lambda x: x**2 + np.pi, (np.ones(3),)),
    "numpy, indexed update": (lambda x: x.at[0].set(0.0), (np.ones(3, np.float32),)),
    "partial": (functools.partial(lambda a, x: a * x, 2.0), (ramp(3),)),
    "mixed dtypes": (lambda p: p["w"] * p["n"], ({"w": ramp(3), "n": jnp.int32(2)},)),
    "None": (lambda x, y: x if y is None else x + y, (ramp(3), None)),
    "jitted": (jax.jit(jnp.sin), (ramp(3),)),
    "casts to bfloat16": (lambda x: (x.astype(jnp.bfloat16) ** 2).sum(), (ramp(300),)),
}


@pytest.mark.parametrize(("fn", "args"), FUNCTIONS.values(), ids=FUNCTIONS.keys())
def test_right_functions_pass(fn, args):
    """No false alarm at kinks, ties, edges of domains, odd shapes, dtypes, keys or structures."""
    assert check_transforms(fn, *args, orders=SOME).orders == tuple(SOME)


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_narrow_dtypes_pass(dtype):
    """Rounding in 8 or 11 bits is no failure, and the gradient is still judged (in float64)."""
    report = check_transforms(
        lambda w, x: jax.nn.softmax(x @ w),
        ramp(4, 4, dtype=dtype),
        ramp(4, dtype=dtype),
        orders=SOME,
    )
    assert not report.notes


LIBRARIES = {
    "equinox MLP": (
        lambda model, x: model(x),
        (eqx.nn.MLP(2, 2, 4, 1, key=KEY), ramp(2)),
    ),
    "equinox dropout": (
        lambda layer, x, key: layer(x, key=key),
        (eqx.nn.Dropout(0.5), ramp(4), KEY),
    ),
    "distrax density": (
        lambda loc, x: distrax.MultivariateNormalDiag(loc, jnp.ones(2)).log_prob(x),
        (ramp(2), ramp(2)),
    ),
    "distrax distribution": (lambda loc: distrax.Normal(loc, 1.0), (ramp(2),)),
    "optax loss": (optax.softmax_cross_entropy_with_integer_labels, (ramp(3), jnp.int32(1))),
    "equinox GRU": (
        lambda cell, x, h: cell(x, h),
        (eqx.nn.GRUCell(2, 2, key=KEY), ramp(2), ramp(2)),
    ),
    "equinox error_if": (
        lambda x: jnp.sqrt(eqx.error_if(x, jnp.any(x < 0), "negative")),
        (jnp.array([0.5, 2.0]),),
    ),
    "distrax bijector": (
        distrax.Chain([distrax.Tanh(), distrax.ScalarAffine(0.5, 2.0)]).forward_and_log_det,
        (ramp(2),),
    ),
    # its gradient along the fixed cotangent is zero but for rounding
    "optax projection": (optax.projections.projection_simplex, (ramp(4),)),
    "optimistix root": (
        lambda a: (
            optimistix.root_find(
                lambda y, a: y - jnp.cos(a * y), optimistix.Newton(1e-6, 1e-6), jnp.float32(0.5), a
            ).value
        ),
        (jnp.float32(0.5),),
    ),
    "lineax solve": (
        lambda a, b: lineax.linear_solve(lineax.MatrixLinearOperator(a), b).value,
        (ramp(2, 2) + 3 * jnp.eye(2), ramp(2)),
    ),
}


@pytest.mark.parametrize(("fn", "args"), LIBRARIES.values(), ids=LIBRARIES.keys())
def test_functions_of_the_ecosystem_pass(fn, args):
    """Models, densities, losses and solvers pass as they are."""
    assert check_transforms(fn, *args, orders=["jit", "vmap", "grad"]).orders


def test_a_differential_equation_passes():
    """A solve with an inner jit, while loops and checkpointing passes under vmap of grad."""

    def final(y0):
        term = diffrax.ODETerm(lambda _t, y, _args: -y)
        return diffrax.diffeqsolve(term, diffrax.Euler(), 0.0, 1.0, 0.5, y0).ys

    check_transforms(final, jnp.array([1.0, 2.0]), orders=["vmap", "grad"])


# what does not apply


def test_integers_have_no_gradient_and_the_report_says_so():
    """Orders with grad do not apply to a function of integers."""
    report = check_transforms(lambda x: x + 1, jnp.int32(3), orders=SOME)
    assert report.orders == ("jit", "vmap")
    assert report.not_applicable["grad"] == "no argument has floating-point leaves to differentiate"


def test_integer_outputs_have_no_gradient():
    """The output's type is part of the reason."""
    report = check_transforms(jnp.argmax, ramp(3), orders=["grad"])
    assert "int32[]" in report.not_applicable["grad"]


def test_an_empty_batch_is_checked_by_structure():
    """vmap over no rows gives empty results and zero gradients; there is no single example."""
    report = check_transforms(
        lambda w, x: (x @ w).sum(), ramp(3, 2), jnp.zeros((0, 3)), in_axes=(None, 0), orders=SOME
    )
    assert "no rows" in report.not_applicable["jit"]
    assert "grad(jit(vmap))" in report.orders


def test_a_batch_of_one_keeps_its_axis():
    """One row is a batch like any other."""
    check_transforms(jnp.tanh, ramp(1, 3), in_axes=0, orders=SOME)


def test_rbg_keys_do_not_apply_to_vmap():
    """JAX documents that such keys give other numbers under vmap."""
    report = check_transforms(
        jax.random.normal, jax.random.key(0, impl="rbg"), orders=["jit", "vmap"]
    )
    assert "rbg" in report.not_applicable["vmap"]


def test_forward_mode_only():
    """Without reverse mode there is no gradient to check; jit and vmap are still checked."""
    report = check_transforms(
        lambda x: jax.lax.while_loop(lambda v: v < 10.0, lambda v: v * 2.0, x),
        jnp.float32(1.5),
        modes="fwd",
        orders=SOME,
    )
    assert report.orders == ("jit", "vmap")
    assert report.not_applicable["grad"] == "modes leaves out reverse mode"


def test_donated_arguments_are_copied():
    """A function that gives the memory of its arguments away is checked; the caller's stay."""
    ones = jnp.ones(3)
    sine = jax.jit(jnp.sin, donate_argnums=0)
    assert check_transforms(sine, ones, orders=["vmap", "grad"])
    assert not ones.is_deleted()
    assert donates(eqx.filter_jit(lambda x: x, donate="all"))
    assert donates(lambda x: sine(x) * 2.0)
    assert not donates(jax.jit(jnp.sin))


def test_errors_of_checkify_are_compared_by_what_they_say():
    """Their codes are other ones for each trace."""

    @checkify.checkify
    def log(x):
        checkify.check(x > 0, "must be positive: {x}", x=x)
        return jnp.log(x)

    assert check_transforms(log, jnp.float32(2.0), orders=["jit", "vmap", "jit(vmap)"])


# options


def test_axes_keywords_and_static_arguments():
    """in_axes by name, a keyword argument that is shared, a static one by name."""

    def power(x, *, scale, kind):
        return scale * x ** (2 if kind == "square" else 3)

    check_transforms(
        power,
        ramp(3, 4),
        scale=ramp(3),
        kind="square",
        in_axes={"x": 1, "scale": None},
        static_argnums="kind",
        orders=SOME,
    )


def test_prefix_axes_and_aux():
    """A prefix pytree of axes; the auxiliary output is compared too."""

    def layer(params, x):
        hidden = x @ params["w"] + params["b"]
        return hidden.sum(), {"hidden": hidden}

    check_transforms(
        layer,
        {"w": ramp(3, 2), "b": ramp(4, 2)},
        ramp(4, 3),
        in_axes=({"w": None, "b": 0}, 0),
        has_aux=True,
        orders=SOME,
    )


def test_a_long_batch_is_checked_on_some_of_its_rows():
    """A batch of a thousand rows costs what a batch of eight costs."""
    seen = []

    def fn(x):
        if not isinstance(x, jax.core.Tracer):
            seen.append(0)
        return x * 2.0

    with pytest.raises(AssertionError):  # the list makes it impure
        check_transforms(fn, jnp.ones(1000), in_axes=0, orders="vmap")
    assert len(seen) < 20
