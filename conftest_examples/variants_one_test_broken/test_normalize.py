"""A Python side effect: the calls are counted while tracing, so the second is not counted.

``pytest`` reports that the two variants return different results; the mended twin is in
``variants_one_test``.
"""

import jax
import jax.numpy as jnp
import pytest


class Normalizer:
    def __init__(self):
        self.calls = 0

    def __call__(self, x):
        self.calls += 1
        return x / jnp.max(jnp.abs(x)), self.calls


@pytest.mark.jax_variants("jit", "nojit", compare=True)
def test_normalize(jax_record):
    normalize = jax.jit(Normalizer())
    normalize(jnp.array([1.0, 2.0]))
    jax_record(normalize(jnp.array([1.0, 4.0])))
