"""Nobody pays for what is not used: neither for the plugin when it is off, nor without JAX."""

from __future__ import annotations

import subprocess
import sys

import pytest

HEAVY = ("distrax", "equinox", "jax", "jaxlib", "numpy")
SUITE = f"""
import sys

def test_nothing_heavy_is_imported():
    assert not set({HEAVY}) & set(sys.modules)
"""


def test_importing_the_package_imports_nothing_heavy() -> None:
    """Public names are resolved when they are used."""
    code = f"import sys, pytest_jaxleaks; assert not set({HEAVY}) & set(sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True)


@pytest.mark.parametrize(
    "options",
    [
        (),
        ("--jax-leaks",),
        ("--jax-leaks", "--jax-leaks-fresh", "--jax-leaks-triage"),
        (
            "--jax-leaks",
            "--jax-leaks-report=report.json",
            "--jax-leaks-sarif=report.sarif",
            "--jax-leaks-html=report.html",
            "--jax-leaks-baseline=known.txt",
            "--jax-leaks-write-baseline",
        ),
    ],
    ids=["off", "on", "fresh-and-triage", "reports"],
)
def test_a_run_without_jax_imports_no_jax(
    pytester: pytest.Pytester, options: tuple[str, ...]
) -> None:
    """Whatever is turned on: where the suite imports no JAX, the plugin does not either."""
    pytester.makepyfile(SUITE)
    peers = [f"-pno:{name}" for name in ("jaxtyping", "anyio", "hypothesispytest", "cacheprovider")]
    result = pytester.runpytest_subprocess("-pno:warnings", *peers, *options)
    result.assert_outcomes(passed=1)
    assert "INTERNALERROR" not in result.stderr.str()
