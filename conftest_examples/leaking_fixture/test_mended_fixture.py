"""The mended twin: the traced function returns the mean, and the fixture stores what comes back."""

import jax
import jax.numpy as jnp
import pytest


class Statistics:
    def __init__(self):
        self.means = []

    def update(self, batch):
        mean = batch.mean()
        return batch - mean, mean


@pytest.fixture(scope="module")
def statistics():
    found = Statistics()
    _, mean = jax.jit(found.update)(jnp.arange(4.0))
    found.means.append(mean)
    return found


def test_one_update(statistics):
    assert float(statistics.means[0]) == 1.5


def test_is_shared(statistics):
    assert len(statistics.means) == 1
