"""The README tells what happens: its reports are those of a run, its programs run.

``python tests/test_readme.py`` writes the generated blocks anew.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
README = ROOT / "README.md"
EXAMPLE = "conftest_examples/batched_gradient/test_batched_gradient_broken.py"
_BLOCK = r"(<!-- generated: {name} -->\n```{language}\n)(.*?)(```\n)"
_LANGUAGES = {"report": "text", "json": "json"}


def generate() -> dict[str, str]:
    """Run the example and return the generated blocks by name."""
    with tempfile.TemporaryDirectory() as folder:
        target = Path(folder, "leaks.json")
        options = ["--jax-leaks", f"--jax-leaks-report={target}", "-p", "no:cacheprovider"]
        done = subprocess.run(
            [sys.executable, "-m", "pytest", *options, EXAMPLE],
            cwd=ROOT,
            env={**os.environ, "COLUMNS": "80", "PYTEST_ADDOPTS": ""},
            capture_output=True,
            text=True,
            check=False,
            stdin=subprocess.DEVNULL,
        )
        assert done.returncode == 1, done.stdout + done.stderr
        document = json.loads(target.read_text(encoding="utf-8"))
    return {"report": failures(done.stdout), "json": json.dumps(document, indent=1) + "\n"}


def failures(output: str) -> str:
    """Return the part of pytest's output from the failures to the sum by holder."""
    lines = output.splitlines(keepends=True)
    first = next(i for i, line in enumerate(lines) if " FAILURES " in line)
    start = next(i for i, line in enumerate(lines) if " tracer leaks by holder " in line)
    end = next(i for i in range(start + 1, len(lines)) if lines[i].startswith("==="))
    return f"$ pytest --jax-leaks {EXAMPLE}\n" + "".join(lines[first:end])


def block(text: str, name: str) -> re.Match[str]:
    """Return the place of a generated block in the README."""
    found = re.search(_BLOCK.format(name=name, language=_LANGUAGES[name]), text, re.DOTALL)
    assert found is not None, f"README.md has no block '{name}'"
    return found


def programs() -> list[str]:
    """Return the Python programs in the README."""
    text = README.read_text(encoding="utf-8")
    return re.findall(r"```python\n(.*?)```\n", text, re.DOTALL)


def test_the_generated_blocks_are_those_of_a_run() -> None:
    """The report and the JSON in the README are what pytest prints and writes today."""
    text = README.read_text(encoding="utf-8")
    generated = generate()
    assert block(text, "report")[2] == generated["report"]
    # The versions are those of whoever wrote the README.
    told, found = json.loads(block(text, "json")[2]), json.loads(generated["json"])
    for document in (told, found):
        assert document.pop("jax")
        assert document.pop("python")
    assert told == found


@pytest.mark.parametrize("number", range(len(programs())))
def test_the_programs_run(pytester: pytest.Pytester, number: int) -> None:
    """Each program of the README is a test file that passes, with the check on."""
    pytester.makepyfile(programs()[number])
    outcomes = pytester.runpytest_inprocess("--jax-leaks", "-p", "no:warnings").parseoutcomes()
    assert set(outcomes) == {"passed"}


def test_what_the_readme_refers_to_is_there() -> None:
    """Each relative link leads to a file or folder of the repository."""
    text = README.read_text(encoding="utf-8")
    for target in re.findall(r"\]\(([^)#:]+)\)", text):
        assert (ROOT / target).exists(), target


def main() -> None:
    """Write the generated blocks anew."""
    text = README.read_text(encoding="utf-8")
    for name, content in generate().items():
        found = block(text, name)
        text = text[: found.start(2)] + content + text[found.end(2) :]
    README.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
