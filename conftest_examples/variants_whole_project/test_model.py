"""Functions, fixtures, parametrized tests and TestCase methods, each run once per variant."""

import unittest

import jax
import jax.numpy as jnp
import pytest


@jax.jit
def predict(weights, x):
    return jnp.tanh(weights @ x)


@pytest.fixture(scope="module")
def data():
    """Set up once, outside of every variant."""
    return jnp.linspace(-1.0, 1.0, 12).reshape(4, 3)


@pytest.fixture
def weights(jax_variant):
    """Set up for each test, inside its variant."""
    assert jax.config.jax_disable_jit == (jax_variant == "nojit")
    return jnp.ones((2, 3))


@pytest.mark.parametrize("row", [0, 3])
def test_predict(weights, data, row):
    assert predict(weights, data[row]).shape == (2,)


@pytest.mark.jax_variants("jit")
def test_is_traced_once(weights, data):
    """The marker overrides the project's list: this test is about tracing."""
    traced = []

    @jax.jit
    def double(x):
        traced.append(x.shape)
        return 2 * x

    double(data[0])
    double(data[1])
    assert traced == [(3,)]


class TestPredict(unittest.TestCase):
    def test_zero_weights(self):
        assert predict(jnp.zeros((1, 3)), jnp.ones(3))[0] == 0
