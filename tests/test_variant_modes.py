"""Fixtures see the variant, wider ones do not, and modes are restored whatever happens."""

import jax
import pytest

HEADER = """
import contextlib
import pathlib
import jax
import pytest

def mode():
    return "nojit" if jax.config.jax_disable_jit else "jit"
"""


@pytest.fixture
def project(pytester):
    """A project directory; afterwards jax.config must be as it was before."""
    pytester.makeini("[pytest]\nasyncio_default_fixture_loop_scope = function\n")
    before = dict(jax.config.values)
    yield pytester
    assert dict(jax.config.values) == before


def run(project, source, *arguments):
    """Run a test file under jit and nojit."""
    project.makepyfile(HEADER + source)
    return project.runpytest_inprocess("--jax-variants=jit,nojit", *arguments)


def test_function_scoped_fixtures_run_inside(project):
    """Setup, value and teardown of function-scoped fixtures see the mode; so do xunit methods."""
    run(
        project,
        """
@pytest.fixture(autouse=True)
def around(jax_variant):
    assert mode() == jax_variant
    yield
    assert mode() == jax_variant

@pytest.fixture
def inner(around): return mode()

@pytest.fixture
def finalized(request, jax_variant):
    request.addfinalizer(lambda: check(jax_variant))

def check(name): assert mode() == name

class TestGroup:
    def setup_method(self): self.at_setup = mode()
    def teardown_method(self): assert self.at_setup == mode()
    def test_method(self, jax_variant): assert self.at_setup == jax_variant

def setup_function(function): function.at_setup = mode()
def teardown_function(function): assert function.at_setup == mode()

def test_function(inner, finalized, request, jax_variant):
    assert inner == mode() == test_function.at_setup == jax_variant
    request.addfinalizer(lambda: check(jax_variant))
""",
    ).assert_outcomes(passed=4)


def test_wider_scoped_fixtures_run_outside_once(project):
    """Class, module, package and session fixtures are set up and torn down outside, once."""
    result = run(
        project,
        """
LOG = []

@pytest.fixture(scope="session", autouse=True)
def session():
    LOG.append(("session", mode()))
    yield
    LOG.append(("session", mode()))
    assert LOG == [
        (name, "jit") for name in
        ["session", "package", "module", "class", "late", "class", "module", "package", "session"]
    ]

@pytest.fixture(scope="package")
def package(session): yield LOG.append(("package", mode())); LOG.append(("package", mode()))

@pytest.fixture(scope="module")
def module(package): yield LOG.append(("module", mode())); LOG.append(("module", mode()))

@pytest.fixture(scope="class")
def klass(module): yield LOG.append(("class", mode())); LOG.append(("class", mode()))

@pytest.fixture(scope="session")
def late(): LOG.append(("late", mode()))

def setup_module(): assert mode() == "jit"
def teardown_module(): assert mode() == "jit"

class TestGroup:
    @classmethod
    def setup_class(cls): assert mode() == "jit"

    @classmethod
    def teardown_class(cls): assert mode() == "jit"

    @pytest.fixture
    def dynamic(self, request, jax_variant):
        request.getfixturevalue("late")
        assert mode() == jax_variant

    @pytest.mark.parametrize("n", [1, 2])
    def test_all(self, klass, dynamic, jax_variant, n): assert mode() == jax_variant
""",
    )
    result.assert_outcomes(passed=4)


def test_parametrized_module_fixture_is_torn_down_outside(project):
    """A wider fixture that changes its parameter between two items is outside both times."""
    run(
        project,
        """
@pytest.fixture(scope="module", params=[1, 2])
def numbered(request):
    assert mode() == "jit"
    yield request.param
    assert mode() == "jit"

@pytest.fixture
def inner(numbered, jax_variant):
    assert mode() == jax_variant
    yield
    assert mode() == jax_variant

def test_both(inner, numbered): pass
""",
    ).assert_outcomes(passed=4)


