"""The twin of ``test_class_with_cache_broken.py``: the factor is made when the object is."""

import jax
import jax.numpy as jnp


class Whitening:
    """Divides by the square root of a covariance matrix, which it factors at once."""

    def __init__(self, covariance, jitter=1e-3):
        self.factor = jnp.linalg.cholesky(covariance + jitter * jnp.eye(len(covariance)))

    def __call__(self, x):
        return jnp.linalg.solve(self.factor, x)


def test_whitening_of_a_batch():
    whitening = Whitening(jnp.eye(2))
    assert jax.jit(jax.vmap(whitening))(jnp.ones((5, 2))).shape == (5, 2)
