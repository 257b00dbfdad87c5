"""What every test file shares: the ``pytester`` fixture, for tests that run pytest itself.

``pytester`` forgets what a run in this process imported. JAX cannot be imported twice, and others
take long: they are imported here, once.
"""

import absl.testing.parameterized  # noqa: F401
import hypothesis  # noqa: F401
import jax
import jax.experimental  # noqa: F401

pytest_plugins = ["pytester"]
