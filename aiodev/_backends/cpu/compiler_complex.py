"""Functions of complex numbers that numba has with larger errors, or not for all numbers, as plain functions for it.

See W. Kahan, "Branch cuts for complex elementary functions", 1987.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numba.extending import register_jitable

__all__ = ["FUNCTIONS", "expm1", "tanh"]


def expm1(x: Any) -> Any:
    """exp(x) - 1, of small numbers too."""
    half = math.sin(0.5 * x.imag)
    return complex(math.expm1(x.real) * math.cos(x.imag) - 2.0 * half * half, math.exp(x.real) * math.sin(x.imag))


def tanh(x: Any) -> Any:
    """By the tangent, whose code does not overflow."""
    turned = np.tan(complex(-x.imag, x.real))
    return complex(turned.imag, -turned.real)


#: By the names in :mod:`aiodev.lang`.
FUNCTIONS: dict[str, Any] = {function.__name__: register_jitable(function) for function in (expm1, tanh)}
