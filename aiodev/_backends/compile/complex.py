"""Functions of complex numbers, for numba and numba-cuda: theirs have larger errors, other branches, or fail for large numbers.

They are made of :mod:`aiodev.lang`'s functions of real numbers, in double precision, and have the special values of C99,
annex G, which the array API repeats. As in C, each of ``sin``, ``tan``, ``asin`` and ``atan`` is a hyperbolic function of the
number turned by 90°.

See W. Kahan, "Branch cuts for complex elementary functions", 1987, and Hull, Fairgrieve and Tang, "Implementing complex
elementary functions using exception handling", 1994, for the logarithm.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection
from typing import Any

import numpy as np

from aiodev import lang

__all__ = ["make_absolutes", "make_functions"]

#: ln 2, and what that is more; its inverse, and that of ln 10.
_LN2, _LN2_LOW, _PER_LN2, _PER_LN10 = 0.6931471805599453, 2.3190468138462996e-17, 1.4426950408889634, 0.4342944819032518
#: What has squares that neither overflow nor underflow, and the power of two that brings other numbers there.
_LARGE, _SMALL, _SHIFT = 2.0**500, 2.0**-500, 600
_UP, _DOWN = 2.0**_SHIFT, 2.0**-_SHIFT
#: Beyond this ``exp`` may overflow, or lose digits, where a product with it would not.
_HIGH = 700.0
#: Beyond this tanh is 1.
_FLAT = 22.0


def make_absolutes(compiled: Callable[[Any], Any], types: Any, singles: Collection[Any]) -> dict[str, Any]:
    """The overloads of ``hypot`` and ``abs``, by their names in :mod:`aiodev.lang`.

    They are single where all that they are given is. Of other things than numbers there is none.

    Args:
        compiled: as for :func:`make_functions`.
        types: the compiler's module of types.
        singles: the types of numbers that are computed in ``float32``.
    """
    real = types.Float | types.Integer | types.Boolean

    def is_real(kind: Any) -> bool:
        return isinstance(kind, real) or kind in singles

    @compiled
    def length(x: Any, y: Any) -> Any:
        a, b = np.float64(abs(x)), np.float64(abs(y))
        size = a if a > b else b
        scale = _DOWN if size > _LARGE else (_UP if size < _SMALL else 1.0)
        back = _UP if size > _LARGE else (_DOWN if size < _SMALL else 1.0)
        a, b = a * scale, b * scale
        result = math.sqrt(lang.fma(a, a, b * b)) * back
        return math.inf if a == math.inf or b == math.inf else result

    def single_hypot(x: Any, y: Any) -> Any:
        return np.float32(length(x, y))

    def double_hypot(x: Any, y: Any) -> Any:
        return length(np.float64(x), np.float64(y))

    def real_abs(x: Any) -> Any:
        return abs(x)

    def single_abs(x: Any) -> Any:
        return np.float32(length(x.real, x.imag))

    def double_abs(x: Any) -> Any:
        return length(x.real, x.imag)

    def choose_hypot(x: Any, y: Any) -> Any:
        if not (is_real(x) and is_real(y)):
            return None
        return single_hypot if x in singles and y in singles else double_hypot

    def choose_abs(x: Any) -> Any:
        if isinstance(x, types.Complex):
            return single_abs if x is types.complex64 else double_abs
        return real_abs if is_real(x) else None

    return {"hypot": choose_hypot, "abs": choose_abs}


def make_functions(compiled: Callable[[Any], Any]) -> dict[str, Any]:
    """The functions by their names in :mod:`aiodev.lang`, and ``sqrt``; of complex128, and of complex64 as of that.

    Args:
        compiled: makes a plain function one that compiled code may call.
    """

    @compiled
    def excess(a: Any, b: Any) -> Any:
        """a² + b² - 1, with few more errors than its own rounding: in pairs of numbers (Dekker)."""
        p, q = a * a, b * b
        lost = lang.fma(a, a, -p) + lang.fma(b, b, -q)
        first = p - 1.0
        back = first + 1.0
        lost += (p - back) + (back - first - 1.0)
        total = first + q
        back = total - first
        return total + (lost + ((q - back) + (first - (total - back))))

    @compiled
    def log_size(x: Any, y: Any) -> Any:
        """The logarithm of the absolute value."""
        a, b = abs(x), abs(y)
        if a == math.inf or b == math.inf:
            return math.inf
        big, small = (a, b) if a > b else (b, a)
        if 0.5 < big < 2.0:
            return 0.5 * lang.log1p(excess(big, small))
        if big > _LARGE:
            big, small = big * _DOWN, small * _DOWN
            return 0.5 * lang.log(big * big + small * small) + _SHIFT * _LN2
        if big < _SMALL:
            big, small = big * _UP, small * _UP
            return 0.5 * lang.log(big * big + small * small) - _SHIFT * _LN2
        return 0.5 * lang.log(big * big + small * small)

    @compiled
    def root(x: Any, y: Any) -> Any:
        """The two parts of the square root."""
        a, b = abs(x), abs(y)
        if b == math.inf:
            return b, y
        if a == math.inf:
            rest = y - y  # 0, or NaN
            return (x, math.copysign(rest, y)) if x > 0 else (abs(rest), math.copysign(a, y))
        if a == 0 and b == 0:
            return b, y
        up = 1.0
        if a > _LARGE or b > _LARGE:
            a, b, up = a * _DOWN, b * _DOWN, 2.0 ** (_SHIFT // 2)
        elif a < _SMALL and b < _SMALL:
            a, b, up = a * _UP, b * _UP, 2.0 ** (-_SHIFT // 2)
        large = math.sqrt(0.5 * (a + math.sqrt(lang.fma(a, a, b * b))))
        small = 0.5 * b / large * up
        large *= up
        return (large, math.copysign(small, y)) if x >= 0 else (small, math.copysign(large, y))

    @compiled
    def turned(x: Any, size: Any, half: Any, angle: Any, across: Any, up: Any) -> Any:
        """The number of this size, a power of x, and angle, whose cosine and sine are given; the size may overflow, ``half`` is
        its root.
        """
        if angle == 0:
            return complex(size, angle)
        if angle - angle != 0:  # infinite, or NaN
            if x == -math.inf:
                return complex(0.0, math.copysign(0.0, angle))
            return complex(x if x == math.inf else math.nan, math.nan)
        if 1e-300 < size < 1e300:
            return complex(size * across, size * up)
        return complex(half * across * half, half * up * half)

    @compiled
    def exp(z: Any) -> Any:
        x, y = np.float64(z.real), np.float64(z.imag)
        return turned(x, lang.exp(x), lang.exp(0.5 * x), y, lang.cos(y), lang.sin(y))

    @compiled
    def exp2(z: Any) -> Any:
        x, y = np.float64(z.real), np.float64(z.imag)
        angle = y * _LN2
        rest = lang.fma(y, _LN2, -angle) + y * _LN2_LOW
        a, b, c, d = lang.cos(angle), lang.sin(angle), lang.cos(rest), lang.sin(rest)
        return turned(x, lang.exp2(x), lang.exp2(0.5 * x), angle, a * c - b * d, b * c + a * d)

    @compiled
    def expm1(z: Any) -> Any:
        x, y = np.float64(z.real), np.float64(z.imag)
        if y == 0:
            return complex(lang.expm1(x) + 0.0, y)  # of either zero the positive one, as the array API has it
        if abs(x) > 40 or y - y != 0:
            result = exp(z)
            return complex(result.real - 1.0, result.imag)
        half = lang.sin(0.5 * y)
        return complex(lang.expm1(x) * lang.cos(y) - 2.0 * half * half, lang.exp(x) * lang.sin(y))

    @compiled
    def log(z: Any) -> Any:
        x, y = np.float64(z.real), np.float64(z.imag)
        return complex(log_size(x, y), lang.atan2(y, x))

    @compiled
    def log2(z: Any) -> Any:
        result = log(z)
        return complex(result.real * _PER_LN2, result.imag * _PER_LN2)

    @compiled
    def log10(z: Any) -> Any:
        result = log(z)
        return complex(result.real * _PER_LN10, result.imag * _PER_LN10)

    @compiled
    def log1p(z: Any) -> Any:
        x, y = np.float64(z.real), np.float64(z.imag)
        if abs(x) <= 0.5 and abs(y) < 2.0:
            p, q = x * x, y * y
            lost = lang.fma(x, x, -p) + lang.fma(y, y, -q)
            first = 2.0 * x + p
            lost += p - (first - 2.0 * x)  # p is the smaller one
            total = first + q
            back = total - first
            size = 0.5 * lang.log1p(total + (lost + ((q - back) + (first - (total - back)))))
        else:
            size = log_size(1.0 + x, y)
        return complex(size, lang.atan2(y, 1.0 + x))

    @compiled
    def sqrt(z: Any) -> Any:
        x, y = root(np.float64(z.real), np.float64(z.imag))
        return complex(x, y)

    @compiled
    def sinh_parts(x: Any, y: Any) -> Any:
        if y == 0:
            return lang.sinh(x), y
        if y - y != 0:
            return (x if x == 0 or abs(x) == math.inf else math.nan), math.nan
        if abs(x) > _HIGH:
            half = lang.exp(0.5 * abs(x))
            return math.copysign(0.5, x) * half * lang.cos(y) * half, 0.5 * half * lang.sin(y) * half
        return lang.sinh(x) * lang.cos(y), lang.cosh(x) * lang.sin(y)

    @compiled
    def cosh_parts(x: Any, y: Any) -> Any:
        if y == 0:
            return lang.cosh(x), y * math.copysign(1.0, x)
        if y - y != 0:
            if abs(x) == math.inf:
                return math.inf, math.nan
            return math.nan, (x * math.copysign(1.0, y) if x == 0 else math.nan)
        if abs(x) > _HIGH:
            half = lang.exp(0.5 * abs(x))
            return 0.5 * half * lang.cos(y) * half, math.copysign(0.5, x) * half * lang.sin(y) * half
        return lang.cosh(x) * lang.cos(y), lang.sinh(x) * lang.sin(y)

    @compiled
    def tanh_parts(x: Any, y: Any) -> Any:
        if y == 0:
            return lang.tanh(x), y
        if y - y != 0 and abs(x) != math.inf:
            return (x if x == 0 else math.nan), math.nan
        if abs(x) == math.inf:  # the array API's zero; C's has the sign of sin(2y)
            return math.copysign(1.0, x), math.copysign(0.0, y)
        if abs(x) > _FLAT:
            return math.copysign(1.0, x), 4.0 * lang.sin(y) * lang.cos(y) * lang.exp(-2.0 * abs(x))
        slope, height = lang.tan(y), lang.sinh(x)
        widened = 1.0 + slope * slope
        below = 1.0 + widened * height * height
        return widened * math.sqrt(1.0 + height * height) * height / below, slope / below

    @compiled
    def asinh_parts(x: Any, y: Any) -> Any:
        a, b = abs(x), abs(y)
        if a == math.inf or b == math.inf:
            return math.copysign(math.inf, x), lang.atan2(y, a)
        if x != x or y != y:
            return math.nan, (y if y == 0 else math.nan)
        if a > _LARGE or b > _LARGE:
            return math.copysign(log_size(x, y) + _LN2, x), lang.atan2(y, a)
        p, q = root(1.0 + y, -x)
        r, s = root(1.0 - y, x)
        return lang.asinh(p * s - r * q), lang.atan2(y, p * r - q * s)

    @compiled
    def atanh_parts(x: Any, y: Any) -> Any:
        a, b = abs(x), abs(y)
        if a == math.inf or b == math.inf:
            return math.copysign(0.0, x), (y if y != y else math.copysign(0.5 * math.pi, y))
        if x != x or y != y:
            return (x if x == 0 else math.nan), math.nan
        if a > _LARGE or b > _LARGE:
            c, d = a * _DOWN, b * _DOWN
            return math.copysign(c / (c * c + d * d) * _DOWN, x), math.copysign(0.5 * math.pi, y)
        up = 0.5 * lang.atan2(2.0 * y, -excess(a, b))
        if a == 1 and b < _SMALL:
            return math.copysign(0.5 * (_LN2 - lang.log(b)), x), (up if b > 0 else y)
        return math.copysign(0.25 * lang.log1p(4.0 * a / ((1.0 - a) * (1.0 - a) + b * b)), x), up

    @compiled
    def sinh(z: Any) -> Any:
        x, y = sinh_parts(np.float64(z.real), np.float64(z.imag))
        return complex(x, y)

    @compiled
    def cosh(z: Any) -> Any:
        x, y = cosh_parts(np.float64(z.real), np.float64(z.imag))
        return complex(x, y)

    @compiled
    def tanh(z: Any) -> Any:
        x, y = tanh_parts(np.float64(z.real), np.float64(z.imag))
        return complex(x, y)

    @compiled
    def sin(z: Any) -> Any:
        x, y = sinh_parts(-np.float64(z.imag), np.float64(z.real))
        return complex(y, -x)

    @compiled
    def cos(z: Any) -> Any:
        x, y = cosh_parts(-np.float64(z.imag), np.float64(z.real))
        return complex(x, y)

    @compiled
    def tan(z: Any) -> Any:
        x, y = tanh_parts(-np.float64(z.imag), np.float64(z.real))
        return complex(y, -x)

    @compiled
    def asinh(z: Any) -> Any:
        x, y = asinh_parts(np.float64(z.real), np.float64(z.imag))
        return complex(x, y)

    @compiled
    def asin(z: Any) -> Any:
        x, y = asinh_parts(-np.float64(z.imag), np.float64(z.real))
        return complex(y, -x)

    @compiled
    def atanh(z: Any) -> Any:
        x, y = atanh_parts(np.float64(z.real), np.float64(z.imag))
        return complex(x, y)

    @compiled
    def atan(z: Any) -> Any:
        x, y = atanh_parts(-np.float64(z.imag), np.float64(z.real))
        return complex(y, -x)

    @compiled
    def acosh(z: Any) -> Any:
        x, y = np.float64(z.real), np.float64(z.imag)
        if abs(x) == math.inf or abs(y) == math.inf:
            return complex(math.inf, lang.atan2(y, x))
        if x != x or y != y:
            return complex(math.nan, 0.5 * math.pi if x == 0 else math.nan)
        if abs(x) > _LARGE or abs(y) > _LARGE:
            return complex(log_size(x, y) + _LN2, lang.atan2(y, x))
        p, q = root(x - 1.0, y)
        r, s = root(x + 1.0, y)
        return complex(lang.asinh(p * r + q * s), 2.0 * lang.atan2(q, r))

    @compiled
    def acos(z: Any) -> Any:
        x, y = np.float64(z.real), np.float64(z.imag)
        if abs(x) == math.inf or abs(y) == math.inf:
            return complex(lang.atan2(abs(y), x), -math.copysign(math.inf, y))
        if x != x or y != y:
            return complex(0.5 * math.pi if x == 0 else math.nan, math.nan)
        if abs(x) > _LARGE or abs(y) > _LARGE:
            return complex(lang.atan2(abs(y), x), -math.copysign(log_size(x, y) + _LN2, y))
        p, q = root(1.0 - x, -y)
        r, s = root(1.0 + x, y)
        return complex(2.0 * lang.atan2(p, r), lang.asinh(r * q - s * p))

    return {
        "acos": acos, "acosh": acosh, "asin": asin, "asinh": asinh, "atan": atan, "atanh": atanh, "cos": cos, "cosh": cosh,
        "exp": exp, "exp2": exp2, "expm1": expm1, "log": log, "log10": log10, "log1p": log1p, "log2": log2, "sin": sin,
        "sinh": sinh, "sqrt": sqrt, "tan": tan, "tanh": tanh,
    }  # fmt: skip
