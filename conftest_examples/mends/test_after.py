"""The mended twins of ``test_before.py``: no test here leaks, and each still does its work."""

import contextvars
import functools
import logging
import threading
import weakref
from concurrent.futures import ThreadPoolExecutor
from unittest import mock

import equinox as eqx
import jax
import jax.numpy as jnp
import pytest

HISTORY = {}


def test_module_variable():
    @jax.jit
    def step(x):
        return x * 2, x.mean()

    _, HISTORY["mean"] = step(jnp.ones(3))
    assert HISTORY["mean"] == 1


class Model:
    last = None

    def __init__(self):
        self.cache = []

    def __call__(self, x):
        return x, x * 2


def test_attribute():
    model = Model()
    _, doubled = jax.jit(model)(jnp.ones(3))
    model.cache.append(doubled)
    assert model.cache[0][0] == 2


def test_class_attribute():
    _, Model.last = jax.jit(lambda x: (x, x + 1))(jnp.ones(3))
    assert Model.last[0] == 2


class Lens:
    def __init__(self, scale):
        self.scale = scale

    @functools.cached_property
    def table(self):
        with jax.ensure_compile_time_eval():
            return jnp.arange(4.0) * self.scale


class LensWithProperty(Lens):
    @property
    def table(self):
        return jnp.arange(4.0) * self.scale


def test_cached_property():
    lens = Lens(2.0)
    assert jax.jit(lambda x: x + lens.table)(jnp.ones(4))[1] == 3


def test_cached_property_read_before():
    lens = LensWithProperty(2.0)
    table = lens.table
    assert jax.jit(lambda x: x + table)(jnp.ones(4))[1] == 3
    assert jax.jit(lambda x: x + lens.table)(jnp.ones(4))[1] == 3


def test_function_attribute():
    def scale(x):
        return x

    _, scale.last = jax.jit(lambda x: (scale(x), x))(jnp.ones(3))
    assert scale.last.shape == (3,)


def test_local_variable():
    seen = []

    @jax.jit
    def step(x):
        return x, x * 2

    seen.append(step(jnp.ones(3))[1])
    assert seen[0][0] == 2


def test_nonlocal_variable():
    @jax.jit
    def step(total, x):
        return total + x.sum(), x

    total, _ = step(0.0, jnp.ones(3))
    assert total == 3


@functools.lru_cache
def table(n):
    with jax.ensure_compile_time_eval():
        return jnp.arange(float(n))


def test_lru_cache():
    assert jax.jit(lambda x: x + table(3))(jnp.ones(3))[2] == 3


@functools.lru_cache
def numpy_table(n):
    import numpy as np

    return np.arange(float(n), dtype=np.float32)


def test_lru_cache_of_numpy():
    assert jax.jit(lambda x: x + numpy_table(3))(jnp.ones(3))[2] == 3


@functools.lru_cache
def warm_table(n):
    return jnp.arange(float(n))


def test_lru_cache_filled_before():
    warm_table(3)
    assert jax.jit(lambda x: x + warm_table(3))(jnp.ones(3))[2] == 3


def test_closure():
    @jax.jit
    def step(x):
        return x, x.max()

    _, scale = step(jnp.ones(3))
    hooks = [lambda y: y * scale]
    assert hooks[0](2.0) == 2


def remember(x, seen=None):
    seen = [] if seen is None else seen
    return x, [*seen, x]


def test_default_argument():
    _, seen = jax.jit(remember)(jnp.ones(3))
    assert len(seen) == 1


def test_default_value():
    hooks = []

    def step(x):
        return x, x * 2

    _, doubled = jax.jit(step)(jnp.ones(3))
    hooks.append(lambda scale, y=doubled: y * scale)
    assert hooks[0](2).tolist() == [4, 4, 4]


def test_finalizer():
    batch = Model()
    jax.jit(lambda x: (weakref.finalize(batch, print, x.shape), x)[1])(jnp.ones(3))
    y = jax.jit(lambda x: x + 1)(jnp.ones(3))
    weakref.finalize(batch, print, y)


class Layer(eqx.Module):
    weight: jax.Array
    scale: jax.Array


def test_static_field():
    layer = eqx.filter_jit(lambda w: Layer(w, w.max()))(jnp.ones(3))
    assert layer.scale == 1


class StaticLayer(eqx.Module):
    weight: jax.Array
    scale: float = eqx.field(static=True)


def test_static_field_of_python_number():
    weight = jnp.ones(3)
    layer = eqx.filter_jit(lambda w, scale: StaticLayer(w, scale))(weight, float(weight.max()))
    assert layer.scale == 1.0


