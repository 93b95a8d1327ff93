"""The power of two single-precision :class:`Value` s: 2 to the exponent times the base's binary logarithm, in double precision.

That leaves 29 bits more than the result has, of which the size of the exponent takes 8; the polynomials (minimax, Remez) are
as long as that asks for. Double precision would need a logarithm in two numbers: there the C library's function is used.
"""

from __future__ import annotations

from aiodev._backends.cpu.compiler_values import Value, choose, fma, horner

__all__ = ["pow_single"]

#: (log((1 + s) / (1 - s)) - 2 s) / s³ as a polynomial in s², and (exp(r) - 1 - r) / r².
_LOG = (0.6666666564543551, 0.40000335196150255, 0.28537308222539853, 0.23582156982031544)
_EXP = (
    0.5000000067682727, 0.16666665868955957, 0.041666294945647546, 0.008333497070921346, 0.0013944659723924226,
    0.0001979034339943017,
)  # fmt: skip
_PER_LN2, _LN2 = 1.4426950408889634, 0.6931471805599453
_SQRT_HALF = 0x3FE6A09E667F3BCD
_SHIFTER = 1.5 * 2.0**52
_INFINITY = float("inf")


def _log2(x: Value) -> Value:
    """The binary logarithm of a ``double`` that was a positive ``float``."""
    moved = x.bits() + ((1023 << 52) - _SQRT_HALF)
    f = ((moved & ((1 << 52) - 1)) + _SQRT_HALF).from_bits() - 1.0
    n = (moved.shifted_down(52) | x.like(2.0**52).bits()).from_bits() - (2.0**52 + 1023)
    s = f / (f + 2.0)
    square = s * s
    return fma(fma(s * square, horner(square, _LOG), s + s), _PER_LN2, n)


def _exp2(x: Value) -> Value:
    """2**x of a ``double`` within the exponents of normal numbers, or NaN."""
    shifted = x + _SHIFTER
    r = (x - (shifted - _SHIFTER)) * _LN2
    series = fma(r * r, horner(r, _EXP), r) + 1.0
    return series * ((shifted.bits() - x.like(_SHIFTER).bits() + 1023) << 52).from_bits()


def pow_single(x: Value, y: Value) -> Value:
    """x**y of ``float`` s, with C's special values."""
    size = abs(x).to_double()
    logarithm = choose(size > 0.0, _log2(size), size.like(-_INFINITY))
    logarithm = choose(size < _INFINITY, logarithm, size)
    found = _exp2((logarithm * y.to_double()).clamped(-300.0, 300.0)).to_single()
    whole = y.rounded().equals(y)
    half = y * 0.5
    odd = whole & (half.rounded().equals(half) ^ whole)
    negative = x.like(0.0).with_sign_of(x).bits() < 0
    found = choose(negative & odd, -found, found)
    found = choose((x < 0.0) & (x > -_INFINITY) & (whole ^ y.equals(y)), x.like(float("nan")), found)
    endless = abs(y).equals(_INFINITY)
    found = choose(x.equals(-1.0) & endless, x.like(1.0), found)
    return choose(x.equals(1.0), x.like(1.0), choose(y.equals(0.0), x.like(1.0), choose(x.equals(x), found, x)))
