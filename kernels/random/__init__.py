"""Random numbers, by NumPy's names.

Every function draws from a generator, submits to the current stream of its device and waits for nothing. Which words of the
generator an element is made of is fixed when the function is called, so the numbers depend on the seed and the sequence of
calls alone: not on the device, nor on streams, threads, or what else runs.

What the functions have in common:

-   ``shape``: a length, a tuple of lengths, or None for an array of no dimensions, or for that of ``out``.
-   ``dtype``: float16, bfloat16, float32 or float64 (the default) for continuous numbers; functions of whole numbers say which.
-   ``device``: where; by default that of ``out`` or of the generator, else the current one.
-   ``generator``: an :class:`aiodev.Generator` for that device; by default :func:`aiodev.default_generator`.
-   ``out``: an array to fill, of any layout, which is then returned. An array that has gaps is filled by way of another one.

They raise TypeError or ValueError, which name the argument, before anything is drawn, and ``StreamFullError`` where the stream
is full. An array of no elements takes no words.
"""

from __future__ import annotations

from aiodev.kernels.random import samples as _samples  # noqa: F401
from aiodev.kernels.random.bounded_integers import integers
from aiodev.kernels.random.categoricals import categorical, multinomial
from aiodev.kernels.random.choices import choice
from aiodev.kernels.random.gamma_poisson import gamma, poisson
from aiodev.kernels.random.normals import exponential, normal, standard_normal
from aiodev.kernels.random.permutations import permutation, shuffle
from aiodev.kernels.random.philox import block
from aiodev.kernels.random.uniforms import bernoulli, random, random_raw, uniform

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


def __dir__() -> list[str]:
    return __all__
