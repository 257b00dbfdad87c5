"""The fixture and the marker: one item per order, whose id is the order."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from pytest_jaxleaks import TransformCheckError, check_transforms
from pytest_jaxleaks.order_names import ORDERS, parts

HEADER = """
import jax, jax.numpy as jnp, pytest
from pytest_jaxleaks import check_transforms

def masked(x):
    return x[x > 0].sum()

def double(x):
    return x * 2.0
"""


@pytest.fixture
def run(pytester):
    """Run pytest in this process on a test file that begins with :data:`HEADER`."""

    def run_file(body, *options):
        pytester.makepyfile(test_it=HEADER + body)
        return pytester.runpytest_inprocess("-p", "no:cacheprovider", *options)

    return run_file


def orders_in(result):
    """Return the ids of the items that were collected."""
    lines = [line for line in result.outlines if "::" in line and "[" in line]
    return [line.split("[", 1)[1].rsplit("]", 1)[0] for line in lines]


def test_the_names_of_the_orders():
    """There are 3 + 6 + 6, the shortest first, written as they are applied."""
    assert len(ORDERS) == len(set(ORDERS)) == 15
    assert [len(parts(order)) for order in ORDERS] == [1] * 3 + [2] * 6 + [3] * 6
    assert parts("jit(vmap(grad))") == ("jit", "vmap", "grad")


def test_one_item_per_order(run):
    """Without a choice every order is an item of its own."""
    result = run("def test_a(jax_transform): pass", "--collect-only", "-q")
    assert set(ORDERS) <= set(orders_in(result))


def test_the_marker_chooses_orders_by_name_or_predicate(run):
    """Names and predicates may be mixed; the shortest order comes first."""
    body = """
@pytest.mark.jax_transforms(orders=["grad(vmap)", lambda order: order == "jit"])
def test_a(jax_transform): pass
"""
    assert orders_in(run(body, "--collect-only", "-q")) == ["jit", "grad(vmap)"]


def test_each_item_checks_its_order(run):
    """A function that only jit breaks fails in the item of jit, and passes none by accident."""
    body = """
@pytest.mark.jax_transforms(["jit", "grad"])
def test_bad(jax_transform):
    jax_transform(masked, jnp.array([1.0, -1.0]))

@pytest.mark.jax_transforms(["vmap"], in_axes=(None,))
def test_defaults(jax_transform):
    jax_transform(double, jnp.ones(3))

@pytest.mark.jax_transforms(["vmap"])
class TestInAClass:
    def test_good(self, jax_transform):
        assert jax_transform.order == "vmap"
        jax_transform(double, jnp.ones(3), in_axes=0)
"""
    result = run(body, "-rs", "-v")
    result.stdout.fnmatch_lines(["*test_bad?jit? FAILED*", "*test_bad?grad? PASSED*"])
    result.stdout.fnmatch_lines(["*vmap is not applicable, because no argument has an array*"])
    result.assert_outcomes(passed=2, failed=1, skipped=1)


def test_the_script_is_printed_with_v_only(run):
    """With -v a failed check shows a program that reproduces its smallest failure."""
    body = "def test_a(): check_transforms(masked, jnp.array([1.0, -1.0]), orders='jit')"
    verbose = run(body, "-v")
    verbose.stdout.fnmatch_lines(
        [
            "*to reproduce the smallest failure*",
            "from test_it import masked",
            "x = jnp.array([[]1.0, -1.0[]], 'float32')",
            "check_transforms(masked, x, orders=[[]'jit'[]])",
        ]
    )
    assert "to reproduce" not in run(body).stdout.str()


def test_the_script_runs(pytester):
    """Values without a literal, keys, empty arrays and awkward names are spelt as code that
    runs, and fails in the same way."""
    module = """
import numpy

def leave(random, *others, np_=None):
    return numpy.sin(random)
"""
    pytester.makepyfile(spelt=module)
    pytester.syspathinsert()
    from spelt import leave

    key = jax.random.key(3)
    others = (
        (key, {"k": jax.random.split(key, 2)}),
        jnp.zeros((0, 3)),
        np.float32(2),
        [1j, object],
    )
    odd = jnp.array([jnp.nan, -jnp.inf, 0.5], jnp.bfloat16)
    with pytest.raises(TransformCheckError) as caught:
        check_transforms(leave, odd, *others, orders=lambda o: o == "jit", rtol={jnp.float32: 1.0})
    with pytest.raises(TransformCheckError) as again:
        exec(caught.value.script, {})
    assert again.value.failures[0].message == caught.value.failures[0].message
    assert "orders=['jit']" in caught.value.script


def test_what_comes_back_is_sent_through_the_round_trip(run):
    """By default by ``check_transforms`` and as an item of its own, which can be left out."""
    body = """
