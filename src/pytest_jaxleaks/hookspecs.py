"""The hooks that pytest-jaxleaks calls in a project's conftest files and plugins."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pytest_jaxleaks.variants import Variant


@pytest.hookspec
def pytest_jaxleaks_variants(config: pytest.Config) -> Variant | Sequence[Variant] | None:
    """Add variants of the project's own.

    Args:
        config: pytest's configuration.

    Returns:
        A :class:`pytest_jaxleaks.Variant`, a tuple ``(name, mode, meaning)``, or a list of them.
    """
