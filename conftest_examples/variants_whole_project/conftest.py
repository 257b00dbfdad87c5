"""Run every test under three variants: JAX as it is, JIT off, and one of the project's own."""

import jax

from pytest_jaxleaks import Variant


def pytest_jaxleaks_variants(config):
    return Variant(
        name="highest",
        mode=lambda: jax.default_matmul_precision("highest"),
        meaning="a matrix product is less precise than the test assumes",
    )
