"""Wrong functions: each fails in its smallest order, with the right diagnosis."""

from __future__ import annotations

import dataclasses
import functools
import random

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from pytest_jaxleaks import TransformCheckError, check_transforms

SHORT = ["jit", "vmap", "grad"]


def failure_of(fn, *args, **options):
    """Return the error that a check of ``fn`` raises."""
    with pytest.raises(TransformCheckError) as caught:
        check_transforms(fn, *args, **options)
    return caught.value


def kinds(error):
    """Return ``(order, kind)`` of every failure."""
    return [(failure.order, failure.kind) for failure in error.failures]


# rules


@jax.custom_vjp
def fourth_power(x):
    """A backward rule that forgets a factor."""
    return x**4


fourth_power.defvjp(lambda x: (x**4, x), lambda x, ct: (ct * x**3,))


@jax.custom_jvp
def wave(x):
    """A JVP rule with the wrong sign."""
    return jnp.cos(x)


wave.defjvp(lambda primals, tangents: (jnp.cos(*primals), jnp.sin(*primals) * tangents[0]))


@jax.custom_jvp
def bent(x):
    """A JVP rule that is not linear."""
    return jnp.exp(x)


bent.defjvp(lambda primals, tangents: (jnp.exp(*primals), tangents[0] * jnp.abs(tangents[0])))


@jax.custom_vjp
def one_bad_element(x):
    """A backward rule that is half of what it should be in one element."""
    return jnp.sin(x)


one_bad_element.defvjp(
    lambda x: (jnp.sin(x), x), lambda x, ct: ((ct * jnp.cos(x)).at[617].multiply(0.5),)
)


@jax.custom_vjp
def clipped_cotangent(x):
    """A backward rule that clips the cotangent, so that it is no pullback."""
    return 2.0 * x


clipped_cotangent.defvjp(lambda x: (2.0 * x, None), lambda _, ct: (2.0 * jnp.clip(ct, -1, 1),))


@pytest.mark.parametrize("fn", [fourth_power, wave])
def test_a_wrong_rule_is_told_from_differences(fn):
    """The gradient of a custom rule is compared with differences, and both numbers are shown."""
    error = failure_of(fn, jnp.float32(1.3), orders=SHORT)
    assert (error.order, error.kind) == ("grad", "gradient")
    assert error.failures[0].path == "x"
    step = 1e-4
    slope = (float(fn(np.float32(1.3 + step))) - float(fn(np.float32(1.3 - step)))) / (2 * step)
    assert error.failures[0].expected == pytest.approx(slope, rel=1e-2)


def test_one_wrong_element_among_a_thousand_is_found_and_named():
    """Tolerances are per element: half of one gradient in a thousand is named by its index."""
    x = jnp.linspace(0.1, 1.0, 1000)
    error = failure_of(one_bad_element, x, orders="grad")
    assert error.kind == "gradient"
    assert error.failures[0].index == (617,)
    assert "x[617]" in str(error)


def test_longer_orders_with_the_same_wrong_gradient_are_listed_with_it():
    """The smallest order carries the diagnosis; those that agree with it are named."""
    error = failure_of(fourth_power, jnp.float32(1.3))
    assert len(error.failures) == 1
    assert "10 longer orders agree with it and are as wrong" in str(error)


def test_a_rule_that_is_not_linear_in_the_tangent_is_named():
    """Reverse mode cannot transpose the rule; forward mode says why."""
    error = failure_of(bent, jnp.float32(0.3), orders="grad")
    assert ("grad", "nonlinear jvp") in kinds(error)
    assert "not linear in the tangent" in str(error)


def test_a_rule_that_is_not_linear_in_the_cotangent_is_named():
    """vmap(grad) and grad(vmap) would disagree; the pullback of a scaled cotangent shows it."""
    error = failure_of(clipped_cotangent, jnp.float32(0.3), orders="grad")
    assert (error.order, error.kind) == ("grad", "nonlinear vjp")


@jax.custom_jvp
def other_value(x):
    """A JVP rule whose derivative is right and whose value is not."""
    return jnp.tanh(x)


other_value.defjvp(
    lambda primals, tangents: (
        1.1 * jnp.tanh(*primals),
        tangents[0] * (1 - jnp.tanh(*primals) ** 2),
    )
)


@jax.custom_vjp
def residual_returned(x):
    """A fwd that returns its residual as the value."""
    return jnp.tanh(x)


residual_returned.defvjp(lambda x: (x, x), lambda x, ct: (ct * (1 - jnp.tanh(x) ** 2),))


