"""Fails without any option: ``conftest.py`` marks each test of this folder."""

import jax
import jax.numpy as jnp

norms = []


@jax.jit
def normalize(x):
    norm = jnp.linalg.norm(x)
    norms.append(norm)
    return x / norm


def test_normalize():
    assert normalize(jnp.ones(4)).shape == (4,)
