"""Which distributions and bijectors survive as pytrees, for distrax and numpyro.

``pytest test_pytree_distributions.py`` checks each; ``python test_pytree_distributions.py`` prints
the table of the documentation. It takes minutes: the samplers of a hundred distributions compile.
"""

import functools
import sys
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from pytest_jaxleaks import PytreeCheckError, PytreeReport, check_pytree

distrax = pytest.importorskip("distrax")
dist = pytest.importorskip("numpyro.distributions")

V = jnp.array([0.25, 0.5, 0.75])
EYE = jnp.eye(3)
ZERO, ONE = jnp.zeros(()), jnp.ones(())


@functools.cache
def distrax_distributions() -> dict[str, Any]:
    normal = distrax.Normal(V, V)
    found = [
        distrax.Bernoulli(logits=V),
        distrax.Beta(V, V),
        distrax.Categorical(logits=V),
        distrax.CategoricalUniform(low=ZERO, high=ONE, logits=V),
        distrax.Clipped(normal, -1.0, 1.0),
        distrax.ClippedLogistic(V, V, -1.0, 1.0),
        distrax.ClippedNormal(V, V, -1.0, 1.0),
        distrax.Deterministic(V),
        distrax.Dirichlet(V),
        distrax.EpsilonGreedy(V, 0.1),
        distrax.Gamma(V, V),
        distrax.Greedy(V),
        distrax.Gumbel(V, V),
        distrax.Independent(normal, 1),
        distrax.Joint({"a": normal, "b": distrax.Normal(V, 2 * V)}),
        distrax.Laplace(V, V),
        distrax.LogStddevNormal(V, V),
        distrax.Logistic(V, V),
        distrax.MixtureOfTwo(ONE / 3, normal, distrax.Normal(V, 2 * V)),
        distrax.MixtureSameFamily(distrax.Categorical(logits=V), normal),
        distrax.Multinomial(5, logits=V),
        distrax.MultivariateNormalDiag(V, V),
        distrax.MultivariateNormalDiagPlusLowRank(V, V, jnp.ones((3, 1))),
        distrax.MultivariateNormalFromBijector(V, distrax.TriangularLinear(EYE)),
        distrax.MultivariateNormalFullCovariance(V, EYE),
        distrax.MultivariateNormalTri(V, EYE),
        distrax.Normal(V, V),
        distrax.OneHotCategorical(logits=V),
        distrax.Quantized(normal, 0.0, 3.0),
        distrax.Softmax(V),
        distrax.Transformed(normal, distrax.Tanh()),
        distrax.Uniform(V, V + 1),
        distrax.VonMises(V, V),
    ]
    named = {type(one).__name__: one for one in found}
    named["Transformed, Lambda of tanh"] = distrax.Transformed(normal, distrax.Lambda(jnp.tanh))
    named["Transformed, Lambda with a closure"] = transformed_by_a_closure(V)
    return named


def transformed_by_a_closure(shift: Any) -> Any:
    return distrax.Transformed(distrax.Normal(V, V), distrax.Lambda(lambda x: x + shift))


@functools.cache
def distrax_bijectors() -> dict[str, Any]:
    affine = distrax.ScalarAffine(V, V)
    ones = jnp.ones((3, 1))
    mask = np.array([True, False, True])

    def conditioned(parameters: Any) -> Any:
        return distrax.ScalarAffine(parameters, jnp.ones_like(parameters))

    found = [
        distrax.Block(affine, 1),
        distrax.Chain([distrax.Tanh(), affine]),
        distrax.DiagLinear(V),
        distrax.DiagPlusLowRankLinear(V, ones, ones),
        distrax.GumbelCDF(),
        distrax.Inverse(affine),
        distrax.Lambda(jnp.tanh),
        distrax.LowerUpperTriangularAffine(EYE, V),
        distrax.MaskedCoupling(mask, jnp.sin, conditioned),
        distrax.RationalQuadraticSpline(jnp.ones(10), 0.0, 1.0),
        affine,
        distrax.Shift(V),
        distrax.Sigmoid(),
        distrax.SplitCoupling(1, 1, jnp.sin, conditioned),
        distrax.Tanh(),
        distrax.TriangularLinear(EYE),
        distrax.UnconstrainedAffine(EYE, V),
    ]
    return {type(one).__name__: one for one in found}


