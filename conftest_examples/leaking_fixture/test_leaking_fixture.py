"""A fixture that leaks is blamed by name and scope, once; the tests that use it are not.

``pytest --jax-leaks`` reports ``fixture 'statistics' (module scope)`` for the first such test.
"""

import jax
import jax.numpy as jnp
import pytest


class Statistics:
    def __init__(self):
        self.means = []

    def update(self, batch):
        mean = batch.mean()
        self.means.append(mean)
        return batch - mean


@pytest.fixture(scope="module")
def statistics():
    found = Statistics()
    jax.jit(found.update)(jnp.arange(4.0))
    return found


def test_one_update(statistics):
    assert len(statistics.means) == 1


def test_is_shared(statistics):
    assert statistics.means
