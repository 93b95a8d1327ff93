"""The power of two :class:`Value` s: 2 to the exponent times the base's binary logarithm.

Of ``float`` s that is computed in double precision, which leaves 29 bits more than the result has, of which the size of the
exponent takes 8; the polynomials (minimax, Remez) are as long as that asks for. Of ``double`` s the logarithm, and its product
with the exponent, are sums of two numbers, to some 67 bits (as in SLEEF's ``pow``): with m = (1 + s) / (1 - s),
log m = 2 s (1 + s²/3 + s⁴/5 + …), of which s, s²/3 and the sum need the second number.
"""

from __future__ import annotations

from aiodev._backends.cpu.compile.math.exp import exp2_of_sum
from aiodev._backends.cpu.compile.math.values import Value, choose, fma, horner

__all__ = ["pow_double", "pow_single"]

#: (log((1 + s) / (1 - s)) - 2 s) / s³ as a polynomial in s², and (exp(r) - 1 - r) / r².
_LOG = (0.6666666564543551, 0.40000335196150255, 0.28537308222539853, 0.23582156982031544)
_EXP = (
    0.5000000067682727, 0.16666665868955957, 0.041666294945647546, 0.008333497070921346, 0.0013944659723924226,
    0.0001979034339943017,
)  # fmt: skip
_PER_LN2, _LN2 = 1.4426950408889634, 0.6931471805599453
#: (log((1 + s) / (1 - s)) / 2 s - 1 - s²/3) / s⁴ as a polynomial in s²; 1/3 and 2 / ln 2 as sums.
_LONG = (
    0.20000000000001128, 0.14285714285050052, 0.1111111125990966, 0.09090892188478696, 0.07693378422459227,
    0.06628414890699003, 0.06598105500489339,
)  # fmt: skip
_THIRD = (0.3333333333333333, 1.850371707708594e-17)
_TWO_PER_LN2 = (2.8853900817779268, 4.0710547481862066e-17)
_SQRT_HALF = 0x3FE6A09E667F3BCD
_SHIFTER = 1.5 * 2.0**52
_INFINITY = float("inf")
#: The least normal number, and what makes the others normal.
_LEAST, _FACTOR, _STEPS = 2.0**-1022, 2.0**54, 54.0
#: Beyond, the result is 0 or infinite.
_RANGE = 1100.0


def _split(x: Value) -> tuple[Value, Value]:
    """n and f, with x = 2**n (1 + f), for a positive normal ``double``."""
    moved = x.bits() + ((1023 << 52) - _SQRT_HALF)
    f = ((moved & ((1 << 52) - 1)) + _SQRT_HALF).from_bits() - 1.0
    return (moved.shifted_down(52) | x.like(2.0**52).bits()).from_bits() - (2.0**52 + 1023), f


def _log2(x: Value) -> Value:
    """The binary logarithm of a ``double`` that was a positive ``float``."""
    n, f = _split(x)
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
    result = _exp2((logarithm * y.to_double()).clamped(-300.0, 300.0)).to_single()
    return _special(x, y, result)


def _log2_of_sum(x: Value) -> tuple[Value, Value]:
    """The binary logarithm of a ``double`` that is not negative, as a sum of two numbers."""
    small = x < _LEAST
    n, f = _split(choose(small, x * _FACTOR, x))
    n = n - choose(small, x.like(_STEPS), x.like(0.0))
    below = f + 2.0
    inverse = 1.0 / below
    s = f * inverse
    s_more = fma(-s, (2.0 - below) + f, fma(-s, below, f)) * inverse
    square = s * s
    square_more = fma(s, s, -square) + (s + s) * s_more
    # t + t_more = s²/3 + s⁴/5 + …
    third, third_more = _THIRD
    head = square * third
    rest = fma(square * square, horner(square, _LONG), fma(square, third_more, square_more * third))
    rest = rest + fma(square, third, -head)
    t = head + rest
    t_more = (head - t) + rest
    # (s + s_more) (1 + t + t_more)
    product = s * t
    error = fma(s, t, -product) + fma(s, t_more, fma(s_more, t, s_more))
    total = s + product
    total_more = ((s - total) + product) + error
    per, per_more = _TWO_PER_LN2
    part = total * per
    part_more = fma(total, per, -part) + fma(total, per_more, total_more * per)
    logarithm = n + part
    return logarithm, ((n - logarithm) + part) + part_more


def pow_double(x: Value, y: Value) -> Value:
    """x**y of ``double`` s, with C's special values."""
    size = abs(x)
    high, low = _log2_of_sum(size)
    high = choose(size > 0.0, high, size.like(-_INFINITY))
    high = choose(size < _INFINITY, high, size)
    product = high * y
    error = fma(high, y, -product) + low * y
    product = product.clamped(-_RANGE, _RANGE)
    result = exp2_of_sum(product, choose(abs(product) < _RANGE, error, error.like(0.0)))
    return _special(x, y, result)


def _special(x: Value, y: Value, result: Value) -> Value:
    """The power, from that of the size of x."""
    whole = y.rounded().equals(y)
    half = y * 0.5
    odd = whole & (half.rounded().equals(half) ^ whole)
    negative = x.like(0.0).with_sign_of(x).bits() < 0
    result = choose(negative & odd, -result, result)
    result = choose((x < 0.0) & (x > -_INFINITY) & (whole ^ y.equals(y)), x.like(float("nan")), result)
    endless = abs(y).equals(_INFINITY)
    result = choose(x.equals(-1.0) & endless, x.like(1.0), result)
    return choose(x.equals(1.0), x.like(1.0), choose(y.equals(0.0), x.like(1.0), choose(x.equals(x), result, x)))
