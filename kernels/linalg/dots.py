"""Dot products of vectors: sums of blocks, and sums of their sums."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

import aiodev
from aiodev import dtypes
from aiodev.kernels.arguments import broadcast, delivered, packed_out
from aiodev.kernels.elementwise.conversion import astype, convert
from aiodev.kernels.reductions.accumulators import add
from aiodev.kernels.thread_block import (
    TEAM_BITS,
    has_teams,
    lane_bits,
    make_gather,
    on_teams,
    piece_of,
    pieces_of,
    place_in_team,
    teams_for,
)
from aiodev.kernels.tuning import DOT_WHOLE, MANY_DOTS

__all__ = ["dot"]

#: Products that are summed in one go. It bounds the error of single precision, and is some µs of work.
BLOCK = 4096
_gather = make_gather(add)


def sum_products(x1: Any, x2: Any, total: Any) -> Any:
    """``total`` plus the dot product."""
    for k in range(min(x1.size, x2.size)):
        total += x1[k] * x2[k]
    return total


def sum_conjugate_products(x1: Any, x2: Any, total: Any) -> Any:
    """``total`` plus the dot product of the first one's conjugate."""
    for k in range(min(x1.size, x2.size)):
        total += np.conj(x1[k]) * x2[k]
    return total


@aiodev.kernel(fastmath={"reassoc", "contract"}, uniform=True)
def dot_rows(i: int, x1: Any, x2: Any, out: Any) -> None:
    """The dot product of a row, block after block."""
    a, b = x1[i], x2[i]
    total = out.dtype.type(0)
    for lo in range(0, a.size, BLOCK):
        hi = min(a.size, lo + BLOCK)
        total += sum_products(a[lo:hi], b[lo:hi], out.dtype.type(0))
    out[i, 0] = total


@aiodev.kernel(fastmath={"reassoc", "contract"}, uniform=True)
def dot_conjugate_rows(i: int, x1: Any, x2: Any, out: Any) -> None:
    """The dot product of a row's conjugate, block after block."""
    a, b = x1[i], x2[i]
    total = out.dtype.type(0)
    for lo in range(0, a.size, BLOCK):
        hi = min(a.size, lo + BLOCK)
        total += sum_conjugate_products(a[lo:hi], b[lo:hi], out.dtype.type(0))
    out[i, 0] = total


@aiodev.kernel(fastmath={"reassoc", "contract"}, uniform=True)
def dot_blocks(i: int, blocks: int, x1: Any, x2: Any, out: Any) -> None:
    """The dot product of one block of a row."""
    row, block = i // blocks, i % blocks
    a, b = x1[row], x2[row]
    lo, hi = block * BLOCK, min(a.size, (block + 1) * BLOCK)
    out[row, block] = sum_products(a[lo:hi], b[lo:hi], out.dtype.type(0))


@aiodev.kernel(fastmath={"reassoc", "contract"}, uniform=True)
def dot_conjugate_blocks(i: int, blocks: int, x1: Any, x2: Any, out: Any) -> None:
    """The dot product of the conjugate of one block of a row."""
    row, block = i // blocks, i % blocks
    a, b = x1[row], x2[row]
    lo, hi = block * BLOCK, min(a.size, (block + 1) * BLOCK)
    out[row, block] = sum_conjugate_products(a[lo:hi], b[lo:hi], out.dtype.type(0))


@aiodev.kernel(uniform=True)
def sum_blocks(i: int, sums: Any, out: Any) -> None:
    """The sum of a row's blocks."""
    total = out.dtype.type(0)
    for k in range(sums.shape[1]):
        total += sums[i, k]
    out[i, 0] = total


def dot_blocks_teams(i: int, blocks: int, x1: Any, x2: Any, out: Any) -> None:
    """The dot products of as many blocks as a team's lanes have room for."""
    bits = lane_bits(x1.shape[1]) if blocks == 1 else TEAM_BITS
    item, lane = place_in_team(i, bits)
    row, lo, hi = piece_of(item, blocks, x1.shape[1])
    k, end = np.uint64(lo + lane), np.uint64(hi if item < out.size else 0)
    total = out.dtype.type(0)
    while k < end:
        total += x1[np.uint64(row), k] * x2[np.uint64(row), k]
        k += np.uint64(1 << bits)
    total = _gather(total, 1, 1 << bits, out.dtype)
    if lane == 0 and item < out.size:
        out[row, item - row * blocks] = total


