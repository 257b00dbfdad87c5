"""Known leaks: the file as text, and runs that read, write and compare it."""

from __future__ import annotations

import jax  # noqa: F401 (imported once for the runs within this process)
import pytest

from pytest_jaxleaks import baseline
from pytest_jaxleaks.baseline import KnownLeak, Listed
from pytest_jaxleaks.baseline_text import render, rewrite
from pytest_jaxleaks.errors import InvalidArgumentError

_SUITE = """
import jax, jax.numpy as jnp
MÉMOIRE = []
def keep(x):
    MÉMOIRE.append(x)
    return x
def test_one():
    jax.jit(lambda x: keep(x))(jnp.ones(3))
def test_two():
    seen = {}
    @jax.jit
    def step(x):
        seen["x"] = x
        return x
    step(jnp.ones(3))
def test_clean():
    pass
"""
_BASELINE = ("--jax-leaks", "--jax-leaks-baseline=known.toml", "-pno:cacheprovider")


def test_rendering_and_parsing_are_inverse() -> None:
    """What is written reads back: quotes, backslashes, line breaks, control and other letters."""
    texts = ['a"b', "c\\d", "größe.λ", "line\nbreak", "tab\t\x7f", "\x00", "'''", "#"]
    entries = [KnownLeak(text, f"f{text}", text) for text in texts]
    entries += [KnownLeak("h"), KnownLeak("i", "")]
    again = baseline.parse(render(entries), "x")
    assert [(e.holder, e.function, e.reason) for e in again] == sorted(
        (e.holder, e.function, e.reason) for e in entries
    )


def test_a_name_that_is_no_text_can_be_listed() -> None:
    """The name of a file that is no UTF-8 has surrogates, which TOML cannot write."""
    (entry,) = baseline.parse(render([KnownLeak("m\udcff.x", "f")]), "x")
    assert ("m\udcff.x", "f") in Listed([entry])


def test_the_text_is_sorted_and_the_same_for_any_order() -> None:
    """Random order and xdist do not shake the file; one leak is one paragraph of a diff."""
    entries = [KnownLeak("b", "g"), KnownLeak("a", "f"), KnownLeak("b", "f", "why")]
    text = render(entries)
    assert text == render(reversed(entries))
    assert text.endswith(
        '[[leak]]\nholder = "a"\nfunction = "f"\n\n'
        '[[leak]]\nholder = "b"\nfunction = "f"\nreason = "why"\n\n'
        '[[leak]]\nholder = "b"\nfunction = "g"\n'
    )


@pytest.mark.parametrize(
    ("text", "line", "expected"),
    [
        ("[[leak]]\nholder = model.cache\n", 2, "this is no TOML"),
        ("[[leak]]\nholder = 'a'\n\n[[leak]]\nfunction = 'f'\n", 4, "has no holder"),
        ("[[leak]]\nholder = ' '\n", 1, "has no holder"),
        ("\n[[leak]]\nholder = 3\n", 2, "holder must be a string, but was 3"),
        ("[[leak]]\nholder = 'a'\nreasons = 'b'\n", 1, "unknown 'reasons'"),
        ("[leak]\nholder = 'a'\n", 1, "must be [[leak]] tables"),
        ("\nholder = 'a'\n", 2, "unknown 'holder'. Expected [[leak]] tables only"),
        ("# x\n[[leaks]]\nholder = 'a'\n", 2, "unknown 'leaks'"),
        ("[[leak]]\nholder='a'\n[[leak]]\nholder='a'\n", 3, "a second time (first in line 1)"),
        ("leak = [1]\n", 1, "must be [[leak]] tables"),
        ("[[leak]\n", 1, "this is no TOML"),
    ],
)
def test_hand_edited_nonsense_is_told_by_line(text: str, line: int, expected: str) -> None:
    """An error names file and line, what stood there and what was expected."""
    with pytest.raises(InvalidArgumentError) as caught:
        baseline.parse(text, "known.toml")
    assert str(caught.value).startswith(f"known.toml:{line}: ")
    assert expected in str(caught.value)


