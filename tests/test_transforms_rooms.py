"""The rooms of the harness one by one: comparison, batches, purity, traces, deadlines."""

from __future__ import annotations

import time

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from pytest_jaxleaks.batches import MAX_ROWS, axes_by_argument, batch_of_copies, take_rows
from pytest_jaxleaks.compare import Context, compare
from pytest_jaxleaks.deadline import DeadlineError, deadline
from pytest_jaxleaks.orders import Subject, build
from pytest_jaxleaks.purity import changes, snapshot
from pytest_jaxleaks.results import flatten
from pytest_jaxleaks.retraces import traces
from pytest_jaxleaks.signature import bind
from pytest_jaxleaks.tolerances import Tolerances

CONTEXT = Context("jit", "result", lambda dtype: Tolerances().of(dtype, "jit"), lambda _leaf: 0.0)


def differences(expected, actual):
    """Return ``(kind, path)`` of what differs."""
    found = compare(flatten(expected), flatten(actual), CONTEXT)
    return [(failure.kind, failure.path) for failure in found]


# comparison


@pytest.mark.parametrize(
    ("expected", "actual", "found"),
    [
        (jnp.ones(3), jnp.ones(3), []),
        (jnp.ones(3), jnp.ones(3) * (1 + 3e-6), []),
        (jnp.ones(3), jnp.ones(3) * (1 + 3e-5), [("value", "")]),
        ({"a": jnp.array([1e6, 0.0])}, {"a": jnp.array([1e6, 0.5])}, []),
        ({"a": jnp.array([1e3, 0.0])}, {"a": jnp.array([1e3, 0.5])}, [("value", "['a']")]),
        (jnp.array([jnp.nan, jnp.inf]), jnp.array([jnp.nan, jnp.inf]), []),
        (jnp.array([jnp.inf]), jnp.array([-jnp.inf]), [("value", "")]),
        (jnp.array([1.0]), jnp.array([jnp.nan]), [("value", "")]),
        (jnp.ones(2), jnp.ones(3), [("shape", "")]),
        (jnp.ones(2), jnp.ones(2, jnp.bfloat16), [("dtype", "")]),
        (jnp.float32(1.0), jnp.asarray(1.0), [("weak type", "")]),
        (1.0, jnp.asarray(1.0), []),
        ([jnp.ones(1)], (jnp.ones(1),), [("treedef", "")]),
        ({"a": 1}, {"b": 1}, [("treedef", "")]),
        (jnp.int32(7), jnp.int32(8), [("value", "")]),
        (jnp.float8_e4m3fn(1), jnp.float8_e4m3fn(1.125), []),
        (jnp.float8_e4m3fn(1), jnp.float8_e4m3fn(1.25), [("value", "")]),
        (jnp.zeros((0, 2)), jnp.zeros((0, 2)), []),
    ],
)
def test_leaves_are_compared_by_key_path(expected, actual, found):
    """Value per element, shape, dtype, weak type and treedef; NaN equals NaN at the same place."""
    assert differences(expected, actual) == found


def test_keys_are_compared_as_bits():
    """Another key is another value."""
    assert differences(jax.random.key(0), jax.random.key(0)) == []
    assert differences(jax.random.key(0), jax.random.key(1)) == [("value", "")]


# batches


def rows_of(fn, *args, in_axes):
    """Return the batch that a check would use."""
    arguments = bind(fn, args, {})
    return take_rows(arguments, axes_by_argument(arguments, in_axes, ()))


def test_rows_are_taken_along_each_axis():
    """An argument without a mapped axis stays the very object."""
    shared, mapped = jnp.ones(2), jnp.arange(6.0).reshape(2, 3)
    batch = rows_of(lambda _a, b: b, shared, mapped, in_axes=(None, 1))
    assert len(batch.rows) == 3
    assert all(row[0] is shared for row in batch.rows)
    np.testing.assert_array_equal(batch.rows[2][1], [2.0, 5.0])


def test_long_batches_are_thinned_evenly():
    """The first and the last row stay."""
    batch = rows_of(lambda a: a, jnp.arange(100.0), in_axes=0)
    values = [float(row[0]) for row in batch.rows]
    assert len(values) == MAX_ROWS
    assert (values[0], values[-1]) == (0.0, 99.0)


def test_copies_differ_keep_signs_and_split_keys():
    """A batch made of one example has different rows; the first is the example itself."""
    arguments = bind(lambda x, _key, _n: x, (jnp.array([1.0, -2.0]), jax.random.key(0), 3), {})
    batch = batch_of_copies(arguments, None, (), 3, scaled=True)
    x, key, n = batch.args
    assert x.shape == (3, 2)
    np.testing.assert_array_equal(x[0], [1.0, -2.0])
    np.testing.assert_array_equal(np.sign(x), [[1.0, -1.0]] * 3)
    assert len({float(row[0]) for row in x}) == 3
    assert len({tuple(np.asarray(jax.random.key_data(one))) for one in key}) == 3
    assert n.tolist() == [3, 3, 3]


# orders


def test_an_order_is_applied_as_it_reads():
    """vmap(grad) differentiates each row, grad(vmap) the sum over the rows."""
    subject = Subject(lambda w, x: w * x**2, (None, 0), argnums=(0, 1), cotangents=(None,))
    w, x = jnp.float32(2.0), jnp.array([1.0, 3.0])
    per_row = build("vmap(grad)", subject)(w, x)
    np.testing.assert_allclose(per_row[0], [1.0, 9.0])
    of_sum = build("jit(grad(vmap))", subject)(w, x)
    np.testing.assert_allclose(of_sum[0], 10.0)
    np.testing.assert_allclose(of_sum[1], [4.0, 12.0])


# purity


class Holder:
    """Holds values in attributes, also in slots and containers."""

    def __init__(self):
        self.items = [1, {"a": np.zeros(2)}]


def test_a_snapshot_names_what_changed():
    """Attributes, elements of containers and NumPy arrays that are written in place."""
    holder = Holder()
    before = snapshot(len, {"holder": holder})
    holder.items[1]["a"][0] = 5.0
    holder.extra = "new"
    found = dict(changes(before, snapshot(len, {"holder": holder})))
    assert set(found) == {"holder.items[1]['a']", "holder.extra"}


def test_equal_content_is_no_change():
    """An attribute that is put back, or replaced by an equal array, is as it was."""
    holder = Holder()
    holder.items = jnp.ones(2)
    before = snapshot(len, {"holder": holder})
    holder.items = jnp.ones(2)
    assert changes(before, snapshot(len, {"holder": holder})) == []


# traces and deadlines


def test_traces_are_silent_on_a_cache_hit():
    """The first call is traced by its name, the second one is not."""

    @jax.jit
    def tripled(x):
        return 3.0 * x

    x = jnp.ones(2)
    with traces() as first:
        tripled(x)
    with traces() as second:
        tripled(x + 0.0)
    assert "tripled" in first
    assert "tripled" not in second


def test_a_deadline_ends_a_python_loop():
    """The exception cannot be swallowed by ``except Exception``."""

    def step():
        return None

    def loop():
        end = time.monotonic() + 30.0
        while time.monotonic() < end:
            try:
                step()
            except Exception:
                continue

    with pytest.raises(DeadlineError), deadline(0.05):
        loop()
