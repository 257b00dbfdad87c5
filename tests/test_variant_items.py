"""One item per variant, run by pytest itself: ids, precedence, bad input, unittest and doctest."""

import textwrap

import jax
import pytest

from pytest_jaxleaks.variant_items import base_nodeid

MODE = """
import jax

def mode():
    return "nojit" if jax.config.jax_disable_jit else "jit"
"""


@pytest.fixture
def project(pytester):
    """A project directory with the option names that plugins here want to be told."""
    pytester.makeini("[pytest]\nasyncio_default_fixture_loop_scope = function\n")
    return pytester


def ids(pytester, *arguments):
    """Collect and return the test ids, without the file's name."""
    result = pytester.runpytest_inprocess("--collect-only", "-q", *arguments)
    return [line.split("::", 1)[1] for line in result.outlines if "::" in line]


def test_each_test_becomes_one_item_per_variant(project):
    """The variant is last in the id, next to the other variants of the same parameters."""
    project.makepyfile(
        """
        import pytest

        def test_step(): pass

        @pytest.mark.parametrize("n", [1, 3])
        @pytest.mark.parametrize("s", ["a"], ids=["first"])
        def test_many(n, s): pass

        @pytest.fixture(params=["u", "v"], ids=["U", "V"])
        def made(request): return request.param

        def test_fixture(made): pass

        @pytest.mark.parametrize("made", ["w"], indirect=True)
        def test_indirect(made): assert made == "w"
        """
    )
    assert ids(project, "--jax-variants=jit,nojit") == [
        "test_step[jit]",
        "test_step[nojit]",
        "test_many[first-1-jit]",
        "test_many[first-1-nojit]",
        "test_many[first-3-jit]",
        "test_many[first-3-nojit]",
        "test_fixture[U-jit]",
        "test_fixture[U-nojit]",
        "test_fixture[V-jit]",
        "test_fixture[V-nojit]",
        "test_indirect[w-jit]",
        "test_indirect[w-nojit]",
    ]
    project.runpytest_inprocess("--jax-variants=jit,nojit").assert_outcomes(passed=12)


def test_each_item_runs_in_its_variant(project):
    """The test sees the mode, and the fixture jax_variant tells its name."""
    project.makepyfile(
        MODE
        + """
def test_mode(jax_variant):
    assert jax_variant == mode()
    assert jax_variant in ("jit", "nojit")
"""
    )
    project.runpytest_inprocess("--jax-variants=nojit,jit").assert_outcomes(passed=2)
    assert not jax.config.jax_disable_jit


def test_all_built_in_variants_run(project):
    """Every variant of the contract can be named at once."""
    project.makepyfile(
        """
        import jax

        SETTINGS = {
            "nojit": "jax_disable_jit", "leaks": "jax_check_tracer_leaks", "x64": "jax_enable_x64",
            "nans": "jax_debug_nans", "keys": "jax_debug_key_reuse",
        }

        def test_mode(jax_variant):
            on = [name for name, setting in SETTINGS.items() if getattr(jax.config, setting)]
            assert on == ([] if jax_variant == "jit" else [jax_variant])
        """
    )
    result = project.runpytest_inprocess("--jax-variants=jit,nojit,leaks,x64,nans,keys")
    result.assert_outcomes(passed=6)
    result.stdout.fnmatch_lines(
        ["*= JAX variants =*", "1 test under jit, nojit, leaks, x64, nans, keys: no disagreement"]
    )


def test_without_variants_nothing_happens(project):
    """No option, no marker: plain ids, no summary, and JAX is not imported."""
    project.makepyfile(
        test_plain="""
        import sys

        def test_step(): pass

        def test_jax_is_not_imported(): assert "jax" not in sys.modules
        """
    )
    result = project.runpytest_subprocess("-p", "no:randomly", "-v")
    result.assert_outcomes(passed=2)
    result.stdout.fnmatch_lines(["test_plain.py::test_step PASSED*"])
    result.stdout.no_fnmatch_line("*JAX variants*")


def test_fixture_without_a_variant_names_the_plain_mode(project):
    """A test that asks for jax_variant runs once, as it is, if nobody asked for variants."""
    project.makepyfile("def test_step(jax_variant): assert jax_variant == 'jit'")
    assert ids(project) == ["test_step"]
    project.runpytest_inprocess().assert_outcomes(passed=1)


