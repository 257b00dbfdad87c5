"""How much longer does a check take than the orders themselves?

Run as ``python benchmarks/transforms.py [mlp] [solve] [log_prob]``. For each subject the script
measures the sum of tracing, compiling and running every order once, and one ``check_transforms``:
each in a process of its own, after one plain call that imports what there is to import, and with
JAX's caches cleared. Both are measured in turn, ROUNDS times; it prints the medians in seconds of
processor time and the median of the rounds' ratios.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from statistics import median
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

ROUNDS = 3


def mlp() -> tuple[Callable[..., Any], tuple[Any, ...], dict[str, Any]]:
    """Return the loss of a small network, its arguments and the options of the check."""
    import equinox as eqx
    import jax
    import jax.numpy as jnp

    model = eqx.nn.MLP(4, 2, 16, 2, key=jax.random.key(0))
    x, y = jnp.ones((8, 4)), jnp.zeros((8, 2))
    options = {"in_axes": (None, 0, 0), "argnums": 0}
    return (lambda model, x, y: jnp.mean((model(x) - y) ** 2)), (model, x, y), options


def solve() -> tuple[Callable[..., Any], tuple[Any, ...], dict[str, Any]]:
    """Return a solve of a differential equation."""
    import diffrax
    import jax.numpy as jnp

    def final(y0: Any, rate: Any) -> Any:
        term = diffrax.ODETerm(lambda _t, y, rate: -rate * y)
        return diffrax.diffeqsolve(term, diffrax.Tsit5(), 0.0, 1.0, 0.1, y0, args=rate).ys

    return final, (jnp.array([1.0, 2.0]), jnp.array(0.5)), {}


def log_prob() -> tuple[Callable[..., Any], tuple[Any, ...], dict[str, Any]]:
    """Return a log-density."""
    import distrax
    import jax.numpy as jnp

    def density(loc: Any, scale: Any, x: Any) -> Any:
        return distrax.MultivariateNormalDiag(loc, scale).log_prob(x)

    return density, (jnp.zeros(3), jnp.ones(3), jnp.full(3, 0.3)), {}


SUBJECTS = {"mlp": mlp, "solve": solve, "log_prob": log_prob}


def bare(name: str) -> float:
    """Return the seconds that building and calling every order once takes."""
    import jax

    from pytest_jaxleaks.meanings import is_batched
    from pytest_jaxleaks.order_names import ORDERS
    from pytest_jaxleaks.orders import build
    from pytest_jaxleaks.plan import UNSET, make_plan
    from pytest_jaxleaks.signature import bind
    from pytest_jaxleaks.transform_checking import subject_of
    from pytest_jaxleaks.transform_report import DEFAULTS

    fn, args, options = SUBJECTS[name]()
    arguments = bind(fn, args, {})
    plan = make_plan(arguments, {**DEFAULTS, "in_axes": UNSET, **options})
    batch = plan.make_batch(arguments, scaled=True)
    subject = subject_of(plan, batch, fn(*batch.example))
    jax.clear_caches()
    begin = time.process_time()
    for order in ORDERS:
        jax.block_until_ready(
            build(order, subject)(*(batch.args if is_batched(order) else batch.example))
        )
    return time.process_time() - begin


def checked(name: str) -> float:
    """Return the seconds that one check takes."""
    import jax

    from pytest_jaxleaks.plan import UNSET, make_plan
    from pytest_jaxleaks.signature import bind
    from pytest_jaxleaks.transform_report import DEFAULTS
    from pytest_jaxleaks.transforms import check_transforms

    fn, args, options = SUBJECTS[name]()
    arguments = bind(fn, args, {})
    plan = make_plan(arguments, {**DEFAULTS, "in_axes": UNSET, **options})
    fn(*plan.make_batch(arguments, scaled=True).example)
    jax.clear_caches()
    begin = time.process_time()
    check_transforms(fn, *args, **options)
    return time.process_time() - begin


def measured(what: str, name: str) -> float:
    """Measure in a process of its own."""
    command = [sys.executable, __file__, "--measure", what, name]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    return float(json.loads(done.stdout))


def main(names: list[str]) -> None:
    """Measure and print a line per subject."""
    print(f"{'subject':<10}{'orders (s)':>12}{'check (s)':>12}{'ratio':>8}")
    for name in names or list(SUBJECTS):
        rounds = [(measured("bare", name), measured("checked", name)) for _ in range(ROUNDS)]
        orders, check = (median(column) for column in zip(*rounds, strict=True))
        ratio = median(check / orders for orders, check in rounds)
        print(f"{name:<10}{orders:>12.2f}{check:>12.2f}{ratio:>8.2f}", flush=True)


if __name__ == "__main__":
    if sys.argv[1:2] == ["--measure"]:
        print(json.dumps({"bare": bare, "checked": checked}[sys.argv[2]](sys.argv[3])))
    else:
        main(sys.argv[1:])
