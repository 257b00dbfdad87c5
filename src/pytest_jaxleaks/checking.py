"""pytest's side of the leak check: options, markers, and a look after each phase of each test."""

from __future__ import annotations

import sys
import traceback
import warnings
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pytest
from _pytest.outcomes import Failed  # pytest.fail.Exception, under a name that can be typed

from pytest_jaxleaks import marks
from pytest_jaxleaks.baseline_options import KNOWN
from pytest_jaxleaks.errors import InvalidArgumentError, JaxLeaksError, TracerLeakError

if TYPE_CHECKING:
    from collections.abc import Generator, Sequence

    from pytest_jaxleaks.leaks import Leak
    from pytest_jaxleaks.watching import Watch

__all__ = ["JaxLeaksWarning", "LeakCheck", "ReportedLeakError", "add_options", "configure"]

_THIRD_PARTY = ("fail", "warn")


class JaxLeaksWarning(UserWarning):
    """Something inside of pytest-jaxleaks went wrong; the test's outcome is not touched."""


class ReportedLeakError(TracerLeakError, Failed):
    """A tracer leak as pytest reports it: the message alone, without a traceback of ours."""

    def __init__(self, message: str, leaks: Sequence[Leak] = ()) -> None:
        Failed.__init__(self, message, pytrace=False)
        self.leaks = tuple(leaks)


# What users see, in reports and in ``raises=``, is the public name.
ReportedLeakError.__name__ = ReportedLeakError.__qualname__ = "TracerLeakError"
ReportedLeakError.__module__ = "builtins"


@dataclass(frozen=True)
class Policy:
    """What counts as a failure, from the command line and the ini file."""

    everywhere: bool
    ignore: tuple[str, ...] = ()
    third_party: str = "fail"


@dataclass
class Findings:
    """What was found in one phase of one test: leaks that fail it, and others.

    ``known`` are those of the accepted ones that nothing but the baseline accepts.
    """

    failing: list[Leak] = field(default_factory=list)
    accepted: list[Leak] = field(default_factory=list)
    known: list[Leak] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    held_by_jax: int = 0

    def __bool__(self) -> bool:
        return bool(self.failing or self.accepted or self.notes or self.held_by_jax)


_MARK = pytest.StashKey["marks.NoTracerLeak | marks.AllowTracerLeak | None"]()
_FINDINGS = pytest.StashKey[dict[str, Findings]]()


def add_options(parser: pytest.Parser) -> None:
    """Add the options and ini values of the leak check."""
    group = parser.getgroup("jax-leaks", "JAX tracer leaks")
    group.addoption(
        "--jax-leaks",
        action="store_true",
        default=None,
        help="Fail each test that leaves a JAX tracer reachable, and say who holds it.",
    )
    parser.addini("jax_leaks", "Check every test, as --jax-leaks does.", type="bool", default=False)
    parser.addini(
        "jax_leaks_ignore",
        "Holders whose leaks are accepted, one pattern a line, as a report prints them.",
        type="linelist",
        default=[],
    )
    parser.addini(
        "jax_leaks_third_party",
        "What to do about leaks into other packages: fail (the default) or warn.",
        default="fail",
    )


def configure(config: pytest.Config) -> None:
    """Register the markers and the check, and read the policy."""
    for description in marks.DESCRIPTIONS:
        config.addinivalue_line("markers", description)
    config.pluginmanager.register(LeakCheck(_policy(config)), "jaxleaks-check")


def _policy(config: pytest.Config) -> Policy:
    third_party = config.getini("jax_leaks_third_party")
    if third_party not in _THIRD_PARTY:
        raise pytest.UsageError(
            f"jax_leaks_third_party must be one of {', '.join(_THIRD_PARTY)}, "
            f"but was {third_party!r}."
        )
    option = config.getoption("jax_leaks", None)
    everywhere = bool(config.getini("jax_leaks") if option is None else option)
    return Policy(everywhere, tuple(config.getini("jax_leaks_ignore")), third_party)


