"""The kernels behind norms: one pass over blocks of a row, one over what they gave."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

import aiodev
from aiodev.kernels.teams import (
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
from aiodev.lang import team_array, team_barrier, team_rank

__all__ = ["BLOCK", "COUNT", "MAXIMUM", "MINIMUM", "POWER", "SQUARES", "SUM", "norm_blocks", "norm_rows", "shares_of"]

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


def combined(mode: int, a: Any, b: Any) -> Any:
    """What two threads have."""
    if mode == MAXIMUM:
        return b if b > a or b != b else a
    if mode == MINIMUM:
        return b if b < a or b != b else a
    return a + b


def gather(mode: int, value: Any, span: int, dtype: Any) -> Any:
    """What ``span`` threads have, for the first of them (:func:`aiodev.kernels.teams.make_gather`)."""
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


def norm_blocks_teams(i: int, blocks: int, mode: int, power: Any, x: Any, out: Any) -> None:
    """What as many blocks give as a team's lanes have room for."""
    bits = lane_bits(x.shape[1]) if blocks == 1 else TEAM_BITS
    item, lane = place_in_team(i, bits)
    row, lo, hi = piece_of(item, blocks, x.shape[1])
    k, end = np.uint64(lo + lane), np.uint64(hi if item < out.size else 0)
    one = out.dtype.type(1)
    total = start_of(mode, out.dtype.type(0))
    while k < end:
        value = x[np.uint64(row), k]
        if mode == SQUARES:
            total += value.real * value.real + value.imag * value.imag
        elif mode == POWER:
            total += abs(value) ** power
        elif mode == COUNT:
            total += one if value != 0 else one - one
        else:
            total = combined(mode, total, abs(value))
        k += np.uint64(1 << bits)
    total = gather(mode, total, 1 << bits, out.dtype)
    if lane == 0 and item < out.size:
        out[row, item - row * blocks] = total


def norm_rows_teams(i: int, mode: int, power: Any, parts: Any, out: Any) -> None:
    """The norms of as many rows as a team's lanes have room for."""
    bits = lane_bits(parts.shape[1])
    row, lane = place_in_team(i, bits)
    total, k = start_of(mode, out.dtype.type(0)), lane
    while row < out.size and k < parts.shape[1]:
        total = combined(mode, total, parts[np.uint64(row), np.uint64(k)])
        k += 1 << bits
    total = gather(mode, total, 1 << bits, out.dtype)
    if lane == 0 and row < out.size:
        if mode == SQUARES:
            total = math.sqrt(total)
        elif mode == POWER:
            total = total ** (1 / power)
        out[row] = total


on_teams(norm_blocks, norm_blocks_teams)
on_teams(norm_rows, norm_rows_teams)


def shares_of(rows: int, length: int, device: aiodev.Device) -> tuple[int, int, int]:
    """Blocks of a row, and how many indices the two launches have."""
    if not has_teams(device):
        blocks = max(1, -(-length // BLOCK))
        return blocks, rows * blocks, rows
    blocks = pieces_of(rows, length)
    return blocks, teams_for(rows, length) if blocks == 1 else rows * blocks, teams_for(rows, blocks)
