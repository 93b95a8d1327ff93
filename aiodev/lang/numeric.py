"""Functions of several numbers, and arithmetic that processors have instructions for but spell differently."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

__all__ = ["abs", "atan2", "bfloat16", "fma", "hypot", "popcount", "pow", "rsqrt"]


def abs(x: Any) -> Any:
    """The absolute value; of a complex number its :func:`hypot`, which is real.

    The compiler calls the C library for ``abs`` of a complex number, an element at a time; this is vector code on the CPU.

    Example:
        >>> from aiodev import lang
        >>> float(lang.abs(3 - 4j))
        5.0
    """
    return np.absolute(x)


def atan2(y: Any, x: Any) -> Any:
    """The angle, from -π to π, of the point (x, y), with C's special values; to 1.7 ulp on the CPU.

    Example:
        >>> from aiodev import lang
        >>> float(lang.atan2(0.0, 1.0))
        0.0
    """
    return np.arctan2(y, x)


def bfloat16(x: Any) -> Any:
    """``x`` rounded to a ``bfloat16`` number, as ``float32``: to the nearest, ties to even, and to infinity beyond the largest.

    Elements of ``bfloat16`` arrays are rounded when they are stored; this is for numbers on the way.

    Example:
        >>> from aiodev import lang
        >>> float(lang.bfloat16(3.14159))
        3.140625
    """
    with np.errstate(over="ignore"):
        number = np.float32(x)
    bits = int(number.view(np.uint32))
    if number != number:
        return np.uint32(bits & 0x80000000 | 0x7FC00000).view(np.float32)
    return np.uint32((bits + 0x7FFF + (bits >> 16 & 1)) & 0xFFFF0000).view(np.float32)


def fma(a: Any, b: Any, c: Any) -> Any:
    """``a * b + c``, rounded once where it is compiled; of floats.

    Example:
        >>> from aiodev import lang
        >>> lang.fma(2.0, 3.0, 1.0)
        7.0
    """
    return a * b + c


def pow(x: Any, y: Any) -> Any:
    """``x`` to the power of ``y``, with C's special values; on the CPU to 0.51 ulp in ``float32`` and 1.6 in ``float64``.

    Where both are integers it is NumPy's ``power``. Of complex numbers either part is within 4 ulp on the CPU, and finite where
    it is small enough, though the other one is not; whole powers up to 32 are rounded products, so that those of real and of
    imaginary numbers are such numbers. To the power of 0 all is 1; 0 is 0 to one of a positive real part, and NaN to any other.

    Example:
        >>> from aiodev import lang
        >>> float(lang.pow(2.0, 10.0))
        1024.0
    """
    return np.power(x, y)


def rsqrt(x: Any) -> Any:
    """``1 / sqrt(x)``.

    Example:
        >>> from aiodev import lang
        >>> lang.rsqrt(4.0)
        0.5
    """
    return 1.0 / math.sqrt(x)


def hypot(x: Any, y: Any) -> Any:
    """sqrt(x² + y²), where neither square overflows or vanishes, with C's special values; on the CPU vector code, to 0.51 ulp
    in ``float32`` and 1.1 in ``float64``.

    Example:
        >>> from aiodev import lang
        >>> float(lang.hypot(3.0, 4.0))
        5.0
    """
    return np.hypot(x, y)


def popcount(x: Any) -> Any:
    """How many bits of an integer are set; of a negative one, in its own width.

    Example:
        >>> from aiodev import lang
        >>> lang.popcount(0b1011)
        3
    """
    bits = getattr(x, "itemsize", 8) * 8
    return (int(x) & ((1 << bits) - 1)).bit_count()
