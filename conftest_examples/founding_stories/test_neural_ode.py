"""A batched gradient through a differential equation, and a model that stores what it sees."""

import equinox as eqx
import jax
import jax.numpy as jnp
from jax.experimental.ode import odeint


class NeuralODE(eqx.Module):
    rate: jax.Array

    def __call__(self, ts, y0):
        return odeint(lambda y, t: -self.rate * y, y0, ts)


class StoringODE(NeuralODE):
    cache: list = eqx.field(static=True)

    def __call__(self, ts, y0):
        self.cache.append(y0)
        return odeint(lambda y, t: -self.rate * y, y0, ts)


@eqx.filter_value_and_grad
def grad_loss_batch(model, ti, yi):
    y_pred = jax.vmap(model, (None, 0))(ti, yi[:, 0])
    return jnp.mean((yi - y_pred) ** 2)


TS = jnp.linspace(0.0, 1.0, 10)
YS = jnp.ones_like(TS)[None, :, None]


def test_batched_gradient():
    model = NeuralODE(jnp.ones(()))
    loss = grad_loss_batch(model, TS, YS)[0]
    assert loss > 0


def test_batched_gradient_of_a_storing_model():
    model = StoringODE(jnp.ones(()), [])
    loss = grad_loss_batch(model, TS, YS)[0]
    assert loss > 0
