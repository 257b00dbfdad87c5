"""pytest's side of explained JAX errors: a section beside the failure, in any phase."""

from __future__ import annotations

import dataclasses
import sys
import traceback
from typing import TYPE_CHECKING, Any

import pytest

from pytest_jaxleaks.guarding import warn_of_own_fault

if TYPE_CHECKING:
    from collections.abc import Generator, Iterator
    from types import FrameType

    from pytest_jaxleaks.leaks import CodeUnderTest
    from pytest_jaxleaks.roots import Surroundings

__all__ = ["add_options", "configure", "error_of_checker"]

_SECTION = "JAX error explained"
# Finding out who holds a value takes some tenths of a second; a suite in which everything fails
# for one reason does not get slower by more than this many of those.
_MOST_SEARCHES = 10
_DEEPEST_CAUSE = 10
# TracerBoolConversionError is a ConcretizationTypeError.
_EXPLAINED = (
    "UnexpectedTracerError",
    "ConcretizationTypeError",
    "TracerArrayConversionError",
    "TracerIntegerConversionError",
    "NonConcreteBooleanIndexError",
)


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

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(
        self, item: pytest.Item, call: pytest.CallInfo[None]
    ) -> Generator[None, pytest.TestReport, pytest.TestReport]:
        """Add a section to the report of a phase that failed with an error of JAX's."""
        report = yield
        if report.failed:
            self._add_section(report, item, call)
        return report

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
            error = _jax_error(call.excinfo.value if call.excinfo is not None else None)
            if error is not None:
                report.sections.append((_SECTION, "\n".join(self._explain(error, node))))
        except Exception:
            warn_of_own_fault(f"explain the failure of {node.nodeid}")

    def _explain(self, error: BaseException, node: pytest.Item | pytest.Collector) -> list[str]:
        frames = _user_frames(error)
        if is_of_checker(error):
            return self._explain_checker(error, node, frames)
        if type(error).__name__ != "UnexpectedTracerError":
            from pytest_jaxleaks.concretization import Concretization, explain

            line = _source(error)
            return explain(Concretization(_family(error), _message(error), line))
        from pytest_jaxleaks.escaped import describe_escaped, explain_escaped, origin_in

        self._searches += 1
        if self._searches > _MOST_SEARCHES:
            lines = describe_escaped(origin_in(_message(error)), ())[:-1]
            return [*lines, f"  held by     (looked up for the first {_MOST_SEARCHES} errors only)"]
        return explain_escaped(_message(error), *self._scene(node, frames))

    def _explain_checker(
        self, error: BaseException, node: pytest.Item | pytest.Collector, frames: Any
    ) -> list[str]:
        from pytest_jaxleaks.checker_verdict import explain_checker

        self._searches += 1
        if self._searches > _MOST_SEARCHES:
            return [f"Who holds the value was looked up for the first {_MOST_SEARCHES} errors only"]
        # Where the checker itself broke down it names no value, and functions that were being
        # traced hold theirs rightly: only the outermost function counts, the test.
        kept = frames if _message(error).startswith("Leaked ") else frames[:1]
        return explain_checker(_message(error), *self._scene(node, kept))

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


def _jax_error(error: BaseException | None) -> BaseException | None:
    """Return the first error of JAX's among an error, what it was raised from and its parts."""
    errors = sys.modules.get("jax.errors")
    if errors is None:
        return None
    kinds = tuple(kind for name in _EXPLAINED if isinstance(kind := getattr(errors, name, 0), type))
    return next(
        (each for each in _parts(error) if isinstance(each, kinds) or is_of_checker(each)), None
    )


def error_of_checker(error: BaseException | None) -> BaseException | None:
    """Return the first error of JAX's leak checker among an error and its parts."""
    return next(filter(is_of_checker, _parts(error)), None)


def _parts(error: BaseException | None) -> Iterator[BaseException]:
    """Yield an error, what it was raised from, and what it consists of, nearest first."""
    waiting: list[BaseException | None] = [error]
    for _ in range(_DEEPEST_CAUSE):
        each = waiting.pop(0) if waiting else None
        if each is not None:
            yield each
            context = None if each.__suppress_context__ else each.__context__
            parts = getattr(each, "exceptions", ())
            waiting += [each.__cause__, context, *parts, *_of_doctest(each)]


def _of_doctest(error: BaseException) -> list[BaseException]:
    """Return what a doctest's error has in its own way, and pytest's error of several of them."""
    failures = getattr(error, "failures", None)
    if type(error).__module__.startswith("_pytest") and isinstance(failures, list):
        return failures
    raised = getattr(error, "exc_info", None) if type(error).__module__ == "doctest" else None
    return [raised[1]] if isinstance(raised, tuple) else []


def is_of_checker(error: BaseException) -> bool:
    """Tell whether JAX's leak checker raised: its report, or its own failure to describe a leak.

    The latter is an IndexError that leaves ``contextlib``'s frame of a context manager of JAX's
    (seen with jax 0.10.2).
    """
    if type(error) is Exception:
        return _message(error).startswith("Leaked ")
    if type(error) is not IndexError or error.__traceback__ is None:
        return False
    frames = list(traceback.walk_tb(error.__traceback__))
    notes = "".join(map(str, getattr(error, "__notes__", ())))
    last = frames[-1][0].f_code
    return last.co_name == "__exit__" and "contextlib" in last.co_filename and "JAX" in notes


def _family(error: BaseException) -> str:
    from pytest_jaxleaks.concretization import CONCRETIZATION_ERRORS

    names = [cls.__name__ for cls in type(error).__mro__]
    return next(name for name in names if name in CONCRETIZATION_ERRORS)


def _message(error: BaseException) -> str:
    """Return the message, which is a text with JAX's errors; no user's ``__str__`` is run."""
    return error.args[0] if error.args and isinstance(error.args[0], str) else ""


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
