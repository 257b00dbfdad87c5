"""A random key that belongs to the module and is split wherever randomness is needed."""

import jax
import jax.numpy as jnp

KEY = jax.random.key(0)


def next_key():
    global KEY
    KEY, key = jax.random.split(KEY)
    return key


@jax.jit
def dropout(x):
    return x * jax.random.bernoulli(next_key(), 0.5, x.shape)


def test_dropout():
    assert dropout(jnp.ones(4)).shape == (4,)
