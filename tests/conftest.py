"""What every test file shares: the ``pytester`` fixture, for tests that run pytest itself.

``pytester`` forgets what a run in this process imported. JAX cannot be imported twice, and others
take long: they are imported here, once.
"""

import absl.testing.parameterized  # noqa: F401
import hypothesis  # noqa: F401
import jax
import jax.experimental  # noqa: F401
import pytest

from pytest_jaxleaks.census import Census
from pytest_jaxleaks.watching import Watch

pytest_plugins = ["pytester"]


@pytest.fixture(autouse=True)
def _earlier_leaks_are_known() -> None:
    """Keep runs in this process from finding what the tests before have leaked on purpose."""
    watch = Watch()
    for tracer in Census().living():
        watch.know(tracer)
