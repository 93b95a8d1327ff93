"""Uniform numbers, coin tosses and raw words."""

from __future__ import annotations

import functools
import math
from typing import Any

import numpy as np

import aiodev
from aiodev.kernels.arguments import as_float
from aiodev.kernels.random.philox import double_word
from aiodev.kernels.random.sampling import Fill, Shape, prepare
from aiodev.lang import fma

__all__ = ["bernoulli", "random", "random_raw", "uniform"]

f4, f8, i4, i8 = np.float32, np.float64, np.int32, np.int64
_EIGHT, _ELEVEN = np.uint64(8), np.uint64(11)
_ULP_32, _ULP_64 = f4(2.0**-24), f8(2.0**-53)


def _words(w0: Any, w1: Any, w2: Any, w3: Any, a: Any, b: Any, c: Any) -> Any:
    return w0, w1, w2, w3


def _unit_32(word: Any) -> Any:
    """The upper 24 bits as a fraction, exactly."""
    return f4(i4(word >> _EIGHT)) * _ULP_32


def _unit_64(word: Any) -> Any:
    """The upper 53 bits as a fraction, exactly."""
    return f8(i8(word >> _ELEVEN)) * _ULP_64


@functools.cache
def _random_of(digits: int) -> Any:
    """Fractions of the upper bits, as many as a dtype has digits, exactly."""
    shift, ulp = np.uint64(32 - digits), f4(2.0**-digits)

    def unit(word: Any) -> Any:
        return f4(i4(word >> shift)) * ulp

    def numbers(w0: Any, w1: Any, w2: Any, w3: Any, a: Any, b: Any, c: Any) -> Any:
        return unit(w0), unit(w1), unit(w2), unit(w3)

    return numbers


def _random_32(w0: Any, w1: Any, w2: Any, w3: Any, a: Any, b: Any, c: Any) -> Any:
    return _unit_32(w0), _unit_32(w1), _unit_32(w2), _unit_32(w3)


def _random_64(w0: Any, w1: Any, w2: Any, w3: Any, a: Any, b: Any, c: Any) -> Any:
    return _unit_64(double_word(w0, w1)), _unit_64(double_word(w2, w3))


def _between(u: Any, low: Any, width: Any, below: Any) -> Any:
    """Scaled, and not rounded up to the upper bound."""
    return min(fma(u, width, low), below)


def _uniform_32(w0: Any, w1: Any, w2: Any, w3: Any, a: Any, b: Any, c: Any) -> Any:
    return (
        _between(_unit_32(w0), a, b, c),
        _between(_unit_32(w1), a, b, c),
        _between(_unit_32(w2), a, b, c),
        _between(_unit_32(w3), a, b, c),
    )


def _uniform_64(w0: Any, w1: Any, w2: Any, w3: Any, a: Any, b: Any, c: Any) -> Any:
    return _between(_unit_64(double_word(w0, w1)), a, b, c), _between(_unit_64(double_word(w2, w3)), a, b, c)


def _toss(w0: Any, w1: Any, w2: Any, w3: Any, a: Any, b: Any, c: Any) -> Any:
    return w0 < a, w1 < a, w2 < a, w3 < a


_fill_words = Fill("random_raw", _words, None)
_fill_random = Fill("random", _random_32, _random_64, _random_of)
_fill_uniform = Fill("uniform", _uniform_32, _uniform_64)
_fill_tosses = Fill("bernoulli", _toss, None)
_NONE, _ZERO_32, _ZERO_64 = np.uint64(0), f4(0), f8(0)


def random_raw(
    shape: Shape | None = None,
    *,
    device: aiodev.DeviceLike | None = None,
    generator: aiodev.Generator | None = None,
    out: aiodev.Array | None = None,
) -> aiodev.Array:
    """The generator's words, 32 bits each, as ``uint32`` in the order of the counter.

    Element i is word i % 4 of the block whose 128-bit counter is offset / 4 + i // 4 and whose key is the seed, low words
    first.

    Example:
        >>> import aiodev
        >>> from aiodev.kernels import random
        >>> g = aiodev.Generator("cpu").manual_seed(0)
        >>> [hex(word) for word in random.random_raw(4, generator=g).numpy_blocking()]
        ['0x6627e8d5', '0xe169c58d', '0xbc57ac4c', '0x9b00dbd8']
    """
    target = prepare("random_raw", shape, None, device, generator, out, "u", np.uint32)
    if target.array.dtype != np.uint32:
        raise TypeError(f"random_raw: out: expected uint32, got {target.array.dtype}")
    return _fill_words(target, _NONE, _NONE, _NONE)


