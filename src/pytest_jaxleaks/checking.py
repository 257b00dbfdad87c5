"""pytest's side of the leak check: options, markers, and a look after each phase of each test."""

from __future__ import annotations

import contextlib
import functools
import sys
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pytest

from pytest_jaxleaks import marks
from pytest_jaxleaks.baseline_options import KNOWN
from pytest_jaxleaks.closest_marks import closest_marks
from pytest_jaxleaks.errors import InvalidArgumentError
from pytest_jaxleaks.findings import FINDINGS, Findings, ReportedLeakError, entries, tell_place
from pytest_jaxleaks.guarding import guarded, warn_of_own_fault
from pytest_jaxleaks.partial_checks import checks_everything
from pytest_jaxleaks.retelling import Retelling

if TYPE_CHECKING:
    from collections.abc import Generator

    from pytest_jaxleaks.item_kinds import Scene
    from pytest_jaxleaks.leaks import Leak
    from pytest_jaxleaks.roots import Surroundings
    from pytest_jaxleaks.thread_look import ThreadLook
    from pytest_jaxleaks.watching import Watch

__all__ = ["LeakCheck", "add_options", "configure"]

_THIRD_PARTY = ("fail", "warn")
# JAX needs several times as long to trace even an empty function: a fixture that was faster than
# this (in seconds) has leaked nothing.
_SHORTEST_TRACE = 50e-6


@dataclass(frozen=True)
class Policy:
    """What counts as a failure, from the command line and the ini file."""

    everywhere: bool
    ignore: tuple[str, ...] = ()
    third_party: str = "fail"

    def accepts(
        self, leak: Leak, mark: marks.NoTracerLeak | marks.AllowTracerLeak | None = None
    ) -> bool:
        """Tell whether a leak does not fail a test that has ``mark``."""
        if isinstance(mark, marks.AllowTracerLeak):
            return True
        ignore = self.ignore + (mark.ignore if mark is not None else ())
        if any(leak.matches(pattern) for pattern in ignore):
            return True
        return leak.owner == "third-party" and self.third_party == "warn"


_MARK = pytest.StashKey["marks.NoTracerLeak | marks.AllowTracerLeak | None"]()


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
    return Policy(checks_everything(config), tuple(config.getini("jax_leaks_ignore")), third_party)


