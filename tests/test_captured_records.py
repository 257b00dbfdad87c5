"""A test may look at what was logged; a program that keeps log records keeps what is in them."""

import pytest
from suite_runs import LEAKY, run_suite

_SUITE = """
import logging

LOG = logging.getLogger("suite")
KEPT = []

class Handler(logging.Handler):
    def __init__(self):
        super().__init__()
        self.kept = []
    def emit(self, record):
        self.kept.append(record)

HANDLER = Handler()

def step():
    jax.jit(lambda x: LOG.warning("the loss is %s", x) or x)(jnp.ones(3))

def test_records(caplog):
    step()
    records = caplog.records
    (record,) = records
    warnings = [each for each in records if each.levelname == "WARNING"]
    assert record.levelname == "WARNING" and warnings

@pytest.fixture
def logged(caplog):
    step()
    return caplog.records

def test_fixture(logged): assert logged

class TestLogs(unittest.TestCase):
    def test_logs(self):
        with self.assertLogs("suite") as logs:
            step()
        assert "the loss" in logs.output[0]

def test_handler(caplog):
    handler = Handler()
    LOG.addHandler(handler)
    step()
    LOG.removeHandler(handler)
    record = caplog.records[0]

def test_handler_of_module(caplog):
    LOG.addHandler(HANDLER)
    step()
    LOG.removeHandler(HANDLER)
    record = HANDLER.kept[0]

def test_list_of_module(caplog):
    step()
    record = caplog.records[0]
    KEPT.append(record)
"""


def test_captured_records(pytester: pytest.Pytester) -> None:
    """A test's variables for captured records are no holders; a handler and a list are."""
    run = run_suite(pytester, LEAKY + _SUITE)
    found = {name: [leak["holder"] for leak in leaks] for name, leaks in run.leaks().items()}
    assert found == {
        "test_handler": ["test_suite.Handler.kept"],
        "test_handler_of_module": ["test_suite.Handler.kept"],
        "test_list_of_module": ["test_suite.KEPT"],
    }
    run.result.assert_outcomes(passed=3, failed=3)
