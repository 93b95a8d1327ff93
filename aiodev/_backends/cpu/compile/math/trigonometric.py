"""Sine, cosine and tangent of :class:`Value`, for arguments of any size.

x = n π/2 + r with n whole and abs(r) ≤ π/4. Below a limit, n π/2 is subtracted in three parts (Cody and Waite). Beyond, the
product of x with 2/π is taken modulo 4, by leaving out the leading bits of 2/π whose products are multiples of 4 (Payne and
Hanek): a table has the other bits, for each exponent of x, as a few floating-point numbers whose products with x are exact, or
sums of two. Polynomials are minimax in relative error (Remez).
"""

from __future__ import annotations

import math
from collections.abc import Callable

from aiodev._backends.cpu.compile.math.rescue import rescued
from aiodev._backends.cpu.compile.math.tables import HALF_PI, SCALE, TWO_OVER_PI, TWO_OVER_PI_SINGLE
from aiodev._backends.cpu.compile.math.values import Value, choose, fma, horner, quotient, two_sum

__all__ = ["FUNCTIONS"]

#: (sin(r) - r) / r³ and (cos(r) - 1 + r²/2) / r⁴ as polynomials in r², for abs(r) ≤ π/4.
_SIN = {
    False: (-0.16666654602294523, 0.008332160291109097, -0.00019515217919014764),
    True: (
        -0.1666666666666663, 0.008333333333322106, -0.00019841269829579887, 2.7557313617930853e-06,
        -2.5050747206226793e-08, 1.5896197019187876e-10,
    ),
}  # fmt: skip
_COS = {
    False: (0.0416666456701498, -0.0013887315616166215, 2.4433082647805322e-05),
    True: (
        0.041666666666666595, -0.001388888888887304, 2.480158728884145e-05, -2.7557314176255484e-07,
        2.0875700418148287e-09, -1.1358514055006596e-11,
    ),
}  # fmt: skip
#: Adding it rounds to a whole number, and leaves that in the low bits.
_SHIFTER = {False: 1.5 * 2.0**23, True: 1.5 * 2.0**52}
#: Up to here n π/2 can be subtracted in parts.
_LIMIT = {False: 1e5, True: 1e6}
#: π/2 in three parts.
_HALF_PI = {
    False: (1.5707963705062866, -4.371138828673793e-08, -1.7151245100058819e-15),
    True: (*HALF_PI, -1.4973849048591698e-33),
}
_PER_HALF_PI = 2 / math.pi


def _whole(y: Value) -> tuple[Value, Value]:
    """The nearest whole number, as an integer of which the lowest bits are right, and as a float."""
    shifter = _SHIFTER[y.is_double]
    shifted = y + shifter
    return shifted.bits(), shifted - shifter


def _reduced(x: Value, close: bool) -> tuple[Value, Value, Value]:
    """n, r, and what r lacks, for x within the limit; single precision drops the last unless ``close``."""
    first, second, third = _HALF_PI[x.is_double]
    shifter = _SHIFTER[x.is_double]
    shifted = fma(x, _PER_HALF_PI, shifter)
    n = shifted - shifter
    near = fma(n, -first, x)  # exact
    if not (close or x.is_double):
        return shifted.bits(), fma(n, -third, fma(n, -second, near)), x.like(0.0)
    product = n * second
    r, error = two_sum(near, -product)
    return shifted.bits(), r, fma(n, -third, error - fma(n, second, -product))


def _reduced_single(x: Value) -> tuple[Value, Value, Value]:
    """n, r, and what r lacks, of any ``float``."""
    wide = x.to_double()
    index = ((wide.bits() >> 52) & 0x7FF) - (1023 - 1)
    index = choose(index < 0, index.like(0), index)
    index = choose(index > 128, index.like(0), index)
    product = wide * index.element_of("two_over_pi_single_0", TWO_OVER_PI_SINGLE[0])  # exact
    _, fours = _whole(product * 0.25)
    y = fma(wide, index.element_of("two_over_pi_single_1", TWO_OVER_PI_SINGLE[1]), product - fours * 4.0)
    n, whole = _whole(y)
    wide_r = (y - whole) * HALF_PI[0]
    r = wide_r.to_single()
    return Value(n.builder, n.builder.trunc(n.ir, x.bits().ir.type)), r, (wide_r - r.to_double()).to_single()


