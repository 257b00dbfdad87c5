"""What a suite stores on pytest's own objects is its own."""

from __future__ import annotations

import pytest
from suite_runs import LEAKY, run_suite

_SUITE = """
import logging

KEY = pytest.StashKey()

def leak(keep):
    jax.jit(lambda x: keep(x * 2) and None or x)(jnp.ones(3))

def test_node(request): leak(lambda v: setattr(request.node, "kept", v))
def test_config(request):
    request.config.kept = {}
    leak(lambda v: request.config.kept.setdefault("loss", [v]))
def test_session(request): leak(lambda v: setattr(request.session, "kept", [v]))
def test_stash(request): leak(lambda v: request.node.stash.__setitem__(KEY, [v]))
def test_stash_of_config(request): leak(lambda v: request.config.stash.__setitem__(KEY, (v,)))
def test_attribute_of_pytest():
    pytest.shared = {}
    leak(lambda v: pytest.shared.__setitem__("loss", v))

def test_emptied(request):
    request.node.kept = []
    leak(request.node.kept.append)
    request.node.kept.clear()
def test_log(caplog): leak(lambda v: logging.warning("the loss is %s", v))
def test_raises(request):
    with pytest.raises(jax.errors.TracerBoolConversionError) as info:
        jax.jit(lambda x: bool(x))(1.0)
"""


def test_what_is_stored_on_pytest_s_objects(pytester: pytest.Pytester) -> None:
    """Attributes of nodes, config and pytest and stashes are named; pytest's own are not leaks."""
    run = run_suite(pytester, LEAKY + _SUITE)
    del pytest.shared  # type: ignore[attr-defined]  # the run was in this process
    found = {
        name: (leak["holder"], leak["root"])
        for name, leaks in run.leaks().items()
        for leak in leaks
    }
    assert found == {
        "test_node": ("pytest.Function.kept", "attribute 'kept' of the Function node"),
        "test_config": ("pytest.Config.kept", "attribute 'kept' of config"),
        "test_session": ("pytest.Session.kept", "attribute 'kept' of the Session node"),
        "test_stash": ("pytest.Function.stash", "stash of the Function node"),
        "test_stash_of_config": ("pytest.Config.stash", "stash of config"),
        "test_attribute_of_pytest": ("pytest.shared", "attribute 'shared' of pytest"),
    }
    run.result.assert_outcomes(passed=3, failed=6)