@pytest.mark.parametrize(
    ("fn", "modes", "through"),
    [
        (other_value, None, "jax.value_and_grad"),
        (other_value, "fwd", "jax.jvp"),
        (residual_returned, None, "jax.value_and_grad"),
    ],
)
def test_a_rule_that_returns_another_value_than_the_function_is_named(fn, modes, through):
    """The gradient is right, and the loss that is reported with it is not."""
    error = failure_of(fn, jnp.array([0.3, 2.0]), orders="grad", modes=modes)
    assert kinds(error) == [("grad", "rule value")]
    assert f"{through} gives" in str(error)
    assert "the function itself 0.964028" in str(error)


def test_a_rule_may_compute_the_value_another_way():
    """What differs by rounding is the same value."""

    @jax.custom_jvp
    def squash(x):
        return jnp.tanh(x)

    @squash.defjvp
    def rule(primals, tangents):
        grown = jnp.exp(2 * primals[0])
        return (grown - 1) / (grown + 1), tangents[0] * (1 - jnp.tanh(primals[0]) ** 2)

    assert check_transforms(squash, jnp.array([0.3, 2.0]), orders="grad")


def test_a_custom_vjp_that_mistakes_its_batched_residuals():
    """A vmap rule that pairs rows with the wrong residual fails where vmap comes in."""

    @jax.custom_batching.custom_vmap
    def product(x, y):
        return x * y

    @product.def_vmap
    def rule(size, batched, x, y):
        return x * jnp.flip(y, 0), True

    error = failure_of(product, jnp.arange(1.0, 4.0), jnp.arange(4.0, 7.0), in_axes=0, orders=SHORT)
    assert (error.order, error.kind) == ("vmap", "value")


# gradients that lie


def test_the_where_trap_has_its_own_name():
    """A NaN gradient where the function is smooth is told apart from a wrong number."""

    def log_or_zero(x):
        return jnp.where(x > 0, x * jnp.log(x), 0.0).sum()

    error = failure_of(log_or_zero, jnp.array([0.5, -1.0]), orders="grad")
    assert (error.order, error.kind) == ("grad", "nan gradient")
    assert error.failures[0].index == (1,)
    assert "where trap" in str(error)


def test_a_nan_gradient_beside_a_smooth_branch_is_the_where_trap():
    """One side of the point is the branch that was chosen, and on the other the slope has no
    bound."""

    def log_or_zero(x):
        return jnp.where(x > 0, jnp.log(x), 0.0).sum()

    error = failure_of(log_or_zero, jnp.array([2.0, 0.0]), orders="grad")
    assert (error.order, error.kind) == ("grad", "nan gradient")
    assert "differences give 0: the where trap" in str(error)


@pytest.mark.parametrize(
    ("fn", "seen"),
    [
        (lambda v: jnp.where(jnp.hypot(*v) > 1e-6, v / jnp.linalg.norm(v), v), "differences give"),
        (lambda v: jnp.where((v == 0).all(), 0.0, jnp.arctan2(*v)), "jumps right beside the point"),
    ],
    ids=["guard with a small radius", "isolated value"],
)
def test_a_nan_gradient_inside_a_narrow_guard_is_the_where_trap(fn, seen):
    """The guarded branch is a small ball around the point, or the point alone."""
    error = failure_of(fn, jnp.zeros(2), orders="grad")
    assert (error.order, error.kind) == ("grad", "nan gradient")
    assert seen in str(error)


@pytest.mark.parametrize(
    "fn",
    [
        jnp.sqrt,
        lambda x: jnp.sqrt(jnp.abs(x)),
        lambda x: jnp.where(x == 0, 0.0, x * jnp.log(jnp.abs(x))),
        jax.scipy.special.entr,
    ],
)
def test_a_slope_without_bound_is_no_where_trap(fn):
    """Where differences have no limit, an infinite or undefined gradient is right."""
    assert check_transforms(fn, jnp.array([0.0, 2.0]), orders="grad")


@pytest.mark.parametrize(
    "fn",
    [
        lambda w: (jax.lax.stop_gradient(w) ** 2).sum(),
        lambda w: (jnp.floor(w * 8.0) ** 2).sum(),
        lambda w: (w.astype(int).astype(float) ** 2).sum(),
    ],
    ids=["stop_gradient", "floor", "integer cast"],
)
def test_a_gradient_that_is_silently_zero_is_named(fn):
    """Zero at small steps too (a staircase), or not: the value depends on the argument."""
    error = failure_of(fn, jnp.array([1.6, 2.7]), orders="grad")
    assert (error.order, error.kind) == ("grad", "zero gradient")
    assert "numeric=False" in str(error)


