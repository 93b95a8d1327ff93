"""The kernels behind norms: one pass over blocks of a row, one over what they gave."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

import aiodev
from aiodev import lang
from aiodev.kernels.reductions.bodies import AHEAD
from aiodev.kernels.thread_block import (
    TEAM,
    TEAM_BITS,
    has_teams,
    lane_bits,
    on_teams,
    piece_of,
    pieces_of,
    place_in_team,
    teams_for,
)
from aiodev.lang import sum_squares, team_array, team_barrier, team_rank

__all__ = [
    "BLOCK",
    "COUNT",
    "MAXIMUM",
    "MINIMUM",
    "POWER",
    "SQUARES",
    "SUM",
    "norm_blocks",
    "norm_rows",
    "norm_short",
    "shares_of",
]

#: Elements that are summed in one go.
BLOCK = 4096
#: What is gathered: |x|, |x|², |x|**p, whether x is not 0; the largest and the least |x|.
SUM, SQUARES, POWER, COUNT, MAXIMUM, MINIMUM = range(6)
#: The bits of infinity: those of NaN are above.
_INFINITY = np.uint64(0x7FF0000000000000)


def add_sizes(x: Any, total: Any) -> Any:
    """Sum of |x|."""
    for k in range(x.size):
        total += lang.abs(x[k])
    return total


def add_powers(x: Any, power: Any, total: Any) -> Any:
    """Sum of |x|**p."""
    for k in range(x.size):
        total += lang.abs(x[k]) ** power
    return total


def add_ones(x: Any, one: Any, total: Any) -> Any:
    """How many are not 0."""
    for k in range(x.size):
        total += one if x[k] != 0 else one - one
    return total


def largest_key(x: Any, is_least: bool, largest: Any) -> Any:
    """The largest of the bits of |x|, in whose order they are, NaN on top; for the least, of what infinity's are more."""
    for k in range(x.size):
        bits = np.float64(lang.abs(x[k])).view(np.uint64)
        largest = max(largest, _INFINITY - bits if is_least else bits)
    return largest


def size_of(key: Any, is_least: bool) -> Any:
    """The |x| of a key."""
    return np.uint64(_INFINITY - key if is_least else key).view(np.float64)


def gathered(values: Any, mode: int, power: Any) -> Any:
    """What is gathered of some elements: sums of squares in double precision, others in that of ``power``."""
    if mode == SQUARES:
        return sum_squares(values, 0.0, AHEAD // values.itemsize)
    total, largest, one = type(power)(0), np.uint64(0), type(power)(1)
    if mode == SUM:
        total = add_sizes(values, total)
    elif mode == POWER:
        total = add_powers(values, power, total)
    elif mode == COUNT:
        total = add_ones(values, one, total)
    else:
        largest = largest_key(values, mode == MINIMUM, largest)
    return size_of(largest, mode == MINIMUM) if mode in (MAXIMUM, MINIMUM) else np.float64(total)


def finished(total: Any, mode: int, power: Any) -> Any:
    """The norm."""
    if mode == SQUARES:
        return math.sqrt(total)
    return total ** (1 / np.float64(power)) if mode == POWER else total


@aiodev.kernel(fastmath={"reassoc", "contract", "nsz"}, uniform=True)
def norm_blocks(i: int, blocks: int, mode: int, power: Any, x: Any, parts: Any) -> None:
    """What one block of a row gives."""
    row, block = i // blocks, i % blocks
    values = x[row, block * BLOCK : min(x.shape[1], (block + 1) * BLOCK)]
    parts[row, block] = gathered(values, mode, power)


@aiodev.kernel(fastmath={"reassoc", "contract", "nsz"}, uniform=True)
def norm_short(i: int, mode: int, power: Any, x: Any, out: Any) -> None:
    """The norm of a row that is one block; not by teams."""
    out[i] = finished(gathered(x[i], mode, power), mode, power)


@aiodev.kernel(uniform=True)
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
    out[i] = finished(total, mode, power)


def combined(mode: int, a: Any, b: Any) -> Any:
    """What two threads have."""
    if mode == MAXIMUM:
        return b if b > a or b != b else a
    if mode == MINIMUM:
        return b if b < a or b != b else a
    return a + b


def gather(mode: int, value: Any, span: int, dtype: Any) -> Any:
    """What ``span`` threads have, for the first of them (:func:`aiodev.kernels.thread_block.make_gather`)."""
    shared = team_array(TEAM, dtype)
    rank = team_rank()
    shared[rank] = value
    step = span >> 1
    while step > 0:
        team_barrier()
        if (rank & (span - 1)) < step:
            value = combined(mode, value, shared[rank + step])
            shared[rank] = value
        step >>= 1
    return value


def start_of(mode: int, zero: Any) -> Any:
    """What changes nothing: 0, and for the least infinity."""
    return zero + np.inf if mode == MINIMUM else zero


def norm_blocks_teams(i: int, blocks: int, mode: int, power: Any, x: Any, parts: Any) -> None:
    """What as many blocks give as a team's lanes have room for."""
    bits = lane_bits(x.shape[1]) if blocks == 1 else TEAM_BITS
    item, lane = place_in_team(i, bits)
    row, lo, hi = piece_of(item, blocks, x.shape[1])
    k, end = np.uint64(lo + lane), np.uint64(hi if item < parts.size else 0)
    total = start_of(mode, parts.dtype.type(0))
    while k < end:
        value = x[np.uint64(row), k]
        if mode == SQUARES:
            real, imag = np.float64(value.real), np.float64(value.imag)
            total += real * real + imag * imag
        elif mode == POWER:
            total += lang.abs(value) ** power
        elif mode == COUNT:
            total += 1 if value != 0 else 0
        else:
            total = combined(mode, total, lang.abs(value))
        k += np.uint64(1 << bits)
    total = gather(mode, total, 1 << bits, parts.dtype)
    if lane == 0 and item < parts.size:
        parts[row, item - row * blocks] = total


def norm_rows_teams(i: int, mode: int, power: Any, parts: Any, out: Any) -> None:
    """The norms of as many rows as a team's lanes have room for."""
    bits = lane_bits(parts.shape[1])
    row, lane = place_in_team(i, bits)
    total, k = start_of(mode, parts.dtype.type(0)), lane
    while row < out.size and k < parts.shape[1]:
        total = combined(mode, total, parts[np.uint64(row), np.uint64(k)])
        k += 1 << bits
    total = gather(mode, total, 1 << bits, parts.dtype)
    if lane == 0 and row < out.size:
        out[row] = finished(total, mode, power)


on_teams(norm_blocks, norm_blocks_teams)
on_teams(norm_rows, norm_rows_teams)


def shares_of(rows: int, length: int, device: aiodev.Device) -> tuple[int, int, int]:
    """Blocks of a row, and how many indices the two launches have."""
    if not has_teams(device):
        blocks = max(1, -(-length // BLOCK))
        return blocks, rows * blocks, rows
    blocks = pieces_of(rows, length)
    return blocks, teams_for(rows, length) if blocks == 1 else rows * blocks, teams_for(rows, blocks)