def dot_conjugate_blocks_teams(i: int, blocks: int, x1: Any, x2: Any, out: Any) -> None:
    """The dot products of the conjugates of as many blocks as a team's lanes have room for."""
    bits = lane_bits(x1.shape[1]) if blocks == 1 else TEAM_BITS
    item, lane = place_in_team(i, bits)
    row, lo, hi = piece_of(item, blocks, x1.shape[1])
    k, end = np.uint64(lo + lane), np.uint64(hi if item < out.size else 0)
    total = out.dtype.type(0)
    while k < end:
        total += np.conj(x1[np.uint64(row), k]) * x2[np.uint64(row), k]
        k += np.uint64(1 << bits)
    total = _gather(total, 1, 1 << bits, out.dtype)
    if lane == 0 and item < out.size:
        out[row, item - row * blocks] = total


def sum_blocks_teams(i: int, sums: Any, out: Any) -> None:
    """The sums of as many rows' blocks as a team's lanes have room for."""
    bits = lane_bits(sums.shape[1])
    row, lane = place_in_team(i, bits)
    total, k = out.dtype.type(0), lane
    while row < out.shape[0] and k < sums.shape[1]:
        total += sums[np.uint64(row), np.uint64(k)]
        k += 1 << bits
    total = _gather(total, 1, 1 << bits, out.dtype)
    if lane == 0 and row < out.shape[0]:
        out[row, 0] = total


on_teams(dot_blocks, dot_blocks_teams)
on_teams(dot_conjugate_blocks, dot_conjugate_blocks_teams)
on_teams(sum_blocks, sum_blocks_teams)


def dot(call: aiodev.Call, x1: aiodev.Array, x2: aiodev.Array, *, conjugate: bool) -> aiodev.Array:
    """Dot products along the last dimension; the others broadcast."""
    name = call.name
    if x1.shape[-1] != x2.shape[-1]:
        raise ValueError(f"{name}: shapes {x1.shape} and {x2.shape} do not fit: {x1.shape[-1]} is not {x2.shape[-1]}")
    shape = broadcast(name, x1.shape[:-1], x2.shape[:-1])
    dtype = dtypes.result_type(x1.dtype, x2.dtype)
    result, target = packed_out(call, shape, dtype)
    if not result.size:
        return result
    computed = np.dtype(np.int32) if dtype.kind == "b" else dtype  # truth values as counts that are not zero
    length, rows = x1.shape[-1], math.prod(shape)
    left, right = (_rows(call, x, (*shape, length), computed) for x in (x1, x2))
    if computed != dtype:
        counts = aiodev.empty(shape, computed, result.device)
        _launch(call, left, right, counts.reshape(rows, 1), conjugate=False)
        return delivered(call, result, astype(counts, dtype))
    _launch(call, left, right, target.reshape(rows, 1), conjugate=conjugate and dtype.kind == "c")
    return delivered(call, result, target)


def _launch(
    call: aiodev.Call, left: aiodev.Array, right: aiodev.Array, out: aiodev.Array, *, conjugate: bool
) -> None:
    """Multiply rows, by one launch or two."""
    rows, length = left.shape
    whole, blockwise = (dot_conjugate_rows, dot_conjugate_blocks) if conjugate else (dot_rows, dot_blocks)
    teams = has_teams(out.device)
    blocks = pieces_of(rows, length) if teams else -(-length // BLOCK)
    if teams and blocks == 1:
        call.launch(blockwise, teams_for(rows, length), 1, left, right, out)
    elif not teams and (length <= DOT_WHOLE or rows >= MANY_DOTS):
        call.launch(whole, rows, left, right, out)
    else:
        sums = call.scratch((rows, blocks), dtypes.compute_dtype(out.dtype))
        call.launch(blockwise, rows * blocks, blocks, left, right, sums)
        call.launch(sum_blocks, teams_for(rows, blocks) if teams else rows, sums, out)


def _rows(call: aiodev.Call, x: aiodev.Array, shape: tuple[int, ...], dtype: Any) -> aiodev.Array:
    """The vectors one below the other, in one dtype."""
    converted = convert(call, x, dtype)
    seen = converted if converted.shape == shape else aiodev.broadcast_to(converted, shape)
    return call.reshape(seen, (math.prod(shape[:-1]), shape[-1]))