@functools.cache
def numpyro_distributions() -> dict[str, Any]:
    normal = dist.Normal(V, V)
    found = [
        dist.AsymmetricLaplace(V, V, V),
        dist.Bernoulli(probs=V),
        dist.Bernoulli(logits=V),
        dist.Beta(V, V),
        dist.BetaBinomial(V, V, 5),
        dist.Binomial(5, probs=V),
        dist.CAR(V, ONE / 10, ONE, 1 - EYE),
        dist.Categorical(logits=V),
        dist.Cauchy(V, V),
        dist.Chi2(V),
        dist.Delta(V),
        dist.Dirichlet(V),
        dist.DirichletMultinomial(V, 5),
        dist.DiscreteUniform(0, 5),
        dist.Normal(0.0, 1.0).expand([3]),
        dist.Exponential(V),
        dist.Gamma(V, V),
        dist.GammaPoisson(V, V),
        dist.GaussianRandomWalk(ONE, 5),
        dist.Geometric(probs=V),
        dist.Gumbel(V, V),
        dist.HalfCauchy(V),
        dist.HalfNormal(V),
        dist.ImproperUniform(dist.constraints.real, (), (3,)),
        normal.to_event(1),
        dist.InverseGamma(V + 3, V),
        dist.Kumaraswamy(V, V),
        dist.LKJ(3, ONE),
        dist.LKJCholesky(3, ONE),
        dist.Laplace(V, V),
        dist.Levy(V, V),
        dist.LogNormal(V, V),
        dist.LogUniform(V, V + 1),
        dist.Logistic(V, V),
        dist.LowRankMultivariateNormal(V, jnp.ones((3, 1)), V),
        normal.mask(jnp.array([True, False, True])),
        dist.MatrixNormal(jnp.zeros((3, 3)), EYE, EYE),
        dist.MixtureGeneral(dist.Categorical(logits=V), [dist.Normal(0.0, 1.0)] * 3),
        dist.MixtureSameFamily(dist.Categorical(logits=V), normal),
        dist.Multinomial(5, probs=V / V.sum()),
        dist.MultivariateNormal(V, EYE),
        dist.MultivariateStudentT(3 * ONE, V, EYE),
        dist.NegativeBinomial2(V, V),
        normal,
        dist.OrderedLogistic(V, V),
        dist.Pareto(V, V),
        dist.Poisson(V),
        dist.RelaxedBernoulli(ONE, logits=V),
        dist.SoftLaplace(V, V),
        dist.StudentT(V + 3, V, V),
        dist.TransformedDistribution(normal, dist.transforms.AffineTransform(V, V)),
        dist.TruncatedCauchy(V, V, low=0.0),
        dist.TruncatedNormal(V, V, low=-1.0, high=1.0),
        dist.Uniform(V, V + 1),
        dist.Unit(V),
        dist.VonMises(V, V),
        dist.Weibull(V, V),
        dist.Wishart(4 * ONE, EYE),
        dist.ZeroInflatedPoisson(V, V),
    ]
    return {type(one).__name__: one for one in found}


GROUPS = {
    "distrax distribution": distrax_distributions,
    "distrax bijector": distrax_bijectors,
    "numpyro distribution": numpyro_distributions,
}

# The two bijectors are why the two multivariate normals break: they keep a bound method of an inner
# bijector, whose arrays JAX cannot see.
BROKEN = {
    "MultivariateNormalDiag",
    "MultivariateNormalDiagPlusLowRank",
    "Transformed, Lambda with a closure",
    "DiagLinear",
    "DiagPlusLowRankLinear",
}


def checked(obj: Any) -> PytreeReport:
    """Return the report of an object, whether it passes or not."""
    try:
        return check_pytree(obj)
    except PytreeCheckError as error:
        return error.report


def objects() -> list[Any]:
    return [
        pytest.param(group, name, id=f"{group.split()[0]}-{name.replace(' ', '_')}")
        for group, make in GROUPS.items()
        for name in make()
    ]


@pytest.mark.parametrize(("group", "name"), objects())
def test_object(group, name):
    obj = GROUPS[group]()[name]
    report = checked(obj)
    assert bool(report.broken) == (name in BROKEN), str(report)
    if group.startswith("distrax") and jax.tree.leaves(obj):
        symptoms = [text for finding in report.limits for text in finding.symptoms]
        assert any("jacfwd" in text for text in symptoms), "every distrax object has this limit"


def verdict(report: PytreeReport) -> str:
    """Return the last two columns of the table: what is broken, and the limits."""
    causes = "; ".join(finding.cause for finding in report.broken)
    limits = []
    for finding in report.limits:
        if finding.contract in ("placeholders", "through"):
            limits += [text.partition(":")[0] for text in finding.symptoms if ":" in text]
        else:
            limits.append(finding.contract)
    noted = ", ".join(dict.fromkeys(limits)) or "none"
    return f"{f'**broken**: {causes}' if causes else 'holds'} | {noted}"


def main() -> None:
    """Print the table: objects with the same verdict share a row."""
    print("| objects | verdict | limits |\n| --- | --- | --- |")
    for group, make in GROUPS.items():
        rows: dict[str, list[str]] = {}
        for name, obj in make().items():
            rows.setdefault(verdict(checked(obj)), []).append(name)
        for text, names in rows.items():
            print(f"| {group}: {', '.join(names)} | {text} |", flush=True)


if __name__ == "__main__":
    sys.exit(main())
