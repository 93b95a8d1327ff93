"""Logarithms of :class:`Value`: the exponent and the logarithm of what is left, a number between 1/√2 and √2.

With m = 1 + f and s = f / (2 + f), log m = f - (f²/2 - s (f²/2 + R(s²))), as in fdlibm, where R is minimax (Remez); single
precision has a polynomial in f instead. The binary and the decimal logarithm multiply a sum of two numbers, so that they
lose no more than their last rounding.
"""

from __future__ import annotations

from typing import Any

from aiodev._backends.cpu.compiler_values import Value, choose, fma, horner

__all__ = ["log", "log1p", "log2", "log10"]

_LN2 = {
    False: (0.6931471824645996, -1.904654323148236e-09),
    True: (0.6931471805599453, 2.3190468138462996e-17),
}
_PER_LN2 = {
    False: (1.4426950216293335, 1.925963033500011e-08),
    True: (1.4426950408889634, 2.0355273740931033e-17),
}
_PER_LN10 = {
    False: (0.4342944920063019, -1.0103049952192578e-08),
    True: (0.4342944819032518, 1.098319650216765e-17),
}
#: log10(2): its first bits, so that products with an exponent are exact, and the rest.
_LOG10_2 = {
    False: (0.301025390625, 4.605038981195214e-06),
    True: (0.30102999566383914, 1.42050232272661e-13),
}
#: (log(1 + f) - f + f²/2) / f³ in single precision; (log((1 + s) / (1 - s)) - 2 s) / s³ in double.
_SINGLE = (
    0.33333312604148063, -0.25000009598867867, 0.20002118651458548, -0.166679958801558, 0.14219552519642414,
    -0.12405588494392832, 0.11888160740393088, -0.11675654137784738, 0.0674664687477174,
)  # fmt: skip
_DOUBLE = (
    0.6666666666666734, 0.39999999999414665, 0.28571428742390675, 0.22222198572905782, 0.18183564338608194,
    0.15314050280901778, 0.14795951982310834,
)  # fmt: skip
#: The bits of 1/√2; the smallest normal number, and what makes the others normal.
_SQRT_HALF = {False: 0x3F3504F3, True: 0x3FE6A09E667F3BCD}
_SUBNORMAL = {False: (2.0**-126, 2.0**25, 25.0), True: (2.0**-1022, 2.0**54, 54.0)}


def _split(x: Value) -> tuple[Value, Value]:
    """n as a float and f, with x = 2**n (1 + f), for positive x."""
    double = x.is_double
    smallest, factor, steps = _SUBNORMAL[double]
    small = x < smallest
    bits = choose(small, x * factor, x).bits()
    shift = 52 if double else 23
    n = (bits - _SQRT_HALF[double]) >> shift
    f = (bits - (n << shift)).from_bits() - 1.0
    exponent = n.to_float()
    return choose(small, exponent - steps, exponent), f


def _rest(f: Value) -> tuple[Value, Value]:
    """f²/2, and what is to be added to f - f²/2 for log(1 + f)."""
    square = f * f
    half = square * 0.5
    if not f.is_double:
        return half, square * f * horner(f, _SINGLE)
    s = f / (f + 2.0)
    z = s * s
    return half, s * (half + z * horner(z, _DOUBLE))


def _special(x: Value, found: Value) -> Value:
    """The results at 0, infinity, and for what has no logarithm."""
    found = choose(x.equals(0.0), x.like(float("-inf")), found)
    found = choose(x < float("inf"), found, x)  # infinity and NaN
    return choose(x < 0.0, x.like(float("nan")), found)


def log(x: Value) -> Value:
    """The natural logarithm."""
    high, low = _LN2[x.is_double]
    n, f = _split(x)
    half, rest = _rest(f)
    return _special(x, fma(n, high, f - (half - fma(n, low, rest))))


def log1p(x: Value) -> Value:
    """log(1 + x), without the loss of 1 + x."""
    high, low = _LN2[x.is_double]
    u = x + 1.0
    big = x > 1.0
    lost = choose(big, 1.0 - (u - x), x - (u - 1.0))
    n, f = _split(u)
    # what was lost, in units of 2**n; where n is so large that 2**-n is no normal number, it does not matter
    scale = x.like(1.0).bits() - (u.bits() - (f + 1.0).bits())
    lost = choose(n > (1000.0 if x.is_double else 100.0), x.like(0.0), lost * scale.from_bits())
    half, rest = _rest(f)
    correction = fma(lost, fma(f, f, -f), lost)
    found = _special(u, fma(n, high, f - (half - (fma(n, low, rest) + correction))))
    return choose(abs(x) < (2.0**-54 if x.is_double else 2.0**-25), x, found)


def _parts(x: Value) -> tuple[Value, Value, Value]:
    """n, and log(1 + f) as a sum of two numbers."""
    n, f = _split(x)
    half, rest = _rest(f)
    head = f - half
    tail = (f - head) - half + fma(f, f * 0.5, -half) * -1.0 + rest
    return n, head, tail


def _scaled_log(x: Value, factors: tuple[float, float], step: tuple[float, float]) -> Value:
    n, head, tail = _parts(x)
    high, low = factors
    product = head * high
    error = fma(head, high, -product) + fma(head, low, tail * high)
    whole = n * step[0]
    total = whole + product
    virtual = total - whole
    rest = (whole - (total - virtual)) + (product - virtual)
    return _special(x, total + (rest + fma(n, step[1], error)))


def log2(x: Value) -> Value:
    """The logarithm to base 2; exact for powers of two."""
    return _scaled_log(x, _PER_LN2[x.is_double], (1.0, 0.0))


def log10(x: Value) -> Value:
    """The logarithm to base 10."""
    return _scaled_log(x, _PER_LN10[x.is_double], _LOG10_2[x.is_double])


FUNCTIONS: dict[str, Any] = {"log": log, "log1p": log1p, "log2": log2, "log10": log10}