@pytest.mark.parametrize(
    "fn",
    [
        lambda w: jnp.clip(w, -1.0, 1.0).sum(),
        lambda w: jnp.where((w > 0) & (w < 99), 0.01, 0.0).sum(),
    ],
    ids=["saturated ramp", "uniform density"],
)
def test_what_is_flat_for_half_of_its_size_is_no_staircase(fn):
    """The gradient is zero, rightly: what changes the value is far away."""
    assert check_transforms(fn, jnp.array([16.0, 27.0]), orders="grad")


def test_a_wanted_zero_gradient_is_accepted_with_numeric_false():
    """Straight-through estimators and wanted stop_gradients are not compared with the values."""
    check_transforms(
        lambda w: w * jax.lax.stop_gradient(w), jnp.float32(2.0), numeric=False, orders=SHORT
    )


def test_while_loops_have_no_reverse_mode():
    """JAX's own error is shown, with a way to check forward mode only."""

    def doubled(x):
        return jax.lax.while_loop(lambda v: v < 10.0, lambda v: v * 2.0, x)

    error = failure_of(doubled, jnp.float32(1.5), orders=SHORT)
    assert (error.order, error.kind) == ("grad", "exception")
    assert "Reverse-mode differentiation" in str(error)
    assert "modes=('fwd',)" in str(error)


def test_an_integer_example_has_no_gradient():
    """Asked for a gradient with respect to integers, the error says what to give instead."""
    error = failure_of(lambda x: (x * x).sum() / 2, jnp.array([1, 2]), argnums=0, orders=SHORT)
    assert (error.order, error.kind) == ("grad", "exception")
    assert "1. instead of 1" in str(error)


# jit and vmap


def test_a_value_dependent_shape_fails_under_jit():
    """A boolean mask works eagerly only."""
    error = failure_of(lambda x: x[x > 0].sum(), jnp.array([-1.0, 1.0]), orders=SHORT)
    assert (error.order, error.kind) == ("jit", "exception")
    assert "jnp.where" in error.failures[0].hint


def test_python_control_flow_on_a_value_fails_under_jit():
    """The report shows the user's line."""

    def branch(x):
        if x > 0:
            return x
        return -x

    error = failure_of(branch, jnp.float32(1.0), orders="jit")
    assert "if x > 0" in str(error)
    assert "orders.py" not in str(error)


def test_numpy_instead_of_jax_numpy_fails_under_jit():
    """NumPy on a tracer raises, and the hint says what to use."""
    error = failure_of(lambda x: np.sin(np.asarray(x)), jnp.float32(1.0), orders="jit")
    assert error.kind == "exception"
    assert "jax.numpy" in str(error)


def test_a_dtype_that_only_tracing_gives_is_reported():
    """A branch on NumPy arrays keeps float64 outside of jit."""

    def scale(x):
        return x * np.float64(0.5) if isinstance(x, np.ndarray) else x * 0.5

    error = failure_of(scale, np.ones(3, np.float32), orders="jit")
    assert error.kind == "dtype"
    assert "float32, expected float64" in str(error)


def test_a_callback_that_reduces_over_the_batch_mixes_rows():
    """The second look with equal rows tells that rows influence one another."""

    def centred(x):
        shape = jax.ShapeDtypeStruct(x.shape, x.dtype)
        return jax.pure_callback(
            lambda v: np.asarray(v) - np.asarray(v).mean(dtype=np.float32),
            shape,
            x,
            vmap_method="expand_dims",
        )

    x = jnp.array([[1.0, 2.0], [5.0, 7.0], [0.0, 9.0]])
    error = failure_of(centred, x, in_axes=0, orders=["jit", "vmap"])
    assert (error.order, error.kind) == ("vmap", "value")
    assert "rows influence one another" in str(error)


def test_batch_statistics_that_mix_examples_fail_under_vmap():
    """A vmap rule that subtracts the batch's mean is not the function row by row."""

    @jax.custom_batching.custom_vmap
    def normalise(x):
        return x

    @normalise.def_vmap
    def rule(size, batched, x):
        return x - x.mean(0), True

    error = failure_of(normalise, jnp.arange(6.0).reshape(3, 2), in_axes=0, orders=["vmap"])
    assert (error.order, error.kind) == ("vmap", "value")
    assert "rows influence one another" in str(error)


