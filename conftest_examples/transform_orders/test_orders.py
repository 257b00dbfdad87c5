"""A right function under every order: all at once, and one item per order."""

import jax
import jax.numpy as jnp
import pytest

from pytest_jaxleaks import check_transforms


def loss(params, x, y):
    hidden = jnp.tanh(x @ params["w"] + params["b"])
    return jnp.mean((hidden - y) ** 2)


PARAMS = {"w": jnp.linspace(-1.0, 1.0, 6).reshape(3, 2), "b": jnp.zeros(2)}
X = jax.random.normal(jax.random.key(0), (4, 3))
Y = jnp.zeros((4, 2))


def test_at_once():
    report = check_transforms(loss, PARAMS, X, Y, in_axes=(None, 0, 0), argnums=0)
    assert len(report.orders) == 15


@pytest.mark.jax_transforms(orders=["jit(vmap(grad))", "grad(vmap)"], in_axes=(None, 0, 0))
def test_one_item_per_order(jax_transform):
    jax_transform(loss, PARAMS, X, Y)
