"""The twin of ``test_module_level_key_broken.py``: the key goes in as an argument."""

import jax
import jax.numpy as jnp

KEY = jax.random.key(0)


@jax.jit
def dropout(x, key):
    return x * jax.random.bernoulli(key, 0.5, x.shape)


def test_dropout():
    first, second = jax.random.split(KEY)
    assert dropout(jnp.ones(4), first).shape == (4,)
    assert dropout(jnp.ones(4), second).shape == (4,)
