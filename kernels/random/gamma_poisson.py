"""Gamma and Poisson numbers, by methods that try until an attempt is accepted.

An element has a counter of its own, whose upper half numbers its attempts. So how many attempts it takes is nobody else's
business, and its value does not depend on how the work is divided.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

import aiodev
from aiodev import dtypes
from aiodev.kernels.arguments import as_float
from aiodev.kernels.random.philox import block, double_word
from aiodev.kernels.random.reproducible_math import cos_sin_64, negative_log_64
from aiodev.kernels.random.sampling import Shape, Sourced, prepare
from aiodev.kernels.random.special import exp_64, log_64, log_factorial
from aiodev.lang import fma

__all__ = ["gamma", "poisson"]

f8, i8 = np.float64, np.int64
_ZERO, _ONE, _TWO, _ELEVEN = np.uint64(0), np.uint64(1), np.uint64(2), np.uint64(11)
_ULP, _HALF, _UNIT, _DOUBLE = f8(2.0**-53), f8(0.5), f8(1.0), f8(2.0)
_SQUEEZE = f8(0.0331)
_PTRS_SHIFT, _PTRS_INSIDE, _PTRS_EDGE = f8(0.43), f8(0.07), f8(0.013)

#: From this mean on Poisson numbers are made by rejection, below by adding up probabilities.
_SEARCHED_BELOW = 10.0
#: No number below that mean is greater: its probability is less than 1e-100.
_SEARCH_END = 200
_GREATEST_MEAN = 1e15


def _fraction(word: Any) -> Any:
    return f8(i8(word >> _ELEVEN)) * _ULP


def _gamma(i: Any, seed: Any, offset: Any, d: Any, c: Any, power: Any, scale: Any, out: Any) -> None:
    """One gamma number: ``d`` is the parameter less 1/3, ``c`` 1 / sqrt(9 d), ``power`` 0 or the inverse of one below 1."""
    counter = (offset >> _TWO) + np.uint64(i)
    attempt = _ZERO
    while True:
        w0, w1, w2, w3 = block(counter, attempt, seed)
        radius = math.sqrt(negative_log_64(double_word(w0, w1)) * _DOUBLE)
        cosine, _, sign = cos_sin_64(double_word(w2, w3))
        x = radius * sign * cosine
        w0, w1, w2, w3 = block(counter, attempt + _ONE, seed)
        attempt += _TWO
        t = fma(c, x, _UNIT)
        if t <= 0.0:
            continue
        v = t * t * t
        square = x * x
        word = double_word(w0, w1)
        if _fraction(word) < fma(-_SQUEEZE * square, square, _UNIT):
            break
        # log u < x^2 / 2 + d (1 - v + log v)
        if -negative_log_64(word) < fma(_HALF, square, d * ((_UNIT - v) + log_64(v))):
            break
    number = d * v * scale
    if power > 0.0:
        number = number * exp_64(-negative_log_64(double_word(w2, w3)) * power)
    out[i] = number


def _replayed_gamma(i: Any, words: Any, offset: Any, d: Any, c: Any, power: Any, scale: Any, out: Any) -> None:
    _gamma(i, words[0], words[1] + offset, d, c, power, scale, out)


def _few(i: Any, seed: Any, offset: Any, mean: Any, none: Any, out: Any) -> None:
    """One Poisson number of a small mean: where the sum of probabilities passes a uniform number. ``none`` is exp(-mean)."""
    w0, w1, _, _ = block((offset >> _TWO) + np.uint64(i), _ZERO, seed)
    u = _fraction(double_word(w0, w1))
    probability, total, k = none, none, 0
    while u >= total and k < _SEARCH_END:
        k += 1
        probability = probability * mean / f8(k)
        total += probability
    out[i] = k


def _replayed_few(i: Any, words: Any, offset: Any, mean: Any, none: Any, out: Any) -> None:
    _few(i, words[0], words[1] + offset, mean, none, out)


def _many(
    i: Any, seed: Any, offset: Any, mean: Any, log_mean: Any, a: Any, b: Any, v_r: Any, log_alpha: Any, out: Any
) -> None:
    """One Poisson number of a larger mean, with Hörmann's names."""
    counter = (offset >> _TWO) + np.uint64(i)
    attempt = _ZERO
    while True:
        w0, w1, w2, w3 = block(counter, attempt, seed)
        attempt += _ONE
        u = fma(f8(i8(double_word(w0, w1) >> _ELEVEN)), _ULP, -_HALF)
        v = fma(f8(i8(double_word(w2, w3) >> _ELEVEN)), _ULP, _ULP * _HALF)
        us = _HALF - abs(u)
        if us <= 0.0:
            continue
        k = math.floor(fma(_DOUBLE * a / us + b, u, mean + _PTRS_SHIFT))
        if us >= _PTRS_INSIDE and v <= v_r:
            break
        if k < 0.0 or (us < _PTRS_EDGE and v > us):
            continue
        hat = log_64(v) + log_alpha - log_64(a / (us * us) + b)
        if hat <= fma(f8(k), log_mean, -mean) - log_factorial(f8(k)):
            break
    out[i] = i8(k)