class Forgetful:
    def __init__(self, x, name="none"):
        self.x, self.name = x, name

jax.tree_util.register_pytree_node(
    Forgetful, lambda one: ((one.x,), None), lambda _, children: Forgetful(*children))

def make(x):
    return Forgetful(x, "some")

def test_default(): check_transforms(make, jnp.ones(2), orders="jit")
def test_off(): check_transforms(make, jnp.ones(2), orders="jit", pytree=False)

@pytest.mark.jax_transforms(["jit", "pytree"])
def test_item(jax_transform): jax_transform(make, jnp.ones(2))

@pytest.mark.jax_transforms(["jit", "pytree"])
def test_skipped(jax_transform): jax_transform(make, jnp.ones(2), pytree=False)

@pytest.mark.jax_transforms(lambda order: order in ("jit", "pytree"), pytree=False)
def test_left_out(jax_transform): jax_transform(make, jnp.ones(2))
"""
    result = run(body, "-rA")
    result.assert_outcomes(passed=4, failed=2, skipped=1)
    text = result.stdout.str()
    assert text.count("FAILED test_it.py::test_default") == 1
    assert text.count("FAILED test_it.py::test_item[pytree]") == 1
    assert "name of Forgetful does not survive" in text
    assert "def check_pytree" not in text


def test_our_own_frames_are_hidden(run):
    """The traceback shows the test's line, then the message."""
    result = run("def test_a(): check_transforms(masked, jnp.ones(2), orders='jit')")
    text = result.stdout.str()
    assert "def run_check" not in text
    assert "test_it.py:" in text


@pytest.mark.parametrize(
    ("body", "words"),
    [
        (
            "@pytest.mark.jax_transforms(['pmap'])\ndef test_a(jax_transform): pass",
            "*unknown order 'pmap'; expected a predicate or one of jit, vmap*",
        ),
        (
            "@pytest.mark.jax_transforms(speed=3)\ndef test_a(jax_transform): pass",
            "*unknown option 'speed'; expected in_axes*",
        ),
        (
            "@pytest.mark.jax_transforms()\ndef test_a(): pass",
            "*jax_transforms needs a test that uses the jax_transform fixture*",
        ),
        (
            "@pytest.mark.jax_transforms(orders=3)\ndef test_a(jax_transform): pass",
            "*unknown order 3; expected a predicate or one of jit, vmap*",
        ),
        (
            "@pytest.mark.jax_transforms(pytree='no')\ndef test_a(jax_transform): pass",
            "*pytree='no'; expected True or False*",
        ),
        (
            "@pytest.mark.jax_transforms(['jit'], orders=['jit'])\ndef test_a(jax_transform): pass",
            "*give the orders once*",
        ),
    ],
)
def test_a_bad_marker_is_a_usage_error(run, body, words):
    """The message names the test, the marker and what was expected."""
    result = run("\n" + body)
    result.stdout.fnmatch_lines([words])
    assert result.ret != 0
    assert "INTERNALERROR" not in result.stdout.str()


def test_unittest_methods_cannot_have_orders(run):
    """pytest parametrizes no unittest method: that is said, not guessed at."""
    body = """
import unittest
class TestOld(unittest.TestCase):
    @pytest.fixture(autouse=True)
    def hold(self, jax_transform): pass
    def test_a(self): pass
"""
    result = run(body)
    result.stdout.fnmatch_lines(["*jax_transform needs a test function or method*"])


def test_loading_the_plugin_imports_no_jax(pytester):
    """A run that uses no feature pays for none."""
    pytester.makepyfile(
        """
        import sys
        def test_a(): assert not {"jax", "equinox", "numpy"} & set(sys.modules)
        """
    )
    result = pytester.runpytest_subprocess("-p", "no:jaxtyping", "-p", "no:cacheprovider")
    result.assert_outcomes(passed=1)
