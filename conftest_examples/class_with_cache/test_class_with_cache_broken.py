"""A plain class, no framework, that memorizes a factor the first time it is needed."""

import jax
import jax.numpy as jnp


class Whitening:
    """Divides by the square root of a covariance matrix, which it factors only once."""

    def __init__(self, covariance):
        self.covariance = covariance
        self.factors = {}

    def factor(self, jitter):
        if jitter not in self.factors:
            eye = jnp.eye(len(self.covariance))
            self.factors[jitter] = jnp.linalg.cholesky(self.covariance + jitter * eye)
        return self.factors[jitter]

    def __call__(self, x, jitter=1e-3):
        return jnp.linalg.solve(self.factor(jitter), x)


def test_whitening_of_a_batch():
    whitening = Whitening(jnp.eye(2))
    assert jax.jit(jax.vmap(whitening))(jnp.ones((5, 2))).shape == (5, 2)
