"""JAX's errors explained beside the failure: what the section says, when, and that mends run."""

from __future__ import annotations

import re
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from pytest_jaxleaks.concretization import (
    CONCRETIZATION_ERRORS,
    Concretization,
    explain,
    numbered_parameters,
)
from pytest_jaxleaks.escaped import Origin, describe_escaped, origin_in

_ESCAPE = """
import jax, jax.numpy as jnp, pytest

class Modèle:
    def __init__(self):
        self.cache = []
    def __call__(self, x):
        self.cache.append(x * 2)
        return x

def use(model):
    jax.jit(model)(jnp.ones(3))
    return model.cache[0] + 1
"""


def _run(pytester: pytest.Pytester, body: str, *options: str) -> str:
    pytester.makepyfile(_ESCAPE + body)
    return str(pytester.runpytest_inprocess("-pno:cacheprovider", *options).stdout)


@pytest.mark.parametrize("options", [(), ("--jax-leaks",)])
def test_an_escaped_tracer_is_traced_to_its_holder(
    pytester: pytest.Pytester, options: tuple[str, ...]
) -> None:
    """The section names holder, chain, place and transformation, with or without the check."""
    text = _run(pytester, "def test_use(): model = Modèle(); use(model)", *options)
    section = text.partition("JAX error explained")[2]
    assert "used after the transformation that made it had ended" in section
    assert "kept by test_an_escaped_tracer_is_traced_to_its_holder.Modèle.cache" in section
    assert re.search(r"reached by  local variable 'model' of (test_)?use -> Modèle.cache", section)
    assert "float32[3] of jit" in section
    assert "self.cache.append(x * 2)" in section
    assert "mend        do not assign traced values to attributes" in section


@pytest.mark.parametrize(
    ("body", "phase"),
    [
        ("@pytest.fixture\ndef it(): use(Modèle())\ndef test_it(it): pass", "setup"),
        (
            "@pytest.fixture\ndef it():\n    yield\n    use(Modèle())\ndef test_it(it): pass",
            "teardown",
        ),
        ("MODEL = Modèle()\nuse(MODEL)\ndef test_it(): pass", "collect"),
        (
            "import unittest\nclass T(unittest.TestCase):\n  def test_it(self): use(Modèle())",
            "call",
        ),
        (
            "def test_it():\n  try: use(Modèle())\n  except Exception as error:\n"
            "    raise RuntimeError('no') from error",
            "RuntimeError was raised from JAX's UnexpectedTracerError.",
        ),
        (
            "def test_it():\n  try: use(Modèle())\n  except Exception:\n"
            "    raise RuntimeError('no')",
            "RuntimeError was raised while handling JAX's UnexpectedTracerError.",
        ),
        (
            "def test_it():\n  try: use(Modèle())\n  except Exception:\n"
            "    raise RuntimeError('no') from None",
            "RuntimeError was raised over, and hides, JAX's UnexpectedTracerError.",
        ),
        (
            "def test_it():\n  try: use(Modèle())\n  except Exception as error:\n"
            "    raise ExceptionGroup('no', [ValueError(), error])",
            "group",
        ),
    ],
)
def test_every_phase_is_explained(pytester: pytest.Pytester, body: str, phase: str) -> None:
    """Fixtures, imports, unittest, causes and groups of errors are explained alike."""
    text = _run(pytester, body)
    assert text.count("JAX error explained") == 1, phase
    section = text.partition("JAX error explained")[2]
    assert "Modèle.cache" in section
    assert phase in section or not phase.endswith(".")


def test_one_ini_option_turns_it_off(pytester: pytest.Pytester) -> None:
    """``jax_leaks_explain = false``."""
    body = "def test_use(): use(Modèle())"
    assert "JAX error explained" not in _run(pytester, body, "-o", "jax_leaks_explain=false")


def test_passing_and_unrelated_failures_get_no_section(pytester: pytest.Pytester) -> None:
    """An expected error and an error of another kind are not explained."""
    body = (
        "def test_raises():\n  with pytest.raises(jax.errors.UnexpectedTracerError):\n"
        "    use(Modèle())\ndef test_other(): assert 0\n"
    )
    assert "JAX error explained" not in _run(pytester, body)