def test_a_named_axis_has_no_meaning_for_one_example():
    """psum over a batch axis fails in the plain call, and the hint says why."""
    error = failure_of(lambda x: x - jax.lax.pmean(x, "batch"), jnp.ones(3), in_axes=0)
    assert (error.order, error.kind) == ("plain call", "exception")
    assert "mixes the examples" in str(error)


def test_wrong_in_axes_that_still_fit_show_the_types_of_one_row():
    """The plain call on a row fails; the report lists the arguments and doubts in_axes."""
    error = failure_of(lambda w, x: x @ w, jnp.ones((3, 2)), jnp.ones((3, 3)), in_axes=0)
    assert error.order == "plain call"
    assert "is that right?" in str(error)


@dataclasses.dataclass
class Sizes:
    """Has an ``__eq__``, and therefore no hash."""

    rows: int = 2


@pytest.mark.parametrize(
    ("sizes", "mend"),
    [
        ([2, 2], "pass a tuple"),
        (Sizes(), "frozen=True"),
        (np.array([2, 2]), "take it out of static_argnums"),
    ],
)
def test_unhashable_static_arguments_are_named(sizes, mend):
    """JAX's own error, the argument, and what has a hash."""
    error = failure_of(
        lambda x, sizes: x.reshape(getattr(sizes, "rows", 2), 2),
        jnp.ones(4), sizes, static_argnums=1, orders="jit",
    )  # fmt: skip
    assert (error.order, error.kind) == ("jit", "exception")
    assert "argument 'sizes' is static and has no hash" in str(error)
    assert mend in str(error)
    assert "raises ValueError" in str(error)


class Scale:
    """A setting that is equal to nothing but itself."""

    def __init__(self, factor):
        self.factor = factor

    def __call__(self, x):
        """Scale."""
        return x * self.factor


@pytest.mark.parametrize(
    "setting", [lambda x: x * 2.0, functools.partial(jnp.power, 2.0), Scale(2)]
)
def test_a_static_argument_with_an_identity_only_is_traced_again(setting):
    """Whoever writes it at each call compiles at each call."""
    error = failure_of(
        lambda x, setting: setting(x), jnp.ones(2), setting, static_argnums=1, orders="jit"
    )
    assert kinds(error) == [("jit", "retrace")]
    assert "static value of argument 'setting'" in str(error)


@pytest.mark.parametrize("setting", [jnp.sin, jax.nn.relu, np.float32, Scale, "sin", (1, jnp.sin)])
def test_a_static_argument_that_is_one_of_its_kind_is_not_traced_again(setting):
    """Functions with a name, classes and values are the same at each call."""
    check_transforms(
        lambda x, _setting: x * 2.0, jnp.ones(2), setting, static_argnums=1, orders="jit"
    )


def test_a_cache_by_value_is_traced_again():
    """The second call has other values, so that a key that is made of them is another one."""

    @jax.tree_util.register_pytree_node_class
    class Summed:
        def __init__(self, x, total=None):
            self.x = x
            self.total = total

        def tree_flatten(self):
            known = not isinstance(self.x, jax.core.Tracer)
            return (self.x,), float(self.x.sum()) if known else 0.0

        @classmethod
        def tree_unflatten(cls, total, children):
            return cls(children[0] if isinstance(children[0], jax.Array) else jnp.ones(2), total)

    error = failure_of(lambda s: s.x * 2.0, Summed(jnp.ones(2)), orders="jit")
    assert ("jit", "retrace") in kinds(error)
    assert "treedef of argument 's'" in str(error)


# state


class Counter:
    """Counts its calls: a side effect."""

    def __init__(self):
        self.calls = 0

    def __call__(self, x):
        """Count, and double."""
        self.calls += 1
        return x * 2.0


def test_an_attribute_that_a_call_changes_is_named():
    """The purity check names the attribute and its values."""
    error = failure_of(Counter(), jnp.float32(1.0), orders="jit")
    assert (error.order, error.kind) == ("plain call", "impure")
    assert error.failures[0].path == "Counter.calls"


def test_a_closure_that_grows_is_named():
    """Closure variables are watched, too."""
    history = []

    def remember(x):
        history.append(1)
        return x

    error = failure_of(remember, jnp.float32(1.0), orders="jit")
    assert error.failures[0].path == "closure variable 'history' of remember"