def test_marker_over_option_over_ini(project):
    """The closest marker counts: function, then class, then module; then the option, then ini."""
    project.makeini(
        "[pytest]\nasyncio_default_fixture_loop_scope = function\njax_variants = x64, nans\n"
    )
    source = """
        import pytest

        {mark}

        def test_module(): pass

        @pytest.mark.jax_variants("nans", "jit")
        class TestGroup:
            def test_class(self): pass

            @pytest.mark.jax_variants
            def test_function(self): pass
        """
    project.makepyfile(source.format(mark=""))
    own = [
        "TestGroup::test_class[nans]",
        "TestGroup::test_class[jit]",
        "TestGroup::test_function[jit]",
        "TestGroup::test_function[nojit]",
    ]
    assert ids(project) == ["test_module[x64]", "test_module[nans]", *own]
    assert ids(project, "--jax-variants=keys") == ["test_module[keys]", *own]
    project.makepyfile(source.format(mark="pytestmark = pytest.mark.jax_variants('nojit')"))
    assert ids(project, "--jax-variants=keys") == ["test_module[nojit]", *own]


def test_a_class_is_closer_than_its_base_class(project):
    """pytest lists the marker of the base first; a mixin's marker counts if there is no other."""
    project.makepyfile(
        """
        import pytest, unittest

        @pytest.mark.jax_variants("nojit")
        class Base:
            def test_step(self): pass

        @pytest.mark.jax_variants("x64")
        class TestOwn(Base): pass

        class TestInherited(Base): pass

        class TestOwnList(TestOwn):
            pytestmark = [pytest.mark.jax_variants("nans")]

        @pytest.mark.jax_variants("jit")
        class TestCase(Base, unittest.TestCase): pass
        """
    )
    assert ids(project, "--jax-variants=keys") == [
        "TestOwn::test_step[x64]",
        "TestInherited::test_step[nojit]",
        "TestOwnList::test_step[nans]",
        "TestCase::test_step[jit]",
    ]


@pytest.mark.parametrize(
    "text",
    ["jax_variants = jit,nojit", "jax_variants =\n  jit\n  nojit", "jax_variants = jit nojit"],
)
def test_ini_value_is_a_list(project, text):
    """Commas, spaces and lines separate names in an ini file."""
    project.makeini(f"[pytest]\nasyncio_default_fixture_loop_scope = function\n{text}\n")
    project.makepyfile("def test_step(): pass")
    assert ids(project) == ["test_step[jit]", "test_step[nojit]"]


def test_toml_value_is_a_list(project):
    """pyproject.toml takes a list of strings."""
    (project.path / "tox.ini").unlink()
    project.makepyprojecttoml('[tool.pytest.ini_options]\njax_variants = ["jit", "nojit"]\n')
    project.makepyfile("def test_step(): pass")
    assert ids(project) == ["test_step[jit]", "test_step[nojit]"]


@pytest.mark.parametrize(
    ("names", "message"),
    [
        (
            "fast",
            "ERROR: --jax-variants: unknown variant 'fast'; known variants: jit, nojit, leaks, "
            "x64, nans, keys",
        ),
        ("", "ERROR: --jax-variants: the list of variants is empty; known variants: jit, *"),
        (" , ", "ERROR: --jax-variants: the list of variants is empty; known variants: jit, *"),
        ("jit,jit", "ERROR: --jax-variants: variant 'jit' is named more than once"),
    ],
)
def test_bad_option_is_a_usage_error(project, names, message):
    """A list that cannot be used stops the run before anything is collected."""
    project.makepyfile("def test_step(): pass")
    result = project.runpytest_inprocess(f"--jax-variants={names}")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines([message])


@pytest.mark.parametrize("names", ["fast", ""])
def test_bad_ini_value_is_a_usage_error(project, names):
    """The message names the ini option."""
    project.makeini(f"[pytest]\njax_variants = {names}\n")
    result = project.runpytest_inprocess()
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines(["ERROR: ini option jax_variants: *; known variants: jit, *"])


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("'fast'", "*test_step: unknown variant 'fast'; known variants: jit, nojit, *"),
        ("'jit', 'jit'", "*test_step: variant 'jit' is named more than once"),
        ("['jit', 'nojit']", "*expected names of variants as separate strings, got list*"),
        ("'jit', compare=True", "*test_step: compare=True needs two variants or more*"),
        ("), pytest.mark.jax_variants('jit'", "*test_step: expected one marker, but there are 2"),
        ("'bad'", "*unavailable of variant 'bad' raised ZeroDivisionError: division by zero"),
    ],
)
@pytest.mark.parametrize(
    "test",
    ["def test_step(): pass", "class TestU(unittest.TestCase):\n  def test_step(self): pass"],
)
def test_bad_marker_is_a_collection_error(project, arguments, message, test):
    """A marker that cannot be used is reported where it stands; other files run."""
    mark = f"pytestmark = [pytest.mark.jax_variants({arguments})]"
    project.makeconftest(
        """
        from contextlib import nullcontext
        from pytest_jaxleaks import Variant

        def pytest_jaxleaks_variants(config):
            return Variant("bad", nullcontext, "m", unavailable=lambda: 1 / 0)
        """
    )
    project.makepyfile(
        test_bad=f"import pytest, unittest\n{mark}\n{test}", test_good="def test_g(): pass"
    )
    result = project.runpytest_inprocess("--continue-on-collection-errors")
    result.assert_outcomes(passed=1, errors=1)
    result.stdout.fnmatch_lines(["UsageError: *" + message.removeprefix("*")])


