"""The kernels behind norms: one pass over blocks of a row, one over what they gave."""

from __future__ import annotations

import math
from typing import Any

import aiodev

__all__ = ["BLOCK", "COUNT", "MAXIMUM", "MINIMUM", "POWER", "SQUARES", "SUM", "norm_blocks", "norm_rows"]

#: Elements that are summed in one go.
BLOCK = 4096
#: What is gathered: |x|, |x|², |x|**p, whether x is not 0; the largest and the least |x|.
SUM, SQUARES, POWER, COUNT, MAXIMUM, MINIMUM = range(6)


def add_squares(x: Any, row: int, lo: int, hi: int, total: Any) -> Any:
    """Sum of |x|²."""
    for k in range(lo, hi):
        value = x[row, k]
        total += value.real * value.real + value.imag * value.imag
    return total


def add_sizes(x: Any, row: int, lo: int, hi: int, total: Any) -> Any:
    """Sum of |x|."""
    for k in range(lo, hi):
        total += abs(x[row, k])
    return total


def extreme(x: Any, row: int, lo: int, hi: int, sign: Any) -> Any:
    """The largest sign * |x|; NaN if there is one."""
    found = sign * abs(x[row, lo])
    for k in range(lo + 1, hi):
        value = sign * abs(x[row, k])
        if value > found or value != value:
            found = value
    return sign * found


@aiodev.kernel(fastmath={"reassoc", "contract"})
def norm_blocks(i: int, blocks: int, mode: int, power: Any, x: Any, out: Any) -> None:
    """What one block of a row gives."""
    row, block = i // blocks, i % blocks
    lo, hi = block * BLOCK, min(x.shape[1], (block + 1) * BLOCK)
    one = out.dtype.type(1)
    total = out.dtype.type(0)
    if mode == SUM:
        total = add_sizes(x, row, lo, hi, total)
    elif mode == SQUARES:
        total = add_squares(x, row, lo, hi, total)
    elif mode == POWER:
        for k in range(lo, hi):
            total += abs(x[row, k]) ** power
    elif mode == COUNT:
        for k in range(lo, hi):
            total += one if x[row, k] != 0 else one - one
    else:
        total = extreme(x, row, lo, hi, one if mode == MAXIMUM else -one)
    out[row, block] = total


@aiodev.kernel
def norm_rows(i: int, mode: int, power: Any, parts: Any, out: Any) -> None:
    """The norm of a row from its blocks."""
    total = parts[i, 0]
    for k in range(1, parts.shape[1]):
        value = parts[i, k]
        if mode == MAXIMUM:
            total = value if value > total or value != value else total
        elif mode == MINIMUM:
            total = value if value < total or value != value else total
        else:
            total += value
    if mode == SQUARES:
        total = math.sqrt(total)
    elif mode == POWER:
        total = total ** (1 / power)
    out[i] = total