def test_writing_keeps_reasons_and_what_did_not_run() -> None:
    """Reasons survive a rewrite; entries of tests that did not run do, if so asked."""
    known = [KnownLeak("a", "f", "why"), KnownLeak("old", "g")]
    found = {("a", "f"), ("new", "h")}
    assert baseline.merged(known, found, keep_gone=False) == [
        KnownLeak("a", "f", "why"),
        KnownLeak("new", "h"),
    ]
    assert KnownLeak("old", "g") in baseline.merged(known, found, keep_gone=True)


def test_entries_written_by_hand_may_be_patterns() -> None:
    """``*`` and ``?`` as in jax_leaks_ignore; an entry without a function means all of them."""
    entries = baseline.parse(
        "[[leak]]\nholder = 'm.*.cache'\n[[leak]]\nholder = 'n.x'\nfunction = 'step_?'\n"
        "[[leak]]\nholder = 'o.x'\n[[leak]]\nholder = 'p.x'\nfunction = ''\n",
        "known.toml",
    )
    listed = Listed(entries)
    meant = [("m.C.cache", "f"), ("m.C.cache", ""), ("n.x", "step_1"), ("o.x", "f"), ("p.x", "")]
    assert [key for key in meant if key not in listed] == []
    for key in (("m.C.store", "f"), ("n.x", "step"), ("M.C.cache", "f"), ("p.x", "f")):
        assert key not in listed
    # Writing again neither spells a pattern out nor drops it while one of its leaks is there.
    found = {("m.C.cache", "f"), ("m.D.cache", "g"), ("q.x", "h")}
    assert [e.key for e in baseline.merged(entries, found, keep_gone=False)] == [
        ("m.*.cache", "*"),
        ("q.x", "h"),
    ]


_COMMENTED = """\
# About this file.

# The sampler is
# old.
[[leak]]
holder = 'b.x'  # said in the meeting
function = "f"
# until June

# next:
[[leak]]
holder = "a.x"

# That is all.
"""


def test_comments_stay_when_the_file_is_written_again() -> None:
    """Those above, in and below entries move with them; top and bottom of the file stay."""
    entries = [*baseline.parse(_COMMENTED, "x"), KnownLeak("aa.x", "g")]
    text, kept = rewrite(_COMMENTED, entries)
    assert kept
    assert text == (
        '# About this file.\n\n# next:\n[[leak]]\nholder = "a.x"\n\n'
        '[[leak]]\nholder = "aa.x"\nfunction = "g"\n\n'
        "# The sampler is\n# old.\n[[leak]]\nholder = 'b.x'  # said in the meeting\n"
        'function = "f"\n# until June\n\n# That is all.\n'
    )
    assert rewrite(text, baseline.parse(text, "x")) == (text, True)
    assert rewrite(text, []) == ("# About this file.\n\n# That is all.\n", True)


def test_comments_that_cannot_be_kept_are_told_of() -> None:
    """Entries that are no [[leak]] tables of their own are right, and are written as such."""
    for old in (
        "# mine\nleak = [{holder = 'a.x'}, {holder = 'b.x'}]\n",
        '[[leak]]\nholder = \'a.x\'\nreason = """\n[[leak]]\n"""  # mine\n'
        "[[leak]]\nholder='b.x'\n",
    ):
        entries = baseline.parse(old, "x")
        text, kept = rewrite(old, entries)
        assert not kept
        again = baseline.parse(text, "x")
        assert [(*e.key, e.reason) for e in again] == [(*e.key, e.reason) for e in entries]
        assert rewrite(old.replace("# mine", ""), entries) == (text, True)


