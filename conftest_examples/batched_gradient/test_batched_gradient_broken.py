"""A neural differential equation whose model stores what it was called with.

Both gradients come out right. That of one sample stores an array; that of a batch leaves a traced
value behind, because ``vmap`` traces the starting point.
"""

import equinox as eqx
import jax
import jax.numpy as jnp
import pytest


class Field:
    """A vector field and its solver. It remembers where it started, for a plot later on."""

    def __init__(self):
        self.cache = []

    def __call__(self, weight, ts, y0):
        self.cache.append(y0)  # under vmap, y0 is a traced value

        def step(y, dt):
            y = y + dt * jnp.tanh(weight * y)
            return y, y

        return jax.lax.scan(step, y0, jnp.diff(ts, prepend=0.0))[1]


class Model(eqx.Module):
    weight: jax.Array
    field: Field = eqx.field(static=True)

    def __call__(self, ts, y0):
        return self.field(self.weight, ts, y0)


@eqx.filter_value_and_grad
def grad_loss(model, ti, yi):
    y_pred = model(ti, yi[0])
    return jnp.mean((yi - y_pred) ** 2)


@eqx.filter_value_and_grad
def grad_loss_batch(model, ti, yi):
    y_pred = jax.vmap(model, (None, 0))(ti, yi[:, 0])
    return jnp.mean((yi - y_pred) ** 2)


@pytest.fixture
def model():
    return Model(jnp.asarray(0.5), Field())


@pytest.fixture
def ts():
    return jnp.linspace(0.0, 1.0, 10)


def test_one_sample(model, ts):
    loss, _ = grad_loss(model, ts, jnp.ones_like(ts)[:, None])
    assert jnp.isfinite(loss)


def test_batch(model, ts):
    loss, _ = grad_loss_batch(model, ts, jnp.ones_like(ts)[None, :, None])
    assert jnp.isfinite(loss)
