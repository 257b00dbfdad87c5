"""What comes up inside of ``jax.check_tracer_leaks(False)`` is leaked on purpose."""

from __future__ import annotations

import jax
import pytest
from suite_runs import LEAKY, run_suite

from pytest_jaxleaks import TracerLeakError, no_tracer_leaks

PROGRAM = (
    LEAKY
    + """
def test_on_purpose():
    box = Box()
    with jax.check_tracer_leaks(False):
        leak_into(box)

def test_decorated():
    box = Box()
    jax.check_tracer_leaks(False)(leak_into)(box)

def test_before():
    box = Box()
    leak_into(box)
    with jax.check_tracer_leaks(False):
        jax.jit(lambda x: x - 1)(1.0)

def test_after():
    box = Box()
    with jax.check_tracer_leaks(False):
        jax.jit(lambda x: x - 2)(1.0)
    leak_into(box)

def test_checked_within():
    box, other = Box(), Box()
    with jax.check_tracer_leaks(False):
        leak_into(box)
        with pytest.raises(Exception, match="Leaked trace"), jax.checking_leaks():
            leak_into(other)

@pytest.mark.allow_tracer_leak(reason="wanted", strict=True)
def test_strict():
    box = Box()
    with jax.check_tracer_leaks(False):
        leak_into(box)
"""
)


def test_such_leaks_are_shown_and_fail_no_test(pytester: pytest.Pytester) -> None:
    """Only what came up in the block is accepted, in whatever order things happen."""
    run = run_suite(pytester, PROGRAM, "-rA")
    roots = {name: set(found) for name, found in run.roots().items()}
    outcomes = {name: outcome for name, _, outcome in run.phases()}
    assert outcomes == {
        "test_on_purpose": "passed",
        "test_decorated": "passed",
        "test_before": "failed",
        "test_after": "failed",
        "test_checked_within": "failed",
        "test_strict": "passed",
    }
    assert roots["test_on_purpose"] == {"local variable 'box' of test_on_purpose"}
    assert "1 of these leaks came up in a block of jax.check_tracer_leaks(False)" in run.text


def test_the_setting_is_left_as_it_was() -> None:
    """After a run nobody listens to JAX's setting any more, and an earlier listener is heard."""
    heard: list[object] = []
    setting = jax.check_tracer_leaks
    earlier = setting._update_thread_local_hook
    setting._update_thread_local_hook = heard.append
    try:
        with no_tracer_leaks(), jax.check_tracer_leaks(False):
            pass
        assert setting._update_thread_local_hook == heard.append
        assert heard == [False, None]
    finally:
        setting._update_thread_local_hook = earlier


def test_a_block_may_leak_on_purpose_in_part() -> None:
    """``no_tracer_leaks`` raises for what came up outside of the block of JAX's, and only that."""
    kept: list[object] = []
    with no_tracer_leaks(), jax.check_tracer_leaks(False):
        jax.jit(lambda x: kept.append(x) or x)(1.0)
    with pytest.raises(TracerLeakError) as caught, no_tracer_leaks():
        with jax.check_tracer_leaks(False):
            jax.jit(lambda x: kept.append(x) or x + 1)(1.0)
        jax.jit(lambda x: kept.append(x) or x + 2)(2)
    assert [leak.value for leak in caught.value.leaks] == ["int32[]"]
