"""What ``warm_up`` calls of random numbers.

They draw from generators of their own: who warms up has the same numbers afterwards as who does not.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import aiodev
from aiodev.kernels.random.bounded_integers import integers
from aiodev.kernels.random.categoricals import categorical, multinomial
from aiodev.kernels.random.choices import choice
from aiodev.kernels.random.gamma_poisson import gamma, poisson
from aiodev.kernels.random.normals import exponential, normal, standard_normal
from aiodev.kernels.random.permutations import permutation, shuffle
from aiodev.kernels.random.uniforms import bernoulli, random, random_raw, uniform
from aiodev.kernels.warmup import register_sample

__all__: list[str] = []

_SHAPE = (64, 64)


def _register(function: Callable[..., Any], call: Callable[[Any, aiodev.Generator], object]) -> None:
    register_sample(f"random.{function.__name__}", lambda dtype: call(dtype, aiodev.Generator(aiodev.current_device())))


def _register_draws(function: Callable[..., Any], *given: Any) -> None:
    """Of a function that is told the dtype."""
    _register(function, lambda dtype, generator: function(*given, shape=_SHAPE, dtype=dtype, generator=generator))


def _weights(dtype: Any) -> aiodev.Array:
    return aiodev.ones(_SHAPE[1], dtype=dtype)


for _function in (random, uniform, standard_normal, normal, exponential, poisson, bernoulli):
    _register_draws(_function)
_register_draws(gamma, 2.0)
_register_draws(integers, 0, 10)
_register(random_raw, lambda dtype, generator: random_raw(_SHAPE, generator=generator))
_register(permutation, lambda dtype, generator: permutation(_weights(dtype), generator=generator))
_register(shuffle, lambda dtype, generator: shuffle(_weights(dtype), generator=generator))
_register(choice, lambda dtype, generator: choice(_weights(dtype), _SHAPE, generator=generator))
_register(categorical, lambda dtype, generator: categorical(_weights(dtype), _SHAPE, generator=generator))
_register(multinomial, lambda dtype, generator: multinomial(5, _weights(dtype), _SHAPE, generator=generator))
