"""The twin of ``test_returned_distribution_broken.py``: parameters leave ``jit``, no objects."""

import distrax
import jax
import jax.numpy as jnp


@jax.jit
def posterior_parameters(x):
    return {"loc": x, "scale_diag": jnp.exp(x)}


def test_posterior():
    distribution = distrax.MultivariateNormalDiag(**posterior_parameters(jnp.zeros(3)))
    assert distribution.event_shape == (3,)
    assert jnp.isfinite(distribution.log_prob(jnp.zeros(3)))
