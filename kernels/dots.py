"""Dot products of vectors: sums of blocks, and sums of their sums."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

import aiodev
from aiodev.kernels.conversion import astype
from aiodev.kernels.operands import checked_out

__all__ = ["dot"]

#: Products that are summed in one go. It bounds the error of single precision, and is some µs of work.
BLOCK = 4096


@aiodev.kernel(fastmath={"reassoc", "contract"})
def dot_blocks(i: int, blocks: int, x1: Any, x2: Any, out: Any) -> None:
    """The dot product of one block of a row."""
    row, block = i // blocks, i % blocks
    total = out.dtype.type(0)
    for k in range(block * BLOCK, min(x1.shape[1], (block + 1) * BLOCK)):
        total += x1[row, k] * x2[row, k]
    out[row, block] = total


@aiodev.kernel(fastmath={"reassoc", "contract"})
def dot_conjugate_blocks(i: int, blocks: int, x1: Any, x2: Any, out: Any) -> None:
    """The same, of the conjugate of the first."""
    row, block = i // blocks, i % blocks
    total = out.dtype.type(0)
    for k in range(block * BLOCK, min(x1.shape[1], (block + 1) * BLOCK)):
        total += np.conj(x1[row, k]) * x2[row, k]
    out[row, block] = total


@aiodev.kernel
def sum_blocks(i: int, sums: Any, out: Any) -> None:
    """The sum of a row's blocks."""
    total = out.dtype.type(0)
    for k in range(sums.shape[1]):
        total += sums[i, k]
    out[i, 0] = total


def dot(x1: aiodev.Array, x2: aiodev.Array, out: aiodev.Array | None, *, conjugate: bool, name: str) -> aiodev.Array:
    """Dot products along the last dimension; the others broadcast."""
    if x1.shape[-1] != x2.shape[-1]:
        raise ValueError(f"{name}: shapes {x1.shape} and {x2.shape} do not fit: {x1.shape[-1]} is not {x2.shape[-1]}")
    shape = np.broadcast_shapes(x1.shape[:-1], x2.shape[:-1])
    dtype = np.result_type(x1.dtype, x2.dtype)
    result = checked_out(name, out, shape, dtype, x1.device)
    if not result.size:
        return result
    if dtype.kind == "b":
        counts = dot(astype(x1, np.int32), astype(x2, np.int32), None, conjugate=False, name=name)
        result.copy_from(astype(counts, dtype))
        return result
    length, rows = x1.shape[-1], math.prod(shape)
    left, right = (_rows(x, (*shape, length), dtype) for x in (x1, x2))
    blocks = max(1, -(-length // BLOCK))
    stream = aiodev.current_stream(result.device)
    kernel = dot_conjugate_blocks if conjugate and dtype.kind == "c" else dot_blocks
    sums = aiodev.empty((rows, blocks), dtype, result.device)
    kernel[rows * blocks, stream](blocks, left, right, sums)
    if blocks > 1:
        whole = aiodev.empty((rows, 1), dtype, result.device)
        sum_blocks[rows, stream](sums, whole)
        sums = whole
    result.copy_from(sums.reshape(shape))
    return result


def _rows(x: aiodev.Array, shape: tuple[int, ...], dtype: Any) -> aiodev.Array:
    """The vectors one below the other, in one dtype."""
    converted = x if x.dtype == dtype else astype(x, dtype)
    seen = converted if converted.shape == shape else aiodev.broadcast_to(converted, shape)
    return seen.reshape(-1, shape[-1]) if shape[-1] else seen.reshape(math.prod(shape[:-1]), 0)