def test_a_marker_of_single_parameters_is_a_collection_error(project):
    """``pytest.param(..., marks=jax_variants(...))`` would be ignored without a word."""
    project.makepyfile(
        """
        import pytest

        @pytest.mark.parametrize("n", [1, pytest.param(2, marks=pytest.mark.jax_variants("nojit"))])
        def test_step(n): pass
        """
    )
    for options in ((), ("--jax-variants=jit,nojit",)):
        result = project.runpytest_inprocess(*options)
        result.assert_outcomes(errors=1)
        result.stdout.fnmatch_lines(
            [
                "UsageError: @pytest.mark.jax_variants of *::test_step?2*: expected on a "
                "function, class or module, but it is one of the marks of a pytest.param"
            ]
        )


def test_a_marker_that_comes_too_late_is_a_warning(project):
    """A hook that marks collected items marks one item, not one per variant."""
    project.makeconftest(
        """
        import pytest

        def pytest_collection_modifyitems(items):
            for item in items:
                item.add_marker(pytest.mark.jax_variants)
        """
    )
    project.makepyfile("def test_step(): pass")
    result = project.runpytest_inprocess()
    result.assert_outcomes(passed=1, warnings=1)
    result.stdout.fnmatch_lines(["*test_step: its jax_variants marker was added after *"])
    path = project.path / "conftest.py"
    path.write_text(path.read_text().replace("jax_variants)", "jax_variants('unknown'))"))
    result = project.runpytest_inprocess("--jax-variants=jit,x64")
    result.assert_outcomes(passed=2, warnings=2)
    result.stdout.fnmatch_lines(["1 test under jit, x64: no disagreement"])


def test_variant_that_cannot_run_here_is_skipped_with_the_reason(project, monkeypatch):
    """With a JAX without the key reuse checker, ``keys`` is skipped and the others run."""
    monkeypatch.delattr("jax.debug_key_reuse")
    project.makepyfile(
        """
        import unittest

        def test_step(): pass

        class TestU(unittest.TestCase):
            def test_method(self): pass
        """
    )
    result = project.runpytest_inprocess("--jax-variants=jit,keys", "-rs")
    result.assert_outcomes(passed=2, skipped=2)
    result.stdout.fnmatch_lines(
        ["SKIPPED*JAX variant 'keys' cannot run here: jax * has no jax.debug_key_reuse"]
    )


def test_keyword_expressions_and_ids_select_variants(project):
    """``-k nojit`` and a full id on the command line find the item, copies included."""
    path = project.makepyfile(
        """
        import unittest

        def test_step(): pass

        class TestU(unittest.TestCase):
            def test_method(self): pass

        def documented():
            '''
            >>> 1 + 1
            2
            '''
        """
    )
    options = ("--jax-variants=jit,nojit", "--doctest-modules")
    name = path.stem
    assert ids(project, *options, "-k", "nojit") == [
        f"{name}.documented[nojit]",
        "test_step[nojit]",
        "TestU::test_method[nojit]",
    ]
    wanted = ["TestU::test_method[jit]", f"{name}.documented[nojit]", "test_step[nojit]"]
    assert ids(project, *options, *[f"{path.name}::{each}" for each in wanted]) == wanted
    assert ids(project, *options, f"{path.name}::TestU::test_method") == [
        "TestU::test_method[jit]",
        "TestU::test_method[nojit]",
    ]


