"""``no_tracer_leaks()`` within a test that is checked itself."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pytest

PROGRAM = """
import jax
import pytest
from pytest_jaxleaks import TracerLeakError, no_tracer_leaks

OLD = []
KEPT = []


def keeper(kept):
    def step(x):
        kept.append(x)
        return x

    return step


jax.jit(keeper(OLD))(1.0)


def test_block():
    KEPT_BEFORE = {before}
    with pytest.raises(TracerLeakError) as caught, no_tracer_leaks():
        jax.jit(keeper(KEPT))(1.0)
    assert [leak.holder for leak in caught.value.leaks] == ["test_it.KEPT"]
    KEPT.clear()
"""


def test_what_was_there_before_is_not_blamed_on_a_test_with_a_block(
    pytester: pytest.Pytester,
) -> None:
    """A block's search looks at old objects; the test around it does not take them for new."""
    pytester.makepyfile(test_it=PROGRAM.format(before="[]"))
    assert pytester.runpytest_inprocess("--jax-leaks").parseoutcomes()["passed"] == 1


def test_a_leak_before_the_block_is_the_tests(pytester: pytest.Pytester) -> None:
    """What the test itself kept before the block is still reported, and not by the block."""
    before = "[]; jax.jit(keeper(KEPT_BEFORE))(1.0)"
    pytester.makepyfile(test_it=PROGRAM.format(before=before))
    result = pytester.runpytest_inprocess("--jax-leaks")
    assert result.parseoutcomes() == {"failed": 1}
    result.stdout.fnmatch_lines(["tracer leak after the test, kept by *KEPT_BEFORE"])
