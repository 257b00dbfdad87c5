"""pytest's side of explained JAX errors: a section beside the failure, in any phase."""

from __future__ import annotations

import dataclasses
import sys
import traceback
from typing import TYPE_CHECKING, Any

import pytest

from pytest_jaxleaks.findings import FINDINGS
from pytest_jaxleaks.guarding import guarded, warn_of_own_fault
from pytest_jaxleaks.jax_errors import is_of_checker, is_of_shape, jax_error, message_of
from pytest_jaxleaks.variant_items import base_nodeid, variant_name

if TYPE_CHECKING:
    from collections.abc import Generator
    from types import FrameType

    from pytest_jaxleaks.jax_errors import Behind
    from pytest_jaxleaks.leaks import CodeUnderTest, Leak
    from pytest_jaxleaks.roots import Surroundings

__all__ = ["add_options", "configure"]

_SECTION = "JAX error explained"
# Finding out who holds a value takes some tenths of a second; a suite in which everything fails
# for one reason does not get slower by more than this many of those.
_MOST_SEARCHES = 10


def add_options(parser: pytest.Parser) -> None:
    """Add the ini value that turns the explanations off."""
    parser.addini(
        "jax_leaks_explain",
        "Explain UnexpectedTracerError and JAX's concretization errors beside the failure.",
        type="bool",
        default=True,
    )


def configure(config: pytest.Config) -> None:
    """Explain, unless it is turned off."""
    if config.getini("jax_leaks_explain"):
        config.pluginmanager.register(_Explainer(), "jaxleaks-explainer")


class _Explainer:
    def __init__(self) -> None:
        self._searches = 0
        self._fixtures: dict[int, pytest.FixtureDef[Any]] = {}
        # By test without its variant: the first variant that leaks.
        self._leaking: dict[str, str] = {}

    @pytest.hookimpl(wrapper=True)
    def pytest_fixture_setup(self, fixturedef: pytest.FixtureDef[Any]) -> Generator[None, Any, Any]:
        """Remember which fixtures have a value, to name them."""
        try:
            return (yield)
        finally:
            self._fixtures[id(fixturedef)] = fixturedef

    @pytest.hookimpl(trylast=True)
    def pytest_fixture_post_finalizer(self, fixturedef: pytest.FixtureDef[Any]) -> None:
        """Forget a fixture that is gone."""
        self._fixtures.pop(id(fixturedef), None)

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_call(self, item: pytest.Item) -> None:
        """Notice what earlier tests have left, if JAX's checker is going to judge this one."""
        if _own_leaks(item) is None and _is_under_checker(item):
            from pytest_jaxleaks.checker_verdict import know_living

            guarded(f"look before {item.nodeid}", know_living, None)

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(
        self, item: pytest.Item, call: pytest.CallInfo[None]
    ) -> Generator[None, pytest.TestReport, pytest.TestReport]:
        """Add a section to the report of a phase that failed with an error of JAX's."""
        report = yield
        if report.failed:
            self._add_section(report, item, call)
        self._remember_leak(item)
        return report

    def _remember_leak(self, item: pytest.Item) -> None:
        """Remember a variant that leaks: the verdict on another one must not say harmless."""
        test = _test_of(item)
        if test != item.nodeid and _own_leaks(item):
            self._leaking.setdefault(test, item.nodeid)

    @pytest.hookimpl(wrapper=True)
    def pytest_make_collect_report(
        self, collector: pytest.Collector
    ) -> Generator[None, pytest.CollectReport, pytest.CollectReport]:
        """Add a section to the report of a module that failed at import."""
        report = yield
        call = getattr(report, "call", None)
        if report.failed and call is not None:
            self._add_section(report, collector, call)
        return report

    def _add_section(self, report: Any, node: pytest.Item | pytest.Collector, call: Any) -> None:
        try:
            failure = call.excinfo.value if call.excinfo is not None else None
            found = jax_error(failure)
            if found is not None:
                lines = self._explain(found.error, node)
                if found.relation:
                    lines.insert(0, _told_relation(failure, found))
                report.sections.append((_SECTION, "\n".join(lines)))
        except Exception:
            warn_of_own_fault(f"explain the failure of {node.nodeid}")

    def _explain(self, error: BaseException, node: pytest.Item | pytest.Collector) -> list[str]:
        frames = _user_frames(error)
        if is_of_checker(error):
            return self._explain_checker(error, node, frames)
        if type(error).__name__ != "UnexpectedTracerError":
            return _explain_concretization(error)
        from pytest_jaxleaks.escaped import describe_escaped, explain_escaped, origin_in

        self._searches += 1
        if self._searches > _MOST_SEARCHES:
            lines = describe_escaped(origin_in(message_of(error)), ())[:-1]
            return [*lines, f"  held by     (looked up for the first {_MOST_SEARCHES} errors only)"]
        return explain_escaped(message_of(error), *self._scene(node, frames))

    def _explain_checker(
        self, error: BaseException, node: pytest.Item | pytest.Collector, frames: Any
    ) -> list[str]:
        from pytest_jaxleaks.checker_verdict import explain_checker, with_variant

        self._searches += 1
        if self._searches > _MOST_SEARCHES:
            return [f"Who holds the value was looked up for the first {_MOST_SEARCHES} errors only"]
        # Where the checker itself broke down it names no value, and functions that were being
        # traced hold theirs rightly: only the outermost function counts, the test.
        kept = frames if message_of(error).startswith("Leaked ") else frames[:1]
        around, code = self._scene(node, kept)
        lines = explain_checker(message_of(error), around, code, _own_leaks(node))
        other = self._leaking.get(_test_of(node))
        return lines if other is None else with_variant(lines, other)

    def _scene(
        self, node: pytest.Item | pytest.Collector, frames: tuple[FrameType, ...]
    ) -> tuple[Surroundings, CodeUnderTest]:
        from pytest_jaxleaks import scenes

        if isinstance(node, pytest.Item):
            around = scenes.surroundings_of(node, self._fixtures.values())
            return dataclasses.replace(around, frames=frames), scenes.code_under_test(node)
        # A module that could not be imported must not be asked for what it defines.
        from pytest_jaxleaks.leaks import CodeUnderTest
        from pytest_jaxleaks.roots import Surroundings

        around = Surroundings(frames=frames)
        return around, CodeUnderTest(node.config.rootpath, node.path.stem)