@jax.tree_util.register_pytree_node_class
class Scaled:
    def __init__(self, values, scale):
        self.values, self.scale = values, scale

    def tree_flatten(self):
        return (self.values, self.scale), None

    @classmethod
    def tree_unflatten(cls, _, children):
        return cls(*children)


def test_aux_data():
    scaled = jax.jit(lambda x: Scaled(x, x.max()))(jnp.ones(3))
    assert scaled.scale == 1


def test_tree_structure():
    structures = []

    @jax.jit
    def step(x):
        structures.append(jax.tree.structure(Scaled(x, x.max())))
        return x

    step(jnp.ones(3))
    assert structures[0].num_leaves == 2


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
        first = next(means[-1])
        means[-1].close()
        return first

    assert step(jnp.ones(3))[0] == 1


TEMPERATURE = contextvars.ContextVar("temperature")


def test_context_variable():
    @jax.jit
    def step(x):
        token = TEMPERATURE.set(x.max())
        try:
            return x / TEMPERATURE.get()
        finally:
            TEMPERATURE.reset(token)

    assert step(jnp.ones(3))[0] == 1


LOCAL = threading.local()


def test_thread_local():
    @jax.jit
    def step(x):
        scale = x.max()
        return x / scale, scale

    _, LOCAL.scale = step(jnp.ones(3))
    assert LOCAL.scale == 1


class Records(logging.Handler):
    def __init__(self):
        super().__init__()
        self.records = []

    def emit(self, record):
        self.records.append(record)


def test_logging(capsys):
    log, handler = logging.Logger("training"), Records()
    log.addHandler(handler)

    @jax.jit
    def step(x):
        log.info("x has shape %s", x.shape)
        jax.debug.print("loss {}", x.sum())
        return x

    step(jnp.ones(3))
    jax.effects_barrier()
    assert "loss 3.0" in capsys.readouterr().out
    assert handler.records[0].getMessage() == "x has shape (3,)"


def test_mock():
    callback = mock.Mock()

    @jax.jit
    def step(x):
        callback(x.shape)
        return x

    step(jnp.ones(3))
    callback.assert_called_once_with((3,))


def test_mock_called_with_values():
    callback = mock.Mock(return_value=None)

    @jax.jit
    def step(x):
        jax.debug.callback(callback, x)
        return x

    step(jnp.ones(3))
    jax.effects_barrier()
    assert callback.call_args.args[0].shape == (3,)


def test_mock_reset():
    callback = mock.Mock()

    @jax.jit
    def step(x):
        callback(x)
        assert callback.called
        callback.reset_mock()
        return x

    step(jnp.ones(3))


@pytest.fixture(scope="module")
def store():
    return {}


def test_fixture(store):
    _, store["x"] = jax.jit(lambda x: (x, x))(jnp.ones(3))
    assert store["x"].shape == (3,)


@jax.tree_util.register_pytree_node_class
class Affine:
    def __init__(self, scale):
        self.scale = scale

    def forward(self, x):
        return self.scale * x

    def tree_flatten(self):
        return (self.scale,), None

    @classmethod
    def tree_unflatten(cls, _, children):
        self = object.__new__(cls)
        (self.scale,) = children
        return self


def test_bound_method():
    affine = jax.jit(Affine)(jnp.ones(3))
    assert affine.forward(2.0)[0] == 2


def test_object_array():
    @jax.jit
    def step(x):
        table = jnp.zeros((2, 3)).at[0].set(x)
        return jnp.stack([x, x]), table

    _, table = step(jnp.ones(3))
    assert table[0, 0] == 1


class StepError(Exception):
    pass


class Runner:
    error = None

    def run(self, x):
        try:
            raise StepError(f"shape {x.shape}")
        except StepError as error:
            self.error = str(error)
        return x


class RunnerThatKeepsErrors(Runner):
    def run(self, x):
        try:
            raise StepError(x.shape)
        except StepError as error:
            self.error = error.with_traceback(None)
        return x


@pytest.mark.parametrize("kind", [Runner, RunnerThatKeepsErrors])
def test_exception(kind):
    runner = kind()
    jax.jit(runner.run)(jnp.ones(3))
    assert runner.error is not None


def test_thread_pool():
    with ThreadPoolExecutor(1) as pool:
        x = jax.jit(lambda x: x)(jnp.ones(3))
        futures = [pool.submit(lambda: x)]
        assert futures[0].result().shape == (3,)


def test_equinox_state():
    norm, state = eqx.nn.make_with_state(eqx.nn.BatchNorm)(3, "batch")

    @eqx.filter_jit
    def step(norm, x, state):
        return jax.vmap(norm, (0, None), (0, None), axis_name="batch")(x, state)

    y, state = step(norm, jnp.ones((4, 3)), state)
    assert y.shape == (4, 3)


