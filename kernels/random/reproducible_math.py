"""Logarithm, sine and cosine of random words.

Only additions, products that nothing is added to, explicit fused multiply-adds, divisions and square roots: every device rounds
those alike, and none is left for a compiler to fuse, so results are the same bits everywhere. There is no branch, so that
loops over them vectorise. The polynomials are Chebyshev interpolants of the functions' remainders, good to 2**-26 for single
and 2**-56 for double precision; with rounding, logarithms are within 3 units in the last place of the true ones.

A word is taken as the middle of its interval: the number (word + 1/2) / 2**bits, which is neither 0 nor 1.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from aiodev.lang import fma

__all__ = ["cos_sin_32", "cos_sin_64", "negative_log_32", "negative_log_64", "negative_log_of"]

f4, f8, i4, i8 = np.float32, np.float64, np.int32, np.int64

_SCALE_32, _HALF_32 = f4(2.0**-32), f4(2.0**-33)
_SCALE_64, _HALF_64 = f8(2.0**-64), f8(2.0**-65)
_ONE_32, _HALF_F4, _TWO_32 = f4(1.0), f4(-0.5), f4(2.0)
_ONE_64, _HALF_F8, _TWO_64 = f8(1.0), f8(-0.5), f8(2.0)
#: The bits of sqrt(1/2): what is above it counts as a logarithm near 0.
_ROOT_32, _ROOT_64 = i4(0x3F3504F3), i8(0x3FE6A09E667F3BCD)
_FRACTION_32, _FRACTION_64 = i4(23), i8(52)
_LN2_32, _LN2_REST_32 = f4(0.693145751953125), f4(1.42860682030941723212e-6)
_LN2_64, _LN2_REST_64 = f8(6.93147180369123816490e-01), f8(1.90821492927058770002e-10)
_FULL_32, _FULL_64 = np.uint64(0xFFFFFFFF), np.uint64(0xFFFFFFFFFFFFFFFF)

_L0, _L1, _L2 = f4(0.3333333134651184), f4(-0.2499999701976776), f4(0.20000715553760529)
_L3, _L4, _L5 = f4(-0.1666780263185501), f4(0.14249058067798615), f4(-0.12425687164068222)
_L6, _L7, _L8 = f4(0.11685419827699661), f4(-0.11479733884334564), f4(0.06971611827611923)

_R0, _R1, _R2 = f8(0.6666666666666666), f8(0.4000000000000088), f8(0.28571428570803614)
_R3, _R4, _R5 = f8(0.22222222391713917), f8(0.18181795640132906), f8(0.15386239702814658)
_R6, _R7 = f8(0.13268773138656886), f8(0.13086626147840102)

_S0_32, _S1_32, _S2_32 = f4(-0.166666641831398), f4(0.008332747966051102), f4(-0.00019587890710681677)
_C0_32, _C1_32, _C2_32 = f4(0.0416666641831398), f4(-0.001388830249197781), f4(2.454794230288826e-05)

_S0, _S1, _S2 = f8(-0.16666666666666666), f8(0.008333333333330948), f8(-0.00019841269836758574)
_S3, _S4, _S5 = f8(2.755731610255244e-06), f8(-2.5051131845003624e-08), f8(1.5918129294866608e-10)
_C0, _C1, _C2 = f8(0.041666666666666664), f8(-0.0013888888888887398), f8(2.480158729876569e-05)
_C3, _C4, _C5 = f8(-2.7557317271729793e-07), f8(2.08761462684032e-09), f8(-1.1382632425521717e-11)

_TWO_BITS_32, _TWO_BITS_64 = i4(2), i8(2)
_ANGLE_32, _ANGLE_64 = f4(np.pi / 2**32), f8(np.pi / 2.0**64)


def negative_log_32(word: Any) -> Any:
    """``-log((word + 1/2) / 2**32)`` in single precision; greater than 0, at most 22.9."""
    x = fma(f4(np.uint32(word)), _SCALE_32, _HALF_32)
    bits = np.float32(x).view(np.int32)
    exponent = i4(i4(bits - _ROOT_32) >> _FRACTION_32)
    mantissa = np.int32(bits - i4(exponent << _FRACTION_32)).view(np.float32)
    # Near 1 the distance from 1 says more than x itself, which was rounded.
    rest = fma(f4(np.uint32(word ^ _FULL_32)), _SCALE_32, _HALF_32)
    t = -rest if exponent == 0 else mantissa - _ONE_32
    p = fma(_L8, t, _L7)
    p = fma(p, t, _L6)
    p = fma(p, t, _L5)
    p = fma(p, t, _L4)
    p = fma(p, t, _L3)
    p = fma(p, t, _L2)
    p = fma(p, t, _L1)
    p = fma(p, t, _L0)
    square = t * t
    y = fma(square, fma(p, t, _HALF_F4), t)
    e = f4(exponent)
    return -fma(e, _LN2_32, fma(e, _LN2_REST_32, y))


def negative_log_64(word: Any) -> Any:
    """``-log((word + 1/2) / 2**64)`` in double precision; greater than 0, at most 45.1."""
    x = fma(f8(word), _SCALE_64, _HALF_64)
    bits = np.float64(x).view(np.int64)
    exponent = (bits - _ROOT_64) >> _FRACTION_64
    mantissa = np.int64(bits - (exponent << _FRACTION_64)).view(np.float64)
    rest = fma(f8(word ^ _FULL_64), _SCALE_64, _HALF_64)
    t = -rest if exponent == 0 else mantissa - _ONE_64
    return negative_log_of(t, f8(exponent))


def negative_log_of(t: Any, e: Any) -> Any:
    """``-(e * log(2) + log(1 + t))``, by the series of the inverse hyperbolic tangent of t / (2 + t)."""
    s = t / (_TWO_64 + t)
    z = s * s
    p = fma(_R7, z, _R6)
    p = fma(p, z, _R5)
    p = fma(p, z, _R4)
    p = fma(p, z, _R3)
    p = fma(p, z, _R2)
    p = fma(p, z, _R1)
    p = fma(p, z, _R0)
    y = fma(-s, fma(-z, p, t), t)
    return -fma(e, _LN2_64, fma(e, _LN2_REST_64, y))


def cos_sin_32(word: Any) -> Any:
    """A point of the unit circle in single precision: cosine, sine and sign, to be multiplied by both.

    30 bits are an angle within 45° of an axis, one says which axis, one the side of the origin.
    """
    bits = i4(np.uint32(word))
    angle = f4(i4(i4(i4(bits << _TWO_BITS_32) >> _TWO_BITS_32) << i4(1)) | i4(1)) * _ANGLE_32
    z = angle * angle
    s = fma(angle * z, fma(fma(_S2_32, z, _S1_32), z, _S0_32), angle)
    c = fma(z * z, fma(fma(_C2_32, z, _C1_32), z, _C0_32), fma(_HALF_F4, z, _ONE_32))
    swap = (word & np.uint64(0x80000000)) != np.uint64(0)
    sign = -_ONE_32 if (word & np.uint64(0x40000000)) != np.uint64(0) else _ONE_32
    return (s if swap else c), (c if swap else s), sign


def cos_sin_64(word: Any) -> Any:
    """A point of the unit circle in double precision, of a word of 64 bits: cosine, sine and sign."""
    bits = i8(word)
    angle = f8((((bits << _TWO_BITS_64) >> _TWO_BITS_64) << i8(1)) | i8(1)) * _ANGLE_64
    z = angle * angle
    p = fma(_S5, z, _S4)
    p = fma(p, z, _S3)
    p = fma(p, z, _S2)
    p = fma(p, z, _S1)
    p = fma(p, z, _S0)
    s = fma(angle * z, p, angle)
    q = fma(_C5, z, _C4)
    q = fma(q, z, _C3)
    q = fma(q, z, _C2)
    q = fma(q, z, _C1)
    q = fma(q, z, _C0)
    c = fma(z * z, q, fma(_HALF_F8, z, _ONE_64))
    swap = (word & np.uint64(0x8000000000000000)) != np.uint64(0)
    sign = -_ONE_64 if (word & np.uint64(0x4000000000000000)) != np.uint64(0) else _ONE_64
    return (s if swap else c), (c if swap else s), sign
