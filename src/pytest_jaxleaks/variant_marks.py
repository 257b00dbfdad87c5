"""What ``@pytest.mark.jax_variants(...)`` asks for: a pure reading of its arguments."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from pytest_jaxleaks.errors import InvalidArgumentError
from pytest_jaxleaks.variants import check_names

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from pytest_jaxleaks.variants import Variant

__all__ = ["DEFAULT_NAMES", "VariantChoice", "read_mark"]

DEFAULT_NAMES = ("jit", "nojit")


@dataclass(frozen=True)
class VariantChoice:
    """The variants of one test.

    Attributes:
        names: the names, in the order in which they run.
        compare: whether what the runs record with ``jax_record`` has to agree; ``None`` if nothing
            was said about it.
    """

    names: tuple[str, ...]
    compare: bool | None = None

    @property
    def reference(self) -> str:
        """The variant that the others are compared with: the one that is named first."""
        return self.names[0]


def read_mark(
    args: Sequence[object], kwargs: Mapping[str, object], known: Mapping[str, Variant], where: str
) -> VariantChoice:
    """Read the arguments of a ``jax_variants`` marker.

    Args:
        args: its positional arguments: names of variants, none for ``jit`` and ``nojit``.
        kwargs: its keyword arguments: ``compare`` only.
        known: the variants there are, by name.
        where: what to call the marker in a message.

    Returns:
        The choice.

    Raises:
        InvalidArgumentError: if an argument cannot be used.
    """
    unknown = sorted(set(kwargs) - {"compare"})
    if unknown:
        raise InvalidArgumentError(
            f"{where}: unexpected argument {unknown[0]!r}; expected names of variants and compare="
        )
    compare = kwargs.get("compare")
    if "compare" in kwargs and not isinstance(compare, bool):
        raise InvalidArgumentError(f"{where}: compare: expected True or False, got {compare!r}")
    names = check_names(args or DEFAULT_NAMES, known, where)
    if compare and len(names) < 2:
        raise InvalidArgumentError(
            f"{where}: compare=True needs two variants or more, got {names[0]!r} only"
        )
    return VariantChoice(names, bool(compare) if "compare" in kwargs else None)