def test_last_failed_runs_the_failed_variant_only(project):
    """``--lf`` finds failed variants of functions, unittest methods and doctests."""
    name = project.makepyfile(
        MODE
        + """
import unittest

def test_step(): assert mode() == "jit"

class TestU(unittest.TestCase):
    def test_method(self): self.assertEqual(mode(), "jit")

def documented():
    '''
    >>> mode()
    'jit'
    '''
"""
    ).stem
    options = ("--jax-variants=jit,nojit", "--doctest-modules")
    project.runpytest_inprocess(*options).assert_outcomes(passed=3, failed=3)
    assert ids(project, *options, "--lf") == [
        f"{name}.documented[nojit]",
        "test_step[nojit]",
        "TestU::test_method[nojit]",
    ]


def test_unittest_and_absl_run_once_per_variant(project):
    """TestCase methods run in the mode with their own name; setUpClass runs once, outside."""
    project.makepyfile(
        MODE
        + """
import unittest
import pytest
from absl.testing import parameterized

SEEN = []

class TestPlain(unittest.TestCase):
    @classmethod
    def setUpClass(cls): SEEN.append(("class", mode()))

    @pytest.fixture(autouse=True)
    def variant(self, jax_variant): self.variant = jax_variant

    def setUp(self):
        self.before = mode()

    def tearDown(self):
        self.assertEqual(mode(), self.variant)

    def test_mode(self):
        SEEN.append((self.id().split(".")[-1], mode()))
        self.assertEqual(self.before, mode())
        self.assertEqual(mode(), self.variant)

    @unittest.expectedFailure
    def test_expected(self): self.fail()

    @unittest.skip("no")
    def test_skipped(self): pass

class TestAbsl(parameterized.TestCase):
    @parameterized.named_parameters(("one", 1), ("two", 2))
    def test_many(self, n): SEEN.append((self._testMethodName, mode()))

class TestAsync(unittest.IsolatedAsyncioTestCase):
    async def test_async(self): SEEN.append(("async", mode()))

def test_seen():
    assert SEEN == [
        ("class", "jit"), ("test_mode", "jit"), ("test_mode", "nojit"),
        ("test_many_one", "jit"), ("test_many_one", "nojit"),
        ("test_many_two", "jit"), ("test_many_two", "nojit"),
        ("async", "jit"), ("async", "nojit"),
    ]
"""
    )
    result = project.runpytest_inprocess("--jax-variants=jit,nojit")
    result.assert_outcomes(passed=10, xfailed=2, skipped=2)


def test_unittest_marker_and_junit_names(project):
    """A marker on a TestCase works, and junit names have the variant."""
    project.makepyfile(
        """
        import pytest, unittest

        @pytest.mark.jax_variants("nojit")
        class TestU(unittest.TestCase):
            def test_method(self): pass
        """
    )
    project.runpytest_inprocess("--junitxml=out.xml").assert_outcomes(passed=1)
    assert 'name="test_method[nojit]"' in (project.path / "out.xml").read_text()


def test_doctests_run_once_per_variant(project):
    """Doctests of modules and of text files run in the mode, each with fresh globals."""
    source = """
        >>> import jax
        >>> fresh = "seen" not in globals()
        >>> seen = True
        >>> fresh, jax.config.jax_disable_jit == (getfixture("jax_variant") == "nojit")
        (True, True)
        """
    project.makepyfile(module=f"def documented():\n    '''{source}'''\n")
    project.maketxtfile(test_text=textwrap.dedent(source))
    result = project.runpytest_inprocess("--jax-variants=jit,nojit", "--doctest-modules")
    result.assert_outcomes(passed=4)


def test_items_that_cannot_be_copied_run_once_and_are_mentioned(project):
    """A custom item runs plainly; the summary says so once."""
    project.makeconftest(
        """
        import pytest

        class Text(pytest.File):
            def collect(self):
                yield Line.from_parent(self, name="a")
                yield Line.from_parent(self, name="b")

        class Line(pytest.Item):
            def runtest(self): pass

        def pytest_collect_file(parent, file_path):
            if file_path.suffix == ".line":
                return Text.from_parent(parent, path=file_path)
        """
    )
    project.makefile(".line", some="x")
    project.makepyfile("def test_step(): pass")
    result = project.runpytest_inprocess("--jax-variants=jit,nojit")
    result.assert_outcomes(passed=4)
    result.stdout.fnmatch_lines(
        ["ran once, as they are, since they cannot be run per variant: 2 Line"], consecutive=True
    )
    assert result.stdout.str().count("cannot be run per variant") == 1