def test_wider_fixture_requested_by_the_test_is_outside(project):
    """getfixturevalue in a test leaves the mode for the fixture and comes back to it."""
    run(
        project,
        """
@pytest.fixture(scope="module")
def late(): return mode()

@pytest.fixture(scope="module")
def broken(): raise ValueError(mode())

def test_late(request, jax_variant):
    assert request.getfixturevalue("late") == "jit"
    with pytest.raises(ValueError, match="^jit$"):
        request.getfixturevalue("broken")
    assert mode() == jax_variant
""",
    ).assert_outcomes(passed=2)


def test_a_fixture_may_hold_a_mode_of_its_own(project):
    """A context manager that a fixture holds open wins over the variant, and nests rightly."""
    run(
        project,
        """
@pytest.fixture
def with_jit():
    with jax.disable_jit(False):
        yield

@pytest.fixture
def inside(with_jit): assert mode() == "jit"

def test_with_jit(inside): assert mode() == "jit"
def test_after(jax_variant): assert mode() == jax_variant
""",
    ).assert_outcomes(passed=4)


def test_threads_run_jax_as_it_is(project):
    """JAX's modes belong to a thread: one that the test starts is outside of the variant."""
    run(
        project,
        """
from concurrent.futures import ThreadPoolExecutor

def test_thread(jax_variant):
    with ThreadPoolExecutor() as pool:
        assert pool.submit(mode).result() == "jit"
    assert mode() == jax_variant
""",
    ).assert_outcomes(passed=2)


@pytest.mark.parametrize(
    ("body", "outcomes"),
    [
        ("assert 0", {"failed": 1, "passed": 2}),
        ("pytest.skip('now')", {"skipped": 1, "passed": 2}),
        ("pytest.xfail('now')", {"xfailed": 1, "passed": 2}),
        ("request.getfixturevalue('fails')", {"failed": 1, "passed": 2}),
    ],
)
def test_mode_is_left_after_a_test_that_does_not_pass(project, body, outcomes):
    """The next test without a variant runs as it is."""
    project.makepyfile(
        HEADER
        + f"""
@pytest.fixture
def fails(): raise ValueError

@pytest.mark.jax_variants("nojit")
def test_first(request):
    {body}

def test_second(): assert mode() == "jit"
def test_third(jax_variant): assert jax_variant == mode() == "jit"
"""
    )
    project.runpytest_inprocess().assert_outcomes(**outcomes)


@pytest.mark.parametrize("when", ["setup", "teardown"])
def test_mode_is_left_after_a_fixture_that_fails(project, when):
    """An exception in a fixture's setup or teardown does not leave the mode on."""
    lines = ["assert mode() == 'nojit'", "yield"]
    lines.insert(1 if when == "setup" else 2, "raise ValueError(mode())")
    project.makepyfile(
        HEADER
        + """
@pytest.fixture
def outer():
    yield
    assert mode() == "nojit"

@pytest.fixture
def broken(outer):
    """
        + "\n    ".join(lines)
        + """

@pytest.mark.jax_variants("nojit")
def test_first(broken): pass

def test_second(): assert mode() == "jit"
"""
    )
    result = project.runpytest_inprocess()
    result.assert_outcomes(errors=1, passed=1 if when == "setup" else 2)
    result.stdout.fnmatch_lines(["E * ValueError: nojit"])


@pytest.mark.parametrize("place", ["fixture", "test", "teardown"])
@pytest.mark.parametrize("how", ["pytest.exit('enough')", "raise KeyboardInterrupt"])
def test_mode_is_left_after_exit_and_interrupt(project, how, place):
    """Whatever ends the run, fixtures are torn down inside the mode and it is off at the end."""
    lines = dict.fromkeys(["fixture", "test", "teardown"], "pass")
    lines[place] = how
    project.makepyfile(
        HEADER
        + f"""
@pytest.fixture
def outer():
    yield
    pathlib.Path("seen.txt").write_text(mode())

@pytest.fixture
def ending(outer):
    {lines["fixture"]}
    yield
    {lines["teardown"]}

@pytest.mark.jax_variants("nojit")
def test_first(ending):
    {lines["test"]}
"""
    )
    record = project.inline_run(no_reraise_ctrlc=True)
    assert record.ret == pytest.ExitCode.INTERRUPTED
    if (how, place) != ("raise KeyboardInterrupt", "teardown"):  # then pytest gives up on the rest
        assert (project.path / "seen.txt").read_text() == "nojit"
    assert not jax.config.jax_disable_jit


