"""Functions that draw, ready to be given a shape, and a generator for them."""

from __future__ import annotations

from collections.abc import Callable

import aiodev
from aiodev.kernels import random

Draw = Callable[..., aiodev.Array]

#: Those whose elements are made of one block's words, or of blocks of their own.
CONTINUOUS: dict[str, Draw] = {
    "random": random.random,
    "uniform": lambda shape=None, **k: random.uniform(-3, 5, shape, **k),
    "normal": lambda shape=None, **k: random.normal(1, 2, shape, **k),
    "standard_normal": random.standard_normal,
    "exponential": lambda shape=None, **k: random.exponential(3, shape, **k),
}
DISCRETE: dict[str, Draw] = {
    "random_raw": random.random_raw,
    "integers": lambda shape=None, **k: random.integers(-3, 2**31, shape, **k),
    "integers_wide": lambda shape=None, **k: random.integers(-(2**62), 2**63, shape, **k),
    "bernoulli": lambda shape=None, **k: random.bernoulli(0.3, shape, **k),
}
DRAWS = {**CONTINUOUS, **DISCRETE}


def generator(seed: int = 5, offset: int = 0) -> aiodev.Generator:
    """One for the CPU."""
    g = aiodev.Generator("cpu").manual_seed(seed)
    g.set_offset(offset)
    return g