def test_a_test_may_parametrize_itself(project):
    """``parametrize("jax_variant", ...)`` is a choice like any other, and wins over the option."""
    project.makepyfile(
        MODE
        + """
import pytest

@pytest.mark.parametrize("n, jax_variant", [(1, "nojit"), (2, "jit")], indirect=["jax_variant"])
def test_own(n, jax_variant): assert mode() == jax_variant
"""
    )
    assert ids(project, "--jax-variants=x64") == ["test_own[1-nojit]", "test_own[2-jit]"]
    project.runpytest_inprocess().assert_outcomes(passed=2)


def test_a_self_chosen_variant_has_to_exist(project):
    """An unknown name in a test's own parametrization fails that test, with the names there are."""
    project.makepyfile(
        """
        import pytest

        @pytest.mark.parametrize("jax_variant", ["fast", ["jit"]], indirect=True)
        def test_own(jax_variant): pass
        """
    )
    result = project.runpytest_inprocess()
    result.assert_outcomes(errors=2)
    result.stdout.fnmatch_lines(["*unknown variant 'fast'; known variants: jit, nojit, *"])


PROJECT_VARIANTS = """
import jax
from pytest_jaxleaks import Variant

def pytest_jaxleaks_variants(config):
    return [
        Variant("highest", lambda: jax.default_matmul_precision("highest"), "products are coarse"),
        ("legacy", lambda: jax.threefry_partitionable(False), "random streams changed"),
    ]
"""


def test_a_project_adds_variants(project):
    """Names from the hook work in option and marker, and bring their meaning to the verdict."""
    project.makeconftest(PROJECT_VARIANTS)
    project.makepyfile(
        """
        import jax, pytest

        def test_step(jax_variant):
            on = jax.config.jax_default_matmul_precision == "highest"
            assert on == (jax_variant == "highest")
            assert jax_variant != "highest"

        @pytest.mark.jax_variants("legacy")
        def test_marked(): assert not jax.config.jax_threefry_partitionable
        """
    )
    result = project.runpytest_inprocess("--jax-variants=jit,highest")
    result.assert_outcomes(passed=2, failed=1)
    result.stdout.fnmatch_lines(["fails only under highest: products are coarse"])


def test_a_directory_has_its_own_variants(project):
    """A conftest's variants are known below it only, as fixtures are."""
    for name in ("one", "two"):
        project.mkpydir(name).joinpath("test_it.py").write_text(
            "import pytest\n@pytest.mark.jax_variants('highest')\ndef test_it(): pass\n"
        )
    (project.path / "one" / "conftest.py").write_text(PROJECT_VARIANTS)
    result = project.runpytest_inprocess("--continue-on-collection-errors")
    result.assert_outcomes(passed=1, errors=1)
    result.stdout.fnmatch_lines(["*two/test_it.py::test_it: unknown variant 'highest'*"])


def test_the_option_may_name_a_variant_of_any_directory_given(project):
    """What the option names runs everywhere, wherever the hook is."""
    for name in ("one", "two"):
        project.mkpydir(name).joinpath("test_it.py").write_text("def test_it(): pass\n")
    (project.path / "one" / "conftest.py").write_text(PROJECT_VARIANTS)
    result = project.runpytest_inprocess("one", "two", "--jax-variants=jit,highest")
    result.assert_outcomes(passed=4)


@pytest.mark.parametrize(
    ("nodeid", "base"),
    [
        ("t.py::test[nojit]", "t.py::test"),
        ("t.py::test[3-nojit]", "t.py::test[3]"),
        ("t.py::test[a[0]-nojit]", "t.py::test[a[0]]"),
        ("t.py::test[3-nojit]@group", "t.py::test[3]@group"),
        ("t.py::test[nojit]@group", "t.py::test@group"),
        ("t.py::test[nojit-3]", "t.py::test[nojit-3]"),
    ],
)
def test_base_nodeid_is_the_id_without_the_variant(nodeid, base):
    """All variants of a test share it, also with the group that xdist appends."""
    assert base_nodeid(nodeid, "nojit") == base


@pytest.mark.parametrize(
    ("returned", "message"),
    [
        ("'fast'", "pytest_jaxleaks_variants: expected Variant records or tuples *, got str*"),
        ("('jit', print, 'm')", "pytest_jaxleaks_variants: there is a variant 'jit' already"),
        ("('a b', print, 'm')", "name of a variant: expected letters, *, got 'a b'"),
    ],
)
def test_bad_hook_results_are_usage_errors(project, returned, message):
    """What the hook returns is checked before anything is collected."""
    project.makeconftest(f"def pytest_jaxleaks_variants(config): return {returned}")
    result = project.runpytest_inprocess("--jax-variants=jit")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines([f"ERROR: {message}"])
