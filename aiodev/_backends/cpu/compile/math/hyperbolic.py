"""Hyperbolic functions of :class:`Value` and the logistic one, from exponentials.

sinh and tanh have polynomials of their own near 0 (minimax in relative error, Remez), where differences would cancel.
"""

from __future__ import annotations

from collections.abc import Callable

from aiodev._backends.cpu.compile.math.exp import close_exp, exp, half_exp, plain_exp
from aiodev._backends.cpu.compile.math.lookup import has_lookup, tanh_by_table
from aiodev._backends.cpu.compile.math.values import Value, choose, fma, horner, quotient

__all__ = ["FUNCTIONS"]

#: (sinh(x) - x) / x³ as a polynomial in x², for abs(x) ≤ 1.
_SINH = {
    False: (0.16666666497559116, 0.00833335005837925, 0.0001983615973563933, 2.816951462619223e-06),
    True: (
        0.16666666666666669, 0.008333333333333148, 0.00019841269841431875, 2.7557319157070853e-06,
        2.505212313686714e-08, 1.605725975856933e-10, 7.758749083954065e-13,
    ),
}  # fmt: skip
#: (tanh(x) - x) / x³ as a polynomial in x², for abs(x) ≤ 0.55.
_TANH = {
    False: (-0.3333331755965725, 0.1333258613679534, -0.053852309654867016, 0.021071677825342517, -0.0062742376430856145),
    True: (
        -0.33333333333332316, 0.13333333333168704, -0.05396825387607766, 0.021869485974783182, -0.008863194503994743,
        0.003591719697532937, -0.0014532167593024955, 0.0005791370275672647, -0.00021030242264189443,
        5.102149570793268e-05,
    ),
}  # fmt: skip


def sinh(x: Value) -> Value:
    """Hyperbolic sine."""
    size = abs(x)
    half = half_exp(size)
    large = (half - 0.25 / half).with_sign_of(x)
    square = x * x
    small = fma(x * square, horner(square, _SINH[x.is_double]), x)
    return choose(size < 1.0, small, large)


def cosh(x: Value) -> Value:
    """Hyperbolic cosine."""
    half = half_exp(abs(x))
    return half + 0.25 / half


def tanh(x: Value) -> Value:
    """Hyperbolic tangent: 1 - 2 / (e**2x + 1), where no table is at hand."""
    double = x.is_double
    if not double and has_lookup():
        return tanh_by_table(x)
    size = abs(x)
    limit = 22.0 if double else 10.0
    twice = size + size
    grown = plain_exp(choose(twice > 2 * limit, x.like(2 * limit), twice))
    large = 1.0 - 2.0 / (grown + 1.0)
    square = x * x
    small = fma(size * square, horner(square, _TANH[double]), size)
    return choose(size < 0.55, small, large).with_sign_of(x)


def expit(x: Value) -> Value:
    """1 / (1 + e**-x), of whichever sign does not overflow."""
    size = abs(x)
    limit = 40.0 if x.is_double else 19.0  # beyond which the result is 1 or e**x
    small = close_exp(-choose(size > limit, x.like(limit), size))
    total = small + 1.0
    result = quotient(choose(x < 0.0, small, x.like(1.0)), total, x.like(0.0), (1.0 - total) + small)
    return choose(x < -limit, exp(x), result)


#: By name.
FUNCTIONS: dict[str, Callable[[Value], Value]] = {"cosh": cosh, "expit": expit, "sinh": sinh, "tanh": tanh}
