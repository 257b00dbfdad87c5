"""A distribution that is returned from ``jit``, and breaks when it is used afterwards.

``MultivariateNormalDiag`` keeps a bound method of an inner bijector. Flattening does not see what a
bound method holds, so a traced value leaves the jitted function with it. Returning is fine; the
error comes with ``log_prob``, maybe in another file.
"""

import distrax
import jax
import jax.numpy as jnp


@jax.jit
def posterior(x):
    return distrax.MultivariateNormalDiag(loc=x, scale_diag=jnp.exp(x))


def test_posterior():
    distribution = posterior(jnp.zeros(3))
    assert distribution.event_shape == (3,)