class LeakCheck:
    """The hooks of the leak check. A test that is not checked passes through them untouched."""

    def __init__(self, policy: Policy) -> None:
        self._policy = policy
        self._watch: Watch | None = None
        self._threads: ThreadLook | None = None
        self._fixtures: dict[int, pytest.FixtureDef[Any]] = {}
        # The phase in which fixtures are set up or torn down right now, and since when.
        self._stage: tuple[pytest.Item, Findings] | None = None
        self._since = 0.0
        self._before_tests: Findings | None = None
        self._retelling = Retelling()
        self._unchecked_ran = False

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
                item.stash[_MARK] = marks.leak_mark(closest_marks(item, *marks.NAMES))
            except InvalidArgumentError as error:
                raise pytest.UsageError(f"{item.nodeid}: {error}.") from None

    @pytest.hookimpl(trylast=True)
    def pytest_collection_finish(self, session: pytest.Session) -> None:
        """Look for what importing the tests has leaked: no test is to blame for it."""
        if not self._policy.everywhere or session.config.option.collectonly or not session.items:
            return
        try:
            self._begin(session)
        except Exception:
            warn_of_own_fault("check what was imported")

    def _checks(self, item: pytest.Item) -> bool:
        mark = item.stash.get(_MARK, None)
        return self._policy.everywhere or isinstance(mark, marks.NoTracerLeak)

    def _begin(self, session: pytest.Session) -> None:
        """Start the watch as soon as there is something to watch."""
        if self._watch is None and "jax" in sys.modules:
            from pytest_jaxleaks.scenes import project, surroundings_of_session
            from pytest_jaxleaks.thread_look import ThreadLook
            from pytest_jaxleaks.watching import Watch

            watch, threads = Watch(), ThreadLook()
            if self._policy.everywhere:
                self._before_tests = Findings("collection")
                around = functools.partial(surroundings_of_session, session)
                sighting = watch.look_back(around, project(session.config))
                known = session.config.stash.get(KNOWN, ())
                self._before_tests.add_sighting(sighting, self._policy.accepts, known)
            watch.start()
            threads.start()
            self._watch, self._threads = watch, threads

    # -- fixtures ---------------------------------------------------------------------------

    @pytest.hookimpl(wrapper=True)
    def pytest_fixture_setup(self, fixturedef: pytest.FixtureDef[Any]) -> Generator[None, Any, Any]:
        """Remember which fixtures have a value, to name them, and look at what one has done."""
        since = self._since = time.perf_counter()
        try:
            value = yield
        finally:
            self._fixtures[id(fixturedef)] = fixturedef
        self._look_at_fixture(fixturedef, since)
        return value

    @pytest.hookimpl(trylast=True)
    def pytest_fixture_post_finalizer(self, fixturedef: pytest.FixtureDef[Any]) -> None:
        """Forget a fixture that is gone, and look at what its end has done."""
        if self._fixtures.pop(id(fixturedef), None) is not None:
            self._look_at_fixture(fixturedef, self._since)

    def _look_at_fixture(self, fixturedef: pytest.FixtureDef[Any], since: float) -> None:
        """Tell a fixture's leaks from those of the next one."""
        now = time.perf_counter()
        if self._stage is not None and now - since > _SHORTEST_TRACE:
            item, findings = self._stage
            before = len(findings.failing) + len(findings.accepted)
            self._look_into(findings, item, None)
            if len(findings.failing) + len(findings.accepted) > before:
                from pytest_jaxleaks.scenes import fixture_text

                findings.fixtures.append(fixture_text(fixturedef))
        self._since = time.perf_counter()

    # -- the three phases -------------------------------------------------------------------

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Generator[None, object, object]:
        """Forget what was found in a test when it is over: its reports tell it."""
        try:
            return (yield)
        finally:
            if FINDINGS in item.stash:
                del item.stash[FINDINGS]

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_setup(self, item: pytest.Item) -> Generator[None, object, object]:
        """Look after the fixtures of a test were set up."""
        if not self._checks(item):
            self._unchecked_ran = True
            return (yield)
        item.stash[FINDINGS] = {}
        self._begin(item.session)
        if self._unchecked_ran and self._watch is not None:
            self._watch.know_running()
            self._unchecked_ran = False
        return (yield from self._phase(item, "setup", None))

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_call(self, item: pytest.Item) -> Generator[None, object, object]:
        """Keep the test's frame and look when the test has ended."""
        if not self._checks(item):
            return (yield)
        from pytest_jaxleaks.item_kinds import Scene

        with contextlib.ExitStack() as stack:
            scene = stack.enter_context(Scene().keep(item))
            if self._threads is not None:
                from pytest_jaxleaks.scenes import code_under_test

                stack.enter_context(self._threads.during(code_under_test(item)))
            return (yield from self._phase(item, "call", scene))

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_teardown(self, item: pytest.Item) -> Generator[None, object, object]:
        """Look after the fixtures of a test were torn down."""
        if not self._checks(item):
            return (yield)
        return (yield from self._phase(item, "teardown", None))

    def _phase(
        self, item: pytest.Item, phase: str, scene: Scene | None
    ) -> Generator[None, object, object]:
        __tracebackhide__ = True
        findings = Findings(phase)
        self._stage = None if phase == "call" else (item, findings)
        self._since = time.perf_counter()
        try:
            result = yield
        except (KeyboardInterrupt, pytest.exit.Exception):
            raise
        except BaseException:
            self._look(findings, item, scene, failed=True)
            raise
        finally:
            self._stage = None
        self._look(findings, item, scene, failed=False)
        if findings.failing:
            error = findings.failure(self._retelling, item.nodeid)
            if scene is not None and item.config.getoption("usepdb", default=False):
                end = guarded("find the end of the test", scene.traceback, None)
                raise error.with_traceback(end)
            raise error
        self._check_strictness(item, phase)
        return result

    def _look(
        self, findings: Findings, item: pytest.Item, scene: Scene | None, *, failed: bool
    ) -> None:
        self._look_into(findings, item, scene)
        if findings:
            item.stash.setdefault(FINDINGS, {})[findings.phase] = findings
            findings.add_section(item, failed=failed)

    def _look_into(self, findings: Findings, item: pytest.Item, scene: Scene | None) -> None:
        """Look, whatever happens inside of the engine."""
        try:
            self._begin(item.session)
            if self._watch is not None:
                self._find(findings, item, self._watch, scene)
        except Exception:
            warn_of_own_fault(f"check {item.nodeid}")

    def _find(
        self, findings: Findings, item: pytest.Item, watch: Watch, scene: Scene | None
    ) -> None:
        from pytest_jaxleaks.scenes import code_under_test, surroundings_of

        def around() -> Surroundings:
            return surroundings_of(item, self._fixtures.values(), scene)

        accepts = functools.partial(self._policy.accepts, mark=item.stash.get(_MARK, None))
        known = item.config.stash.get(KNOWN, ())
        findings.add_sighting(watch.look(around, code_under_test(item)), accepts, known)
        if self._threads is not None:
            findings.add(self._threads.leaks(watch), accepts, known)

    def _check_strictness(self, item: pytest.Item, phase: str) -> None:
        __tracebackhide__ = True
        mark = item.stash.get(_MARK, None)
        if phase == "call" and isinstance(mark, marks.AllowTracerLeak) and mark.strict:
            found = item.stash.get(FINDINGS, {}).values()
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
        if call.when == "setup" and self._checks(item):
            report.__dict__["jax_leaks_checked"] = True
        findings = item.stash.get(FINDINGS, {}).get(call.when)
        if findings is not None:
            report.__dict__.update(findings.as_attributes())
            error = call.excinfo and call.excinfo.value
            if isinstance(error, ReportedLeakError):
                told = functools.partial(tell_place, report, error, item.config.rootpath)
                guarded("tell the place of a leak", told, None)
        if self._before_tests:
            report.__dict__["jax_leaks_collection"] = entries(self._before_tests, item.session)
            self._before_tests = None
        return report

    def pytest_unconfigure(self) -> None:
        """Leave the garbage collector as it was found."""
        if self._threads is not None:
            self._threads.stop()
            self._threads = None
        if self._watch is not None:
            self._watch.stop()
            self._watch = None
