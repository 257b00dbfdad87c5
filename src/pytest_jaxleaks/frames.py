"""Reading the local variables of a frame without leaving anything behind in it."""

from __future__ import annotations

import inspect
import sys
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from types import FrameType

__all__ = ["frame_locals"]

# Since 3.13 (PEP 667) ``f_locals`` of a function is a view. Before, reading it stores a dict in
# the frame, and that dict keeps every value alive until the function ends.
_F_LOCALS_IS_A_VIEW = sys.version_info >= (3, 13)


def frame_locals(frame: FrameType) -> dict[str, Any]:
    """Return a new dict with the local, cell and free variables of ``frame``.

    On Python 3.12 and older the dict that the interpreter plants in the frame is emptied again,
    so that a variable which is deleted or bound anew later lets go of its old value.
    """
    planted = frame.f_locals
    copied = dict(planted)
    is_function = bool(frame.f_code.co_flags & inspect.CO_OPTIMIZED)
    if is_function and not _F_LOCALS_IS_A_VIEW:
        planted.clear()
    return copied
