"""Find JAX tracer leaks in a pytest suite and say who holds them.

Importing this package imports neither JAX nor equinox: names are resolved on first use.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pytest_jaxleaks.blocks import no_tracer_leaks
    from pytest_jaxleaks.errors import (
        InvalidArgumentError,
        JaxLeaksError,
        PytreeCheckError,
        TracerLeakError,
        TransformCheckError,
        VariantMismatchError,
    )
    from pytest_jaxleaks.failures import Failure, TransformReport
    from pytest_jaxleaks.guarding import JaxLeaksWarning
    from pytest_jaxleaks.leaks import Leak
    from pytest_jaxleaks.pytree_findings import PytreeFinding
    from pytest_jaxleaks.pytree_report import PytreeReport
    from pytest_jaxleaks.pytrees import check_pytree
    from pytest_jaxleaks.transforms import check_transforms
    from pytest_jaxleaks.variant_recording import JaxVariantWarning
    from pytest_jaxleaks.variants import Variant

__all__ = [
    "Failure",
    "InvalidArgumentError",
    "JaxLeaksError",
    "JaxLeaksWarning",
    "JaxVariantWarning",
    "Leak",
    "PytreeCheckError",
    "PytreeFinding",
    "PytreeReport",
    "TracerLeakError",
    "TransformCheckError",
    "TransformReport",
    "Variant",
    "VariantMismatchError",
    "check_pytree",
    "check_transforms",
    "no_tracer_leaks",
]

_HOMES = {
    "Failure": "failures",
    "InvalidArgumentError": "errors",
    "JaxLeaksError": "errors",
    "JaxLeaksWarning": "guarding",
    "JaxVariantWarning": "variant_recording",
    "Leak": "leaks",
    "PytreeCheckError": "errors",
    "PytreeFinding": "pytree_findings",
    "PytreeReport": "pytree_report",
    "TracerLeakError": "errors",
    "TransformCheckError": "errors",
    "TransformReport": "failures",
    "Variant": "variants",
    "VariantMismatchError": "errors",
    "check_pytree": "pytrees",
    "check_transforms": "transforms",
    "no_tracer_leaks": "blocks",
}


def __getattr__(name: str) -> Any:
    """Import the room that ``name`` lives in (PEP 562)."""
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_HOMES[name]}"), name)


def __dir__() -> list[str]:
    """List the public names, those not imported yet included."""
    return sorted({*globals(), *__all__})
