"""Normal and exponential numbers.

Normal numbers come in pairs, by the transformation of G. E. P. Box and M. E. Muller ("A note on the generation of random normal
deviates", 1958): it takes a fixed number of words, needs no branch, and so is computed for all lanes of a vector at once,
where the rejections of faster scalar methods could not be.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

import aiodev
from aiodev.kernels.arguments import as_float
from aiodev.kernels.random.philox import double_word
from aiodev.kernels.random.reproducible_math import cos_sin_32, cos_sin_64, negative_log_32, negative_log_64
from aiodev.kernels.random.sampling import Fill, Shape, prepare
from aiodev.lang import fma

__all__ = ["exponential", "normal", "standard_normal"]

f4, f8 = np.float32, np.float64
_TWO_32, _TWO_64 = f4(2.0), f8(2.0)
_STANDARD_32, _STANDARD_64 = (f4(0), f4(1)), (f8(0), f8(1))


def _normal_pair_32(first: Any, second: Any, loc: Any, scale: Any) -> Any:
    radius = f4(math.sqrt(negative_log_32(first) * _TWO_32))
    x, y, sign = cos_sin_32(second)
    signed = radius * sign
    return fma(signed * x, scale, loc), fma(signed * y, scale, loc)


def _normal_32(w0: Any, w1: Any, w2: Any, w3: Any, a: Any, b: Any, c: Any) -> Any:
    v0, v1 = _normal_pair_32(w0, w1, a, b)
    v2, v3 = _normal_pair_32(w2, w3, a, b)
    return v0, v1, v2, v3


def _normal_64(w0: Any, w1: Any, w2: Any, w3: Any, a: Any, b: Any, c: Any) -> Any:
    radius = math.sqrt(negative_log_64(double_word(w0, w1)) * _TWO_64)
    x, y, sign = cos_sin_64(double_word(w2, w3))
    signed = radius * sign
    return fma(signed * x, b, a), fma(signed * y, b, a)


def _exponential_32(w0: Any, w1: Any, w2: Any, w3: Any, a: Any, b: Any, c: Any) -> Any:
    return negative_log_32(w0) * a, negative_log_32(w1) * a, negative_log_32(w2) * a, negative_log_32(w3) * a


def _exponential_64(w0: Any, w1: Any, w2: Any, w3: Any, a: Any, b: Any, c: Any) -> Any:
    return negative_log_64(double_word(w0, w1)) * a, negative_log_64(double_word(w2, w3)) * a


_fill_normal = Fill("normal", _normal_32, _normal_64)
_fill_standard = Fill("standard_normal", _normal_32, _normal_64)
_fill_exponential = Fill("exponential", _exponential_32, _exponential_64)


def standard_normal(
    shape: Shape | None = None,
    *,
    dtype: Any = None,
    device: aiodev.DeviceLike | None = None,
    generator: aiodev.Generator | None = None,
    out: aiodev.Array | None = None,
) -> aiodev.Array:
    """Normal numbers of mean 0 and standard deviation 1.

    One word for each element, two for each ``float64``; the even elements are cosines, the odd ones that follow them sines. No
    number is further from 0 than 6.8, or 9.5 in ``float64``: what lies beyond is as rare as a single value of the
    words that it is made of. Devices agree to 4 units in the last place.

    Example:
        >>> import aiodev
        >>> from aiodev.kernels import random
        >>> g = aiodev.Generator("cpu").manual_seed(1)
        >>> bool(abs(random.standard_normal(10**6, generator=g).numpy_blocking().mean()) < 0.003)
        True
    """
    target = prepare("standard_normal", shape, dtype, device, generator, out)
    zero, one = _STANDARD_64 if target.flat.itemsize == 8 else _STANDARD_32
    return _fill_standard(target, zero, one, zero)


def normal(
    loc: float = 0.0,
    scale: float = 1.0,
    shape: Shape | None = None,
    *,
    dtype: Any = None,
    device: aiodev.DeviceLike | None = None,
    generator: aiodev.Generator | None = None,
    out: aiodev.Array | None = None,
) -> aiodev.Array:
    """Normal numbers of mean ``loc`` and standard deviation ``scale``: ``loc + scale * standard_normal()``, rounded once.

    Raises:
        ValueError: ``scale`` is negative, or a parameter is not finite.

    Example:
        >>> import aiodev
        >>> from aiodev.kernels import random
        >>> g = aiodev.Generator("cpu").manual_seed(1)
        >>> x = random.normal(10, 2, 10**6, generator=g).numpy_blocking()
        >>> bool(abs(x.mean() - 10) < 0.01), bool(abs(x.std() - 2) < 0.01)
        (True, True)
    """
    loc, scale = as_float("normal", "loc", loc), as_float("normal", "scale", scale)
    if not (math.isfinite(loc) and math.isfinite(scale) and scale >= 0):
        raise ValueError(f"normal: expected a finite loc and scale >= 0, got loc={loc!r}, scale={scale!r}")
    target = prepare("normal", shape, dtype, device, generator, out)
    kind = f8 if target.flat.itemsize == 8 else f4
    return _fill_normal(target, kind(loc), kind(scale), kind(0))


def exponential(
    scale: float = 1.0,
    shape: Shape | None = None,
    *,
    dtype: Any = None,
    device: aiodev.DeviceLike | None = None,
    generator: aiodev.Generator | None = None,
    out: aiodev.Array | None = None,
) -> aiodev.Array:
    """Exponential numbers of mean ``scale``: the logarithm of a uniform number, negated, so never 0.

    One word for each element, two for each ``float64``. None exceeds 22.9 times the mean, or 45.1 times in ``float64``.
    Devices agree to 4 units in the last place.

    Raises:
        ValueError: ``scale`` is negative, or not finite.

    Example:
        >>> import aiodev
        >>> from aiodev.kernels import random
        >>> g = aiodev.Generator("cpu").manual_seed(1)
        >>> x = random.exponential(3, 10**6, generator=g).numpy_blocking()
        >>> bool(x.min() > 0), bool(abs(x.mean() - 3) < 0.02)
        (True, True)
    """
    scale = as_float("exponential", "scale", scale)
    if not (math.isfinite(scale) and scale >= 0):
        raise ValueError(f"exponential: expected a finite scale >= 0, got scale={scale!r}")
    target = prepare("exponential", shape, dtype, device, generator, out)
    kind = f8 if target.flat.itemsize == 8 else f4
    return _fill_exponential(target, kind(scale), kind(0), kind(0))
