"""pytest's side of variants: options, the marker, the fixtures, and who is registered when."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from pytest_jaxleaks import variant_items
from pytest_jaxleaks.property_tests import allow_under_given
from pytest_jaxleaks.variant_choice import chooser_of
from pytest_jaxleaks.variant_recording import SharedFolder, start_recording
from pytest_jaxleaks.variant_report import VariantReporter

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["add_options", "configure"]

_NAMES = "jit, nojit, leaks, x64, nans, keys and those of pytest_jaxleaks_variants hooks"


def add_options(parser: pytest.Parser) -> None:
    """Add the option and the ini value. Neither has a default, so that each can be told from
    an empty list.
    """
    parser.getgroup("jax-leaks", "JAX tracer leaks").addoption(
        "--jax-variants",
        metavar="LIST",
        default=None,
        help=f"Run each test once per variant, such as jit,nojit; there are {_NAMES}.",
    )
    parser.addini(
        "jax_variants",
        help="Variants that each test runs under, as in --jax-variants, which overrides it.",
        type="linelist",
        default=None,
    )


def configure(config: pytest.Config) -> None:
    """Check the option at once, register the marker and what does the work.

    Raises:
        pytest.UsageError: if the option or the ini value cannot be used.
    """
    config.addinivalue_line(
        "markers",
        "jax_variants(*names, compare=False): run the test once per named variant (jit and nojit "
        "if none is named), and with compare=True demand that what jax_record keeps agrees with "
        "the variant named first.",
    )
    chooser_of(config)
    manager = config.pluginmanager
    manager.register(_Fixtures(), "jaxleaks-variant-fixtures")
    manager.register(variant_items, "jaxleaks-variant-items")
    manager.register(VariantReporter(config), "jaxleaks-variant-reporter")
    if manager.has_plugin("xdist"):
        manager.register(SharedFolder(config), "jaxleaks-variant-records")


class _Fixtures:
    """Holds the fixtures, so that pytest finds them in a plugin."""

    @pytest.fixture
    def jax_variant(self, request: pytest.FixtureRequest) -> str:
        """The name of the JAX variant that the test runs under; "jit" if none was asked for."""
        allow_under_given(request.node)
        return variant_items.variant_name(request.node) or "jit"

    @pytest.fixture
    def jax_record(self, request: pytest.FixtureRequest) -> Callable[[Any], Any]:
        """Keep a pytree that has to be the same in every variant; returns it."""
        return start_recording(request.node)