class LeakCheck:
    """The hooks of the leak check. A test that is not checked passes through them untouched."""

    def __init__(self, policy: Policy) -> None:
        self._policy = policy
        self._watch: Watch | None = None
        self._fixtures: dict[int, pytest.FixtureDef[Any]] = {}

    # -- before the tests -------------------------------------------------------------------

    def pytest_report_header(self) -> str | None:
        """Say that the check is on, and only then."""
        return (
            "jax-leaks: every test is checked for tracer leaks" if self._policy.everywhere else None
        )

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        """Read each test's marker, so that a wrong one is told before any test runs."""
        for item in items:
            try:
                item.stash[_MARK] = marks.leak_mark(item.iter_markers())
            except (TypeError, InvalidArgumentError) as error:
                name = "allow_tracer_leak" if "reason" in str(error) else "no_tracer_leak"
                raise pytest.UsageError(f"{item.nodeid}: @pytest.mark.{name}: {error}.") from None

    def _checks(self, item: pytest.Item) -> bool:
        mark = item.stash.get(_MARK, None)
        return self._policy.everywhere or isinstance(mark, marks.NoTracerLeak)

    # -- fixtures ---------------------------------------------------------------------------

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

    # -- the three phases -------------------------------------------------------------------

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_setup(self, item: pytest.Item) -> Generator[None, object, object]:
        """Look after the fixtures of a test were set up."""
        if not self._checks(item):
            return (yield)
        self._begin()
        return (yield from self._phase(item, "setup", None))

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_call(self, item: pytest.Item) -> Generator[None, object, object]:
        """Keep the test's frame and look when the test has ended."""
        if not self._checks(item):
            return (yield)
        from pytest_jaxleaks.frame_keeping import FrameKeeper
        from pytest_jaxleaks.scenes import codes_of

        with FrameKeeper(codes_of(item)) as keeper:
            return (yield from self._phase(item, "call", keeper))

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_teardown(self, item: pytest.Item) -> Generator[None, object, object]:
        """Look after the fixtures of a test were torn down."""
        if not self._checks(item):
            return (yield)
        return (yield from self._phase(item, "teardown", None))

    def _phase(self, item: pytest.Item, phase: str, keeper: Any) -> Generator[None, object, object]:
        __tracebackhide__ = True
        try:
            result = yield
        except (KeyboardInterrupt, pytest.exit.Exception):
            raise
        except BaseException:
            self._look(item, phase, keeper, failed=True)
            raise
        findings = self._look(item, phase, keeper, failed=False)
        if findings.failing:
            raise _failure(findings.failing, phase)
        self._check_strictness(item, phase)
        return result

    def _begin(self) -> None:
        """Start the watch as soon as there is something to watch."""
        if self._watch is None and "jax" in sys.modules:
            from pytest_jaxleaks.watching import Watch

            self._watch = Watch()
            self._watch.start()

    def _look(self, item: pytest.Item, phase: str, keeper: Any, *, failed: bool) -> Findings:
        """Look, whatever happens inside of the engine."""
        self._begin()
        findings = Findings()
        if self._watch is not None:
            try:
                findings = self._findings(item, self._watch, keeper)
            except Exception:
                _warn_of_own_fault(item)
        if findings:
            item.stash.setdefault(_FINDINGS, {})[phase] = findings
            _add_section(item, phase, findings, failed=failed)
        return findings

    def _findings(self, item: pytest.Item, watch: Watch, keeper: Any) -> Findings:
        from pytest_jaxleaks.scenes import code_under_test, surroundings_of

        frames = keeper.frames if keeper is not None else ()
        sighting = watch.look(
            lambda: surroundings_of(item, self._fixtures.values(), frames), code_under_test(item)
        )
        findings = Findings(held_by_jax=sighting.held_by_jax)
        for leak in sighting.leaks:
            accepted = self._accepts(item, leak)
            if not accepted and leak in item.config.stash.get(KNOWN, ()):
                accepted = True
                findings.known.append(leak)
            (findings.accepted if accepted else findings.failing).append(leak)
        if sighting.kept_by_machinery:
            findings.notes.append(
                f"{sighting.kept_by_machinery} traced value(s) are kept by the test run alone, "
                "such as by pytest's log capture: log shapes, or use jax.debug.print."
            )
        return findings

    def _accepts(self, item: pytest.Item, leak: Leak) -> bool:
        mark = item.stash.get(_MARK, None)
        if isinstance(mark, marks.AllowTracerLeak):
            return True
        ignore = self._policy.ignore + (mark.ignore if mark is not None else ())
        if any(leak.matches(pattern) for pattern in ignore):
            return True
        return leak.owner == "third-party" and self._policy.third_party == "warn"

    def _check_strictness(self, item: pytest.Item, phase: str) -> None:
        __tracebackhide__ = True
        mark = item.stash.get(_MARK, None)
        if phase == "call" and isinstance(mark, marks.AllowTracerLeak) and mark.strict:
            found = item.stash.get(_FINDINGS, {}).values()
            if not any(findings.accepted for findings in found):
                pytest.fail(
                    "@pytest.mark.allow_tracer_leak(strict=True): this test leaks no tracer any "
                    f"more (reason given: {mark.reason}). Remove the marker.",
                    pytrace=False,
                )

    # -- after ------------------------------------------------------------------------------

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(
        self, item: pytest.Item, call: pytest.CallInfo[None]
    ) -> Generator[None, pytest.TestReport, pytest.TestReport]:
        """Send the leaks along with the report, in a form that xdist carries."""
        report = yield
        findings = item.stash.get(_FINDINGS, {}).get(call.when)
        if findings is not None:
            report.__dict__["jax_leaks"] = [leak.as_dict() for leak in findings.failing]
            report.__dict__["jax_leaks_accepted"] = [leak.as_dict() for leak in findings.accepted]
            report.__dict__["jax_leaks_known"] = [leak.as_dict() for leak in findings.known]
            report.__dict__["jax_leaks_held_by_jax"] = findings.held_by_jax
        return report

    def pytest_unconfigure(self) -> None:
        """Leave the garbage collector as it was found."""
        if self._watch is not None:
            self._watch.stop()
            self._watch = None


_STRETCHES = {"setup": "setting up the test's fixtures", "call": "the test", "teardown": "teardown"}


def _failure(leaks: Sequence[Leak], phase: str) -> JaxLeaksError:
    from pytest_jaxleaks.leak_text import describe_leaks

    return ReportedLeakError(describe_leaks(leaks, _STRETCHES[phase]), leaks)


def _add_section(item: pytest.Item, phase: str, findings: Findings, *, failed: bool) -> None:
    """Show what does not fail the test: accepted leaks, notes, leaks beside another failure."""
    from pytest_jaxleaks.leak_text import describe_leaks

    leaks = findings.failing + findings.accepted if failed else findings.accepted
    parts = [describe_leaks(leaks, _STRETCHES[phase])] if leaks else []
    if parts or findings.notes:
        item.add_report_section(phase, "tracer leaks", "\n".join([*parts, *findings.notes]))


def _warn_of_own_fault(item: pytest.Item) -> None:
    """Warn with a traceback; not even ``-W error`` makes a failed test of it."""
    with warnings.catch_warnings():
        warnings.simplefilter("always", JaxLeaksWarning)
        warnings.warn(
            f"pytest-jaxleaks could not check {item.nodeid} because of an error of its own; the "
            f"test's outcome stands. Please report it.\n{traceback.format_exc()}",
            JaxLeaksWarning,
            stacklevel=2,
        )
