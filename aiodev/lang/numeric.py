"""Arithmetic that processors have instructions for, and that differs in spelling between targets."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

__all__ = ["fma", "popcount", "pow", "rsqrt"]


def fma(a: Any, b: Any, c: Any) -> Any:
    """``a * b + c``, rounded once where it is compiled; of floats.

    Example:
        >>> from aiodev import lang
        >>> lang.fma(2.0, 3.0, 1.0)
        7.0
    """
    return a * b + c


def pow(x: Any, y: Any) -> Any:
    """``x`` to the power of ``y``, with C's special values; in ``float32`` to 0.51 ulp on the CPU, as vector code.

    Other types are NumPy's ``power``.

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


def popcount(x: Any) -> Any:
    """How many bits of an integer are set; of a negative one, in its own width.

    Example:
        >>> from aiodev import lang
        >>> lang.popcount(0b1011)
        3
    """
    bits = getattr(x, "itemsize", 8) * 8
    return (int(x) & ((1 << bits) - 1)).bit_count()