def random(
    shape: Shape | None = None,
    *,
    dtype: Any = None,
    device: aiodev.DeviceLike | None = None,
    generator: aiodev.Generator | None = None,
    out: aiodev.Array | None = None,
) -> aiodev.Array:
    """Uniform numbers in [0, 1): each multiple of 2**-53 (float64), 2**-24 (float32), 2**-11 (float16) or 2**-8 (bfloat16) is
    equally likely.

    One word for each element, two for each ``float64``.

    Example:
        >>> import aiodev
        >>> from aiodev.kernels import random
        >>> g = aiodev.Generator("cpu").manual_seed(1)
        >>> random.random(2, dtype="float32", generator=g).numpy_blocking() * 2**24 % 1
        array([0., 0.], dtype=float32)
    """
    target = prepare("random", shape, dtype, device, generator, out)
    zero = _ZERO_64 if target.flat.itemsize == 8 else _ZERO_32  # it takes no numbers
    return _fill_random(target, zero, zero, zero)


def uniform(
    low: float = 0.0,
    high: float = 1.0,
    shape: Shape | None = None,
    *,
    dtype: Any = None,
    device: aiodev.DeviceLike | None = None,
    generator: aiodev.Generator | None = None,
    out: aiodev.Array | None = None,
) -> aiodev.Array:
    """Uniform numbers from ``low`` up to ``high``, without it: ``low + (high - low) * random()``.

    Rounded once, in float16 and bfloat16 from float32.

    Raises:
        ValueError: the bounds are not finite, or ``low`` is not less than ``high`` in that dtype; or their difference is beyond
            the dtype that is computed in.

    Example:
        >>> import aiodev
        >>> from aiodev.kernels import random
        >>> g = aiodev.Generator("cpu").manual_seed(1)
        >>> x = random.uniform(-1, 1, 1000, generator=g).numpy_blocking()
        >>> bool((x >= -1).all() and (x < 1).all())
        True
    """
    low, high = as_float("uniform", "low", low), as_float("uniform", "high", high)
    target = prepare("uniform", shape, dtype, device, generator, out)
    kind = target.flat.dtype
    computed = f8 if kind.itemsize == 8 else f4
    with np.errstate(over="ignore"):
        first, last = kind.type(low), kind.type(high)
        width = computed(last) - computed(first)
    if not (-math.inf < first < last < math.inf):
        raise ValueError(f"uniform: expected finite bounds with low < high, got {low!r} and {high!r} ({kind})")
    if width == math.inf:
        expected = f"bounds whose difference {computed.__name__} can have"
        raise ValueError(f"uniform: expected {expected}, got {low!r} and {high!r}: it overflows")
    return _fill_uniform(target, computed(first), width, computed(np.nextafter(last, first)))


def bernoulli(
    p: float = 0.5,
    shape: Shape | None = None,
    *,
    dtype: Any = None,
    device: aiodev.DeviceLike | None = None,
    generator: aiodev.Generator | None = None,
    out: aiodev.Array | None = None,
) -> aiodev.Array:
    """True, or 1 in dtypes other than bool, with probability ``p`` (to the nearest multiple of 2**-32), else False.

    Raises:
        ValueError: ``p`` is not between 0 and 1.

    Example:
        >>> import aiodev
        >>> from aiodev.kernels import random
        >>> g = aiodev.Generator("cpu").manual_seed(1)
        >>> tosses = random.bernoulli(0.25, 10**6, generator=g).numpy_blocking()
        >>> tosses.dtype, bool(abs(tosses.mean() - 0.25) < 0.002)
        (dtype('bool'), True)
    """
    p = as_float("bernoulli", "p", p)
    if not 0 <= p <= 1:
        raise ValueError(f"bernoulli: expected a probability between 0 and 1, got p={p!r}")
    target = prepare("bernoulli", shape, dtype, device, generator, out, "biuf", np.bool_)
    return _fill_tosses(target, np.uint64(round(float(p) * 2**32)), _NONE, _NONE)