def _replayed_many(
    i: Any, words: Any, offset: Any, mean: Any, log_mean: Any, a: Any, b: Any, v_r: Any, log_alpha: Any, out: Any
) -> None:
    _many(i, words[0], words[1] + offset, mean, log_mean, a, b, v_r, log_alpha, out)


_draw_gamma = Sourced("gamma", _gamma, _replayed_gamma)
_draw_few = Sourced("poisson", _few, _replayed_few)
_draw_many = Sourced("poisson", _many, _replayed_many)


def gamma(
    alpha: float,
    scale: float = 1.0,
    shape: Shape | None = None,
    *,
    dtype: Any = None,
    device: aiodev.DeviceLike | None = None,
    generator: aiodev.Generator | None = None,
    out: aiodev.Array | None = None,
) -> aiodev.Array:
    """Gamma numbers with the parameter ``alpha`` (NumPy calls it ``shape``), of mean ``alpha * scale``.

    By the method of G. Marsaglia and W. W. Tsang ("A simple method for generating gamma variables", 2000), in double precision
    whatever the dtype; four words for each element, and more that are nobody else's. Devices agree to 4 units in the
    last place.

    Raises:
        ValueError: ``alpha`` is not positive, ``scale`` is negative, or one is not finite.

    Example:
        >>> import aiodev
        >>> from aiodev.kernels import random
        >>> g = aiodev.Generator("cpu").manual_seed(1)
        >>> x = random.gamma(2.0, 3.0, 10**5, generator=g).numpy_blocking()
        >>> bool(abs(x.mean() - 6) < 0.1)
        True
    """
    alpha, scale = as_float("gamma", "alpha", alpha), as_float("gamma", "scale", scale)
    if not (math.isfinite(alpha) and math.isfinite(scale) and alpha > 0 and scale >= 0):
        raise ValueError(f"gamma: expected finite alpha > 0 and scale >= 0, got alpha={alpha!r}, scale={scale!r}")
    target = prepare("gamma", shape, dtype, device, generator, out)
    # Of a parameter below 1, one is made with that parameter plus 1 and taken down by a uniform number's power.
    d = (alpha if alpha >= 1 else alpha + 1) - 1 / 3
    power = 0.0 if alpha >= 1 else 1 / alpha
    count = target.flat.size
    if not count:
        return target.array
    return target.fill(_draw_gamma, count, 4 * count, *(f8(number) for number in (d, 1 / math.sqrt(9 * d), power, scale)))


def poisson(
    lam: float = 1.0,
    shape: Shape | None = None,
    *,
    dtype: Any = None,
    device: aiodev.DeviceLike | None = None,
    generator: aiodev.Generator | None = None,
    out: aiodev.Array | None = None,
) -> aiodev.Array:
    """Poisson numbers of mean ``lam``, at most 1e15; int64 by default, or any other dtype that has room for them.

    By W. Hörmann's transformed rejection with squeeze ("The transformed rejection method for generating Poisson random
    variables", 1993) from a mean of 10 on, below by a search among the sums of probabilities. Four words for each element, and
    more that are nobody else's. The same on all devices.

    Raises:
        ValueError: ``lam`` is negative, NaN or too large, for the dtype too.

    Example:
        >>> import aiodev
        >>> from aiodev.kernels import random
        >>> g = aiodev.Generator("cpu").manual_seed(1)
        >>> random.poisson(4.0, 6, generator=g).numpy_blocking()
        array([7, 6, 4, 1, 5, 3])
    """
    lam = as_float("poisson", "lam", lam)
    if not 0 <= lam <= _GREATEST_MEAN:
        raise ValueError(f"poisson: expected a mean from 0 to {_GREATEST_MEAN:g}, got lam={lam!r}")
    target = prepare("poisson", shape, dtype, device, generator, out, "iuf", np.int64)
    kind = target.flat.dtype
    room = np.iinfo(kind).max if kind.kind in "iu" else 2 ** dtypes.digits(kind)
    if lam + 40 * math.sqrt(lam) + 60 > room:
        raise ValueError(f"poisson: numbers of mean {lam} may be too large for {kind}, which counts up to {room}")
    count, mean = target.flat.size, float(lam)
    if not count:
        return target.array
    if mean < _SEARCHED_BELOW:
        return target.fill(_draw_few, count, 4 * count, f8(mean), f8(math.exp(-mean)))
    b = 0.931 + 2.53 * math.sqrt(mean)
    a = -0.059 + 0.02483 * b
    v_r = 0.9277 - 3.6224 / (b - 2)
    log_alpha = math.log(1.1239 + 1.1328 / (b - 3.4))
    return target.fill(_draw_many, count, 4 * count, *(f8(number) for number in (mean, math.log(mean), a, b, v_r, log_alpha)))
