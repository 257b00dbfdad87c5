"""Default probes: how to use a distribution, a bijector or a model when the caller does not say.

Only libraries that are imported already are looked at. A default probe must work on the original
object, or there is none.
"""

from __future__ import annotations

import functools
import inspect
import sys
from typing import TYPE_CHECKING, Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

__all__ = ["default_probe"]

_TFP = "tensorflow_probability.substrates.jax"


def default_probe(obj: Any) -> Callable[[Any], Any] | None:
    """Return a function that uses ``obj`` and gives arrays, or None where none is known or works.

    Distributions are sampled with a fixed key and asked for the log probability of the sample;
    bijectors map an array forward and back; equinox modules are called.

    Args:
        obj: the object; the probe is tried on it.
    """
    for probe in _candidates(obj):
        try:
            probe(obj)
        except Exception:  # this way of using it does not suit it
            continue
        return probe
    return None


def _candidates(obj: Any) -> Iterator[Callable[[Any], Any]]:
    if _is_a(obj, "numpyro.distributions", "Distribution"):
        yield _sample_numpyro
    elif _is_a(obj, "distrax", "Distribution") or _is_a(
        obj, f"{_TFP}.distributions", "Distribution"
    ):
        yield _sample_with_seed
    elif _is_a(obj, "distrax", "Bijector") or _is_a(obj, f"{_TFP}.bijectors", "Bijector"):
        yield from map(_forward_and_back, _inputs(obj))
    elif _is_a(obj, "numpyro.distributions.transforms", "Transform"):
        yield from map(_transform, _inputs(obj))
    elif isinstance(obj, eqx.Module) and callable(obj):
        yield from _calls(obj)


def _is_a(obj: Any, module: str, name: str) -> bool:
    cls = getattr(sys.modules.get(module), name, None)
    return isinstance(cls, type) and isinstance(obj, cls)


def _key() -> Any:
    return jax.random.PRNGKey(0)


def _sample_numpyro(obj: Any) -> Any:
    sample = obj.sample(_key())
    return sample, obj.log_prob(sample)


def _sample_with_seed(obj: Any) -> Any:
    sample = obj.sample(seed=_key())
    return sample, obj.log_prob(sample)


def _forward_and_back(x: Any) -> Callable[[Any], Any]:
    def probe(obj: Any) -> Any:
        y = obj.forward(x)
        return y, obj.inverse(y)

    return probe


def _transform(x: Any) -> Callable[[Any], Any]:
    def probe(obj: Any) -> Any:
        y = obj(x)
        return y, obj._inverse(y)

    return probe


def _calls(obj: Any) -> Iterator[Callable[[Any], Any]]:
    try:
        takes_key = "key" in inspect.signature(type(obj).__call__).parameters
    except (TypeError, ValueError):
        takes_key = False
    options = {"key": _key()} if takes_key else {}
    for x in _inputs(obj):
        yield functools.partial(_call, x, options)


def _call(x: Any, options: dict[str, Any], model: Any) -> Any:
    return model(x, **options)


def _inputs(obj: Any) -> list[Any]:
    """Guess arrays that the object takes: of the shapes and the last axes of its leaves."""
    shapes: dict[tuple[int, ...], None] = {}
    for leaf in jax.tree.leaves(obj):
        shape = jnp.shape(leaf) if hasattr(leaf, "shape") else ()
        if shape:
            shapes.setdefault(shape[-1:])
            shapes.setdefault(shape)
            if len(shape) >= 3:  # a convolution: channels first, some room for its kernel
                shapes.setdefault((shape[1], *(size + 4 for size in shape[2:])))
    shapes.setdefault(())
    shapes.setdefault((3,))
    shapes.setdefault((3, 3))
    return [_spread(shape) for shape in list(shapes)[:12]]


def _spread(shape: tuple[int, ...]) -> Any:
    size = 1
    for length in shape:
        size *= length
    return jnp.asarray(np.linspace(0.2, 0.7, size, dtype=np.float32).reshape(shape))