def test_a_changed_setting_is_named_and_put_back(project):
    """A test that leaves jax.config changed is named in a warning; the next one starts afresh."""
    result = run(
        project,
        """
def test_changes(): jax.config.update("jax_debug_nans", True)
def test_after(): assert not jax.config.jax_debug_nans
def test_restores():
    jax.config.update("jax_debug_nans", True)
    jax.config.update("jax_debug_nans", False)

@pytest.fixture
def nans():
    jax.config.update("jax_debug_nans", True)
    yield
    jax.config.update("jax_debug_nans", False)

def test_fixture(nans): assert jax.config.jax_debug_nans
""",
    )
    result.assert_outcomes(passed=8, warnings=2)
    for name in ("jit", "nojit"):
        result.stdout.fnmatch_lines(
            [
                f"*JaxVariantWarning: *::test_changes?{name}? left jax.config changed: "
                "jax_debug_nans from False to True. It was put back*"
            ]
        )


def test_the_variants_own_setting_changed_by_the_test_is_put_back(project):
    """Updating the option that the mode overrides has no effect inside and none afterwards."""
    result = run(
        project,
        """
def test_changes(jax_variant):
    jax.config.update("jax_disable_jit", True)
    assert mode() == "nojit"

def test_after(jax_variant): assert mode() == jax_variant
""",
    )
    result.assert_outcomes(passed=4, warnings=2)
    result.stdout.fnmatch_lines(["*left jax.config changed: jax_disable_jit from False to True.*"])


def test_a_mode_that_a_test_entered_for_good_is_named(project):
    """What cannot be put back is said to be so."""
    project.makepyfile(
        HEADER
        + """
STUCK = jax.debug_nans(True)

@pytest.mark.jax_variants("jit")
def test_enters(): STUCK.__enter__()

def test_cleans_up(): STUCK.__exit__(None, None, None)
"""
    )
    result = project.runpytest_inprocess()
    result.assert_outcomes(passed=2, warnings=1)
    result.stdout.fnmatch_lines(["*Could not put back: jax_debug_nans (a context manager *"])


def test_settings_of_wider_fixtures_are_kept(project):
    """A session fixture that configures JAX is no test's doing, even if it is set up late."""
    result = run(
        project,
        """
@pytest.fixture(scope="module")
def nans():
    jax.config.update("jax_debug_nans", True)
    yield
    jax.config.update("jax_debug_nans", False)

def test_dynamic(request): request.getfixturevalue("nans")
def test_after(nans): assert jax.config.jax_debug_nans
""",
    )
    result.assert_outcomes(passed=4)
    result.stdout.no_fnmatch_line("*left jax.config changed*")


def test_the_warning_can_be_silenced(project):
    """Its public name works in a filter."""
    result = run(
        project,
        "def test_changes(): jax.config.update('jax_debug_nans', True)",
        "-W",
        "ignore::pytest_jaxleaks.JaxVariantWarning",
    )
    result.assert_outcomes(passed=2, warnings=0)


def test_warnings_as_errors_do_not_break_the_run(project):
    """With -W error the warning is an error of the test that caused it."""
    result = run(
        project,
        """
def test_changes(): jax.config.update("jax_debug_nans", True)
def test_after(): assert not jax.config.jax_debug_nans
""",
        "-W",
        "error::pytest.PytestWarning",
    )
    result.assert_outcomes(passed=4, errors=2)


