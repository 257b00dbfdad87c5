"""Distributions and bijectors of distrax and numpyro: the broken ones, and no others."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import distrax
import jax
import jax.numpy as jnp
import numpyro.distributions as dist
import pytest

from pytest_jaxleaks import PytreeCheckError, PytreeReport, check_pytree
from pytest_jaxleaks.probes import default_probe

if TYPE_CHECKING:
    from collections.abc import Callable

X = jnp.array([0.25, 0.5, 0.75])


def report_of(obj: Any) -> PytreeReport:
    """Return the report of an object, whether it passes or not."""
    try:
        return check_pytree(obj)
    except PytreeCheckError as error:
        return error.report


def transformed_by_a_closure(shift: Any) -> Any:
    """Return a distribution whose bijector closes over its argument."""
    return distrax.Transformed(distrax.Normal(shift, shift), distrax.Lambda(lambda x: x + shift))


BROKEN: dict[str, tuple[Callable[[Any], Any], str]] = {
    "MultivariateNormalDiag": (
        lambda x: distrax.MultivariateNormalDiag(x, x),
        "MultivariateNormalDiag._scale -> DiagLinear.forward -> bound method 'forward' of Block "
        "-> Block._bijector -> ScalarAffine._scale",
    ),
    "MultivariateNormalDiagPlusLowRank": (
        lambda x: distrax.MultivariateNormalDiagPlusLowRank(x, x, jnp.ones((3, 1))),
        "bound method 'forward' of Chain",
    ),
    "Transformed": (
        transformed_by_a_closure,
        "Lambda._forward -> closure variable 'shift' of transformed_by_a_closure.<lambda>",
    ),
    "DiagLinear": (distrax.DiagLinear, "DiagLinear.forward -> bound method 'forward' of Block"),
}


def use(obj: Any) -> Any:
    """Use a distribution or a bijector."""
    if isinstance(obj, distrax.Distribution):
        return obj.sample(seed=jax.random.PRNGKey(0))
    return obj.forward(X)


@pytest.mark.parametrize("name", BROKEN)
def test_broken_distrax_object(name: str) -> None:
    """An object that breaks when it leaves jit is found before, and the chain names why."""
    make, chain = BROKEN[name]
    with pytest.raises(jax.errors.UnexpectedTracerError):
        use(jax.jit(make)(X))
    report = report_of(make(X))
    assert {finding.contract for finding in report.broken} == {"nothing-hides"}
    assert chain in report.broken[0].cause


def test_symptoms_of_a_closure_are_one_finding() -> None:
    """Built again, a closure makes another treedef and keeps a tracer: one finding all the same."""
    with pytest.raises(PytreeCheckError) as info:
        check_pytree(transformed_by_a_closure(X), build=transformed_by_a_closure, args=(X,))
    (finding,) = info.value.report.broken
    assert finding.contracts == ("nothing-hides", "treedef")
    assert any(text.startswith("built inside jit") for text in finding.symptoms)
    assert any(text.startswith("built twice") for text in finding.symptoms)


@pytest.mark.parametrize("name", BROKEN)
def test_broken_distrax_object_from_jit(name: str) -> None:
    """The object that jit returned is broken for the same reason: it holds a tracer."""
    make, chain = BROKEN[name]
    report = report_of(jax.jit(make)(X))
    assert chain in report.broken[0].cause
    assert any("tracer" in text for text in report.broken[0].symptoms)


HEALTHY: dict[str, Callable[[Any], Any]] = {
    "Bernoulli": lambda x: distrax.Bernoulli(logits=x),
    "Categorical": lambda x: distrax.Categorical(logits=x),
    "Independent": lambda x: distrax.Independent(distrax.Normal(x, x), 1),
    "MultivariateNormalTri": lambda x: distrax.MultivariateNormalTri(x, jnp.eye(3)),
    "Normal": lambda x: distrax.Normal(x, x),
    "Transformed": lambda x: distrax.Transformed(distrax.Normal(x, x), distrax.Tanh()),
    "Shift": distrax.Shift,
    "Chain": lambda x: distrax.Chain([distrax.Tanh(), distrax.ScalarAffine(x, x)]),
}


@pytest.mark.parametrize("name", HEALTHY)
def test_healthy_distrax_object(name: str) -> None:
    """An object that works when it leaves jit has only limits: jacfwd and anonymous key paths."""
    assert jnp.all(jnp.isfinite(use(jax.jit(HEALTHY[name])(jnp.ones(3) / 2))))
    report = report_of(HEALTHY[name](X))
    assert report.broken == ()
    assert [finding.contract for finding in report.limits] == ["placeholders", "key-paths"]
    by_type = report.limits[0]
    assert "tells leaves from static fields by their type" in by_type.cause
    assert any("jacfwd" in text for text in by_type.symptoms)


def test_jacfwd_limit_fails_on_demand() -> None:
    """A limit is breakage when the caller asks for that transformation."""
    with pytest.raises(PytreeCheckError) as info:
        check_pytree(distrax.Normal(X, X), through=["jit", "jacfwd"])
    (finding,) = info.value.report.broken
    assert "by their type" in finding.cause
    assert any(text.startswith("jacfwd: ValueError: safe_zip()") for text in finding.symptoms)


@pytest.mark.parametrize("bijector", [distrax.Tanh(), distrax.Sigmoid(), distrax.GumbelCDF()])
def test_bijector_without_arrays_has_no_jacfwd_limit(bijector: Any) -> None:
    """It comes back from jacfwd as it is; what JAX refuses, it refuses for an empty list, too."""
    texts = [text for finding in check_pytree(bijector).limits for text in finding.symptoms]
    assert not any("jacfwd" in text for text in texts)
    assert type(jax.jacfwd(lambda _: bijector)(X)) is type(bijector)
    for empty in (bijector, []):
        with pytest.raises(ValueError, match="at least one array"):
            jax.jacfwd(lambda _: X)(empty)


def test_use_that_changes_the_treedef() -> None:
    """A Lambda keeps the inverse that it derives on first use: noted, and not broken."""
    report = report_of(distrax.Transformed(distrax.Normal(X, X), distrax.Lambda(jnp.tanh)))
    assert report.broken == ()
    assert any("using Transformed changes its treedef" in f.cause for f in report.limits)


NUMPYRO: dict[str, Callable[[Any], Any]] = {
    "Categorical": lambda x: dist.Categorical(logits=x),
    "Independent": lambda x: dist.Normal(x, x).to_event(1),
    "Expanded": lambda _: dist.Normal(0.0, 1.0).expand([3]),
    "MultivariateNormal": lambda x: dist.MultivariateNormal(x, jnp.eye(3)),
    "TransformedDistribution": lambda x: dist.LogNormal(x, x),
    "Uniform": lambda x: dist.Uniform(x, x + 1),
    "ImproperUniform": lambda _: dist.ImproperUniform(dist.constraints.real, (), (3,)),
    "transform": lambda x: dist.transforms.AffineTransform(x, x),
}


@pytest.mark.parametrize("name", NUMPYRO)
def test_numpyro_object(name: str) -> None:
    """Distributions and transforms of numpyro hold the contract."""
    assert report_of(NUMPYRO[name](X)).broken == ()


def test_default_probes() -> None:
    """Distributions, bijectors, transforms and callable modules have a probe, containers none."""
    import equinox as eqx

    for obj in (
        distrax.Normal(X, X),
        distrax.Tanh(),
        distrax.Block(distrax.ScalarAffine(X, X), 1),
        dist.Normal(X, X),
        dist.transforms.ExpTransform(),
        eqx.nn.Linear(3, 2, key=jax.random.key(0)),
        eqx.nn.Conv2d(1, 2, 3, key=jax.random.key(0)),
    ):
        probe = default_probe(obj)
        assert probe is not None, obj
        assert all(jnp.all(jnp.isfinite(leaf)) for leaf in jax.tree.leaves(probe(obj)))
    assert default_probe({"w": X}) is None
    assert default_probe(dist.ImproperUniform(dist.constraints.real, (), (3,))) is None


def test_tfp_distribution_is_sampled() -> None:
    """A distribution of TFP on JAX has a probe too."""
    import tensorflow_probability.substrates.jax as tfp

    probe = default_probe(tfp.distributions.Normal(X, X))
    assert probe is not None
    sample, density = probe(tfp.distributions.Normal(X, X))
    assert sample.shape == density.shape == (3,)
