"""Scalar functions that expressions of elementwise operations call; they are compiled with the body."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from aiodev import lang

__all__ = ["SCALARS"]

#: Sizes of complex numbers below this one may be subnormal, of which few digits are left; times the power they are not.
_TINY, _POWER = 1e-30, 2.0**200


def floor_quotient(a: Any, b: Any) -> Any:
    """NumPy's quotient of signed integers: 0 for a divisor of 0, and no overflow, which processors trap."""
    return 0 if b == 0 else (-a if b == -1 else a // b)


def floor_rest(a: Any, b: Any) -> Any:
    """NumPy's remainder of signed integers: 0 for a divisor of 0."""
    return 0 if b == 0 or b == -1 else a % b


def unsigned_quotient(a: Any, b: Any) -> Any:
    """NumPy's floored quotient of unsigned integers: 0 for a divisor of 0."""
    return b if b == 0 else a // b


def unsigned_rest(a: Any, b: Any) -> Any:
    """NumPy's remainder of unsigned integers: 0 for a divisor of 0."""
    return b if b == 0 else a % b


def whole_inverse(x: Any) -> Any:
    """The reciprocal of an integer, cut to a whole number: of 1 and -1 the number, else 0, of 0 too."""
    return x if x == 1 or (x < 0 and x + 1 == 0) else x ^ x


def float_quotient(a: Any, b: Any) -> Any:
    """NumPy's rounded-down quotient of floats: near the quotient of what the remainder leaves; infinite or NaN by 0.

    Of an infinity, and by one, it is the quotient, as the array API has it: infinite, or a zero with the quotient's sign. NumPy
    has NaN and -1, which fit its remainder.
    """
    x, y = a * 1.0, b * 1.0  # in double precision
    whole = np.divide(x, y)
    if y == 0 or whole != whole or abs(whole) == math.inf or abs(y) == math.inf:
        return whole
    rest = np.fmod(x, y)
    quotient = np.divide(x - rest, y)
    if rest != 0 and (rest < 0) != (y < 0):
        quotient -= 1.0
    down = np.floor(quotient)
    if quotient - down > 0.5:
        down += 1.0
    return np.copysign(0.0, whole) if quotient == 0 else down


def float_rest(a: Any, b: Any) -> Any:
    """NumPy's remainder of floats: one of 0 has the sign of the divisor, too."""
    rest = np.remainder(a, b)
    return np.copysign(rest, b) if rest == 0 else rest


def times_left_out(a: Any, b: Any) -> Any:
    """How often NumPy's remainder of floats leaves the divisor out; where their quotient is a negative zero, -1 times."""
    times = np.floor(np.divide(a, b))
    return times - np.float32(1) if times == 0 and a != 0 and (a < 0) != (b < 0) else times


def complex_quotient(a: Any, b: Any) -> Any:
    """NumPy's quotient of complex numbers: by 0 that of either part by a positive 0."""
    return np.divide(a, b if b != 0 else b - b)


def direction(x: Any) -> Any:
    """The sign of a complex number, x / abs(x); along the axis of the part that is infinite, if one is, as NumPy has it."""
    size = lang.abs(x)
    if size == 0:
        return x - x
    if size < _TINY:
        return _quotients(_POWER * x, lang.abs(_POWER * x))
    if size < math.inf or size != size:
        return _quotients(x, size)
    right, up = abs(x.real) == math.inf, abs(x.imag) == math.inf
    if right == up:  # both, or it is only their size that has no number
        return _quotients(0.25 * x, lang.abs(0.25 * x))
    return complex(math.copysign(1.0, x.real), 0.0) if right else complex(0.0, math.copysign(1.0, x.imag))


def _quotients(x: Any, size: Any) -> Any:
    """Both parts of a complex number by a real one."""
    return complex(np.divide(x.real, size), np.divide(x.imag, size))


def turn_of_angle(g: Any, a: Any, b: Any) -> Any:
    """g b / (a² + b²), the change of atan2(a, b) with a; 0 where there is no angle, and of points that are infinitely far.

    Neither overflows nor underflows in between, though the squares may.
    """
    size = np.maximum(abs(a), abs(b))
    up, right = np.divide(a, size), np.divide(b, size)
    turn = np.divide(np.divide(g * right, up * up + right * right), size)
    return g * np.float32(0) if size == 0 or size == math.inf else turn


def complex_power(a: Any, b: Any) -> Any:
    """NumPy's power of complex numbers: 0 of 0 for an exponent of a positive real part."""
    return a if a == 0 and b.real > 0 else lang.pow(a, b)


def whole_power(a: Any, b: Any) -> Any:
    """NumPy's power of signed integers, which wraps around; of negative exponents what is left of the fraction."""
    base, exponent, result = np.int64(a), np.int64(b), np.int64(1)
    if exponent < 0:
        odd = exponent & 1
        return result if base == 1 else ((-result if odd else result) if base == -1 else result - result)
    while exponent > 0:
        if exponent & 1:
            result *= base
        base *= base
        exponent >>= 1
    return result


def unsigned_power(a: Any, b: Any) -> Any:
    """A power of unsigned integers."""
    base, exponent, one = np.uint64(a), np.uint64(b), np.uint64(1)
    result = one
    while exponent > 0:
        if exponent & one:
            result *= base
        base *= base
        exponent >>= one
    return result


def moved_up(a: Any, b: Any) -> Any:
    """NumPy's shift to the left, which leaves 0 where it goes beyond all bits."""
    return a << b if 0 <= b < 64 else a ^ a


def moved_down(a: Any, b: Any) -> Any:
    """NumPy's shift to the right, which leaves the sign where it goes beyond all bits."""
    return a >> b if 0 <= b < 64 else (a ^ a if a >= 0 else ~(a ^ a))


def log_sum(a: Any, b: Any) -> Any:
    """log(exp(a) + exp(b)), where neither overflows."""
    distance = abs(a - b)
    logarithm = (a if a > b else b) + lang.log1p(lang.exp(-distance))
    return logarithm if distance == distance else a + b  # both infinite, or NaN


#: By name.
SCALARS = {
    function.__name__: function
    for function in (
        complex_power,
        complex_quotient,
        direction,
        float_quotient,
        float_rest,
        floor_quotient,
        floor_rest,
        log_sum,
        moved_down,
        moved_up,
        times_left_out,
        turn_of_angle,
        unsigned_power,
        unsigned_quotient,
        unsigned_rest,
        whole_inverse,
        whole_power,
    )
}
