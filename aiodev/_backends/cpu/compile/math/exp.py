"""Exponential functions of :class:`Value`: a power of two times a polynomial in what is left of the argument.

x = n ln 2 + r with n whole and abs(r) ≤ ln 2 / 2 (Cody and Waite; the product with ln 2 is exact within ``fma``). Adding
1.5 · 2**(mantissa bits) rounds x / ln 2 to n and leaves n in the low bits of the sum. The power of two is applied in two
steps, so that results overflow and become subnormal where they should, rounded once. Polynomials are minimax in relative
error (Remez).
"""

from __future__ import annotations

from collections.abc import Callable

from aiodev._backends.cpu.compile.math.values import Value, choose, fma, horner

__all__ = ["FUNCTIONS", "close_exp", "exp", "exp2_of_sum", "half_exp", "plain_exp"]

#: (1 / ln 2, ln 2, what ln 2 is more than that), in each precision.
_LN2 = {
    False: (1.4426950216293335, 0.6931471824645996, -1.904654323148236e-09),
    True: (1.4426950408889634, 0.6931471805599453, 2.3190468138462996e-17),
}
_SHIFTER = {False: 1.5 * 2.0**23, True: 1.5 * 2.0**52}
#: (exp(r) - 1 - r) / r².
_EXP = {
    False: (0.4999999344845867, 0.1666652062963538, 0.04166838785539014, 0.008368717081241716, 0.0013814610145257281),
    True: (
        0.5000000000000011, 0.16666666666666413, 0.04166666666653016, 0.008333333333494465, 0.001388888894363005,
        0.0001984126950657133, 2.480149309892918e-05, 2.7557586380882427e-06, 2.7630248379742436e-07,
        2.5000059256054842e-08,
    ),
}  # fmt: skip
#: The same, closer where exp(r) - 1 is small.
_EXPM1 = {
    False: (
        0.5000000053057434, 0.16666666902498264, 0.04166632698387859, 0.008333219997075873, 0.0013943209304290427,
        0.00019962174302130557,
    ),
    True: (
        0.5000000000000001, 0.1666666666666667, 0.04166666666665229, 0.008333333333326153, 0.0013888888895596861,
        0.00019841269874764302, 2.480157453845723e-05, 2.755725546255769e-06, 2.7567926963090994e-07,
        2.5105193992620958e-08, 1.768777823714314e-09,
    ),
}  # fmt: skip
#: Beyond these the result is 0, or infinite, whatever the argument.
_RANGE = {False: (-104.0, 89.0), True: (-745.5, 710.0)}
_RANGE2 = {False: (-151.0, 129.0), True: (-1077.0, 1025.0)}


def reduced(x: Value) -> tuple[Value, Value, Value]:
    """n as an integer, n as a float, and r."""
    per, high, low = _LN2[x.is_double]
    shifter = _SHIFTER[x.is_double]
    shifted = fma(x, per, shifter)
    n = shifted - shifter
    whole = shifted.bits() - x.like(shifter).bits()
    return whole, n, fma(n, -low, fma(n, -high, x))


def scaled(value: Value, n: Value) -> Value:
    """``value`` times 2**n, for n within the exponents of two factors; rounded once."""
    half = n >> 1
    return value * power(half, value) * power(n - half, value)


def power(n: Value, like: Value) -> Value:
    """2**n, for n within the exponents of normal numbers."""
    bias, shift = (1023, 52) if like.is_double else (127, 23)
    return ((n + bias) << shift).from_bits()


def exp(x: Value, lower: int = 0) -> Value:
    """e**x, divided by 2**lower."""
    double = x.is_double
    low, high = _RANGE[double]
    whole, _, r = reduced(x.clamped(low, high + lower))
    series = fma(r * r, horner(r, _EXP[double]), r) + 1.0
    return scaled(series, whole - lower)


def close_exp(x: Value) -> Value:
    """e**x to little more than half a unit in the last place, for results that are normal numbers."""
    double = x.is_double
    _, high, low = _LN2[double]
    whole, n, r = reduced(x)
    error = fma(n, -low, fma(n, -high, x) - r)
    head = r + 1.0
    rest = (1.0 - head) + r
    return (head + (fma(r * r, horner(r, _EXP[double]), error) + rest)) * power(whole, x)


def plain_exp(x: Value) -> Value:
    """e**x for results that are normal numbers."""
    whole, _, r = reduced(x)
    return (fma(r * r, horner(r, _EXP[x.is_double]), r) + 1.0) * power(whole, x)


def half_exp(x: Value) -> Value:
    """e**x / 2, which overflows later than e**x."""
    return exp(x, 1)


def exp2(x: Value) -> Value:
    """2**x."""
    low, high = _RANGE2[x.is_double]
    _, ln2, ln2_low = _LN2[x.is_double]
    shifter = _SHIFTER[x.is_double]
    inside = x.clamped(low, high)
    shifted = inside + shifter
    whole = shifted.bits() - x.like(shifter).bits()
    part = inside - (shifted - shifter)  # exact
    r = part * ln2
    rest = fma(part, ln2, -r) + part * ln2_low
    series = fma(r * r, horner(r, _EXP[x.is_double]), rest) + r + 1.0
    return scaled(series, whole)


def exp2_of_sum(x: Value, more: Value) -> Value:
    """2**(x + more) of ``double`` s, for exponents of up to twice those of normal numbers, and a small second part."""
    _, ln2, ln2_low = _LN2[True]
    shifter = _SHIFTER[True]
    shifted = x + shifter
    whole = shifted.bits() - x.like(shifter).bits()
    part = x - (shifted - shifter)  # exact
    first = part * ln2
    second = fma(part, ln2, -first) + fma(more, ln2, part * ln2_low)
    r = first + second
    rest = (first - r) + second
    head = r + 1.0
    series = fma(r * r, horner(r, _EXP[True]), rest) + ((1.0 - head) + r)
    return scaled(head + series, whole)


def expm1(x: Value) -> Value:
    """e**x - 1, without cancellation for small x."""
    double = x.is_double
    top = _RANGE[double][1]
    inside = x.clamped(-38.0 if double else -18.0, top)
    whole, n, r = reduced(inside)
    _, high, low = _LN2[double]
    first = fma(n, -high, inside)
    error = fma(n, -low, first - r)  # what r lacks
    series = fma(r * r, horner(r, _EXPM1[double]), error)
    half = whole >> 1
    left, right = power(half, x), power(whole - half, x)
    # 2**n (r + series) + (2**n - 1), where n ≥ -55; the last bits of the sum of the first two are kept
    scale = left * right
    head = scale - 1.0
    product = r * scale
    total = head + product
    virtual = total - head
    rest = (head - (total - virtual)) + (product - virtual)
    near = total + fma(series, scale, rest)
    far = ((r + series) + 1.0) * left * right
    limit = 88.0 if double else 40.0
    result = choose(x > limit, far, near)
    return choose(whole.equals(0), r + series, result).with_sign_of(x)


#: By name.
FUNCTIONS: dict[str, Callable[[Value], Value]] = {"exp": exp, "exp2": exp2, "expm1": expm1}