def test_a_written_baseline_makes_the_next_run_pass(pytester: pytest.Pytester) -> None:
    """Write, then run: known leaks are reported and fail nothing; a new one fails."""
    pytester.makepyfile(_SUITE)
    result = pytester.runpytest_inprocess(*_BASELINE, "--jax-leaks-write-baseline")
    result.assert_outcomes(passed=3)
    text = (pytester.path / "known.toml").read_text("utf-8")
    assert text.count("[[leak]]") == 2
    assert ".MÉMOIRE" in text
    result = pytester.runpytest_inprocess(*_BASELINE)
    result.assert_outcomes(passed=3)
    result.stdout.fnmatch_lines(["*2 known leak(s) seen, listed in *known.toml"])
    (pytester.path / "known.toml").write_text(text.replace("step", "stop"), "utf-8")
    pytester.runpytest_inprocess(*_BASELINE).assert_outcomes(passed=2, failed=1)
    (pytester.path / "known.toml").write_text("# Ours.\n\n[[leak]]\nholder = '*.MÉ*'\n", "utf-8")
    pytester.runpytest_inprocess(*_BASELINE).assert_outcomes(passed=2, failed=1)
    pytester.runpytest_inprocess(*_BASELINE, "--jax-leaks-write-baseline")
    text = (pytester.path / "known.toml").read_text("utf-8")
    assert text.startswith("# Ours.\n\n[[leak]]\nholder = '*.MÉ*'\n\n[[leak]]\n")
    assert text.count("[[leak]]") == 2


def test_gone_entries_are_told_and_fail_in_strict_mode(pytester: pytest.Pytester) -> None:
    """A listed leak that a whole run does not find is reported as fixed, by file and line."""
    pytester.makepyfile("def test_clean(): import jax")
    pytester.path.joinpath("known.toml").write_text("\n[[leak]]\nholder = 'gone.Model.cache'\n")
    result = pytester.runpytest_inprocess(*_BASELINE)
    assert result.ret == 0
    result.stdout.fnmatch_lines(["known.toml:2: fixed: gone.Model.cache keeps no value any more*"])
    pytester.makeini("[pytest]\njax_leaks_baseline = known.toml\njax_leaks_baseline_strict = true")
    result = pytester.runpytest_inprocess("--jax-leaks")
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    assert pytester.runpytest_inprocess("--jax-leaks", "-pno:terminal").ret == 1
    for narrower in (["-k", "clean"], ["test_gone_entries_are_told_and_fail_in_strict_mode.py"]):
        result = pytester.runpytest_inprocess("--jax-leaks", *narrower)
        assert result.ret == 0
        result.stdout.no_fnmatch_line("*fixed:*")


def test_leaks_that_a_marker_accepts_are_not_written(pytester: pytest.Pytester) -> None:
    """The baseline lists what nothing else accepts."""
    marked = _SUITE.replace("def test_one", "@pytest.mark.allow_tracer_leak('why')\ndef test_one")
    pytester.makepyfile("import pytest\n" + marked)
    pytester.runpytest_inprocess(*_BASELINE, "--jax-leaks-write-baseline")
    assert (pytester.path / "known.toml").read_text("utf-8").count("[[leak]]") == 1


def test_under_xdist_the_file_is_the_same(pytester: pytest.Pytester) -> None:
    """Workers accept what the file lists, and the controller writes it."""
    pytest.importorskip("xdist")
    pytester.makepyfile(_SUITE)
    pytester.runpytest_inprocess(*_BASELINE, "--jax-leaks-write-baseline")
    text = (pytester.path / "known.toml").read_text("utf-8")
    pytester.runpytest_subprocess(*_BASELINE, "--jax-leaks-write-baseline", "-n1")
    assert (pytester.path / "known.toml").read_text("utf-8") == text
    # A worker tells what was left out in a way that no option shows.
    pytester.makeconftest(
        "def pytest_collection_modifyitems(config, items):\n"
        "    config.hook.pytest_deselected(items=[items.pop(0)])"
    )
    result = pytester.runpytest_subprocess(*_BASELINE, "-n1", "-ojax_leaks_baseline_strict=true")
    result.assert_outcomes(passed=2)
    assert result.ret == 0
    assert "fixed:" not in str(result.stdout)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--jax-leaks-write-baseline"], "*which file? Expected --jax-leaks-baseline=PATH*"),
        (["--jax-leaks-baseline=no.toml"], "*there is no file *no.toml*"),
        (["--jax-leaks-baseline=bad.toml"], "*bad.toml:1: this is no TOML*"),
        (["--jax-leaks-baseline=latin.toml"], "*latin.toml:2: byte 0xe9 is no UTF-8.*"),
        (
            ["--jax-leaks-baseline=no/such/x", "--jax-leaks-write-baseline"],
            "*--jax-leaks-baseline: cannot write *",
        ),
    ],
)
def test_bad_input_stops_the_run_at_its_start(
    pytester: pytest.Pytester, options: list[str], message: str
) -> None:
    """A usage error, before any test runs."""
    pytester.path.joinpath("bad.toml").write_text("holder model.cache")
    pytester.path.joinpath("latin.toml").write_text("[[leak]]\nholder = 'é'\n", "latin-1")
    result = pytester.runpytest_inprocess(*options)
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines([message])


