"""Runs items in their variant: the mode, the records, the note on the report."""

from __future__ import annotations

import unittest
from typing import TYPE_CHECKING, Any

import pytest

from pytest_jaxleaks.jax_modes import Stay, put_back
from pytest_jaxleaks.variant_choice import chooser_of
from pytest_jaxleaks.variant_items import (
    base_nodeid,
    choice_at_collection,
    runs_plainly,
    variant_name,
)
from pytest_jaxleaks.variant_recording import JaxVariantWarning, Recorder, comparison_note

if TYPE_CHECKING:
    from collections.abc import Generator, Iterator

    from pytest_jaxleaks.variants import Variant

__all__ = ["VariantRunner"]


class VariantRunner:
    """The hooks that matter while tests with variants run; registered only if there are any."""

    PLUGIN_NAME = "jaxleaks-variant-runner"

    def __init__(self, config: pytest.Config) -> None:
        self._config = config
        self._stay: Stay | None = None
        self._failure: BaseException | None = None
        self._recorder = Recorder(config)

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_setup(self, item: pytest.Item) -> Iterator[None]:
        """Find the item's variant. It is entered by the first function-scoped fixture, if any.

        What goes wrong is raised at the end: other plugins count on their part of the setup.
        """
        __tracebackhide__ = True
        name = variant_name(item)
        self._failure = None
        self._stay = None
        self._recorder.forget(item)
        if name is not None:
            try:
                self._stay = Stay(self._variant_of(item, name))
            except pytest.UsageError as error:
                self._failure = error
        try:
            return (yield)
        finally:
            failure, self._failure = self._failure, None
            if failure is not None:
                raise failure

    def _variant_of(self, item: pytest.Item, name: str) -> Variant:
        known = chooser_of(self._config).known_to(item)
        if name in known:
            return known[name]
        raise pytest.UsageError(
            f"jax_variant of {item.nodeid}: unknown variant {name!r}; "
            f"known variants: {', '.join(known)}"
        )

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_fixture_setup(
        self, fixturedef: pytest.FixtureDef[Any], request: pytest.FixtureRequest
    ) -> Iterator[None]:
        """Set up function-scoped fixtures inside the variant and wider-scoped ones outside."""
        __tracebackhide__ = True
        stay = self._stay
        if stay is None:
            return (yield)
        if fixturedef.scope != "function":
            with stay.suspended():
                return (yield)
        if not stay.entered and self._failure is None:
            try:
                self._enter(stay, request.node)
            except KeyboardInterrupt:
                raise
            except BaseException as error:  # a skip and an exit are no Exception
                # Raised here, it would leave the fixture half set up for the tests that follow.
                self._failure = error
        return (yield)

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_call(self, item: pytest.Item) -> Iterator[None]:
        """Run the test inside the variant, then compare what it recorded."""
        __tracebackhide__ = True
        stay = self._stay
        if stay is None:
            return (yield)
        if not stay.entered:
            self._enter(stay, item)
        result = yield
        if not getattr(item, "_excinfo", None):  # where pytest keeps the failures of a TestCase
            self._compare(item, stay.variant.name)
        return result

    def _enter(self, stay: Stay, item: pytest.Item) -> None:
        """Enter the variant until the item's own teardown is over.

        A finalizer added before those of the function-scoped fixtures runs after them, and before
        anything wider-scoped is torn down; pytest runs it after a failure, an exit or an interrupt
        too.
        """
        __tracebackhide__ = True
        item.addfinalizer(lambda: self._leave(stay, item))
        stay.enter()

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_teardown(self) -> Iterator[None]:
        """See to it that the mode is off, even if an interrupt kept the finalizers from running."""
        try:
            return (yield)
        finally:
            self._drop()

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_sessionfinish(self) -> Iterator[None]:
        """Do the same where an interrupted test is torn down."""
        try:
            return (yield)
        finally:
            self._drop()

    def _drop(self) -> None:
        if self._stay is not None and self._stay.entered:
            self._stay.leave()

    def _leave(self, stay: Stay, item: pytest.Item) -> None:
        changes = stay.leave()
        if not changes:
            return
        stuck = put_back(changes)
        names = ", ".join(f"{name} from {before!r} to {now!r}" for name, before, now in changes)
        text = f"{item.nodeid} left jax.config changed: {names}. "
        text += (
            f"Could not put back: {', '.join(stuck)} (a context manager that was entered and not "
            "left?)"
            if stuck
            else "It was put back, so that the variants that follow start alike."
        )
        item.warn(JaxVariantWarning(text))

    def _compare(self, item: pytest.Item, name: str) -> None:
        """Compare what the test recorded with its other variants, if its marker says so."""
        __tracebackhide__ = True
        choice = choice_at_collection(item)
        if choice is not None:
            test = base_nodeid(item.nodeid, name)
            known = chooser_of(self._config).known_to(item)
            self._recorder.compare(item, test, name, choice, known)

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(
        self, item: pytest.Item, call: pytest.CallInfo[None]
    ) -> Generator[None, pytest.TestReport, pytest.TestReport]:
        """Note on the report what the verdict over variants needs; plain data travels by xdist."""
        report = yield
        name = variant_name(item)
        if name is not None:
            choice = choice_at_collection(item)
            note: dict[str, object] = {
                "test": base_nodeid(item.nodeid, name),
                "variant": name,
                "names": [] if choice is None else list(choice.names),
                "reference": choice.reference if choice is not None and choice.compare else None,
                "meaning": self._meaning_of(item, name),
                **_raised(item, call),
            }
            if call.when == "call":
                note |= comparison_note(item)
            report.__dict__["jax_variant"] = note
        elif runs_plainly(item):
            report.__dict__["jax_variant"] = {"plain": type(item).__name__}
        return report

    def _meaning_of(self, item: pytest.Item, name: str) -> str:
        try:
            return self._variant_of(item, name).meaning
        except pytest.UsageError:  # which the test's setup has raised
            return ""


def _raised(item: pytest.Item, call: pytest.CallInfo[None]) -> dict[str, Any]:
    """Describe the exception of a phase in plain data."""
    if call.excinfo is None or _succeeded_unexpectedly(item, call.excinfo.value):
        return {"raised": [], "detail": ""}
    try:
        lines = str(call.excinfo.value).strip().splitlines()
    except Exception:
        lines = []  # an exception that cannot be printed has no detail
    types = [base.__name__ for base in call.excinfo.type.__mro__[:-1]]
    return {"raised": types, "detail": lines[0][:120] if lines else ""}


def _succeeded_unexpectedly(item: pytest.Item, error: BaseException) -> bool:
    """Say whether pytest raised because a test under ``unittest.expectedFailure`` passed."""
    return (
        isinstance(error, pytest.fail.Exception)
        and error.msg == "Unexpected success"
        and isinstance(item, pytest.Function)
        and item.cls is not None
        and issubclass(item.cls, unittest.TestCase)
    )
