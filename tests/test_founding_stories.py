"""The reports of two real stories: what they say, and that the documentation shows just that."""

from __future__ import annotations

import re
from pathlib import Path

import jax
import pytest

pytestmark = pytest.mark.pytester_example_path("conftest_examples")


_ROOT = Path(__file__).parent.parent
_PAGES = ("README.md", "docs/diagnosis.md")
# <!-- story: batched gradient (jax 0.10.2) -->, a fenced block, <!-- end of story -->
_SHOWN = re.compile(
    r"<!-- story: (.+?) \(jax (.+?)\) -->\n```text\n(.*?)\n```\n<!-- end of story -->", re.DOTALL
)


def _run(pytester: pytest.Pytester, *options: str) -> str:
    pytester.copy_example("founding_stories")
    quiet = ("-pno:cacheprovider", "-pno:warnings", "--jax-leaks")
    return "\n".join(pytester.runpytest_subprocess(*quiet, *options).outlines)


def _section(text: str, start: str, end: str) -> str:
    found = re.search(rf"^{start}.*?\n(.*?)\n{end}", text, re.DOTALL | re.MULTILINE)
    assert found is not None, text
    shown = re.sub(r"\S+site-packages/", "", found[1])
    return "\n".join(line.rstrip() for line in shown.splitlines())


def _story(pytester: pytest.Pytester, name: str) -> str:
    if name == "batched gradient":
        text = _run(pytester, "test_neural_ode.py", "-v")
        assert "test_batched_gradient PASSED" in text
        return _section(text, "_+ test_batched_gradient_of_a_storing_model _+", "=+ tracer leaks")
    pytest.importorskip("distrax")
    text = _run(pytester, "test_distribution.py", "-v")
    assert "test_parameters_from_jit PASSED" in text
    return _section(text, "_+ test_distribution_from_jit _+", "=+ tracer leaks")


_SAYS = {
    "batched gradient": (
        "kept by test_neural_ode.StoringODE.cache",
        "return it from the traced function",
    ),
    "distribution": (
        "kept by distrax.",
        "MultivariateNormalDiag",
        "bound method",
        "return the parameters from jit and build the distribution outside",
    ),
}


def _shown() -> list[tuple[str, str, str, str]]:
    found = []
    for page in _PAGES:
        text = (_ROOT / page).read_text("utf-8") if (_ROOT / page).exists() else ""
        found += [(page, *match.groups()) for match in _SHOWN.finditer(text)]
    return found


@pytest.mark.parametrize("name", _SAYS)
def test_the_documentation_shows_what_the_run_says(pytester: pytest.Pytester, name: str) -> None:
    """Each story names its holder and a mend that runs; the pages show this very text."""
    text = _story(pytester, name)
    (pytester.path / "story.txt").write_text(text, "utf-8")
    for part in _SAYS[name]:
        assert part in text
    for page, shown_name, version, shown in _shown():
        if shown_name == name and version == jax.__version__:
            assert _steady(shown) == _steady(text), page


def _steady(text: str) -> str:
    """Leave out which of distrax's equally long ways to a value is told, and where it was made."""
    if "distrax" in text:
        text = re.sub(r"\n  (made at  .*\n.*|and  .*)", "", text)
    return re.sub(r"DiagLinear\.\w+|bound method '\w+'|ScalarAffine\.\w+", "*", text)


def test_the_pages_show_every_story() -> None:
    """The documentation has all of them; of the first, the README has a report of its own."""
    assert {name for page, name, _, _ in _shown() if page.startswith("docs")} == set(_SAYS)
    assert "distribution" in {name for page, name, _, _ in _shown() if page == "README.md"}