def _told_relation(failure: BaseException | None, found: Behind) -> str:
    name = type(found.error).__name__
    what = "the error of JAX's leak checker" if is_of_checker(found.error) else f"JAX's {name}"
    return f"{type(failure).__name__} was {found.relation} {what}."


def _test_of(node: pytest.Item | pytest.Collector) -> str:
    """Return the id that all variants of a test share."""
    variant = variant_name(node) if isinstance(node, pytest.Item) else None
    return node.nodeid if variant is None else base_nodeid(node.nodeid, variant)


def _is_under_checker(item: pytest.Item) -> bool:
    config = getattr(sys.modules.get("jax"), "config", None)
    is_on = bool(getattr(config, "jax_check_tracer_leaks", False))
    return is_on or (config is not None and variant_name(item) == "leaks")


def _own_leaks(node: pytest.Item | pytest.Collector) -> list[Leak] | None:
    """Return what the leak check has found in a test so far; None if the test is not checked."""
    found = node.stash.get(FINDINGS, None)
    if found is None:
        return None
    return [leak for each in found.values() for leak in each.failing + each.accepted]


def _explain_concretization(error: BaseException) -> list[str]:
    from pytest_jaxleaks.concretization import Concretization, explain, numbered_parameters

    codes = (frame.f_code for frame, _ in traceback.walk_tb(error.__traceback__))
    message = message_of(error)
    parameters = numbered_parameters(message, codes)
    return explain(Concretization(_family(error), message, _source(error), parameters))


def _family(error: BaseException) -> str:
    from pytest_jaxleaks.concretization import CONCRETIZATION_ERRORS

    if is_of_shape(error):
        return "ConcretizationTypeError"
    names = [cls.__name__ for cls in type(error).__mro__]
    return next(name for name in names if name in CONCRETIZATION_ERRORS)


def _user_frames(error: BaseException) -> tuple[FrameType, ...]:
    """Return the traceback's frames of user code; they have ended, and their locals are kept."""
    from pytest_jaxleaks.jax_internals import is_internal_file

    frames = [frame for frame, _ in traceback.walk_tb(error.__traceback__)]
    running = set()
    walker: FrameType | None = sys._getframe()
    while walker is not None:
        running.add(walker)
        walker = walker.f_back
    return tuple(
        frame
        for frame in frames
        if frame not in running and not is_internal_file(frame.f_code.co_filename)
    )


def _source(error: BaseException) -> str:
    """Return the source of the innermost line of user code."""
    from pytest_jaxleaks.jax_internals import is_internal_file

    found = [
        entry.line or ""
        for entry in traceback.extract_tb(error.__traceback__)
        if not is_internal_file(entry.filename)
    ]
    return found[-1].strip() if found else ""