_PARTIAL = """
import os, jax, pytest
KEEP = []
def test_leak():
    if os.environ.get("SKIP"): pytest.skip("no accelerator")
    jax.jit(lambda x: KEEP.append(x))(1.0)
"""


@pytest.fixture
def two_folders(pytester: pytest.Pytester) -> pytest.Pytester:
    """A suite in two folders, each with a known leak; the second entry has a reason."""
    pytester.makeini(
        "[pytest]\njax_leaks = true\njax_leaks_baseline = known.toml\n"
        "jax_leaks_baseline_strict = true\n"
    )
    for name in ("a", "b"):
        folder = pytester.mkdir(f"sub_{name}")
        (folder / f"test_{name}.py").write_text(_PARTIAL)
    pytester.runpytest_inprocess("--jax-leaks-write-baseline")
    path = pytester.path / "known.toml"
    path.write_text(path.read_text() + 'reason = "a long story"\n')
    assert path.read_text().count("[[leak]]") == 2
    return pytester


@pytest.mark.parametrize(
    "options",
    [
        ["sub_a"],
        ["--ignore=sub_b"],
        ["--ignore-glob=*sub_b*"],
        ["--deselect=sub_b/test_b.py"],
        ["--co"],
        ["--setup-plan"],
        ["-k", "nothing"],
    ],
)
def test_a_run_of_a_part_says_nothing_of_the_rest(
    two_folders: pytest.Pytester, options: list[str]
) -> None:
    """What did not run is not gone: no line, no failure, and no entry is lost by writing."""
    path = two_folders.path / "known.toml"
    text = path.read_text()
    result = two_folders.runpytest_inprocess(*options)
    assert "fixed:" not in result.stdout.str()
    assert result.ret in (pytest.ExitCode.OK, pytest.ExitCode.NO_TESTS_COLLECTED)
    two_folders.runpytest_inprocess("--jax-leaks-write-baseline", *options)
    assert path.read_text() == text


def test_a_skipped_test_may_have_leaked(
    two_folders: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where tests were skipped or failed it is not known which leaks are mended."""
    monkeypatch.setenv("SKIP", "1")
    result = two_folders.runpytest_inprocess()
    assert result.ret == 0
    result.stdout.fnmatch_lines(["2 known leak(s) were not seen, and 2 test(s) were skipped*"])
    text = (two_folders.path / "known.toml").read_text()
    two_folders.runpytest_inprocess("--jax-leaks-write-baseline")
    assert (two_folders.path / "known.toml").read_text() == text


def test_all_folders_with_tests_are_the_whole_suite(two_folders: pytest.Pytester) -> None:
    """Naming each folder that has tests is as good as naming none."""
    for name in ("a", "b"):
        (two_folders.path / f"sub_{name}" / f"test_{name}.py").write_text("def test_it(): pass")
    result = two_folders.runpytest_inprocess("sub_a", "sub_b")
    assert result.stdout.str().count("fixed:") == 2
    assert result.ret == pytest.ExitCode.TESTS_FAILED


def test_without_the_check_nothing_is_forgotten(two_folders: pytest.Pytester) -> None:
    """A run that checks nothing does not empty the baseline."""
    text = (two_folders.path / "known.toml").read_text()
    two_folders.runpytest_inprocess("-o", "jax_leaks=false", "--jax-leaks-write-baseline")
    assert (two_folders.path / "known.toml").read_text() == text
