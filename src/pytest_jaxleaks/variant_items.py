"""One test item per variant: parametrized functions, and copies of unittest and doctest items."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from pytest_jaxleaks.errors import InvalidArgumentError
from pytest_jaxleaks.item_copies import copier_of
from pytest_jaxleaks.variant_choice import chooser_of
from pytest_jaxleaks.variant_recording import JaxVariantWarning

if TYPE_CHECKING:
    from collections.abc import Generator, Iterable, Iterator, Sequence

    from pytest_jaxleaks.variant_marks import VariantChoice
    from pytest_jaxleaks.variants import Variant

__all__ = ["base_nodeid", "choice_at_collection", "runs_plainly", "sibling_nodeid", "variant_name"]

_NAME = pytest.StashKey[str]()
_PLAIN = pytest.StashKey[bool]()
_CHOICE = pytest.StashKey["VariantChoice | None"]()


def variant_name(item: pytest.Item) -> str | None:
    """Return the name of the variant that an item runs under, ``None`` if it has none."""
    if _NAME in item.stash:
        return item.stash[_NAME]
    callspec = getattr(item, "callspec", None)
    if callspec is None or "jax_variant" not in callspec.params:
        return None
    name = callspec.params["jax_variant"]
    return name if isinstance(name, str) else repr(name)  # a test may parametrize itself, badly


def runs_plainly(item: pytest.Item) -> bool:
    """Say whether variants were asked for and the item could not be copied."""
    return _PLAIN in item.stash


def choice_at_collection(item: pytest.Item) -> VariantChoice | None:
    """Return the choice that an item with a variant was made by, whatever marks it got since."""
    return item.stash.get(_CHOICE, None)


def base_nodeid(nodeid: str, variant: str) -> str:
    """Take the variant out of a test id: the name that all variants of a test share."""
    rest, bracket, group = nodeid.rpartition("]")  # xdist's loadgroup appends "@group"
    for ending, closing in ((f"[{variant}", ""), (f"-{variant}", bracket)):
        if rest.endswith(ending):
            return rest.removesuffix(ending) + closing + group
    return nodeid


def sibling_nodeid(nodeid: str, variant: str, other: str) -> str:
    """Return the id of the item that runs the same test under another variant."""
    rest, bracket, group = nodeid.rpartition("]")
    return rest.removesuffix(variant) + other + bracket + group


def _marks(variant: Variant, names: Sequence[str]) -> list[pytest.MarkDecorator]:
    """Make the marks of an item that runs under ``variant``, one of ``names``.

    ``parametrize`` says what the item is; Hypothesis looks for it and would otherwise refuse to run
    one test method on several instances.

    Raises:
        pytest.UsageError: if the variant does not tell whether it can run here.
    """
    marks = [pytest.mark.parametrize("jax_variant", list(names))]
    try:
        reason = variant.reason_to_skip()
    except InvalidArgumentError as error:
        raise pytest.UsageError(str(error)) from None
    if reason is not None:
        text = f"JAX variant {variant.name!r} cannot run here: {reason}"
        marks.append(pytest.mark.skip(reason=text))
    return marks


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_generate_tests(metafunc: pytest.Metafunc) -> Iterator[None]:
    """Parametrize a test function by its variants, after every other parametrization.

    Being last puts the variant last in the id and keeps the variants of a test next to each other.
    """
    yield
    definition = metafunc.definition
    chooser = chooser_of(metafunc.config)
    try:
        choice = chooser.choice_of(definition)
        if choice is None or _parametrizes_itself(definition):
            return
        known = chooser.known_to(definition)
        params = [
            pytest.param(name, id=name, marks=_marks(known[name], choice.names))
            for name in choice.names
        ]
    except pytest.UsageError as error:  # shown without pytest's own frames
        raise pytest.Collector.CollectError(f"UsageError: {error}") from None
    if "jax_variant" not in metafunc.fixturenames:
        metafunc.fixturenames.append("jax_variant")
    metafunc.parametrize("jax_variant", params, indirect=True, scope="function")


def _parametrizes_itself(definition: pytest.Function) -> bool:
    """Say whether a test's own ``parametrize`` names ``jax_variant``: then that is its choice."""
    for mark in definition.iter_markers("parametrize"):
        names = mark.args[0] if mark.args else mark.kwargs.get("argnames", ())
        if isinstance(names, str):
            names = names.replace(",", " ").split()
        if "jax_variant" in names:
            return True
    return False


