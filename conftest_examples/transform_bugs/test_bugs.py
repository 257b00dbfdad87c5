"""Three functions that work eagerly and break under a transformation, each with its mended twin.

The broken ones are tested for the diagnosis, so that this file passes as it stands.
"""

import jax
import jax.numpy as jnp
import pytest

from pytest_jaxleaks import TransformCheckError, check_transforms

SHORT = ["jit", "vmap", "grad"]


def masked_mean(x):  # jit: the shape depends on values
    return x[x > 0].mean()


def masked_mean_mended(x):
    return jnp.sum(jnp.where(x > 0, x, 0.0)) / jnp.sum(x > 0)


def norm(x):  # grad: NaN at zero, from the branch that where discards
    s = jnp.sum(x**2)
    return jnp.where(s > 0, jnp.sqrt(s), 0.0)


def norm_mended(x):
    s = jnp.sum(x**2)
    return jnp.where(s > 0, jnp.sqrt(jnp.where(s > 0, s, 1.0)), 0.0)


@jax.custom_vjp
def cube(x):  # grad: the backward rule forgets the factor 3
    return x**3


cube.defvjp(lambda x: (x**3, x), lambda x, ct: (ct * x**2,))


@jax.custom_vjp
def cube_mended(x):
    return x**3


cube_mended.defvjp(lambda x: (x**3, x), lambda x, ct: (3 * ct * x**2,))


@pytest.mark.parametrize(
    ("fn", "x", "order", "kind"),
    [
        (masked_mean, jnp.array([1.0, -1.0]), "jit", "exception"),
        (norm, jnp.zeros(2), "grad", "nan gradient"),
        (cube, jnp.array(2.0), "grad", "gradient"),
    ],
)
def test_broken(fn, x, order, kind):
    with pytest.raises(TransformCheckError) as caught:
        check_transforms(fn, x, orders=SHORT)
    assert (caught.value.order, caught.value.kind) == (order, kind)


@pytest.mark.parametrize(
    ("fn", "x"),
    [
        (masked_mean_mended, jnp.array([1.0, -1.0])),
        (norm_mended, jnp.zeros(2)),
        (cube_mended, jnp.array(2.0)),
    ],
)
def test_mended(fn, x):
    check_transforms(fn, x, orders=SHORT)
