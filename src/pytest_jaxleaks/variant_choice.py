"""Which variants a test runs under: marker over option over ini, and the variants there are."""

from __future__ import annotations

import traceback
from typing import TYPE_CHECKING, Any

import pytest

from pytest_jaxleaks.closest_marks import closest_marks
from pytest_jaxleaks.errors import InvalidArgumentError
from pytest_jaxleaks.variant_marks import VariantChoice, read_mark
from pytest_jaxleaks.variants import BUILT_IN, Variant, as_variants, check_names, split_names

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

__all__ = ["Chooser", "chooser_of"]

_CHOOSER = pytest.StashKey["Chooser"]()


class Chooser:
    """Reads the option, the ini value, markers and the project's own variants, each once."""

    def __init__(self, config: pytest.Config) -> None:
        self._config = config
        self._known: dict[Path, dict[str, Variant]] = {}
        self._everywhere: dict[str, Variant] = {}
        self._by_default = self._read_settings()

    def _read_settings(self) -> VariantChoice | None:
        """Read the option or else the ini value; a bad one stops the run before it begins."""
        where = "--jax-variants"
        text: str | list[str] | None = self._config.getoption("jax_variants")
        if text is None:
            where = "ini option jax_variants"
            text = self._config.getini("jax_variants")
        if text is None:
            return None
        known = self._collect(_ask(self._config.hook, self._config))
        try:
            names = check_names(split_names(text), known, where)
        except InvalidArgumentError as error:
            raise pytest.UsageError(str(error)) from None
        self._everywhere = {name: known[name] for name in names}
        return VariantChoice(names)

    def known_to(self, node: pytest.Item | pytest.Collector) -> dict[str, Variant]:
        """List the variants that ``node`` can name: built in, and added by plugins and conftests.

        A conftest's variants are known in its directory and below, as its fixtures are, unless the
        option or the ini value names them for the whole run.
        """
        folder = node.path.parent
        if folder not in self._known:
            given = _ask(node.ihook, self._config)
            self._known[folder] = self._collect(given) | self._everywhere
        return self._known[folder]

    def choice_of(self, node: pytest.Item | pytest.Collector) -> VariantChoice | None:
        """Find the variants that a test runs under.

        Args:
            node: the test or, in ``pytest_generate_tests``, its definition.

        Returns:
            The choice; ``None`` if neither a marker nor the option nor the ini value asks for one.

        Raises:
            pytest.UsageError: if its marker cannot be used.
        """
        marks = closest_marks(node, "jax_variants")
        if not marks:
            return self._by_default
        where = f"@pytest.mark.jax_variants of {node.nodeid}"
        if len(marks) > 1:
            raise pytest.UsageError(f"{where}: expected one marker, but there are {len(marks)}")
        (mark,) = marks
        try:
            return read_mark(mark.args, mark.kwargs, self.known_to(node), where)
        except InvalidArgumentError as error:
            raise pytest.UsageError(str(error)) from None

    @staticmethod
    def _collect(given: list[object]) -> dict[str, Variant]:
        known = {variant.name: variant for variant in BUILT_IN}
        try:
            added = as_variants(given)
        except InvalidArgumentError as error:
            raise pytest.UsageError(str(error)) from None
        for variant in added:
            if variant.name in known:
                raise pytest.UsageError(
                    f"pytest_jaxleaks_variants: there is a variant {variant.name!r} already"
                )
            known[variant.name] = variant
        return known


def _ask(hook: Any, config: pytest.Config) -> list[object]:
    """Call the hook ``pytest_jaxleaks_variants`` of every plugin.

    Raises:
        pytest.UsageError: if one of them raises, with its name.
    """
    caller = hook.pytest_jaxleaks_variants
    try:
        given: list[object] = caller(config=config)
    except Exception as error:
        name = _plugin_that_raised(caller.get_hookimpls(), error)
        text = f"pytest_jaxleaks_variants of {name} raised {type(error).__name__}: {error}"
        raise pytest.UsageError(text) from None
    return given


def _plugin_that_raised(implementations: Iterable[Any], error: Exception) -> str:
    """Name the plugin whose implementation is on the traceback, by its file if it has one."""
    codes = {frame.f_code: line for frame, line in traceback.walk_tb(error.__traceback__)}
    for implementation in implementations:
        code = getattr(implementation.function, "__code__", None)
        if code in codes:
            return f"{code.co_filename} (line {codes[code]})"
    return " or ".join(sorted(str(each.plugin_name) for each in implementations))


def chooser_of(config: pytest.Config) -> Chooser:
    """Return the one chooser of a run, made on first use."""
    if _CHOOSER not in config.stash:
        config.stash[_CHOOSER] = Chooser(config)
    return config.stash[_CHOOSER]
