"""Turn the leak check on for the tests of this folder, whatever the command line says."""

from pathlib import Path

import pytest

HERE = Path(__file__).parent


def pytest_collection_modifyitems(items):
    for item in items:
        if HERE in item.path.parents:
            item.add_marker(pytest.mark.no_tracer_leak)
