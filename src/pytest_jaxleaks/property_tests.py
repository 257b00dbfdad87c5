"""Let a property test take ``jax_variant``, which Hypothesis would refuse by its health check.

The check is for fixtures whose value one example could change for the next. The name of the
variant is the same text for all examples of an item, so the check has nothing to warn of.
"""

from __future__ import annotations

import inspect
import sys
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pytest

__all__ = ["allow_under_given"]

# Where Hypothesis keeps the settings of a test (seen on 6.100 to 6.170); its own plugin for pytest
# replaces them there too.
_SETTINGS = "_hypothesis_internal_use_settings"


def allow_under_given(item: pytest.Item) -> None:
    """Turn the health check off for a property test whose only such fixture is ``jax_variant``.

    With another fixture of function scope among its arguments the check stays as it is.

    Args:
        item: a test that has asked for ``jax_variant``.
    """
    function = getattr(item, "obj", None)
    function = getattr(function, "__func__", function)
    settings = getattr(function, _SETTINGS, None)
    hypothesis: Any = sys.modules.get("hypothesis")
    if settings is None or hypothesis is None or _other_fixtures(item, function):
        return
    check = hypothesis.HealthCheck.function_scoped_fixture
    if check not in settings.suppress_health_check:
        checks = [*settings.suppress_health_check, check]
        setattr(function, _SETTINGS, hypothesis.settings(settings, suppress_health_check=checks))


def _other_fixtures(item: pytest.Item, function: Any) -> bool:
    """Say whether the test takes another fixture that is made anew for each test."""
    given = getattr(getattr(item, "_fixtureinfo", None), "name2fixturedefs", {})
    return any(
        definition.scope == "function"
        for name in inspect.signature(function).parameters
        if name != "jax_variant"
        for definition in given.get(name, ())[-1:]
        if definition.func.__module__ != "_pytest.python"  # an argument of parametrize
    )
