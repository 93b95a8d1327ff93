"""Inverse trigonometric functions of :class:`Value`: an odd polynomial near 0, and the distance from π/2 or π elsewhere.

atan x = π/2 - atan(1/x) leads to arguments up to 1; asin x = π/2 - 2 asin √((1 - x)/2), beyond 1/2, to arguments up to 1/2 (as
in Cephes and fdlibm). π/2 is a sum of two numbers, and what the subtraction from the first loses is kept. Polynomials are
minimax in relative error (Remez).
"""

from __future__ import annotations

from collections.abc import Callable

from aiodev._backends.cpu.compile.math.values import Value, choose, fma, horner, horner_in_two

__all__ = ["FUNCTIONS", "atan2"]

#: (atan(t) - t) / t³ as a polynomial in t², for abs(t) ≤ 1.
_ATAN = {
    False: (
        -0.33333298563957214, 0.19998548924922943, -0.14264243841171265, 0.10952192544937134, -0.08403467386960983,
        0.05795785412192345, -0.031178081408143044, 0.010914720594882965, -0.0017936454387381673,
    ),
    True: (
        -0.3333333333333186, 0.1999999999975501, -0.14285714271334454, 0.11111110678743148, -0.09090901235352901,
        0.0769221293056742, -0.06665860366172861, 0.05877307800326081, -0.05239233160379214, 0.04673950194062694,
        -0.040926397722788166, 0.03406784125610271, -0.02582684130280179, 0.016978084799980524, -0.009184598902339006,
        0.003855997937281227, -0.0011640807995552853, 0.00022302454959449627, -2.0258786857072095e-05,
    ),
}  # fmt: skip
#: (asin(t) - t) / t³ as a polynomial in t², for abs(t) ≤ 1/2.
_ASIN = {
    False: (
        0.16666752099990845, 0.07495297491550446, 0.04547037556767464, 0.024179501459002495, 0.0421663373708725,
    ),
    True: (
        0.1666666666666676, 0.07499999999970801, 0.04464285717461033, 0.030381942707864852, 0.022372214985214536,
        0.017351612059318868, 0.013980819982439063, 0.011398916930426647, 0.01078022626288296, 0.0037065087638128544,
        0.021707204842445177, -0.020998721527937834, 0.032628411631114435,
    ),
}  # fmt: skip
#: π/2, and what it is more than that.
_HALF_PI = {
    False: (1.5707963705062866, -4.371138828673793e-08),
    True: (1.5707963267948966, 6.123233995736766e-17),
}


def _difference(multiple: float, head: Value, tail: Value) -> Value:
    """``multiple`` times π/2, less ``head + tail``; the head is no larger than it."""
    high, low = _HALF_PI[head.is_double]
    difference = multiple * high - head
    return difference + (((multiple * high - difference) - head) + (multiple * low - tail))


def _arc_tangent(t: Value) -> Value:
    """atan(t) - t, for t up to 1."""
    square = t * t
    return t * square * horner(square, _ATAN[t.is_double])  # signs alternate: even powers by themselves would lose an ulp


def atan(x: Value) -> Value:
    """The angle with this tangent."""
    size = abs(x)
    large = size > 1.0
    t = choose(large, 1.0 / size, size)
    more = _arc_tangent(t)
    return choose(large, _difference(1.0, t, more), t + more).with_sign_of(x)


def atan2(y: Value, x: Value) -> Value:
    """The angle of the point (x, y), with C's special values."""
    across, up = abs(x), abs(y)
    steep = up > across
    small, large = choose(steep, across, up), choose(steep, up, across)
    alike = choose(large.equals(0.0), large, large.like(1.0))  # 0 of two zeros, else 1: of two infinities, too
    t = choose(small.equals(large), alike, small / large)
    more = _arc_tangent(t)
    # The angle from the nearer axis is subtracted from π/2, added to it, or subtracted from π.
    left = x.like(0.0).with_sign_of(x).bits() < 0
    near = choose(left, _difference(2.0, t, more), t + more)
    upwards = choose(left, _difference(1.0, -t, -more), _difference(1.0, t, more))
    return choose(steep, upwards, near).with_sign_of(y)


def _arc_sine(x: Value) -> tuple[Value, Value, Value]:
    """Whether abs(x) > 1/2; then s with asin s = acos(abs(x)) / 2, else abs(x); and asin s - s."""
    size = abs(x)
    large = size > 0.5
    square = choose(large, fma(size, -0.5, 0.5), size * size)
    s = choose(large, square.root(), size)
    polynomial = horner_in_two if x.is_double else horner
    return large, s, s * square * polynomial(square, _ASIN[x.is_double])


def asin(x: Value) -> Value:
    """The angle with this sine."""
    large, s, more = _arc_sine(x)
    return choose(large, _difference(1.0, s + s, more + more), s + more).with_sign_of(x)


def acos(x: Value) -> Value:
    """The angle with this cosine."""
    large, s, more = _arc_sine(x)
    signed, rest = s.with_sign_of(x), more.with_sign_of(x)
    beyond = choose(x > 0.0, (s + s) + (more + more), _difference(2.0, s + s, more + more))
    return choose(large, beyond, _difference(1.0, signed, rest))


#: By name.
FUNCTIONS: dict[str, Callable[[Value], Value]] = {"acos": acos, "asin": asin, "atan": atan}
