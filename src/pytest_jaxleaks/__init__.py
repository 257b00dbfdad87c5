"""Find JAX tracer leaks in a pytest suite and say who holds them.

Importing this package imports neither JAX nor equinox: names are resolved on first use.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pytest_jaxleaks.errors import (
        InvalidArgumentError,
        JaxLeaksError,
        TracerLeakError,
        VariantMismatchError,
    )
    from pytest_jaxleaks.leaks import Leak
    from pytest_jaxleaks.variant_recording import JaxVariantWarning
    from pytest_jaxleaks.variants import Variant
    from pytest_jaxleaks.watching import no_tracer_leaks

__all__ = [
    "InvalidArgumentError",
    "JaxLeaksError",
    "JaxVariantWarning",
    "Leak",
    "TracerLeakError",
    "Variant",
    "VariantMismatchError",
    "no_tracer_leaks",
]

_HOMES = {
    "InvalidArgumentError": "errors",
    "JaxLeaksError": "errors",
    "JaxVariantWarning": "variant_recording",
    "Leak": "leaks",
    "TracerLeakError": "errors",
    "Variant": "variants",
    "VariantMismatchError": "errors",
    "no_tracer_leaks": "watching",
}


def __getattr__(name: str) -> Any:
    """Import the room that ``name`` lives in (PEP 562)."""
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_HOMES[name]}"), name)


def __dir__() -> list[str]:
    """List the public names, those not imported yet included."""
    return sorted({*globals(), *__all__})