def test_an_argument_that_is_written_to_is_named():
    """A mutated dict is an impure call."""

    def fill(state):
        state["seen"] = 1.0
        return state["x"] * 2.0

    error = failure_of(fill, {"x": jnp.float32(1.0)}, orders="jit")
    assert error.kind == "impure"
    assert error.failures[0].path == "state['seen']"


def test_a_tracer_that_is_kept_is_reported_as_a_leak():
    """The census looks after each order; the order is in the report."""
    kept = {}

    def keep(x):
        if isinstance(x, jax.core.Tracer):
            kept["x"] = x
        return x * 2.0

    error = failure_of(keep, jnp.float32(1.0), orders=["jit", "grad"])
    assert ("jit", "leak") in kinds(error)
    assert ("grad", "leak") in kinds(error)
    assert "kept" in next(str(f.exception) for f in error.failures if f.kind == "leak")


@pytest.mark.parametrize("source", ["random", "numpy", "entropy"])
def test_python_side_randomness_is_named(source):
    """Two calls with equal inputs differ; a global generator is named."""
    draw = {
        "random": random.random,
        "numpy": lambda: np.random.rand(),
        "entropy": lambda: np.random.default_rng().normal(),
    }[source]
    error = failure_of(lambda x: x + draw(), jnp.float32(1.0), orders="jit")
    assert ("plain call", "nondeterministic") in kinds(error)
    names = {failure.path for failure in error.failures if failure.kind == "impure"}
    expected = {
        "random": {"Python's global random state"},
        "numpy": {"NumPy's global random state"},
        "entropy": set(),
    }
    assert names == expected[source]


LEVEL = 2.0


def set_level(value):
    """Assign the global that :func:`scaled` reads."""
    global LEVEL
    LEVEL = value


def scaled(x):
    """Read a global that other code assigns."""
    return x * LEVEL


SETTINGS = {"scale": 1.0, "kind": "plain", "table": jnp.tanh}


class Settings:
    """Settings as attributes."""

    scale = 1.0


def configure(scale):
    """Assign what the functions below read."""
    SETTINGS["scale"] = scale
    SETTINGS["table"] = jnp.sin
    Settings.scale = scale


@pytest.mark.parametrize(
    ("fn", "path"),
    [
        (lambda x: x * SETTINGS["scale"], "global \"SETTINGS['scale']\""),
        (lambda x: x * Settings.scale, "global 'Settings.scale'"),
    ],
)
def test_a_setting_that_other_code_assigns_goes_stale_under_jit(fn, path):
    """A key of a global dict, and an attribute of a global object."""
    error = failure_of(fn, jnp.float32(1.0), orders="jit")
    assert (error.kind, error.failures[0].path) == ("stale global", path)
    assert "which configure assigns" in str(error)


@pytest.mark.parametrize(
    "fn",
    [
        lambda x: x if SETTINGS["kind"] == "plain" else -x,  # which nobody assigns
        lambda x: SETTINGS["table"](x),  # a register of functions
    ],
)
def test_a_setting_that_nobody_assigns_is_a_constant(fn):
    """Registers of functions are filled by other code as well, and are no settings."""
    assert check_transforms(fn, jnp.float32(1.0), orders="jit")


def test_a_global_that_other_code_assigns_goes_stale_under_jit():
    """A compiled function keeps the old value; reader and writer are named."""
    error = failure_of(scaled, jnp.float32(1.0), orders=["jit", "vmap"])
    assert (error.order, error.kind) == ("jit", "stale global")
    assert "set_level" in str(error)


def test_a_jitted_function_that_kept_an_old_global_differs_from_itself():
    """The plain call with its inner jit is compared with the call without."""
    factor = {"value": 2.0}
    frozen = jax.jit(lambda x: x * factor["value"])
    frozen(jnp.float32(1.0))
    factor["value"] = 3.0
    error = failure_of(frozen, jnp.float32(1.0), orders="jit")
    assert (error.order, error.kind) == ("plain call", "value")
    assert "frozen" in str(error)


def test_a_callback_guarded_by_cond_runs_for_every_row_under_vmap():
    """vmap turns cond into select: the effect shows up in the purity check of vmap."""
    alarms = []

    def guarded(x):
        def alarm(v):
            jax.debug.callback(lambda u: alarms.append(float(u)), v)
            return v

        return jax.lax.cond(x < 0, alarm, lambda v: v, x)

    error = failure_of(guarded, jnp.float32(1.0), orders=["jit", "vmap"])
    assert (error.order, error.kind) == ("vmap", "impure")
    assert "alarms" in error.failures[0].path


# types


