"""A distribution that cannot be returned from jit."""

import distrax
import jax
import jax.numpy as jnp


def test_distribution_from_jit():
    @jax.jit
    def f(x):
        return distrax.MultivariateNormalDiag(loc=jnp.sin(x))

    dist = f(jnp.ones(3))
    assert dist.loc.shape == (3,)


def test_parameters_from_jit():
    loc = jax.jit(jnp.sin)(jnp.ones(3))
    dist = distrax.MultivariateNormalDiag(loc=loc)
    assert dist.log_prob(loc).shape == ()
