"""The twin of ``test_on_by_conftest_broken.py``: the norm is returned, and then stored."""

import jax
import jax.numpy as jnp

norms = []


@jax.jit
def normalize(x):
    norm = jnp.linalg.norm(x)
    return x / norm, norm


def test_normalize():
    y, norm = normalize(jnp.ones(4))
    norms.append(norm)
    assert y.shape == (4,)