def test_a_users_exception_is_not_asked_for_its_text(pytester: pytest.Pytester) -> None:
    """An argument whose ``__str__`` raises does no harm."""
    body = (
        "class Mute:\n  def __str__(self): raise RuntimeError('mute')\n  __repr__ = __str__\n"
        "def test_mute(): raise Exception(Mute())\n"
    )
    text = _run(pytester, body)
    assert "1 failed" in text
    assert "could not explain" not in text
    assert "INTERNALERROR" not in text


def test_many_failures_are_bounded(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Who holds a value is looked up for the first failures only; the rest say where it is from."""
    monkeypatch.setattr("pytest_jaxleaks.explaining._MOST_SEARCHES", 1)
    body = "@pytest.mark.parametrize('i', range(3))\ndef test_use(i): use(Modèle())"
    text = _run(pytester, body)
    assert text.count("JAX error explained") == 3
    assert text.count("looked up for the first 1 errors only") == 2
    assert text.count("made at") == 3


def test_what_nobody_holds_is_said_to_be_so() -> None:
    """Without a holder, the text gives what JAX recorded."""
    origin = Origin("step", "m.py", 3, "jit", "m.py:4")
    text = "\n".join(describe_escaped(origin, ()))
    assert "step (m.py:3), for jit" in text
    assert "made at     m.py:4" in text
    assert "nothing that outlives the failing call" in text


def test_a_message_without_details_is_no_error() -> None:
    """Messages of other JAX versions leave the fields empty."""
    assert origin_in("Something else entirely.") == Origin()


def _fails(function: Any, *args: Any, **named: Any) -> Concretization:
    with pytest.raises((TypeError, IndexError)) as caught:
        jax.jit(function)(*args, **named)
    line = str(caught.traceback[-1].statement).strip()
    for entry in caught.traceback:
        if str(entry.path) == __file__:
            line = str(entry.statement).strip()
    names = [cls.__name__ for cls in caught.type.__mro__]
    name = next(name for name in names if name in CONCRETIZATION_ERRORS)
    return Concretization(name, str(caught.value.args[0]), line)


def _if(x: Any) -> Any:
    if x.sum() > 0:
        return x
    return -x


def _while(x: Any) -> Any:
    while x.sum() < 10:
        x = x + 1
    return x


def _assert(x: Any) -> Any:
    assert x.sum() > 0
    return x


def _max(x: Any) -> Any:
    return max(x[0], x[1])


def _and(x: Any) -> Any:
    return x[0] > 0 and x[1] > 0


def _float(x: Any) -> Any:
    return float(x[0])


def _numpy(x: Any) -> Any:
    return np.sin(x)


def _mask(x: Any) -> Any:
    return x[x > 0].sum()


def _range(x: Any) -> Any:
    return [i for i in range(x.astype(int)[0])]  # noqa: C416


def _index(x: Any) -> Any:
    return (1, 2, 3)[x.astype(int)[0]]


_X = jnp.ones(3)
_MENDS = [
    (_if, "`if`", "jnp.where", lambda x: jnp.where(x.sum() > 0, x, -x)),
    (_if, "`if`", "jax.lax.cond", lambda x: jax.lax.cond(x.sum() > 0, lambda: x, lambda: -x)),
    (
        _while,
        "`while`",
        "jax.lax.while_loop(condition, body, start)",
        lambda x: jax.lax.while_loop(lambda x: x.sum() < 10, lambda x: x + 1, x),
    ),
    (
        _assert,
        "`assert`",
        "equinox.error_if(x, condition, message)",
        lambda x: eqx.error_if(x, x.sum() <= 0, "must be positive"),
    ),
    (_max, "min, max", "jnp.maximum", lambda x: jnp.maximum(x[0], x[1])),
    (_and, "`and`", "jnp.logical_and", lambda x: jnp.logical_and(x[0] > 0, x[1] > 0)),
    (_float, "a Python number", "x.astype(float)", lambda x: x[0].astype(float)),
    (_numpy, "a numpy function", "the function of the same name in jax.numpy", jnp.sin),
    (
        _numpy,
        "a numpy function",
        "jax.pure_callback(function, jax.ShapeDtypeStruct(...), x)",
        lambda x: jax.pure_callback(np.sin, jax.ShapeDtypeStruct(x.shape, x.dtype), x),
    ),
    (_mask, "x[mask]", "jnp.where(mask, x, 0)", lambda x: jnp.where(x > 0, x, 0).sum()),
    (_mask, "x[mask]", "where=mask", lambda x: jnp.sum(x, where=x > 0)),
    (_mask, "x[mask]", "jnp.nonzero(mask, size=n)", lambda x: jnp.nonzero(x > 0, size=2)),
    (
        _range,
        "range()",
        "jax.lax.fori_loop(0, n, body, start)",
        lambda x: jax.lax.fori_loop(0, x.astype(int)[0], lambda i, y: y + i, 0),
    ),
    (_index, "index", "jnp.asarray(sequence)[i]", lambda x: jnp.asarray((1, 2))[x.astype(int)[0]]),
    (
        _index,
        "index",
        "jax.lax.switch(i, functions, *args)",
        lambda x: jax.lax.switch(x.astype(int)[0], [jnp.sin, jnp.cos], x),
    ),
    (
        _index,
        "index",
        "jax.lax.dynamic_slice_in_dim(x, start, size)",
        lambda x: jax.lax.dynamic_slice_in_dim(x, x.astype(int)[0], 2),
    ),
]


@pytest.mark.parametrize(("broken", "need", "mend", "mended"), _MENDS)
def test_each_mend_is_told_and_runs(broken: Any, need: str, mend: str, mended: Any) -> None:
    """The section names argument, need and mend; and the mend runs under jit."""
    lines = explain(_fails(broken, _X))
    assert need in lines[0]
    if broken is not _mask:  # JAX does not say it there
        assert "  depends on  argument x" in lines
    assert any(mend in line for line in lines if line.startswith("  mend"))
    jax.block_until_ready(jax.jit(mended)(_X))


def test_a_setting_is_advised_to_be_static() -> None:
    """static_argnames has the names that JAX gives, and it runs."""

    def scaled(x: Any, mode: Any, power: Any) -> Any:
        return x * 2 if mode > power else x

    lines = explain(_fails(scaled, _X, 1, 0))
    assert lines[-1].endswith("jax.jit(..., static_argnames=('mode', 'power'))")
    assert jax.jit(scaled, static_argnames=("mode", "power"))(_X, 1, 0)[0] == 2


class _Scaler:
    def by(self, x: Any, mode: Any, /) -> Any:
        return x if mode else -x


def test_a_positional_only_parameter_is_advised_by_number() -> None:
    """static_argnames cannot name such a parameter; what is advised runs, a method's too."""

    def scaled(x: Any, mode: Any, /, power: Any, *, sign: Any) -> Any:
        return sign * x if mode > power + sign else x

    method = _Scaler().by
    for failure, function, advice in (
        (_fails(scaled, _X, 1, 0, sign=1), scaled, "static_argnums=(1, 2), static_argnames='sign'"),
        (_fails(method, _X, 1), method.__func__, "static_argnums=2"),
    ):
        codes = [_fails.__code__, function.__code__]
        parameters = numbered_parameters(failure.message, codes)
        lines = explain(failure._replace(parameters=parameters))
        assert any(line.endswith(f"jax.jit(..., {advice})") for line in lines), lines
    assert lines[-1].endswith("(counted with self; one less for a bound method)")
    static = jax.jit(scaled, static_argnums=(1, 2), static_argnames="sign")
    assert static(_X, 3, 0, sign=2)[0] == 2
    assert jax.jit(method, static_argnums=1)(_X, 1)[0] == 1


def test_static_arguments_are_not_advised_under_vmap() -> None:
    """Under vmap there is no such argument."""
    with pytest.raises(jax.errors.TracerBoolConversionError) as caught:
        jax.vmap(_if)(jnp.ones((2, 3)))
    message = str(caught.value.args[0])
    lines = explain(Concretization("TracerBoolConversionError", message, "if x.sum() > 0:"))
    assert not any("static" in line for line in lines)


def test_the_section_of_a_concretization_error(pytester: pytest.Pytester) -> None:
    """End to end: the source line decides what the section advises."""
    pytester.makepyfile("""
        import jax
        def größe(β):
            while β < 10:
                β = β * 2
            return β
        def test_it(): jax.jit(größe)(1.0)
        def test_positional(): jax.jit(lambda n, /: 1 if n else 2)(1)
        def test_shape(): jax.jit(lambda size: jax.numpy.zeros(size))(3)
    """)
    text = str(pytester.runpytest_inprocess("-pno:cacheprovider").stdout)
    section = text.partition("JAX error explained")[2]
    assert "`while` repeats by a traced value" in section
    assert "depends on  argument β" in section
    assert "jax.lax.while_loop(condition, body, start)" in section
    assert "jax.jit(..., static_argnames='β')" in section
    assert "jax.jit(..., static_argnums=0)" in section
    assert "shapes, sizes and axes from x.shape (known) and not from values" in section
    assert "jax.jit(..., static_argnames='size')" in section
    assert re.search(r"traced      größe \(.+\.py:2\), for jit", section)


_CHECKED = """
import jax, jax.numpy as jnp, pytest
SEEN = []
def test_true():
    def step(x):
        SEEN.append(x)
        return x
    with jax.checking_leaks():
        jax.jit(step)(jnp.ones(3))

def test_harmless():
    import equinox as eqx
    with jax.checking_leaks():
        jax.vmap(lambda x: eqx.filter_jit(lambda y: y * x)(x))(jnp.ones(3))

def test_harmless_too():
    def outer(x):
        @jax.custom_vjp
        def g(y):
            return y * x
        g.defvjp(lambda y: (g(y), None), lambda _, ct: (ct,))
        return jax.jit(g)(x)
    with jax.checking_leaks():
        jax.vmap(outer)(jnp.ones(3))
"""


def test_jax_s_checker_is_told_right_or_wrong(pytester: pytest.Pytester) -> None:
    """A report of ``jax.checking_leaks()`` is said to be a leak of the user's, or JAX's cache."""
    pytester.makepyfile(_CHECKED)
    text = str(pytester.runpytest_inprocess("-pno:cacheprovider", "-k", "true").stdout)
    section = text.partition("JAX error explained")[2]
    assert "JAX's leak checker is right" in section
    assert "kept by test_jax_s_checker_is_told_right_or_wrong.SEEN" in section
    text = str(pytester.runpytest_inprocess("-pno:cacheprovider", "-k", "harmless").stdout)
    assert text.count("held by JAX's own trace cache, not by your code: harmless") == 2
    assert "JAX's leak checker is right" not in text


_ALSO = """
import equinox as eqx, jax, jax.numpy as jnp, pytest
SEEN = []

@pytest.mark.jax_variants("jit", "leaks")
def test_both():
    @jax.jit
    def step(x):
        SEEN.append(x * 2)
        return jax.vmap(lambda x: eqx.filter_jit(lambda y: y * x)(x))(x)
    step(jnp.ones(3))

@pytest.mark.jax_variants("jit", "leaks")
def test_later():
    @jax.jit
    def step(x):
        y = jax.vmap(lambda x: eqx.filter_jit(lambda y: y * x)(x))(x)
        SEEN.append(y)
        return y
    step(jnp.ones(3))
"""


@pytest.mark.parametrize("options", [(), ("--jax-leaks",)])
def test_harmless_is_not_said_of_a_test_that_leaks_too(
    pytester: pytest.Pytester, options: tuple[str, ...]
) -> None:
    """JAX's checker stops at a harmless value; what our own look has found is told instead.

    With the check on, a leak that only another variant of the test came to counts as well.
    """
    module = "test_harmless_is_not_said_of_a_test_that_leaks_too"
    pytester.makepyfile(_ALSO)
    text = str(pytester.runpytest_inprocess("-pno:cacheprovider", *options).stdout)
    _, both, later = text.split("JAX error explained")
    assert "only JAX's own trace cache holds, but your code keeps a traced value, too" in both
    assert f"kept by {module}.SEEN" in both
    assert "code: harmless" not in both
    assert (f"the test leaks: see {module}.py::test_later[jit]" in later) == bool(options)
    assert ("code: harmless" in later) != bool(options)


def test_values_in_jax_s_caches_are_told_with_v(pytester: pytest.Pytester) -> None:
    """A clean test that leaves values in JAX's caches passes; with -v the run says why."""
    pytester.makepyfile(_CHECKED.replace("with jax.checking_leaks():", "if True:"))
    options = ("--jax-leaks", "-pno:cacheprovider", "-k", "harmless")
    result = pytester.runpytest_inprocess(*options, "-v")
    result.assert_outcomes(passed=2)
    text = str(result.stdout)
    assert "held by JAX's own trace cache, not by your code: harmless" in text
    assert "in 2 tests" in text
    assert "own trace cache" not in str(pytester.runpytest_inprocess(*options).stdout)


_WRONG = """
import equinox as eqx, jax, jax.numpy as jnp
OTHER = []

@jax.jit
def on_keys(params, b):
    return b if params["mean and b"] > 0 else -b

def test_key(): on_keys({"mean and b": 1.0}, 2.0)

@jax.jit
def on_both(flag, params):
    if flag and params["layer 1"][0]: return 1
    return 2

def test_both(): on_both(True, {"layer 1": [True]})

class Model(eqx.Module):
    n: jax.Array
    def __call__(self, x):
        for _ in range(self.n): x = x * 2
        return x

def test_equinox(): eqx.filter_jit(lambda m, x: m(x))(Model(jnp.array(2)), 1.0)

class State: pass
STATE = State()

def keep(x):
    STATE.value = x * 1
    return x

def test_unrelated(): jax.jvp(lambda x: (OTHER.append(x * 1), x)[1], (1.0,), (1.0,))

def test_of_vmap():
    jax.vmap(keep)(jnp.ones(2))
    jnp.sin(STATE.value)
"""


def test_the_right_argument_and_the_right_value_are_named(pytester: pytest.Pytester) -> None:
    """A part of an argument is named as such and not advised to be static; equinox's own is not.

    Of the escaped values only those of the kind, shape and dtype that the error names count, and a
    folder may have blanks in its name.
    """
    folder = pytester.mkdir("with a blank")
    (folder / "test_wrong.py").write_text(_WRONG, "utf-8")
    result = pytester.runpytest_subprocess("-pno:cacheprovider", "--tb=line", str(folder))
    sections = result.stdout.str().split("JAX error explained")[1:]
    key, both, of_equinox, of_vmap = sections
    assert "depends on  argument params['mean and b']" in key
    assert "static_argnames" not in key
    assert "with a blank" in key.partition("  traced  ")[2].partition("\n")[0]
    assert "depends on  argument flag" in both
    assert "static_argnames='flag'" in both
    assert "dynamic" not in of_equinox
    assert "eqx.field(static=True)" in of_equinox
    assert "State.value" in of_vmap
    assert "OTHER" not in of_vmap


@pytest.mark.parametrize(
    ("line", "need"),
    [
        ("return x if x > 0 else -x  # and so on", "a conditional expression chooses"),
        ("return {'this and that': x if x > 0 else 1}", "a conditional expression chooses"),
        ("return x / x.max() if x.max() > 1 else x", "a conditional expression chooses"),
        ("big = bool(jnp.max(x) > 1)", "bool() decides"),
        ("return max(x, 1)", "min, max or sorted compares"),
        ("ok = x > 0 and x < 1", "`and`, `or` or `not` decides"),
        ("if x.max() > 0:  # or not", "`if` chooses"),
    ],
)
def test_the_need_is_read_from_the_code_and_not_from_words(line: str, need: str) -> None:
    """Comments, strings and methods of an array do not count."""
    lines = explain(Concretization("TracerBoolConversionError", "", line))
    assert lines[0].startswith(need)
