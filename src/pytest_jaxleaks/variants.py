"""Named ways to run a test: what a variant is, the built-in ones, and lists of their names.

Nothing here imports pytest, and JAX is imported only when a variant is entered or asked whether it
can run.
"""

from __future__ import annotations

import difflib
import re
from contextlib import nullcontext
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pytest_jaxleaks.errors import InvalidArgumentError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence
    from contextlib import AbstractContextManager

    Mode = Callable[[], AbstractContextManager[object]]

__all__ = ["BUILT_IN", "Variant", "as_variants", "check_names", "split_names"]

# A name becomes part of test ids and of `-k` expressions; lists are split at commas and spaces.
_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.+-]*")


def _always_available() -> None:
    """Say that nothing keeps a variant from running."""


@dataclass(frozen=True)
class Variant:
    """A named way to run a test.

    Attributes:
        name: what stands in the test id and in lists: letters, digits, ``_``, ``.``, ``+`` and
            ``-``, and not one of the names that exist already.
        mode: called without arguments for a new context manager; a test and its function-scoped
            fixtures run inside it. It may be entered more than once per test (it is left while a
            wider-scoped fixture is set up on request), so it has to make a new one every time.
        meaning: one line; what it tells when a test fails under this variant only.
        unavailable: called without arguments for the reason why the variant cannot run here, or
            ``None`` if it can. The tests are then skipped with that reason.
        other_dtypes: whether results may be of another width (``x64``): recorded values of 32 and
            64 bits then count as the same, at the coarser tolerance.

    Example:
        >>> import jax
        >>> from pytest_jaxleaks import Variant
        >>> highest = Variant(
        ...     "highest",
        ...     lambda: jax.default_matmul_precision("highest"),
        ...     "a matrix product is less precise than the test assumes",
        ... )
        >>> with highest.mode():
        ...     jax.config.jax_default_matmul_precision
        'highest'
    """

    name: str
    mode: Mode
    meaning: str
    unavailable: Callable[[], str | None] = _always_available
    other_dtypes: bool = False

    def __post_init__(self) -> None:
        """Refuse what could not be used later."""
        if not isinstance(self.name, str) or not _NAME.fullmatch(self.name):
            raise InvalidArgumentError(
                f"name of a variant: expected letters, digits, '_', '.', '+' and '-', "
                f"got {self.name!r}"
            )
        if not callable(self.mode):
            raise InvalidArgumentError(
                f"mode of variant {self.name!r}: expected a function that returns a new context "
                f"manager, got {type(self.mode).__name__}"
            )
        if not isinstance(self.meaning, str) or not self.meaning or "\n" in self.meaning:
            raise InvalidArgumentError(
                f"meaning of variant {self.name!r}: expected one line of text, got {self.meaning!r}"
            )
        if not callable(self.unavailable):
            raise InvalidArgumentError(
                f"unavailable of variant {self.name!r}: expected a function that returns a reason "
                f"or None, got {type(self.unavailable).__name__}: {self.unavailable!r}"
            )
        if not isinstance(self.other_dtypes, bool):
            raise InvalidArgumentError(
                f"other_dtypes of variant {self.name!r}: expected True or False, "
                f"got {self.other_dtypes!r}"
            )

    def reason_to_skip(self) -> str | None:
        """Ask why the variant cannot run here.

        Returns:
            The reason, ``None`` if it can run.

        Raises:
            InvalidArgumentError: if ``unavailable`` raises, or returns anything else.
        """
        where = f"unavailable of variant {self.name!r}"
        try:
            reason: object = self.unavailable()
        except Exception as error:
            text = f"{where} raised {type(error).__name__}: {error}"
            raise InvalidArgumentError(text) from error
        if reason is None or (isinstance(reason, str) and reason.strip()):
            return reason
        raise InvalidArgumentError(
            f"{where}: expected a function that returns a reason or None, "
            f"but it returned {type(reason).__name__}: {reason!r}"
        )


def _jax_mode(name: str, *args: object) -> Mode:
    """Make the mode that calls ``jax.<name>(*args)``, looked up when it is entered."""

    def mode() -> AbstractContextManager[object]:
        import jax

        manager: AbstractContextManager[object] = getattr(jax, name)(*args)
        return manager

    return mode


