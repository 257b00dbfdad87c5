"""What ``jax_record`` keeps and how records compare (``variant_records.py``)."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from pytest_jaxleaks import InvalidArgumentError, variant_records
from pytest_jaxleaks.variant_records import record_of

EPS = float(jnp.finfo(jnp.float32).eps)


def differences(one, other, *, loose=False):
    """Return the lines of the differences."""
    return variant_records.differences(one, other, loose=loose)[0]


def compare(one, other, *, loose=False):
    """Compare two values as two runs that recorded one value each."""
    return differences([record_of(one)], [record_of(other)], loose=loose)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (jnp.arange(3.0), np.arange(3, dtype=np.float32)),
        (jnp.float32(1), jnp.float32(1) * (1 + 30 * EPS)),
        (jnp.array([1e6, 1.0]), jnp.array([1e6, 1.0 + 1e6 * 30 * EPS])),
        (jnp.array([jnp.nan, jnp.inf, -jnp.inf, 1.0]), jnp.array([jnp.nan, jnp.inf, -jnp.inf, 1])),
        (jnp.ones(3, jnp.bfloat16), jnp.full(3, 1.03, jnp.bfloat16)),
        (jnp.ones(3, jnp.float8_e4m3fn), jnp.ones(3, jnp.float8_e4m3fn)),
        (jnp.array([1 + 2j]), jnp.array([1 + 2j])),
        (jax.random.key(3), jax.random.key(3)),
        (jnp.ones((0, 2)), jnp.ones((0, 2))),
        (ValueError("a"), ValueError("b")),
        ({"a": [1, "x", None]}, {"a": [1, "x", None]}),
        (jax.ShapeDtypeStruct((2,), jnp.float32), jax.ShapeDtypeStruct((2,), jnp.float32)),
        (np.zeros(2, jax.dtypes.float0), np.zeros(2, jax.dtypes.float0)),
        (np.array(["a", None], dtype=object), np.array(["a", None], dtype=object)),
        (2**70, 2**70),
    ],
)
def test_equal_values_agree(one, other):
    """Values agree up to rounding in their dtype; exceptions by type."""
    assert compare(one, other) == []


def test_python_scalar_is_the_array_that_jit_returns():
    """A Python scalar under nojit is what jit returns as a weakly typed array."""
    scalar = jax.jit(lambda: 1.5)()
    assert scalar.weak_type
    assert compare(scalar, 1.5) == []
    assert compare(jnp.float32(1.5), 1.5) == ["value: float32[] and weak float32[]"]


@pytest.mark.parametrize(
    ("one", "other", "line"),
    [
        (jnp.ones(2), jnp.ones(3), "value: float32[2] and float32[3]"),
        (jnp.ones(2), jnp.ones(2, jnp.int32), "value: float32[2] and int32[2]"),
        (jnp.ones(2), jnp.ones(2, jnp.float16), "value: float32[2] and float16[2]"),
        ({"a": 1}, {"b": 1}, "value: treedef PyTreeDef({'a': *}) and PyTreeDef({'b': *})"),
        ([1], (1,), "value: treedef PyTreeDef([*]) and PyTreeDef((*,))"),
        (
            {"a": jnp.array([1, 2, 3])},
            {"a": jnp.array([1, 2, 4])},
            "value['a']: 3 and 4 at [2]; 1 of 3 elements differ",
        ),
        (
            jnp.array([[1.0, jnp.nan]]),
            jnp.array([[1.0, 2.0]]),
            "value: nan and 2.0 at [0, 1]; 1 of 2 elements differ by more than 7.6e-06 of the "
            "largest",
        ),
        (jnp.float32(1), jnp.float32(1 + 1e-4), "value: 1.0 and 1.0001"),
        (jnp.array(True), jnp.array(False), "value: True and False; 1 of 1 elements differ"),
        (jnp.inf, -jnp.inf, "value: inf and -inf; 1 of 1"),
        (ValueError("a"), TypeError("a"), "value: builtins.ValueError and builtins.TypeError"),
        ("x", "y", "value: 'x' and 'y'"),
        (jax.ShapeDtypeStruct((2,), jnp.float32), jnp.ones(2), "value: jax."),
    ],
)
def test_each_difference_is_named(one, other, line):
    """Value, dtype, weak type, shape, treedef and exception type each have their line."""
    (found,) = compare(one, other)
    assert found.startswith(line)


def test_different_key_data_differ():
    """Typed keys compare by implementation and by key data."""
    assert compare(jax.random.key(0), jax.random.key(1))
    (line,) = compare(jax.random.key(0), jax.random.key(0, impl="rbg"))
    assert "fry" in line
    assert "rbg" in line


def test_loose_ignores_the_width_and_takes_the_coarser_tolerance():
    """Results under x64 are compared by kind of dtype, as precisely as float32 allows."""
    with jax.enable_x64(True):
        wide = record_of([jnp.arange(3.0) / 3, jnp.arange(3)])
        off = record_of([jnp.arange(3.0) / 3.01, jnp.arange(3)])
        kinds = record_of([jnp.arange(3), jnp.arange(3)])
    narrow = record_of([jnp.arange(3.0) / 3, jnp.arange(3)])
    assert len(differences([narrow], [wide], loose=False)) == 2
    assert differences([narrow], [wide], loose=True) == []
    assert len(differences([narrow], [off], loose=True)) == 1
    assert differences([narrow], [kinds], loose=True) == ["value[0]: float32[3] and int64[3]"]


def test_number_of_records_has_to_agree():
    """A run that records more often than the other is a difference of its own."""
    one = record_of(1)
    assert differences([one], [one, one], loose=False) == ["number of recorded values: 1 and 2"]


def test_records_of_several_values_are_numbered():
    """The line says which recorded value differs."""
    runs = [[record_of(1), record_of(value)] for value in (2, 3)]
    (line,) = differences(*runs, loose=False)
    assert line.startswith("value 1: 2 and 3")


def test_addresses_in_a_treedef_do_not_matter():
    """Static fields that print with an address are the same in every run."""
    functions = [lambda: None for _ in range(2)]
    one, other = (jax.tree_util.Partial(function, 1.0) for function in functions)
    assert jax.tree_util.tree_structure(one) != jax.tree_util.tree_structure(other)
    assert compare(one, other) == []


def test_a_tracer_cannot_be_recorded():
    """Recording inside a transformed function is refused, and says what to do."""
    with pytest.raises(InvalidArgumentError, match=r"the value\['x'\] is a tracer .*outside of it"):
        jax.jit(lambda x: record_of({"x": x}))(1.0)
