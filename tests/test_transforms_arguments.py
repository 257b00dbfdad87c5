"""Bad options get a clear error at once, which names the option."""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np
import pytest

from pytest_jaxleaks import InvalidArgumentError, check_transforms


def times(x, y):
    """Multiply."""
    return x * y


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"orders": "jit(pmap)"}, "orders='jit(pmap)': expected a predicate or one of jit, vmap"),
        ({"orders": lambda _order: False}, "chooses none of"),
        ({"argnums": 2}, "argnums=2: expected the number or name of an argument"),
        ({"argnums": "z"}, "argnums='z'"),
        ({"argnums": 1, "static_argnums": 1}, "argument 'y' is static"),
        ({"static_argnums": "q"}, "static_argnums='q'"),
        ({"in_axes": (0, 0, 0)}, "expected one entry per positional argument (x, y), got 3"),
        ({"in_axes": (0, 5)}, "axis 5 of argument 'y', which holds float32[4]"),
        ({"in_axes": 0}, "y: float32[4], axis 0 has 4 rows"),
        ({"in_axes": ("a", None)}, "expected an int or None"),
        ({"in_axes": ({"k": 0}, None)}, "is no prefix of it"),
        ({"modes": "both"}, "modes='both': expected 'fwd', 'rev' or both"),
        ({"batch": -1}, "batch=-1"),
        ({"rtol": -1.0}, "rtol=-1.0: expected a non-negative number"),
        ({"atol": {"float32": "x"}}, "atol={'float32': 'x'}"),
        ({"rtol": {"flaot32": 1e-3}}, "'flaot32' is neither a dtype nor an order"),
        ({"orders": 3}, "orders=3: expected names of orders, predicates"),
        ({"argnums": 1.5}, "argnums=1.5: expected the number or name of an argument"),
        ({"argnums": ()}, "argnums=(): expected at least one argument"),
        ({"static_argnums": 2.5}, "static_argnums=2.5: expected the number or name"),
        ({"modes": 3}, "modes=3: expected 'fwd', 'rev' or both"),
        ({"filtered": "yes"}, "filtered='yes': expected True, False or None"),
        ({"numeric": "no"}, "numeric='no': expected True or False"),
        ({"second_order": 1}, "second_order=1: expected True or False"),
        ({"pytree": "no"}, "pytree='no': expected True or False"),
        ({"has_aux": "yes"}, "has_aux='yes': expected True or False"),
        ({"inaxes": 0}, "times has no such parameter, and check_transforms no such option"),
    ],
)
def test_the_message_names_the_option(options, words):
    """What it was and what was expected is in the message."""
    with pytest.raises(InvalidArgumentError) as caught:
        check_transforms(times, jnp.ones(3), jnp.ones(4), **options)
    assert words in str(caught.value)


def test_what_is_checked_must_be_callable():
    """Passing the result instead of the function is a common slip."""
    with pytest.raises(InvalidArgumentError, match="expected a function, got"):
        check_transforms(jnp.ones(3), jnp.ones(3))


def test_a_function_without_aux_has_none():
    """``has_aux`` is refused by what the function returns, whatever the orders."""
    with pytest.raises(InvalidArgumentError, match=r"returns \(output, aux\), and times returned"):
        check_transforms(times, jnp.ones(3), jnp.ones(3), has_aux=True, orders="jit")


def test_numbers_of_numpy_are_numbers():
    """What comes out of NumPy counts as well, and None means no static arguments."""
    assert check_transforms(
        times,
        jnp.ones(3),
        jnp.ones(3),
        argnums=np.int64(1),
        batch=np.int32(2),
        rtol=np.float32(1e-3),
        static_argnums=None,
        orders="jit",
    )


def test_tolerances_can_be_given_by_dtype_and_by_order():
    """A caller's tolerance replaces the default, for the dtype or the order it names."""
    assert check_transforms(
        times, jnp.ones(3), jnp.ones(3), rtol={"float32": 0.0, "grad": 1e-6}, orders=["jit", "grad"]
    )


def test_python_numbers_have_no_gradient_in_equinox():
    """The reason says so, where that is all that could be differentiated."""
    report = check_transforms(lambda x, _name: x * 2.0, 1.5, "name", orders=["jit", "grad"])
    assert "Python numbers are static" in report.not_applicable["grad"]
