"""One way to leak a tracer per test. ``test_after.py`` has the mended twin of each, same name."""

import contextvars
import functools
import logging
import threading
import weakref
from typing import Any
from unittest import mock

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

HISTORY = {}


def test_module_variable():
    @jax.jit
    def step(x):
        HISTORY["mean"] = x.mean()
        return x * 2

    step(jnp.ones(3))


class Model:
    last: Any = None

    def __init__(self):
        self.cache = []

    def __call__(self, x):
        self.cache.append(x * 2)
        return x


def test_attribute():
    model = Model()
    jax.jit(model)(jnp.ones(3))


def test_class_attribute():
    @jax.jit
    def step(x):
        Model.last = x + 1
        return x

    step(jnp.ones(3))


class Lens:
    def __init__(self, scale):
        self.scale = scale

    @functools.cached_property
    def table(self):
        return jnp.arange(4.0) * self.scale


def test_cached_property():
    lens = Lens(2.0)
    jax.jit(lambda x: x + lens.table)(jnp.ones(4))


def test_function_attribute():
    @jax.jit
    def step(x):
        scale.last = x
        return x

    def scale(x):
        return x

    step(jnp.ones(3))


def test_local_variable():
    seen = []

    @jax.jit
    def step(x):
        seen.append(x * 2)
        return x

    step(jnp.ones(3))


def test_nonlocal_variable():
    total = 0.0

    @jax.jit
    def step(x):
        nonlocal total
        total = total + x.sum()
        return x

    step(jnp.ones(3))


@functools.lru_cache
def table(n):
    return jnp.arange(float(n))


def test_lru_cache():
    jax.jit(lambda x: x + table(3))(jnp.ones(3))


def test_closure():
    hooks = []

    @jax.jit
    def step(x):
        scale = x.max()
        hooks.append(lambda y: y * scale)
        return x

    step(jnp.ones(3))


def remember(x, seen=[]):  # noqa: B006
    seen.append(x)
    return x


def test_default_argument():
    jax.jit(remember)(jnp.ones(3))


def test_default_value():
    hooks = []

    def step(x):
        hooks.append(lambda scale, y=x * 2: y * scale)
        return x

    jax.jit(step)(jnp.ones(3))


def test_finalizer():
    batch = Model()
    jax.jit(lambda x: (weakref.finalize(batch, print, x), x)[1])(jnp.ones(3))


class Layer(eqx.Module):
    weight: jax.Array
    scale: Any = eqx.field(static=True)


@pytest.mark.filterwarnings("ignore:A JAX array is being set as static")
def test_static_field():
    layer = eqx.filter_jit(lambda w: Layer(w, w.max()))(jnp.ones(3))
    assert layer.weight.shape == (3,)


@jax.tree_util.register_pytree_node_class
class Scaled:
    def __init__(self, values, scale):
        self.values, self.scale = values, scale

    def tree_flatten(self):
        return (self.values,), self.scale

    @classmethod
    def tree_unflatten(cls, scale, children):
        return cls(*children, scale)


def test_aux_data():
    scaled = jax.jit(lambda x: Scaled(x, x.max()))(jnp.ones(3))
    assert scaled.values.shape == (3,)


def test_tree_structure():
    structures = []

    @jax.jit
    def step(x):
        structures.append(jax.tree.structure(Scaled(x, x.max())))
        return x

    step(jnp.ones(3))
    assert structures[0].num_leaves == 1


def running_mean(x):
    total = x
    while True:
        yield total
        total = total + x


def test_generator():
    means = []

    @jax.jit
    def step(x):
        means.append(running_mean(x))
        return next(means[-1])

    step(jnp.ones(3))


TEMPERATURE = contextvars.ContextVar("temperature")


def test_context_variable():
    @jax.jit
    def step(x):
        TEMPERATURE.set(x.max())
        return x / TEMPERATURE.get()

    step(jnp.ones(3))


LOCAL = threading.local()


def test_thread_local():
    @jax.jit
    def step(x):
        LOCAL.scale = x.max()
        return x / LOCAL.scale

    step(jnp.ones(3))


class Records(logging.Handler):
    def __init__(self):
        super().__init__()
        self.records = []

    def emit(self, record):
        self.records.append(record)


def test_logging():
    log, handler = logging.Logger("training"), Records()
    log.addHandler(handler)

    @jax.jit
    def step(x):
        log.info("loss %s", x.sum())
        return x

    step(jnp.ones(3))


def test_mock():
    callback = mock.Mock()

    @jax.jit
    def step(x):
        callback(x)
        return x

    step(jnp.ones(3))
    assert callback.called


@pytest.fixture(scope="module")
def store():
    return {}


def test_fixture(store):
    @jax.jit
    def step(x):
        store["x"] = x
        return x

    step(jnp.ones(3))


