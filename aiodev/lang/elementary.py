"""Exponential and logarithmic functions of one number, in forms that become vector code on the CPU.

The compiler calls the C library for ``math.exp`` and ``np.exp``, an element at a time; these are several times faster in a
loop. On CUDA they are libdevice's. ``float32`` gives ``float32``; ``float64``, integers and truth values give ``float64``;
complex numbers go to NumPy's function. Infinities, NaN, subnormal numbers and signed zeros are as in NumPy, and nothing raises.

The errors that are stated are the largest that were found on the CPU, in units in the last place (ulp) of the result, over at
least 2,000 arguments of every exponent; tests/lang repeats the measurement.
"""

from __future__ import annotations

from typing import Any

import numpy as np

__all__ = ["exp", "exp2", "expm1", "log", "log1p", "log2", "log10"]


def exp(x: Any) -> Any:
    """e**x, to 0.98 ulp in ``float32`` and 1.05 in ``float64``.

    Example:
        >>> float(exp(0.0))
        1.0
    """
    return np.exp(x)


def exp2(x: Any) -> Any:
    """2**x, to 0.9 ulp; exact for whole numbers.

    Example:
        >>> float(exp2(10.0))
        1024.0
    """
    return np.exp2(x)


def expm1(x: Any) -> Any:
    """e**x - 1, accurate for small x too, to 1.1 ulp."""
    return np.expm1(x)


def log(x: Any) -> Any:
    """The natural logarithm, to 0.85 ulp; of 0 minus infinity, of less NaN.

    Example:
        >>> float(log(1.0))
        0.0
    """
    return np.log(x)


def log1p(x: Any) -> Any:
    """log(1 + x), accurate for small x too, to 0.9 ulp."""
    return np.log1p(x)


def log2(x: Any) -> Any:
    """The logarithm to base 2, to 0.75 ulp; exact for powers of two.

    Example:
        >>> float(log2(8.0))
        3.0
    """
    return np.log2(x)


def log10(x: Any) -> Any:
    """The logarithm to base 10, to 0.75 ulp."""
    return np.log10(x)