def test_a_state_that_comes_back_strongly_typed_is_traced_again():
    """A Python number in the first state is weak, the returned one is not: the leaf is named."""

    def step(state):
        return {"n": state["n"] * jnp.float32(2.0)}

    error = failure_of(step, {"n": 1.0}, orders="jit")
    assert (error.order, error.kind) == ("jit", "retrace")
    assert "state['n']: weak float32[] became float32[]" in str(error)


def test_static_data_that_never_compares_equal_is_traced_again():
    """A node whose auxiliary data is a fresh object each time defeats jit's cache."""

    @jax.tree_util.register_pytree_node_class
    class Box:
        def __init__(self, x):
            self.x = x

        def tree_flatten(self):
            return (self.x,), (lambda: None)

        @classmethod
        def tree_unflatten(cls, _aux, children):
            return cls(*children)

    error = failure_of(lambda box: box.x * 2.0, Box(jnp.float32(1.0)), orders="jit")
    assert ("jit", "retrace") in kinds(error)
    assert "treedef of argument 'box'" in str(error)


def test_an_equinox_model_that_caches_is_named():
    """A model whose call writes to a dict it holds is impure under equinox's rules, too."""

    class Model(eqx.Module):
        weight: jax.Array
        seen: dict = eqx.field(static=True)

        def __call__(self, x):
            self.seen["x"] = True
            return self.weight * x

    model = Model(jnp.float32(2.0), {})
    error = failure_of(lambda m, x: m(x), model, jnp.float32(1.0), orders="vmap")
    assert error.failures[0].path == "m.seen['x']"


# memories


@functools.lru_cache
def grid(size):
    """Under jit, the result of a first call is a tracer."""
    return jnp.arange(size) * 0.5


def test_a_memory_that_keeps_a_tracer_is_found():
    """The plain call has filled it, and yet the leak of a first call under jit is seen."""
    error = failure_of(lambda x: jnp.sum(x * grid(3)), jnp.ones(3), orders="jit")
    assert kinds(error) == [("jit", "leak")]
    assert not isinstance(grid(3), jax.core.Tracer)


# rules for vmap


@jax.custom_batching.custom_vmap
def energy(x):
    """A function with a rule for vmap, which JAX cannot differentiate."""
    return jnp.sum(jnp.sin(x))


@energy.def_vmap
def _energy_rule(_size, _batched, x):
    return jnp.sum(jnp.sin(x), -1), True


def test_a_custom_vmap_has_no_gradient_of_its_own():
    """JAX refuses grad of it, whatever the rule; grad of vmap runs and is judged."""
    error = failure_of(energy, jnp.linspace(0.1, 1.0, 3))
    failed = {failure.order for failure in error.failures}
    assert "grad" in failed
    assert failed.isdisjoint({"vmap", "jit(vmap)", "grad(vmap)", "grad(jit(vmap))"})
    assert "wrap the function in a custom_vjp" in str(error)


def test_a_custom_vmap_that_closes_over_a_batched_value():
    """JAX's assert has no message; the hint says what is wrong."""

    def shifted(x):
        mean = jnp.cos(x)
        inner = jax.custom_batching.custom_vmap(lambda y: y + mean)
        inner.def_vmap(lambda _size, _batched, y: (y + mean, True))
        return inner(x)

    error = failure_of(shifted, jnp.float32(0.5), orders="vmap")
    assert kinds(error) == [("vmap", "exception")]
    assert "must not close over a batched value" in error.failures[0].hint


def test_a_custom_vmap_with_a_custom_vjp_around_it_passes():
    """The mended twin."""
    fn = jax.custom_vjp(energy)
    fn.defvjp(lambda x: (energy(x), x), lambda x, ct: (ct * jnp.cos(x),))
    assert len(check_transforms(fn, jnp.linspace(0.1, 1.0, 3), orders=SHORT).orders) == 3


def test_a_wrong_gradient_without_a_reference_of_jax_is_found():
    """Where jax.grad of the plain function raises, differences judge grad of vmap."""
    half = jax.custom_jvp(jnp.sin)
    half.defjvp(lambda p, t: (jnp.sin(p[0]), 0.5 * jnp.cos(p[0]) * t[0]))
    fn = jax.custom_batching.custom_vmap(lambda x: jnp.sum(half(x)))
    fn.def_vmap(lambda _size, _batched, x: (jnp.sum(half(x), -1), True))
    error = failure_of(fn, jnp.linspace(0.1, 1.0, 3), orders="grad(vmap)")
    assert ("grad(vmap)", "value") in kinds(error)
