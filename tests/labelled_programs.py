"""Small programs that leak in one way each, or do not, and how they are made into tests."""

from __future__ import annotations

import textwrap
from dataclasses import dataclass

__all__ = ["KINDS", "PROGRAMS", "Program", "as_tests"]


@dataclass(frozen=True)
class Program:
    """A program with known truth.

    Attributes:
        name: what it is about.
        body: what the test does.
        holder: how the holder's name ends; empty for a program without a leak.
        top: what stands above the test, in the module.
    """

    name: str
    body: str
    holder: str = ""
    top: str = ""


PROGRAMS = (
    Program(
        "module_variable",
        "jax.jit(lambda x: GLOBAL.append(x + 1) or x)(1.0)",
        "GLOBAL",
        "GLOBAL = []",
    ),
    Program(
        "attribute",
        """
        model = Model()
        jax.vmap(model)(jnp.ones((2, 3)))
        """,
        "Model.cache",
        """
        class Model:
            def __call__(self, x):
                self.cache = x * 2
                return x
        """,
    ),
    Program(
        "slot",
        """
        model = Slotted()
        jax.jit(lambda x: setattr(model, "state", x + 1) or x)(1.0)
        """,
        "Slotted.state",
        """
        class Slotted:
            __slots__ = ("state",)
        """,
    ),
    Program(
        "class_attribute",
        "jax.grad(lambda x: setattr(Counted, 'last', x * 2) or x * x)(1.0)",
        "Counted.last",
        "class Counted: pass",
    ),
    Program(
        "function_attribute",
        "jax.jit(lambda x: setattr(helper, 'seen', x + 1) or x)(1.0)",
        "helper.seen",
        "def helper(): pass",
    ),
    Program(
        "closure",
        """
        def make(x):
            y = x * 2
            callbacks.append(lambda: y)
            return x
        callbacks = []
        jax.jit(make)(1.0)
        """,
        ".y",
    ),
    Program(
        "default_argument",
        "jax.jit(collect)(1.0)",
        "collect.seen",
        """
        def collect(x, seen=[]):
            seen.append(x * 2)
            return x
        """,
    ),
    Program(
        "cached_function",
        "jax.jit(lambda x: x * table(3).sum())(1.0)",
        "table",
        """
        @functools.lru_cache
        def table(n):
            return jnp.arange(n) * 1.0
        """,
    ),
    Program(
        "cached_property",
        """
        grid = Grid()
        jax.jit(lambda x: x + grid.points.sum())(1.0)
        """,
        "Grid.points",
        """
        class Grid:
            @functools.cached_property
            def points(self):
                return jnp.arange(4) * 0.5
        """,
    ),
    Program(
        "deque",
        "jax.jit(lambda x: HISTORY.append({'x': x + 1}) or x)(1.0)",
        "HISTORY",
        "import collections\nHISTORY = collections.deque(maxlen=3)",
    ),
    Program(
        "generator",
        """
        def numbers(x):
            x = x * 2
            yield x
            yield x
        kept = []
        def f(x):
            kept.append(numbers(x))
            return next(kept[-1])
        jax.jit(f)(1.0)
        """,
        "numbers.x",
    ),
    Program(
        "context_variable",
        "jax.jit(lambda x: CONTEXT.set(x + 1) and x)(1.0)",
        "current_value",
        "import contextvars\nCONTEXT = contextvars.ContextVar('current_value')",
    ),
    Program(
        "thread_local",
        "jax.jit(lambda x: setattr(LOCAL, 'value', x + 1) or x)(1.0)",
        "LOCAL",
        "LOCAL = threading.local()",
    ),
    Program(
        "scan_body",
        """
        box = Box()
        def body(carry, x):
            box.kept.append(carry + x)
            return carry + x, x
        jax.lax.scan(body, 0.0, jnp.ones(3))
        """,
        "Box.kept",
    ),
    Program(
        "jvp",
        """
        box = Box()
        jax.jvp(lambda x: box.kept.append(x * 2) or x, (1.0,), (1.0,))
        """,
        "Box.kept",
    ),
    Program(
        "object_array",
        """
        table = np.empty(2, dtype=object)
        def f(x):
            table[0] = x * 2
            return x
        jax.jit(f)(1.0)
        """,
        "table",
        "import numpy as np",
    ),
    Program("clean_jit", "assert float(jax.jit(lambda x: x + 1)(1.0)) == 2.0"),
    Program(
        "clean_put_back",
        """
        box = Box()
        def f(x):
            box.kept.append(x * 2)
            return box.kept.pop()
        jax.jit(f)(1.0)
        """,
    ),
    Program(
        "clean_result",
        """
        box = Box()
        box.kept = jax.vmap(jax.grad(lambda x: x * x))(jnp.ones(3))
        """,
    ),
    Program("clean_vjp", "_, pullback = jax.vjp(jnp.sin, 1.0)"),
    Program(
        "clean_shapes",
        """
        box = Box()
        jax.jit(lambda x: box.kept.append((x.shape, x.dtype)) or x)(1.0)
        """,
    ),
    Program(
        "clean_error",
        """
        def f(x):
            y = x * 2
            raise ValueError("no")
        with pytest.raises(ValueError) as info:
            jax.jit(f)(1.0)
        """,
    ),
    Program("clean_cycle", "box = Box()\nbox.me = box\nleak_into(box)\ndel box"),
    Program(
        "clean_compile_time_constant",
        "jax.jit(lambda x: x * constant(3).sum())(1.0)",
        top="""
        @functools.lru_cache
        def constant(n):
            with jax.ensure_compile_time_eval():
                return jnp.arange(n) * 1.0
        """,
    ),
    Program(
        "clean_closure_in_custom_vjp",
        """
        def outer(y):
            @jax.custom_vjp
            def f(x):
                return x * y
            f.defvjp(lambda x: (x * y, None), lambda _, g: (g,))
            return f(1.0)
        jax.vmap(outer)(jnp.ones(3))
        """,
    ),
)

# How the head of a test looks, by kind of test; ``{}`` is the program's name.
KINDS = {
    "function": "def test_{}():",
    "method": "class Test_{0}:\n    def test_{0}(self):",
    "unittest": "class Unit_{0}(unittest.TestCase):\n    def test_{0}(self):",
    "absl": (
        "class Absl_{0}(parameterized.TestCase):\n"
        "    @parameterized.named_parameters(('only', 1))\n"
        "    def test_{0}(self, n):"
    ),
    "async": "@pytest.mark.asyncio\nasync def test_{}():\n    await asyncio.sleep(0)",
}


def as_tests(kind: str) -> str:
    """Return the text of a module that has every program as a test of one kind.

    Args:
        kind: a key of ``KINDS``.
    """
    parts = ["from absl.testing import parameterized"]
    for program in PROGRAMS:
        head = KINDS[kind].format(program.name)
        depth = 8 if head.startswith("class") else 4
        parts.append(textwrap.dedent(program.top).strip())
        parts.append(
            f"{head}\n{textwrap.indent(textwrap.dedent(program.body).strip(), ' ' * depth)}"
        )
    return "\n\n".join(parts)
