"""Random numbers, by NumPy's names.

Every function draws from a generator (``generator=``, else the device's default one), submits to the current stream and waits
for nothing. It makes its array, or fills ``out=`` and returns that. Which words of the generator an element is made of is
fixed when the function is called, so the numbers depend on the seed and the sequence of calls alone: not on the
device, nor on streams, threads, or what else runs.
"""

from __future__ import annotations

from aiodev.kernels.random.bounded import integers
from aiodev.kernels.random.categories import categorical, multinomial
from aiodev.kernels.random.choices import choice
from aiodev.kernels.random.normals import exponential, normal, standard_normal
from aiodev.kernels.random.permutations import permutation, shuffle
from aiodev.kernels.random.philox import block
from aiodev.kernels.random.rejection import gamma, poisson
from aiodev.kernels.random.words import bernoulli, random, random_raw, uniform

__all__ = [
    "bernoulli",
    "block",
    "categorical",
    "choice",
    "exponential",
    "gamma",
    "integers",
    "multinomial",
    "normal",
    "permutation",
    "poisson",
    "random",
    "random_raw",
    "shuffle",
    "standard_normal",
    "uniform",
]
