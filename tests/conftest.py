"""What every test file shares: the ``pytester`` fixture, for tests that run pytest itself."""

pytest_plugins = ["pytester"]
