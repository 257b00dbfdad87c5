"""Which line is told as the one that called the transformation."""

from __future__ import annotations

import equinox as eqx
import jax
import jax.numpy as jnp

from pytest_jaxleaks.jax_internals import record_of


def kept_by(transform) -> list:
    """Return what a batched function kept, called as ``transform`` calls it."""
    kept = []

    def batched(x):
        return jax.vmap(lambda row: (kept.append(row), row.sum())[1])(x).sum()

    transform(batched)(jnp.ones((2, 3)))  # the line that calls
    return kept


def test_the_caller_is_the_projects_line_behind_an_installed_wrapper() -> None:
    """The call inside of equinox is passed over for the line that called equinox."""
    record = record_of(kept_by(eqx.filter_grad)[0])
    assert record.caller is not None
    assert record.caller.function.endswith("kept_by")
    assert record.caller.path == __file__


def test_the_caller_is_the_line_that_called_jax() -> None:
    """Without a wrapper in between it is the same line."""
    record = record_of(kept_by(jax.grad)[0])
    assert record.caller is not None
    assert (record.caller.function, record.caller.path) == ("kept_by", __file__)
