"""pytest's side of the harness: one item per order, through a fixture and a marker.

Nothing of JAX is imported before a test asks for the fixture.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import pytest

from pytest_jaxleaks.closest_marks import closest_marks
from pytest_jaxleaks.order_names import ORDERS

if TYPE_CHECKING:
    from collections.abc import Callable

    from pytest_jaxleaks.failures import TransformReport

__all__ = ["Transforms", "add_options", "configure"]

FIXTURE, MARKER, ROUND_TRIP = "jax_transform", "jax_transforms", "pytree"

OPTIONS = (
    "in_axes", "argnums", "orders", "rtol", "atol", "batch", "filtered", "has_aux",
    "static_argnums", "modes", "second_order", "numeric", "pytree",
)  # fmt: skip
"""What the marker accepts: the options of ``check_transforms``, as defaults for each call in the
test."""


def add_options(_parser: pytest.Parser) -> None:
    """Add no option: the fixture and the marker say everything."""


def configure(config: pytest.Config) -> None:
    """Register the marker and the hooks."""
    config.addinivalue_line(
        "markers",
        f"{MARKER}(orders=..., **options): one item per order of jit, vmap and grad for a test "
        f"that uses the {FIXTURE} fixture; options are those of check_transforms",
    )
    config.pluginmanager.register(_Hooks(), "jaxleaks-transforms")


class Transforms:
    """What the ``jax_transform`` fixture gives to a test: a call checks one order.

    Attributes:
        order: the order of this item, such as ``jit(vmap(grad))``, or ``pytree``.
    """

    def __init__(self, order: str, defaults: dict[str, Any]) -> None:
        self.order = order
        self._defaults = defaults

    def __call__(
        self, fn: Callable[..., Any], *args: Any, **options: Any
    ) -> TransformReport | None:
        """Check a function under this item's order; see :func:`pytest_jaxleaks.check_transforms`.

        Skips the test where the order says nothing about the function.
        """
        __tracebackhide__ = True
        merged = {**self._defaults, **options}
        merged.pop("orders", None)
        wanted = merged.pop("pytree", True)
        if self.order == ROUND_TRIP:
            if not wanted:
                pytest.skip("pytree=False")
            self._round_trip(fn, args, merged)
            return None
        from pytest_jaxleaks.transforms import check_transforms

        report = check_transforms(fn, *args, **merged, orders=[self.order], pytree=False)
        if not report.orders:
            pytest.skip(
                f"{self.order} is not applicable, because {report.not_applicable[self.order]}"
            )
        return report

    def _round_trip(self, fn: Callable[..., Any], args: Any, options: dict[str, Any]) -> None:
        """Give what the function returns for one example to the pytree round trip."""
        __tracebackhide__ = True
        from pytest_jaxleaks.pytrees import check_pytree
        from pytest_jaxleaks.transforms import single_result

        check_pytree(single_result(fn, *args, **options))


@pytest.fixture
def jax_transform(request: pytest.FixtureRequest) -> Transforms:
    """Check a function under one order of jit, vmap and grad; the test runs once per order."""
    defaults = _marked(request.node)
    order = getattr(request, "param", None)
    if order is None:  # no parametrization reaches unittest methods and doctests
        raise pytest.UsageError(f"{request.node.nodeid}: {FIXTURE} needs a test function or method")
    return Transforms(order, defaults)


def _marked(node: Any) -> dict[str, Any]:
    """Return the options of the marker that is closest to the test."""
    marker = next(iter(closest_marks(node, MARKER)), None)
    if marker is None:
        return {}
    unknown = sorted(set(marker.kwargs) - set(OPTIONS))
    if unknown or len(marker.args) > 1 or (marker.args and "orders" in marker.kwargs):
        what = (
            f"unknown option {unknown[0]!r}" if unknown else "give the orders once, as one argument"
        )
        raise pytest.UsageError(
            f"{node.nodeid}: @pytest.mark.{MARKER}: {what}; expected {', '.join(OPTIONS)}"
        )
    return {**marker.kwargs, **({"orders": marker.args[0]} if marker.args else {})}


def _chosen(definition: Any) -> list[str]:
    """Return the items of a test: the orders that its marker asks for, and the round trip."""
    options = _marked(definition)
    orders = options.get("orders")
    wanted = options.get("pytree", True)
    _refuse(definition, wanted not in (True, False), f"pytree={wanted!r}; expected True or False")
    known = [*ORDERS, ROUND_TRIP] if wanted else [*ORDERS]
    if orders is None:
        return known
    several = isinstance(orders, Iterable) and not isinstance(orders, str)
    choices = list(orders) if several else [orders]
    for choice in choices:
        unknown = not callable(choice) and choice not in known
        expected = f"expected a predicate or one of {', '.join(known)}"
        _refuse(definition, unknown, f"unknown order {choice!r}; {expected}")
    chosen = [one for one in known if any(c(one) if callable(c) else c == one for c in choices)]
    _refuse(definition, not chosen, "orders choose none")
    return chosen


def _refuse(definition: Any, wrong: bool, what: str) -> None:
    if wrong:
        raise pytest.UsageError(f"{definition.nodeid}: @pytest.mark.{MARKER}: {what}")


class _Hooks:
    """The hooks, registered by :func:`configure`."""

    @pytest.hookimpl
    def pytest_generate_tests(self, metafunc: pytest.Metafunc) -> None:
        """Make one item per order."""
        definition = metafunc.definition
        if FIXTURE in metafunc.fixturenames:
            chosen = _chosen(definition)
            metafunc.parametrize(FIXTURE, chosen, indirect=True, ids=chosen)
        elif any(definition.iter_markers(MARKER)) and definition.own_markers:
            self._check_unused(definition)

    @staticmethod
    def _check_unused(definition: Any) -> None:
        if any(marker.name == MARKER for marker in definition.own_markers):
            raise pytest.UsageError(
                f"{definition.nodeid}: @pytest.mark.{MARKER} needs a test that uses the "
                f"{FIXTURE} fixture"
            )

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(self, item: pytest.Item, call: pytest.CallInfo[Any]) -> Any:
        """Print the reproducing script below a failure, with -v."""
        report = yield
        error = call.excinfo.value if call.excinfo is not None else None
        program = getattr(error, "script", "")
        if (
            program
            and type(error).__name__ == "TransformCheckError"
            and item.config.option.verbose > 0
        ):
            report.sections.append(("to reproduce the smallest failure", program))
        return report
