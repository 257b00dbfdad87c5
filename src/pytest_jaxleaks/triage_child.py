"""How a process knows that a triage has started it."""

from __future__ import annotations

import os

__all__ = ["CHILD", "CHILD_MODE", "is_triage_child"]

# The environment variables with the file to answer in, and with the mode to run in.
CHILD = "PYTEST_JAXLEAKS_TRIAGE_CHILD"
CHILD_MODE = "PYTEST_JAXLEAKS_TRIAGE_MODE"


def is_triage_child() -> bool:
    """Tell whether this process was started by a triage: it writes no reports of its own."""
    return CHILD in os.environ
