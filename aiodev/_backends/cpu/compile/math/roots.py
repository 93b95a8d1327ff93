"""The cube root of :class:`Value`: the inverse cube root by Halley's series without a division, then one step of Newton's.

The bits of a float are, but for a constant, about its binary logarithm: a third of them, subtracted from a constant, are those
of y ≈ x**(-1/3), to 3.4 % (as in FreeBSD's ``cbrt``, which starts from x**(1/3)). With h = 1 - x y³, y (1 - h)**(-1/3) is the
exact one. The last step, t + (x - t³) y² / 3 for t = x y², has the cube's rounding errors taken out.
"""

from __future__ import annotations

from collections.abc import Callable

from aiodev._backends.cpu.compile.math.values import Value, choose, fma, horner

__all__ = ["FUNCTIONS"]

#: Bits of a mantissa; those that are left out of the first guess; the constant, without those (minimax).
_GUESS = {False: (23, 8, 5546486.0), True: (52, 12, 1499659093495775.0)}
#: The least normal number; a power of 8 that makes the others normal, and its cube root's inverse.
_SUBNORMAL = {False: (2.0**-126, 2.0**24, 2.0**-8), True: (2.0**-1022, 2.0**54, 2.0**-18)}
#: ((1 - h)**(-1/3) - 1) / h, of a length for each step.
_SERIES = (1 / 3, 2 / 9, 14 / 81, 35 / 243)
_STEPS = {False: (3,), True: (4, 2)}


def _guess(x: Value) -> Value:
    """x**(-1/3), roughly; whole numbers below 2**(bits of the mantissa) are converted by adding that."""
    mantissa, dropped, constant = _GUESS[x.is_double]
    one = x.like(2.0**mantissa)
    number = (x.bits().shifted_down(dropped) | one.bits()).from_bits() - 2.0**mantissa
    third = fma(number, -1 / 3, constant) + 2.0**mantissa
    return ((third.bits() - one.bits()) << dropped).from_bits()


def cbrt(x: Value) -> Value:
    """The cube root."""
    least, factor, back = _SUBNORMAL[x.is_double]
    size = abs(x)
    small = size < least
    a = choose(small, size * factor, size)
    y = _guess(a)
    for length in _STEPS[x.is_double]:
        h = fma(-(a * y * y), y, 1.0)
        y = fma(y * h, horner(h, _SERIES[:length]), y)
    square = y * y
    t = a * square
    t2 = t * t
    left = fma(-fma(t, t, -t2), t, fma(-t2, t, a))
    t = fma(left * (1 / 3), square, t)
    result = choose(small, t * back, t).with_sign_of(x)
    return choose((size < float("inf")) & (size > 0.0), result, x)


#: By name.
FUNCTIONS: dict[str, Callable[[Value], Value]] = {"cbrt": cbrt}
