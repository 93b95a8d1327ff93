"""Logarithm, exponential function and logarithm of factorials in double precision, for methods that accept or reject.

A comparison that came out otherwise on another device would change a number altogether, not in its last places. So these, as
those of :mod:`aiodev.kernels.random.reproducible_math`, are made of operations that every device rounds alike; those of
:mod:`aiodev.lang` are each device's own.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from aiodev.kernels.random.reproducible_math import negative_log_of
from aiodev.lang import fma

__all__ = ["exp_64", "log_64", "log_factorial"]

f8, i8 = np.float64, np.int64

_ROOT, _FRACTION = i8(0x3FE6A09E667F3BCD), i8(52)
_ONE = f8(1.0)

_LOG2E, _ROUNDER = f8(1.4426950408889634), f8(6755399441055744.0)
_LN2, _LN2_REST = f8(6.93147180369123816490e-01), f8(1.90821492927058770002e-10)
_LEAST = f8(-708.0)
_BIAS = i8(1023)
_E0, _E1, _E2, _E3 = f8(0.5), f8(0.1666666666666667), f8(0.04166666666666667), f8(0.008333333333326141)
_E4, _E5, _E6 = f8(0.0013888888888883752), f8(0.00019841269874800493), f8(2.4801587325533363e-05)
_E7, _E8 = f8(2.7557255425746435e-06), f8(2.7557273661348637e-07)
_E9, _E10 = f8(2.510520637395701e-08), f8(2.0914679376583935e-09)

#: Stirling's series: B(2k) / (2k (2k - 1)), and log(2 pi) / 2.
_T0, _T1, _T2 = f8(0.08333333333333333), f8(-0.002777777777777778), f8(0.0007936507936507937)
_T3, _T4, _T5 = f8(-0.0005952380952380953), f8(0.0008417508417508417), f8(-0.0019175269175269176)
_HALF_LOG_TAU, _HALF = f8(0.9189385332046728), f8(0.5)
_LARGE = f8(10.0)


def log_64(x: Any) -> Any:
    """``log(x)`` of a normal number greater than 0."""
    bits = np.float64(x).view(np.int64)
    exponent = (bits - _ROOT) >> _FRACTION
    mantissa = np.int64(bits - (exponent << _FRACTION)).view(np.float64)
    return -negative_log_of(mantissa - _ONE, f8(exponent))


def exp_64(x: Any) -> Any:
    """``exp(x)`` of a number of 0 or less; 0 where that is less than the least normal number."""
    bounded = max(x, _LEAST)
    k = fma(bounded, _LOG2E, _ROUNDER) - _ROUNDER
    r = fma(-k, _LN2_REST, fma(-k, _LN2, bounded))
    p = fma(_E10, r, _E9)
    p = fma(p, r, _E8)
    p = fma(p, r, _E7)
    p = fma(p, r, _E6)
    p = fma(p, r, _E5)
    p = fma(p, r, _E4)
    p = fma(p, r, _E3)
    p = fma(p, r, _E2)
    p = fma(p, r, _E1)
    p = fma(p, r, _E0)
    scale = np.int64((i8(k) + _BIAS) << _FRACTION).view(np.float64)
    return fma(fma(p, r, _ONE), r, _ONE) * scale if x >= _LEAST else f8(0.0)


def log_factorial(k: Any) -> Any:
    """``log(k!)`` for a whole number of 0 or more, by Stirling's series for numbers from 10 on."""
    x = k + _ONE
    product = _ONE
    while x < _LARGE:
        product *= x
        x += _ONE
    inverse = _ONE / x
    square = inverse * inverse
    p = fma(_T5, square, _T4)
    p = fma(p, square, _T3)
    p = fma(p, square, _T2)
    p = fma(p, square, _T1)
    p = fma(p, square, _T0)
    series = fma(p, inverse, fma(x - _HALF, log_64(x), _HALF_LOG_TAU - x))
    return series - log_64(product)