BROKEN_VARIANTS = """
import contextlib
import pytest
from pytest_jaxleaks import Variant

@contextlib.contextmanager
def no_way_in():
    raise RuntimeError("locked")
    yield

@contextlib.contextmanager
def no_way_out():
    yield
    raise RuntimeError("stuck")

def skips():
    pytest.skip("not today")

def ends():
    raise SystemExit(3)

def pytest_jaxleaks_variants(config):
    return [
        Variant("in", no_way_in, "m"), Variant("out", no_way_out, "m"),
        Variant("skips", skips, "m"), Variant("ends", ends, "m"),
    ]
"""


def test_a_variant_that_cannot_be_entered_fails_its_test_only(project):
    """The error says which variant it was; the tests that follow run."""
    project.makeconftest(BROKEN_VARIANTS)
    result = run(
        project,
        """
@pytest.fixture
def value(): return 1

@pytest.mark.jax_variants("in", "jit")
def test_with_fixture(value): pass

@pytest.mark.jax_variants("in", "jit")
def test_without(): pass

def test_after(value): pass
""",
    )
    result.assert_outcomes(passed=4, failed=1, errors=1)
    result.stdout.fnmatch_lines(
        ["E * RuntimeError: locked", "E * raised on entering the JAX variant 'in'"]
    )


def test_a_mode_may_skip_its_tests_and_no_others(project):
    """A skip or an exit on entering leaves no fixture half set up for the tests that follow."""
    project.makeconftest(BROKEN_VARIANTS)
    result = run(
        project,
        """
@pytest.fixture
def value():
    assert mode() == "jit"
    return 1

@pytest.mark.jax_variants("skips", "ends", "jit")
def test_with_fixture(value): pass

@pytest.mark.jax_variants("skips", "in", "jit")
def test_without(): pass

@pytest.mark.jax_variants("in")
def test_with_a_fixture_that_fails(broken): pass

@pytest.fixture
def broken(): raise ValueError
""",
        "-rs",
    )
    result.assert_outcomes(passed=2, skipped=2, errors=2, failed=1)
    result.stdout.no_fnmatch_line("*jax_modes.py*")
    result.stdout.fnmatch_lines(["SKIPPED*: not today"])
    result.stdout.fnmatch_lines(["*ERROR at setup of test_with_fixture?ends?*", "E *Exit: 3"])
    result.stdout.fnmatch_lines(["*ERROR at setup of *_that_fails?in?*", "E *Error: locked"])


def test_a_variant_that_cannot_be_left_is_an_error_of_its_test(project):
    """The error shows in the test's teardown."""
    project.makeconftest(BROKEN_VARIANTS)
    result = run(
        project,
        "@pytest.mark.jax_variants('out', 'jit')\ndef test_step(): pass\ndef test_after(): pass",
    )
    result.assert_outcomes(passed=4, errors=1)
    result.stdout.fnmatch_lines(
        ["E * RuntimeError: stuck", "E * raised on leaving the JAX variant 'out'"]
    )


def test_rerun_of_a_flaky_test_is_in_its_variant(project):
    """pytest-rerunfailures runs an item again: in its mode, and the last attempt counts."""
    pytest.importorskip("pytest_rerunfailures")
    result = run(
        project,
        """
SEEN = []

@pytest.fixture
def seen(jax_variant):
    assert mode() == jax_variant
    yield SEEN
    assert mode() == jax_variant

def test_flaky(seen, jax_variant):
    seen.append(jax_variant)
    assert mode() == jax_variant
    assert len(seen) > 2
""",
        "--reruns=3",
    )
    result.assert_outcomes(passed=2)
    result.stdout.fnmatch_lines(["1 test under jit, nojit: no disagreement"])


def test_collecting_without_running_says_nothing(project):
    """With --setup-plan no test runs, so there is no summary."""
    result = run(project, "def test_step(): pass", "--setup-plan")
    result.stdout.no_fnmatch_line("*JAX variants*")