@jax.tree_util.register_pytree_node_class
class Affine:
    def __init__(self, scale):
        self.scale = scale
        self.forward = self._forward

    def _forward(self, x):
        return self.scale * x

    def tree_flatten(self):
        return (self.scale,), self.forward

    @classmethod
    def tree_unflatten(cls, forward, children):
        self = object.__new__(cls)
        self.scale, self.forward = children[0], forward
        return self


def test_bound_method():
    affine = jax.jit(Affine)(jnp.ones(3))
    assert affine.scale.shape == (3,)


def test_object_array():
    table = np.empty(2, dtype=object)

    @jax.jit
    def step(x):
        table[0] = x
        return x

    step(jnp.ones(3))


class StepError(Exception):
    pass


class Runner:
    error = None

    def run(self, x):
        try:
            raise StepError(x.sum())
        except StepError as error:
            self.error = error
        return x


def test_exception():
    runner = Runner()
    jax.jit(runner.run)(jnp.ones(3))


def test_thread_pool():
    from concurrent.futures import ThreadPoolExecutor

    with ThreadPoolExecutor(1) as pool:
        futures = []

        @jax.jit
        def step(x):
            futures.append(pool.submit(lambda: x))
            return x

        step(jnp.ones(3))


def test_equinox_state():
    norm, state = eqx.nn.make_with_state(eqx.nn.BatchNorm)(3, "batch")
    states = [state]

    @eqx.filter_jit
    def step(norm, x):
        y, states[0] = jax.vmap(norm, (0, None), (0, None), axis_name="batch")(x, states[0])
        return y

    step(norm, jnp.ones((4, 3)))


class Trainer:
    def __init__(self, optimizer, params):
        self.optimizer = optimizer
        self.opt_state = optimizer.init(params)

    def step(self, params, gradient):
        updates, self.opt_state = self.optimizer.update(gradient, self.opt_state, params)
        return updates


def test_optimizer_state():
    optax = pytest.importorskip("optax")
    params = jnp.ones(3)
    trainer = Trainer(optax.adam(1e-3), params)
    jax.jit(trainer.step)(params, params)


def test_random_key():
    keys = {"key": jax.random.key(0)}

    @jax.jit
    def step(x):
        keys["key"], key = jax.random.split(keys["key"])
        return x + jax.random.normal(key, x.shape)

    step(jnp.ones(3))


def test_distrax_distribution():
    distrax = pytest.importorskip("distrax")
    normal = jax.jit(lambda x: distrax.MultivariateNormalDiag(loc=x))(jnp.ones(3))
    assert normal.loc.shape == (3,)


def test_distrax_lambda():
    distrax = pytest.importorskip("distrax")

    @jax.jit
    def make(x):
        shift = distrax.Lambda(lambda y: y + x)
        return distrax.Transformed(distrax.Normal(x, x), shift)

    kept = make(jnp.ones(3))
    assert kept.event_shape == ()


def test_tfp_bijector():
    substrates = pytest.importorskip("tensorflow_probability.substrates")
    tanh = substrates.jax.bijectors.Tanh()
    log_det = jax.jit(lambda x: tanh.forward_log_det_jacobian(x, 0))
    assert log_det(jnp.ones(3)).shape == (3,)


def test_tfp_parameter():
    substrates = pytest.importorskip("tensorflow_probability.substrates")
    scaled = jax.jit(lambda x: substrates.jax.bijectors.Scale(x).forward(x))
    assert scaled(jnp.ones(3)).shape == (3,)


def test_numpyro_guide():
    numpyro = pytest.importorskip("numpyro")
    from numpyro.infer.autoguide import AutoNormal

    def model(x):
        with numpyro.plate("data", 3):
            numpyro.sample("z", numpyro.distributions.Normal(x, 1.0))

    guide = AutoNormal(model)
    svi = numpyro.infer.SVI(model, guide, numpyro.optim.Adam(0.1), numpyro.infer.Trace_ELBO())
    jax.jit(svi.init)(jax.random.key(0), jnp.ones(3))


def test_numpyro_trace():
    numpyro = pytest.importorskip("numpyro")

    def model(x):
        return numpyro.sample("z", numpyro.distributions.Normal(x, 1.0))

    tracer = numpyro.handlers.trace(numpyro.handlers.seed(model, jax.random.key(0)))
    jax.jit(lambda x: tracer(x))(jnp.ones(3))


def test_flax_module():
    nn = pytest.importorskip("flax.linen")
    bound = []
    net = nn.Dense(2)
    params = net.init(jax.random.key(0), jnp.ones((1, 3)))

    @jax.jit
    def step(params, x):
        bound.append(net.bind(params))
        return bound[-1](x)

    step(params, jnp.ones((1, 3)))


def test_flax_nnx():
    nnx = pytest.importorskip("flax.nnx")
    made = []

    @jax.jit
    def grow(key):
        layer = nnx.Linear(1, 2, rngs=nnx.Rngs(key))
        made.append(layer)
        return layer(jnp.ones((3, 1)))

    grow(jax.random.key(0))