@pytest.hookimpl(wrapper=True, trylast=True)
def pytest_make_collect_report(
    collector: pytest.Collector,
) -> Generator[None, pytest.CollectReport, pytest.CollectReport]:
    """Put copies in the place of items that cannot be parametrized.

    It is done while collecting, not afterwards, so that ``path::test[nojit]`` on the command line,
    ``--lf`` and ``-k`` see the copies. The innermost wrapper, hence before ``--lf`` filters.
    """
    report = yield
    if report.outcome == "passed":
        try:
            report.result = [
                copied for node in report.result for copied in _per_variant(node, collector.config)
            ]
        except pytest.UsageError as error:
            report.outcome, report.longrepr, report.result = "failed", f"UsageError: {error}", []
        if any(isinstance(node, pytest.Item) and needs_runner(node) for node in report.result):
            _start_runner(collector.config)
    return report


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Warn of markers that a hook like this one added, when the items had long been made."""
    for item in items:
        if item.get_closest_marker("jax_variants") is None or runs_plainly(item):
            continue
        try:
            late = chooser_of(config).choice_of(item) != choice_at_collection(item)
        except pytest.UsageError:
            late = True
        if late:
            item.warn(JaxVariantWarning(f"{item.nodeid}: {_TOO_LATE}"))


_TOO_LATE = (
    "its jax_variants marker was added after the tests had been collected, and has no effect; "
    "put it on the function, class or module, or name variants by option or ini value"
)


def _check_marks_of_params(node: pytest.Item | pytest.Collector) -> None:
    """Refuse a marker of single parameters: the items are made before pytest hands it over."""
    marks = getattr(getattr(node, "callspec", None), "marks", ())
    if any(mark.name == "jax_variants" for mark in marks):
        raise pytest.UsageError(
            f"@pytest.mark.jax_variants of {node.nodeid}: expected on a function, class or module, "
            "but it is one of the marks of a pytest.param"
        )


def needs_runner(item: pytest.Item) -> bool:
    """Say whether something has to happen when the item runs."""
    return variant_name(item) is not None or runs_plainly(item)


def _start_runner(config: pytest.Config) -> None:
    """Register the hooks that enter variants, when the first test with one appears."""
    from pytest_jaxleaks.variant_runs import VariantRunner

    if not config.pluginmanager.has_plugin(VariantRunner.PLUGIN_NAME):
        config.pluginmanager.register(VariantRunner(config), VariantRunner.PLUGIN_NAME)


def _per_variant(
    node: pytest.Item | pytest.Collector, config: pytest.Config
) -> Iterable[pytest.Item | pytest.Collector]:
    """Return what stands in the place of a collected node: itself, or one copy per variant."""
    _check_marks_of_params(node)
    if not isinstance(node, pytest.Item):
        return [node]
    choice = chooser_of(config).choice_of(node)
    if choice is None or variant_name(node) is not None:
        node.stash[_CHOICE] = choice
        return [node]
    copier = copier_of(node)
    if copier is None:
        node.stash[_PLAIN] = True
        return [node]
    known = chooser_of(config).known_to(node)
    copies = []
    for name in choice.names:
        copied = copier(name)
        copied.stash[_NAME] = name
        copied.stash[_CHOICE] = choice
        for mark in _marks(known[name], choice.names):
            copied.add_marker(mark)
        copies.append(copied)
    return copies
