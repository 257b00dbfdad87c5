"""Structures, states and modules of flax are healthy."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import optax
import pytest

from pytest_jaxleaks import check_pytree

flax = pytest.importorskip("flax")
linen = pytest.importorskip("flax.linen")
nnx = pytest.importorskip("flax.nnx")
train_state = pytest.importorskip("flax.training.train_state")

X = jnp.array([1.0, 2.0, 3.0])


@flax.struct.dataclass
class Struct:
    """A flax structure with a static field."""

    w: Any
    size: int = flax.struct.field(pytree_node=False)


def test_struct() -> None:
    """A flax structure has no finding at all."""
    assert check_pytree(Struct(X, 3), probe=lambda struct: struct.w * struct.size).findings == ()


def test_frozen_dict() -> None:
    """A frozen dict of parameters has no finding at all."""
    assert check_pytree(flax.core.freeze({"params": {"w": X}})).findings == ()


def test_nnx_module() -> None:
    """A module of nnx is a healthy pytree."""
    model = nnx.Linear(2, 3, rngs=nnx.Rngs(0))
    assert check_pytree(model, probe=lambda layer: layer(jnp.ones(2))).broken == ()


def test_train_state() -> None:
    """The bound method in a training state is a limit: only its deep copy differs from it."""
    model = linen.Dense(2)
    params = model.init(jax.random.PRNGKey(0), X)["params"]
    state = train_state.TrainState.create(apply_fn=model.apply, params=params, tx=optax.adam(1e-3))
    report = check_pytree(state, probe=lambda s: s.apply_fn({"params": s.params}, X))
    (limit,) = report.limits
    assert report.broken == ()
    assert "bound method apply of Dense" in limit.cause
    assert limit.symptoms[0].startswith("after deepcopy")