def _reduced_double(x: Value) -> tuple[Value, Value, Value]:
    """n, r, and what r lacks, of any ``double``."""
    index = ((x.bits() >> 52) & 0x7FF) - (1023 - 1)
    index = choose(index < 0, index.like(0), index)
    parts = [index.element_of(f"two_over_pi_{k}", TWO_OVER_PI[k]) for k in range(4)]
    lowered = x * 2.0**-SCALE
    products = [lowered * part for part in parts]
    first, second, third = (fma(lowered, part, -product) for part, product in zip(parts[:3], products[:3], strict=True))
    head, low = two_sum(products[0] - (products[0] * 0.25).rounded() * 4.0, first)
    head, tail = two_sum(head, products[1])
    middle, last = two_sum(second, products[2])
    n, whole = _whole(head)
    y, error = two_sum(head - whole, low)
    for part in (tail, middle):
        y, more = two_sum(y, part)
        error = error + more
    y, error = two_sum(y, error + (last + (third + products[3])))
    r = y * HALF_PI[0]
    return n, r, fma(y, HALF_PI[0], -r) + fma(y, HALF_PI[1], error * HALF_PI[0])


def _sine(r: Value, error: Value) -> tuple[Value, Value]:
    """sin(r + error) as a sum."""
    square = r * r
    return r, fma(square * r, horner(square, _SIN[r.is_double]), fma(square * -0.5, error, error))


def _cosine(r: Value, error: Value) -> tuple[Value, Value]:
    """cos(r + error) as a sum."""
    square = r * r
    half = square * 0.5
    head = 1.0 - half
    rest = fma(r, -error, (1.0 - head) - half)
    return head, fma(square * square, horner(square, _COS[r.is_double]), rest)


def _signed(value: Value, n: Value) -> Value:
    """``value``, negated where bit 1 of n is set."""
    return (value.bits() ^ ((n & 2) << (62 if value.is_double else 30))).from_bits()


Parts = tuple[Value, Value, Value]


def _sin(x: Value, parts: Parts) -> Value:
    n, r, error = parts
    (sine, s), (cosine, c) = _sine(r, error), _cosine(r, error)
    result = choose((n & 1).equals(0), sine + s, cosine + c)
    return choose(x.equals(0.0), x, _signed(result, n))


def _cos(x: Value, parts: Parts) -> Value:
    n, r, error = parts
    (sine, s), (cosine, c) = _sine(r, error), _cosine(r, error)
    result = choose((n & 1).equals(0), cosine + c, sine + s)
    return _signed(result, n + (n & 1))  # the second and the third quarter are negative


def _tan(x: Value, parts: Parts) -> Value:
    n, r, error = parts
    (sine, s), (cosine, c) = _sine(r, error), _cosine(r, error)
    even = (n & 1).equals(0)
    above, more_above = choose(even, sine, -cosine), choose(even, s, -c)
    below, more_below = choose(even, cosine, sine), choose(even, c, s)
    total, sum_below = above + more_above, below + more_below
    result = quotient(total, sum_below, (above - total) + more_above, (below - sum_below) + more_below)
    return choose(x.equals(0.0), x, result)


def _of_any_size(name: str, function: Callable[[Value, Parts], Value]) -> Callable[[Value], Value]:
    def slowly(x: Value) -> Value:
        parts = _reduced_double(x) if x.is_double else _reduced_single(x)
        return choose(abs(x) < float("inf"), function(x, parts), ends(x))

    def ends(x: Value) -> Value:
        return x - x

    def emit(x: Value) -> Value:
        limit = _LIMIT[x.is_double]
        return rescued(name, x, function(x, _reduced(x, name == "tan")), -limit, limit, slowly, ends)

    return emit


#: Sine, cosine and tangent.
FUNCTIONS: dict[str, Callable[[Value], Value]] = {
    "cos": _of_any_size("cos", _cos),
    "sin": _of_any_size("sin", _sin),
    "tan": _of_any_size("tan", _tan),
}