def _x64() -> AbstractContextManager[object]:
    import jax
    import jax.experimental

    # Public since jax 0.8; until then it was jax.experimental's.
    home: Any = jax if hasattr(jax, "enable_x64") else jax.experimental
    manager: AbstractContextManager[object] = home.enable_x64(True)
    return manager


def _needs(name: str) -> Callable[[], str | None]:
    """Make an availability check for a variant that rests on ``jax.<name>``."""

    def unavailable() -> str | None:
        import jax

        if hasattr(jax, name):
            return None
        return f"jax {jax.__version__} has no jax.{name}"

    return unavailable


BUILT_IN: tuple[Variant, ...] = (
    Variant(
        "jit",
        nullcontext,
        "JAX as it is: see what the variants that pass have in common",
    ),
    Variant(
        "nojit",
        _jax_mode("disable_jit"),
        "the test relies on tracing (a zero-length scan or map, `.lower()`, a side effect that "
        "happens only while tracing, a scalar that jit would have made an array)",
    ),
    Variant(
        "leaks",
        _jax_mode("checking_leaks"),
        "JAX's own leak checker objects; it reports innocent code too: see what --jax-leaks says",
        unavailable=_needs("checking_leaks"),
    ),
    Variant(
        "x64",
        _x64,
        "the test relies on 32-bit default types (an explicit dtype, an expected repr)",
        other_dtypes=True,
    ),
    Variant(
        "nans",
        _jax_mode("debug_nans", True),
        "a NaN is computed on the way, though it may not reach the result (see jnp.where and its "
        "gradient)",
        unavailable=_needs("debug_nans"),
    ),
    Variant(
        "keys",
        _jax_mode("debug_key_reuse", True),
        "a PRNG key is used more than once (split it)",
        unavailable=_needs("debug_key_reuse"),
    ),
)


def as_variants(given: object) -> list[Variant]:
    """Read what a project's hook returned.

    Args:
        given: a :class:`Variant`, a tuple ``(name, mode, meaning)``, or a list or tuple of them.

    Returns:
        The variants, in order.

    Raises:
        InvalidArgumentError: if it is anything else.
    """
    if given is None:
        return []
    if isinstance(given, Variant):
        return [given]
    if isinstance(given, tuple) and len(given) == 3 and isinstance(given[0], str):
        return [Variant(*given)]
    if isinstance(given, (list, tuple)):
        return [variant for each in given for variant in as_variants(each)]
    raise InvalidArgumentError(
        "pytest_jaxleaks_variants: expected Variant records or tuples (name, mode, meaning), "
        f"got {type(given).__name__}: {given!r}"
    )


def split_names(text: str | Iterable[str]) -> list[str]:
    """Split a list of names at commas and white space, as options and ini values write it."""
    lines = [text] if isinstance(text, str) else text
    return [name for line in lines for name in re.split(r"[\s,]+", line) if name]


def check_names(
    names: Sequence[object], known: Mapping[str, Variant], where: str
) -> tuple[str, ...]:
    """Check a list of names of variants.

    Args:
        names: what was given.
        known: the variants there are, by name.
        where: what to call the list in a message, such as ``--jax-variants``.

    Returns:
        The names.

    Raises:
        InvalidArgumentError: if the list is empty, names a variant twice or an unknown one, or
            holds something that is no name.
    """
    if not names:
        raise InvalidArgumentError(f"{where}: the list of variants is empty; {_expected(known)}")
    checked: list[str] = []
    for name in names:
        if not isinstance(name, str):
            raise InvalidArgumentError(
                f"{where}: expected names of variants as separate strings, got "
                f"{type(name).__name__}: {name!r}; {_expected(known)}"
            )
        if name not in known:
            close = difflib.get_close_matches(name, known, n=1)
            guess = f" (did you mean {close[0]!r}?)" if close else ""
            raise InvalidArgumentError(
                f"{where}: unknown variant {name!r}{guess}; {_expected(known)}"
            )
        if name in checked:
            raise InvalidArgumentError(f"{where}: variant {name!r} is named more than once")
        checked.append(name)
    return tuple(checked)


def _expected(known: Mapping[str, Variant]) -> str:
    return f"known variants: {', '.join(known)}"
