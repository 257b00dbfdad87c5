"""The twin of ``test_batched_gradient_broken.py``: the model hands out what it used to store."""

import equinox as eqx
import jax
import jax.numpy as jnp
import pytest


class Field:
    """A vector field and its solver, without memory."""

    def __call__(self, weight, ts, y0):
        def step(y, dt):
            y = y + dt * jnp.tanh(weight * y)
            return y, y

        return jax.lax.scan(step, y0, jnp.diff(ts, prepend=0.0))[1]


class Model(eqx.Module):
    weight: jax.Array
    field: Field = eqx.field(static=True)

    def __call__(self, ts, y0):
        return self.field(self.weight, ts, y0), y0


@eqx.filter_value_and_grad(has_aux=True)
def grad_loss(model, ti, yi):
    y_pred, start = model(ti, yi[0])
    return jnp.mean((yi - y_pred) ** 2), start


@eqx.filter_value_and_grad(has_aux=True)
def grad_loss_batch(model, ti, yi):
    y_pred, starts = jax.vmap(model, (None, 0))(ti, yi[:, 0])
    return jnp.mean((yi - y_pred) ** 2), starts


@pytest.fixture
def model():
    return Model(jnp.asarray(0.5), Field())


@pytest.fixture
def ts():
    return jnp.linspace(0.0, 1.0, 10)


def test_one_sample(model, ts):
    (loss, start), _ = grad_loss(model, ts, jnp.ones_like(ts)[:, None])
    assert jnp.isfinite(loss)
    assert start.shape == (1,)


def test_batch(model, ts):
    (loss, starts), _ = grad_loss_batch(model, ts, jnp.ones_like(ts)[None, :, None])
    assert jnp.isfinite(loss)
    assert starts.shape == (1, 1)
