"""Exponential, logarithmic, hyperbolic and trigonometric functions, and their inverses, as vector code on the CPU.

The compiler calls the C library for ``math.exp`` and ``np.exp``, an element at a time; these are several times faster in a
loop. On CUDA they are libdevice's. ``float32`` gives ``float32``; ``float64``, integers and truth values give ``float64``.
Infinities, NaN, subnormal numbers and signed zeros are as in NumPy, and nothing raises.

Complex numbers are computed with in double precision on every device, with the branches and the special values of C99 and of
the array API. Either part is within 4 ulp, but the real part of ``expm1`` within 4 ulp of the absolute value only. They are no
vector code.

The errors that are stated are the largest that were found on the CPU, in units in the last place (ulp) of the result, over at
least 2,000 arguments of every exponent; tests/lang repeats the measurement.
"""

from __future__ import annotations

from typing import Any

import numpy as np

__all__ = [
    "acos",
    "acosh",
    "asin",
    "asinh",
    "atan",
    "atanh",
    "cbrt",
    "cos",
    "cosh",
    "exp",
    "exp2",
    "expit",
    "expm1",
    "log",
    "log1p",
    "log2",
    "log10",
    "sin",
    "sinh",
    "sqrt",
    "tan",
    "tanh",
]


def exp(x: Any) -> Any:
    """e**x, to 0.98 ulp in ``float32`` and 1.05 in ``float64``.

    Example:
        >>> from aiodev import lang
        >>> float(lang.exp(0.0))
        1.0
    """
    return np.exp(x)


def exp2(x: Any) -> Any:
    """2**x, to 0.9 ulp; exact for whole numbers.

    Example:
        >>> from aiodev import lang
        >>> float(lang.exp2(10.0))
        1024.0
    """
    return np.exp2(x)


def expm1(x: Any) -> Any:
    """e**x - 1, accurate for small x too, to 1.1 ulp in ``float32`` and 1.2 in ``float64``.

    Example:
        >>> from aiodev import lang
        >>> float(lang.expm1(1e-20))
        1e-20
    """
    return np.expm1(x)


def log(x: Any) -> Any:
    """The natural logarithm, to 1.2 ulp; of 0 minus infinity, of less NaN.

    Example:
        >>> from aiodev import lang
        >>> float(lang.log(1.0))
        0.0
    """
    return np.log(x)


def log1p(x: Any) -> Any:
    """log(1 + x), accurate for small x too, to 0.9 ulp.

    Example:
        >>> from aiodev import lang
        >>> float(lang.log1p(1e-20))
        1e-20
    """
    return np.log1p(x)


def log2(x: Any) -> Any:
    """The logarithm to base 2, to 1 ulp in ``float32`` and 0.8 in ``float64``; exact for powers of two.

    Example:
        >>> from aiodev import lang
        >>> float(lang.log2(8.0))
        3.0
    """
    return np.log2(x)


def log10(x: Any) -> Any:
    """The logarithm to base 10, to 1 ulp in ``float32`` and 0.75 in ``float64``.

    Example:
        >>> from aiodev import lang
        >>> float(lang.log10(100.0))
        2.0
    """
    return np.log10(x)


def sqrt(x: Any) -> Any:
    """The square root, rounded once; of complex numbers that of a real part which is not negative. Of negative reals NaN.

    Example:
        >>> from aiodev import lang
        >>> float(lang.sqrt(9.0))
        3.0
    """
    return np.sqrt(x)


def sinh(x: Any) -> Any:
    """Hyperbolic sine, to 1.7 ulp.

    Example:
        >>> from aiodev import lang
        >>> float(lang.sinh(0.0))
        0.0
    """
    return np.sinh(x)


def cosh(x: Any) -> Any:
    """Hyperbolic cosine, to 1.5 ulp.

    Example:
        >>> from aiodev import lang
        >>> float(lang.cosh(0.0))
        1.0
    """
    return np.cosh(x)


def tanh(x: Any) -> Any:
    """Hyperbolic tangent, to 1.5 ulp.

    Example:
        >>> from aiodev import lang
        >>> float(lang.tanh(0.0))
        0.0
    """
    return np.tanh(x)


def expit(x: Any) -> Any:
    """The logistic function 1 / (1 + e**-x), also called sigmoid, to 1.5 ulp; of real numbers.

    Example:
        >>> from aiodev import lang
        >>> float(lang.expit(0.0))
        0.5
    """
    return np.exp(x) / (1 + np.exp(x)) if x < 0 else 1 / (1 + np.exp(-x))


def sin(x: Any) -> Any:
    """Sine, to 1.6 ulp in ``float32`` and 0.82 in ``float64``, of arguments of any size.

    Example:
        >>> from aiodev import lang
        >>> float(lang.sin(0.0))
        0.0
    """
    return np.sin(x)


def cos(x: Any) -> Any:
    """Cosine, to 1.6 ulp in ``float32`` and 0.82 in ``float64``, of arguments of any size.

    Example:
        >>> from aiodev import lang
        >>> float(lang.cos(0.0))
        1.0
    """
    return np.cos(x)


def tan(x: Any) -> Any:
    """Tangent, to 1.1 ulp in ``float32`` and 1 in ``float64``, of arguments of any size.

    Example:
        >>> from aiodev import lang
        >>> float(lang.tan(0.0))
        0.0
    """
    return np.tan(x)


def asin(x: Any) -> Any:
    """The angle, from -π/2 to π/2, that has this sine, to 1.2 ulp.

    Example:
        >>> from aiodev import lang
        >>> float(lang.asin(0.0))
        0.0
    """
    return np.arcsin(x)


def acos(x: Any) -> Any:
    """The angle, from 0 to π, that has this cosine, to 1.2 ulp.

    Example:
        >>> from aiodev import lang
        >>> float(lang.acos(1.0))
        0.0
    """
    return np.arccos(x)


def atan(x: Any) -> Any:
    """The angle, from -π/2 to π/2, that has this tangent, to 1.3 ulp in ``float32`` and 1.6 in ``float64``.

    Example:
        >>> from aiodev import lang
        >>> float(lang.atan(0.0))
        0.0
    """
    return np.arctan(x)


def asinh(x: Any) -> Any:
    """The inverse of the hyperbolic sine, to 1.3 ulp.

    Example:
        >>> from aiodev import lang
        >>> float(lang.asinh(0.0))
        0.0
    """
    return np.arcsinh(x)


def acosh(x: Any) -> Any:
    """The inverse of the hyperbolic cosine, to 1.5 ulp in ``float32`` and 1.6 in ``float64``.

    Example:
        >>> from aiodev import lang
        >>> float(lang.acosh(1.0))
        0.0
    """
    return np.arccosh(x)


def atanh(x: Any) -> Any:
    """The inverse of the hyperbolic tangent, to 1.1 ulp.

    Example:
        >>> from aiodev import lang
        >>> float(lang.atanh(0.0))
        0.0
    """
    return np.arctanh(x)


def cbrt(x: Any) -> Any:
    """The cube root, of negative numbers too, to 1.2 ulp in ``float32`` and 1 in ``float64``; of real numbers.

    Example:
        >>> from aiodev import lang
        >>> float(lang.cbrt(8.0))
        2.0
    """
    return np.cbrt(x)
