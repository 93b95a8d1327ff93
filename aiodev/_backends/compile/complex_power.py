"""The power of complex numbers, exp(w log z), for numba and numba-cuda.

**Problem.** An error in the exponent is multiplied by the size of the exponent, and one in the angle shows in whichever part is
small; the size may overflow where one part does not.

**How.** Of complex64 all is computed in double precision, which leaves 29 bits more than the result has. Of complex128 the
logarithm and the angle, and their products with the exponent, are sums of two numbers, each ``high, low``. Both logarithm and
angle are looked up for a number near by (P. T. P. Tang, "Table-driven implementation of the logarithm function in IEEE
floating-point arithmetic", 1990), and what is left is a series of which two terms need the second number. That makes some 75
bits. Sums and products of such pairs are those of T. J. Dekker, "A floating-point technique for extending the available
precision", 1971. Small whole exponents are products of pairs, as exact as the numbers are (D. E. Knuth, "The Art of Computer
Programming", volume 2, 4.6.3), so that a power of a real or imaginary number is real or imaginary.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection
from decimal import Decimal, localcontext
from typing import Any

import numpy as np

from aiodev import lang

__all__ = ["make_power"]

#: What has squares that neither overflow nor underflow, and the power of two that brings other numbers there.
_LARGE, _SMALL, _SHIFT = 2.0**500, 2.0**-500, 600
_UP, _DOWN = 2.0**_SHIFT, 2.0**-_SHIFT
#: Exponents whose powers are products, and the logarithms of sizes whose products, and their errors, are normal numbers.
_WHOLE, _RANGE = 32.0, 300.0
#: Where the exponential is a normal number, with room for a rounding.
_LEAST, _MOST = 1e-290, 1e300
#: Numbers near by: an inverse is one of so many parts of 1, a slope one of so many.
_INVERSES, _SLOPES = 64, 32
_FIRST = 45  # the inverse of what is a little beyond √2


def _pair(exact: Decimal) -> tuple[float, float]:
    high = float(exact)
    return high, float(exact - Decimal(high))


def _arc_tangent(slope: Decimal) -> Decimal:
    """By halving the angle three times, and the series."""
    for _ in range(3):
        slope = slope / (1 + (1 + slope * slope).sqrt())
    return 8 * sum(((-1) ** k * slope ** (2 * k + 1) / (2 * k + 1) for k in range(40)), Decimal(0))


with localcontext() as _context:
    _context.prec = 60
    #: High and low of -log(c), of c from _FIRST / _INVERSES to an inverse of a little less than √½, and of arc tangents.
    _LOGS = np.array([_pair(-(Decimal(c) / _INVERSES).ln()) for c in range(_FIRST, 93)])
    _ANGLES = np.array([_pair(_arc_tangent(Decimal(k) / _SLOPES)) for k in range(_SLOPES + 1)])
    _LN2, _LN2_LOW = _pair(Decimal(2).ln())
    _THIRD, _THIRD_LOW = _pair(1 / Decimal(3))
    _QUARTER, _QUARTER_LOW = _pair(2 * _arc_tangent(Decimal(1)))
_HALF, _HALF_LOW = 2 * _QUARTER, 2 * _QUARTER_LOW


def make_power(compiled: Callable[[Any], Any], types: Any, singles: Collection[Any]) -> Callable[[Any, Any], Any]:
    """The overload of ``pow`` where one number is complex; None of others.

    Args:
        compiled: makes a plain function one that compiled code may call.
        types: the compiler's module of types.
        singles: the types of numbers that are computed in ``float32``.
    """

    @compiled
    def total(a: Any, b: Any) -> Any:
        """a + b, and what that lacks (Knuth)."""
        s = a + b
        back = s - a
        return s, (a - (s - back)) + (b - back)

    @compiled
    def added(a: Any, a_low: Any, b: Any, b_low: Any) -> Any:
        s, low = total(a, b)
        low += a_low + b_low
        high = s + low
        return high, low - (high - s)

    @compiled
    def product(a: Any, a_low: Any, b: Any, b_low: Any) -> Any:
        p = a * b
        low = lang.fma(a, b, -p) + (a * b_low + a_low * b)
        high = p + low
        return high, low - (high - p)

    @compiled
    def log_size(a: Any, b: Any, steps: Any) -> Any:
        """The logarithm of √(a² + b²), and ``steps`` times that of 2."""
        p, q = a * a, b * b
        square, low = total(p, q)
        low += lang.fma(a, a, -p) + lang.fma(b, b, -q)
        n = np.floor(lang.log2(square) + 0.5)
        down = lang.exp2(-n)
        square, low = square * down, low * down
        place = int(_INVERSES / square + 0.5)
        inverse = place * (1.0 / _INVERSES)
        near = square * inverse
        t, t_low = total(near - 1.0, lang.fma(square, inverse, -near) + low * inverse)  # log1p of which is left
        s, s_low = product(t, t_low, t, t_low)
        c, c_low = product(s, s_low, t, t_low)
        c, c_low = product(c, c_low, _THIRD, _THIRD_LOW)
        rest = t * (-1.0 / 10.0 + t * (1.0 / 11.0 - t * (1.0 / 12.0)))
        rest = t * (-1.0 / 6.0 + t * (1.0 / 7.0 + t * (-1.0 / 8.0 + t * (1.0 / 9.0 + rest))))
        c, c_low = added(c, c_low, s * s * (-0.25 + t * (0.2 + rest)), 0.0)
        c, c_low = added(-0.5 * s, -0.5 * s_low, c, c_low)
        t, t_low = added(t, t_low, c, c_low)
        t, t_low = added(_LOGS[place - _FIRST, 0], _LOGS[place - _FIRST, 1], t, t_low)
        n += 2.0 * steps
        c, c_low = product(n, 0.0, _LN2, _LN2_LOW)
        t, t_low = added(c, c_low, t, t_low)
        return 0.5 * t, 0.5 * t_low

    @compiled
    def angle(x: Any, y: Any) -> Any:
        """That of (x, y), neither of which is infinite."""
        a, b = abs(x), abs(y)
        swapped = b > a
        if swapped:
            a, b = b, a
        place = int(_SLOPES * (b / a) + 0.5)
        slope = place * (1.0 / _SLOPES)
        p, q = a * slope, b * slope
        up, up_low = total(b, -p)
        up_low -= lang.fma(a, slope, -p)
        across, across_low = total(a, q)
        across_low += lang.fma(b, slope, -q)
        t = up / across
        t_low = (lang.fma(-t, across, up) + (up_low - t * across_low)) / across
        s, s_low = product(t, t_low, t, t_low)
        c, c_low = product(s, s_low, t, t_low)
        c, c_low = product(c, c_low, -_THIRD, -_THIRD_LOW)
        rest = s * (1.0 / 9.0 + s * (-1.0 / 11.0 + s * (1.0 / 13.0)))
        c, c_low = added(c, c_low, s * s * t * (0.2 + s * (-1.0 / 7.0) + s * rest), 0.0)
        t, t_low = added(t, t_low, c, c_low)
        t, t_low = added(_ANGLES[place, 0], _ANGLES[place, 1], t, t_low)
        if swapped:
            t, t_low = added(_QUARTER, _QUARTER_LOW, -t, -t_low)
        if x < 0:
            t, t_low = added(_HALF, _HALF_LOW, -t, -t_low)
        return (t, t_low) if math.copysign(1.0, y) > 0 else (-t, -t_low)

    @compiled
    def logarithm(x: Any, y: Any) -> Any:
        """Four numbers, a pair for the logarithm of the size and one for the angle; of a finite number that is not 0."""
        a, b, steps = x, y, 0.0
        size = max(abs(x), abs(y))
        if size > _LARGE:
            a, b, steps = x * _DOWN, y * _DOWN, float(_SHIFT)
        elif size < _SMALL:
            a, b, steps = x * _UP, y * _UP, -float(_SHIFT)
        real, real_low = log_size(a, b, steps)
        turn, turn_low = angle(a, b)
        return real, real_low, turn, turn_low

    @compiled
    def exponential(r: Any, r_low: Any, i: Any, i_low: Any) -> Any:
        """e to the power of the complex number with these parts, as C99 has it for those that are infinite or NaN."""
        size = lang.exp(r)
        if i == 0:
            return complex(size + size * r_low if size < math.inf else size, i)
        if i - i != 0:
            if r == -math.inf:
                return complex(0.0, math.copysign(0.0, i))
            return complex(r if r == math.inf else math.nan, math.nan)
        cosine, sine = lang.cos(i), lang.sin(i)
        across, up = lang.fma(-sine, i_low, cosine), lang.fma(cosine, i_low, sine)
        if _LEAST < size < _MOST:
            size = lang.fma(size, r_low, size)
            return complex(size * across, size * up)
        half = lang.exp(0.5 * r)  # the size may overflow
        across, up = lang.fma(across, r_low, across), lang.fma(up, r_low, up)
        return complex(half * across * half, half * up * half)

    @compiled
    def products(x: Any, y: Any, count: Any) -> Any:
        """A whole power, as two pairs: by squares."""
        a, a_low, b, b_low = x, 0.0, y, 0.0
        p, p_low, q, q_low = 1.0, 0.0, 0.0, 0.0
        while count > 0:
            if count & 1:
                u, u_low = product(p, p_low, a, a_low)
                v, v_low = product(q, q_low, b, b_low)
                s, s_low = product(p, p_low, b, b_low)
                t, t_low = product(q, q_low, a, a_low)
                p, p_low = added(u, u_low, -v, -v_low)
                q, q_low = added(s, s_low, t, t_low)
            count >>= 1
            if count:
                u, u_low = product(a, a_low, a, a_low)
                v, v_low = product(b, b_low, b, b_low)
                s, s_low = product(a, a_low, b, b_low)
                a, a_low = added(u, u_low, -v, -v_low)
                b, b_low = 2.0 * s, 2.0 * s_low
        return p, p_low, q, q_low

    @compiled
    def whole(x: Any, y: Any, exponent: Any) -> Any:
        """A whole power of a number whose products neither overflow nor underflow."""
        p, p_low, q, q_low = products(x, y, int(abs(exponent)))
        if exponent > 0:
            return complex(p, q)
        square, _ = added(*product(p, p_low, p, p_low), *product(q, q_low, q, q_low))
        return complex(p / square, -q / square)

    @compiled
    def is_plain(x: Any, y: Any, c: Any, d: Any) -> Any:
        """Whether a power is one of ``whole``."""
        if d != 0 or abs(c) > _WHOLE or c != np.floor(c):
            return False
        size = max(abs(x), abs(y))
        return 0 < size < math.inf and abs(lang.log2(size) * c) < _RANGE

    @compiled
    def square(x: Any, y: Any) -> Any:
        """What most powers are: vector code, in which nothing overflows that the square does not."""
        return complex((x - y) * (0.5 * x + 0.5 * y) * 2.0, x * y * 2.0)

    @compiled
    def unusual(x: Any, y: Any, c: Any, d: Any) -> Any:
        """A power of 0, or of or to what is infinite or NaN; of everything, 1 to the power of 0."""
        if d == 0 and (c == 0 or c == 1):
            return complex(1.0, 0.0) if c == 0 else complex(x, y)
        if x == 0 and y == 0:
            return complex(0.0, 0.0) if c > 0 else complex(math.nan, math.nan)
        size, turn = lang.log(lang.hypot(x, y)), lang.atan2(y, x)
        r, i = (0.0 if c == 0 else c * size), (0.0 if c == 0 else c * turn)
        return exponential(r if d == 0 else r - d * turn, 0.0, i if d == 0 else i + d * size, 0.0)

    @compiled
    def is_usual(x: Any, y: Any, c: Any, d: Any) -> Any:
        return (x != 0 or y != 0) and x - x == 0 and y - y == 0 and c - c == 0 and d - d == 0

    @compiled
    def power_double(x: Any, y: Any, c: Any, d: Any) -> Any:
        if c == 2 and d == 0:
            return square(x, y)
        if is_plain(x, y, c, d):
            return whole(x, y, c)
        if not is_usual(x, y, c, d):
            return unusual(x, y, c, d)
        size, size_low, turn, turn_low = logarithm(x, y)
        r, r_low = product(c, 0.0, size, size_low)
        i, i_low = product(c, 0.0, turn, turn_low)
        if d != 0:
            s, s_low = product(d, 0.0, turn, turn_low)
            t, t_low = product(d, 0.0, size, size_low)
            r, r_low = added(r, r_low, -s, -s_low)
            i, i_low = added(i, i_low, t, t_low)
        if not (abs(r) < 1e6 and abs(i) < 1e300):  # the size is 0, infinite or NaN, whatever is behind the point
            r, r_low, i, i_low = c * size - d * turn, 0.0, d * size + c * turn, 0.0
        return exponential(r, r_low, i, i_low)

    @compiled
    def power_single(x: Any, y: Any, c: Any, d: Any) -> Any:
        if c == 2 and d == 0:
            return square(x, y)
        if is_plain(x, y, c, d):
            return whole(x, y, c)
        if not is_usual(x, y, c, d):
            return unusual(x, y, c, d)
        size, turn = lang.log(complex(x, y)).real, lang.atan2(y, x)
        return exponential(c * size - d * turn, 0.0, d * size + c * turn, 0.0)

    def narrow(x: Any, y: Any) -> Any:
        return np.complex64(power_single(np.float64(x.real), np.float64(x.imag), np.float64(y.real), np.float64(y.imag)))

    def wide(x: Any, y: Any) -> Any:
        return power_double(np.float64(x.real), np.float64(x.imag), np.float64(y.real), np.float64(y.imag))

    def choose(x: Any, y: Any) -> Any:
        if not (isinstance(x, types.Complex) or isinstance(y, types.Complex)):
            return None
        return narrow if all(kind is types.complex64 or kind in singles for kind in (x, y)) else wide

    return choose