def test_optimizer_state():
    optax = pytest.importorskip("optax")
    optimizer, params = optax.adam(1e-3), jnp.ones(3)

    @jax.jit
    def step(params, opt_state):
        updates, opt_state = optimizer.update(params, opt_state, params)
        return optax.apply_updates(params, updates), opt_state

    opt_state = optimizer.init(params)
    params, opt_state = step(params, opt_state)
    assert opt_state[0].count == 1


def test_random_key():
    @jax.jit
    def step(key, x):
        key, used = jax.random.split(key)
        return key, x + jax.random.normal(used, x.shape)

    keys = {"key": jax.random.key(0)}
    keys["key"], _ = step(keys["key"], jnp.ones(3))


def test_distrax_distribution():
    distrax = pytest.importorskip("distrax")
    loc = jax.jit(lambda x: 2 * x)(jnp.ones(3))
    normal = distrax.MultivariateNormalDiag(loc=loc)
    assert normal.log_prob(loc).shape == ()


def test_distrax_lambda():
    distrax = pytest.importorskip("distrax")
    x = jax.jit(lambda x: 2 * x)(jnp.ones(3))
    shift = distrax.Lambda(forward=lambda y: y + x, inverse=lambda y: y - x)
    shifted = distrax.Transformed(distrax.Normal(x, x), shift)
    assert shifted.sample(seed=jax.random.key(0)).shape == (3,)


def test_tfp_bijector():
    substrates = pytest.importorskip("tensorflow_probability.substrates")
    tanh = substrates.jax.bijectors.Tanh()

    @jax.jit
    def log_det(x):
        result = tanh.forward_log_det_jacobian(x, 0)
        tanh._cache.clear()
        return result

    assert log_det(jnp.ones(3)).shape == (3,)


def test_tfp_bijector_of_distrax():
    distrax = pytest.importorskip("distrax")
    log_det = jax.jit(lambda x: distrax.Tanh().forward_log_det_jacobian(x))
    assert log_det(jnp.ones(3)).shape == (3,)


def test_tfp_parameter():
    substrates = pytest.importorskip("tensorflow_probability.substrates")

    @jax.jit
    def scaled(x):
        scale = substrates.jax.bijectors.Scale(x)
        result = scale.forward(x)
        scale._cache.clear()
        return result

    assert scaled(jnp.ones(3)).shape == (3,)


def test_numpyro_guide():
    numpyro = pytest.importorskip("numpyro")
    from numpyro.infer.autoguide import AutoNormal

    def model(x):
        with numpyro.plate("data", 3):
            numpyro.sample("z", numpyro.distributions.Normal(x, 1.0))

    guide = AutoNormal(model)
    svi = numpyro.infer.SVI(model, guide, numpyro.optim.Adam(0.1), numpyro.infer.Trace_ELBO())
    state = svi.init(jax.random.key(0), jnp.ones(3))
    _, loss = jax.jit(svi.update)(state, jnp.ones(3))
    assert loss.shape == ()


def test_numpyro_trace():
    numpyro = pytest.importorskip("numpyro")

    def model(x):
        return numpyro.sample("z", numpyro.distributions.Normal(x, 1.0))

    @jax.jit
    def sites(x):
        seeded = numpyro.handlers.seed(model, jax.random.key(0))
        return numpyro.handlers.trace(seeded).get_trace(x)["z"]["value"]

    assert sites(jnp.ones(3)).shape == (3,)


def test_flax_module():
    nn = pytest.importorskip("flax.linen")

    class Net(nn.Module):
        @nn.compact
        def __call__(self, x):
            x = nn.Dense(2)(x)
            self.sow("intermediates", "hidden", x)
            return x

    net = Net()
    params = net.init(jax.random.key(0), jnp.ones((1, 3)))
    apply = jax.jit(functools.partial(net.apply, mutable=["intermediates"]))
    _, extra = apply({"params": params["params"]}, jnp.ones((1, 3)))
    assert extra["intermediates"]["hidden"][0].shape == (1, 2)


def test_flax_nnx():
    nnx = pytest.importorskip("flax.nnx")
    made = []

    @jax.jit
    def grow(key):
        layer = nnx.Linear(1, 2, rngs=nnx.Rngs(key))
        graph, state = nnx.split(layer)
        return layer(jnp.ones((3, 1))), graph, state

    out, graph, state = grow(jax.random.key(0))
    made.append(nnx.merge(graph, state))
    assert jnp.allclose(made[0](jnp.ones((3, 1))), out)
