"""Patterns of disagreement between variants and what they mean (``verdicts.py``)."""

import pytest

from pytest_jaxleaks.variants import BUILT_IN
from pytest_jaxleaks.verdicts import Outcome, judge

MEANINGS = {variant.name: variant.meaning for variant in BUILT_IN}
OK = Outcome()
WRONG = Outcome(("AssertionError", "Exception"), "assert 1 == 2")
LEAK = Outcome(("TracerLeakError", "JaxLeaksError", "Exception"), "1 leak")
ESCAPED = Outcome(("UnexpectedTracerError", "JAXTypeError", "TypeError"), "Encountered ...")
CONCRETE = Outcome(("TracerBoolConversionError", "ConcretizationTypeError", "TypeError"), "...")


@pytest.mark.parametrize("outcome", [OK, WRONG, LEAK])
def test_no_verdict_if_all_end_alike(outcome):
    """The same outcome everywhere is no disagreement, whatever it is."""
    assert judge({"jit": outcome, "nojit": outcome, "x64": outcome}, MEANINGS) is None


def test_no_verdict_on_one_variant():
    """A test that ran under one variant only has nothing to disagree with."""
    assert judge({"nojit": WRONG}, MEANINGS) is None


@pytest.mark.parametrize(
    ("outcomes", "pattern", "meaning"),
    [
        ({"jit": OK, "nojit": WRONG}, "fails only under nojit", "relies on tracing"),
        ({"jit": WRONG, "nojit": OK}, "fails only under jit", "Python side effect"),
        ({"jit": CONCRETE, "nojit": OK}, "fails only under jit", "needs a concrete value"),
        (
            {"jit": Outcome(("TypeError",), "Shapes must be 1D ... concrete values"), "nojit": OK},
            "fails only under jit",
            "needs a concrete value",
        ),
        ({"jit": LEAK, "nojit": OK}, "leak only under jit", "it is an ordinary array"),
        ({"jit": ESCAPED, "nojit": OK}, "leak only under jit", "it is an ordinary array"),
        (
            {"jit": LEAK, "nojit": WRONG},
            "leak only under jit, another error under nojit",
            "a reason of its own",
        ),
        ({"jit": OK, "nojit": LEAK}, "leak only under nojit", "vmap or grad tracer escapes"),
        (
            {"jit": LEAK, "nojit": ESCAPED},
            "leak under every variant, noticed in different ways",
            "a traced value escapes",
        ),
        ({"jit": LEAK, "x64": OK}, "leak only under jit", "in that mode only"),
        (
            {"jit": LEAK, "nojit": OK, "x64": LEAK},
            "leak only under jit and x64",
            "it is an ordinary array",
        ),
        (
            {"jit": LEAK, "nojit": OK, "leaks": Outcome(("Exception",), "Leaked trace Dynamic...")},
            "leak only under jit and leaks",
            "it is an ordinary array",
        ),
        (
            {"jit": OK, "leaks": Outcome(("Exception",), "Leaked trace Dynamic...")},
            "fails only under leaks",
            "reports innocent code",
        ),
        ({"jit": OK, "leaks": WRONG}, "fails only under leaks", "reports innocent code"),
        ({"jit": OK, "x64": WRONG}, "fails only under x64", "32-bit default types"),
        ({"jit": OK, "nans": WRONG}, "fails only under nans", "a NaN is computed"),
        ({"jit": OK, "keys": WRONG}, "fails only under keys", "used more than once"),
        (
            {"jit": CONCRETE, "nojit": OK, "x64": CONCRETE},
            "passes only under nojit",
            "needs a concrete value",
        ),
        ({"jit": WRONG, "nojit": OK, "x64": WRONG}, "passes only under nojit", "side effect"),
        ({"jit": WRONG, "x64": OK}, "passes only under x64", "32 bits are too few"),
        ({"jit": WRONG, "mine": OK}, "passes only under mine", "it needs mine"),
        ({"jit": WRONG, "x64": OK, "nans": OK}, "fails only under jit", "have in common"),
        ({"jit": WRONG, "x64": OK, "nojit": OK}, "fails only under jit", "Python side effect"),
        ({"jit": WRONG, "nojit": WRONG, "x64": OK}, "passes only under x64", "32 bits are too few"),
        (
            {"jit": OK, "nojit": WRONG, "x64": OK, "nans": WRONG},
            "fails under nojit and nans, passes under jit and x64",
            "have in common",
        ),
        (
            {"jit": WRONG, "nojit": CONCRETE},
            "fails under every variant, in different ways",
            "depends on the mode",
        ),
        (
            {"jit": OK, "nojit": Outcome(("VariantMismatchError", "AssertionError"))},
            "the recorded results differ",
            "return something else",
        ),
        (
            dict.fromkeys(["jit", "nojit"], Outcome(("VariantMismatchError", "AssertionError"))),
            "the recorded results differ",
            "return something else",
        ),
        ({"jit": OK, "mine": WRONG}, "fails only under mine", "see that variant"),
    ],
)
def test_each_disagreement_has_a_pattern_and_a_meaning(outcomes, pattern, meaning):
    """The pattern names the variants; the meaning is what people find out by hand."""
    verdict = judge(outcomes, MEANINGS)
    assert verdict is not None
    assert verdict.pattern == pattern
    assert meaning in verdict.meaning
    assert "\n" not in verdict.pattern + verdict.meaning


def test_a_project_variant_brings_its_own_meaning():
    """What the hook gave as the meaning is what the verdict says."""
    verdict = judge({"jit": OK, "mine": WRONG}, {"mine": "the cache is cold"})
    assert verdict is not None
    assert verdict.meaning == "the cache is cold"


def test_outcome_text_shows_type_and_first_line():
    """An outcome reads as one line."""
    assert [OK.text, WRONG.text, Outcome(("ValueError",)).text] == [
        "passed",
        "AssertionError: assert 1 == 2",
        "ValueError",
    ]
