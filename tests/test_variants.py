"""Named variants and lists of their names (``variants.py``, ``variant_marks.py``)."""

import doctest
import subprocess
import sys
from contextlib import nullcontext

import jax
import jax.numpy as jnp
import pytest

from pytest_jaxleaks import InvalidArgumentError, Variant, variants
from pytest_jaxleaks.variant_marks import VariantChoice, read_mark
from pytest_jaxleaks.variants import BUILT_IN, as_variants, check_names, split_names

KNOWN = {variant.name: variant for variant in BUILT_IN}


@pytest.mark.parametrize(
    ("name", "setting", "inside"),
    [
        ("nojit", "jax_disable_jit", True),
        ("leaks", "jax_check_tracer_leaks", True),
        ("x64", "jax_enable_x64", True),
        ("nans", "jax_debug_nans", True),
        ("keys", "jax_debug_key_reuse", True),
    ],
)
def test_mode_turns_its_setting_on_and_off(name, setting, inside):
    """Each built-in mode changes one setting of jax.config, and only while it is entered."""
    before = getattr(jax.config, setting)
    assert before != inside
    with KNOWN[name].mode():
        assert getattr(jax.config, setting) == inside
    assert getattr(jax.config, setting) == before


def test_jit_is_jax_as_it_is():
    """The variant jit changes no setting."""
    before = dict(jax.config.values)
    with KNOWN["jit"].mode():
        assert dict(jax.config.values) == before


def test_modes_do_what_their_names_say():
    """Default dtypes widen, NaNs and reused keys raise, and jit calls the Python function."""
    with KNOWN["x64"].mode():
        assert jnp.ones(()).dtype == jnp.float64
    with KNOWN["nans"].mode(), pytest.raises(FloatingPointError):
        jnp.log(jnp.float32(-1))
    with KNOWN["keys"].mode(), pytest.raises(jax.errors.KeyReuseError):
        key = jax.random.key(0)
        jax.random.normal(key)
        jax.random.normal(key)
    with KNOWN["nojit"].mode():
        assert jax.jit(lambda x: x > 0 or None)(1) is True


def test_all_built_in_variants_can_run_here():
    """The supported JAX versions know every mode."""
    assert {name: variant.reason_to_skip() for name, variant in KNOWN.items()} == dict.fromkeys(
        KNOWN
    )


def test_a_variant_that_jax_lacks_says_so(monkeypatch):
    """With a JAX that has no key reuse checker, the variant's reason names what is missing."""
    monkeypatch.delattr(jax, "debug_key_reuse")
    assert KNOWN["keys"].reason_to_skip() == f"jax {jax.__version__} has no jax.debug_key_reuse"


def test_a_variant_has_to_say_why_it_cannot_run():
    """Only a text is a reason; what the function raises is named with the variant."""
    assert Variant("a", nullcontext, "m").reason_to_skip() is None
    assert Variant("a", nullcontext, "m", lambda: "no gpu").reason_to_skip() == "no gpu"
    with pytest.raises(InvalidArgumentError, match=r"'a': .* but it returned bool: True"):
        Variant("a", nullcontext, "m", lambda: True).reason_to_skip()
    with pytest.raises(InvalidArgumentError, match="'a' raised ZeroDivisionError: division"):
        Variant("a", nullcontext, "m", lambda: 1 / 0).reason_to_skip()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("a b", nullcontext, "m"), "name of a variant: expected letters"),
        (("", nullcontext, "m"), "name of a variant: expected letters"),
        (("a]", nullcontext, "m"), "name of a variant: expected letters"),
        ((3, nullcontext, "m"), "name of a variant: expected letters"),
        (("a", nullcontext(), "m"), "mode of variant 'a': expected a function"),
        (("a", nullcontext, ""), "meaning of variant 'a': expected one line"),
        (("a", nullcontext, "m\nn"), "meaning of variant 'a': expected one line"),
        (("a", nullcontext, "m", "no gpu"), "unavailable of variant 'a': expected a function"),
        (("a", nullcontext, "m", str, 64), "other_dtypes of variant 'a': expected True or False"),
    ],
)
def test_variant_refuses_what_it_cannot_use(arguments, message):
    """A bad argument is named at once, not when the first test runs."""
    with pytest.raises(InvalidArgumentError, match=message):
        Variant(*arguments)


def test_as_variants_reads_records_tuples_and_lists():
    """A hook may return a record, a tuple or nested lists of them."""
    record = Variant("a", nullcontext, "m")
    assert as_variants([None, record, ("b", nullcontext, "n"), [record]]) == [
        record,
        Variant("b", nullcontext, "n"),
        record,
    ]


@pytest.mark.parametrize("given", ["jit", 3, {"a": nullcontext}, ("a", nullcontext)])
def test_as_variants_names_what_it_cannot_read(given):
    """Anything else is refused with what was expected."""
    with pytest.raises(InvalidArgumentError, match="expected Variant records or tuples"):
        as_variants(given)


@pytest.mark.parametrize(
    "text", ["jit,nojit", " jit , nojit ", "jit nojit", "jit\nnojit,", ["jit", "nojit"]]
)
def test_split_names_takes_commas_and_white_space(text):
    """Options, ini lines and TOML lists read alike."""
    assert split_names(text) == ["jit", "nojit"]


@pytest.mark.parametrize(
    ("names", "message"),
    [
        ([], r"--here: the list of variants is empty; known variants: jit, nojit, leaks, x64"),
        (["jti"], r"unknown variant 'jti' \(did you mean 'jit'\?\); known variants: jit, nojit"),
        (["quick"], r"unknown variant 'quick'; known variants: jit, nojit, leaks, x64, nans, keys"),
        (["jit", "nojit", "jit"], "variant 'jit' is named more than once"),
        ([["jit", "nojit"]], "expected names of variants as separate strings, got list"),
    ],
)
def test_check_names_says_what_is_wrong(names, message):
    """Empty lists, unknown and repeated names are refused, with the names there are."""
    with pytest.raises(InvalidArgumentError, match=message):
        check_names(names, KNOWN, "--here")


def test_mark_without_names_means_jit_and_nojit():
    """The bare marker is the comparison that people do by hand."""
    assert read_mark((), {}, KNOWN, "m") == VariantChoice(("jit", "nojit"))


def test_mark_keeps_order_and_compare():
    """Names run in the order in which they are given."""
    choice = read_mark(("x64", "jit"), {"compare": True}, KNOWN, "m")
    assert choice == VariantChoice(("x64", "jit"), compare=True)


@pytest.mark.parametrize(
    ("args", "kwargs", "message"),
    [
        (("jit",), {"compare": True}, "compare=True needs two variants or more, got 'jit' only"),
        ((), {"compare": 1}, "compare: expected True or False, got 1"),
        ((), {"names": "jit"}, "unexpected argument 'names'; expected names of variants"),
        (("fast",), {}, "unknown variant 'fast'"),
    ],
)
def test_mark_refuses_bad_arguments(args, kwargs, message):
    """The message starts with what the marker is called."""
    with pytest.raises(InvalidArgumentError, match=f"^the mark: {message}"):
        read_mark(args, kwargs, KNOWN, "the mark")


def test_the_example_of_variant_runs():
    """The docstring's example does what it shows."""
    assert doctest.testmod(variants).attempted > 0
    assert doctest.testmod(variants).failed == 0


def test_describing_a_variant_does_not_import_jax():
    """A conftest may make its variants without paying for JAX."""
    code = "import sys; from pytest_jaxleaks import Variant; assert 'jax' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)
