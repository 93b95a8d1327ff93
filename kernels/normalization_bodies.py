"""The kernels behind softmax and the normalisations.

A launch's index stands for some thousand elements, whatever the shape: for several short rows, for one row, or for a block of
a long one. Sums are of several partial sums that the compiler keeps in vectors, in an order that the shape alone fixes.
"""

from __future__ import annotations

import math
from math import exp
from typing import Any

import aiodev

__all__ = [
    "BLOCK",
    "layer_norm_rows",
    "layer_norm_scaled_rows",
    "rms_norm_rows",
    "rms_norm_scaled_rows",
    "softmax_blocks",
    "softmax_columns",
    "softmax_of_blocks",
    "softmax_rows",
    "softmax_statistics",
]

#: Elements of a row that one index takes at most.
BLOCK = 1 << 14

#: Elements that are added up before their sum is added to others', so that errors do not grow with a row's length.
CHUNK = 1 << 10

_SUMS = frozenset({"reassoc", "contract"})


def largest(x: Any, row: int, lo: int, hi: int) -> Any:
    """The largest of a row's elements; eight are compared at a time. A NaN counts as absent."""
    m0 = m1 = m2 = m3 = m4 = m5 = m6 = m7 = x[row, lo]
    eights = (hi - lo) // 8
    for q in range(eights):
        k = lo + 8 * q
        m0 = x[row, k] if x[row, k] > m0 else m0
        m1 = x[row, k + 1] if x[row, k + 1] > m1 else m1
        m2 = x[row, k + 2] if x[row, k + 2] > m2 else m2
        m3 = x[row, k + 3] if x[row, k + 3] > m3 else m3
        m4 = x[row, k + 4] if x[row, k + 4] > m4 else m4
        m5 = x[row, k + 5] if x[row, k + 5] > m5 else m5
        m6 = x[row, k + 6] if x[row, k + 6] > m6 else m6
        m7 = x[row, k + 7] if x[row, k + 7] > m7 else m7
    for k in range(lo + 8 * eights, hi):
        m0 = x[row, k] if x[row, k] > m0 else m0
    m0, m1, m2, m3 = max(m0, m4), max(m1, m5), max(m2, m6), max(m3, m7)
    return max(max(m0, m1), max(m2, m3))


def exponentials(x: Any, out: Any, row: int, lo: int, hi: int, top: Any) -> Any:
    """Write ``exp(x - top)``; returns their sum."""
    total = out.dtype.type(0)
    for first in range(lo, hi, CHUNK):
        part = out.dtype.type(0)
        for k in range(first, min(hi, first + CHUNK)):
            value = exp(x[row, k] - top)
            out[row, k] = value
            part += value
        total += part
    return total


def sum_of_exponentials(x: Any, row: int, lo: int, hi: int, top: Any) -> Any:
    """The sum of ``exp(x - top)``."""
    total = x.dtype.type(0)
    for first in range(lo, hi, CHUNK):
        part = x.dtype.type(0)
        for k in range(first, min(hi, first + CHUNK)):
            part += exp(x[row, k] - top)
        total += part
    return total


@aiodev.kernel(fastmath=_SUMS)
def softmax_rows(i: int, group: int, logarithm: bool, x: Any, out: Any) -> None:
    """Some rows, whole."""
    length = x.shape[1]
    for row in range(i * group, min(x.shape[0], (i + 1) * group)):
        top = largest(x, row, 0, length)
        if logarithm:
            shift = top + math.log(sum_of_exponentials(x, row, 0, length, top))
            for k in range(length):
                out[row, k] = x[row, k] - shift
        else:
            scale = out.dtype.type(1) / exponentials(x, out, row, 0, length, top)
            for k in range(length):
                out[row, k] *= scale


@aiodev.kernel(fastmath=_SUMS)
def softmax_blocks(i: int, blocks: int, logarithm: bool, x: Any, out: Any, tops: Any, sums: Any) -> None:
    """The largest element of a block of a row, and the sum of exponentials relative to it; these too, unless of logarithms."""
    row, block = i // blocks, i % blocks
    lo, hi = block * BLOCK, min(x.shape[1], (block + 1) * BLOCK)
    top = largest(x, row, lo, hi)
    tops[row, block] = top
    sums[row, block] = sum_of_exponentials(x, row, lo, hi, top) if logarithm else exponentials(x, out, row, lo, hi, top)


@aiodev.kernel
def softmax_statistics(i: int, tops: Any, sums: Any, whole: Any) -> None:
    """The largest element of a row, and its sum, from those of its blocks."""
    top = tops[i, 0]
    for k in range(1, tops.shape[1]):
        top = tops[i, k] if tops[i, k] > top or tops[i, k] != tops[i, k] else top
    total = whole.dtype.type(0)
    for k in range(tops.shape[1]):
        total += sums[i, k] * math.exp(tops[i, k] - top)
    whole[i, 0], whole[i, 1] = top, total


@aiodev.kernel
def softmax_of_blocks(i: int, blocks: int, logarithm: bool, x: Any, out: Any, tops: Any, whole: Any) -> None:
    """The result in a block, once its row's sum is known."""
    row, block = i // blocks, i % blocks
    lo, hi = block * BLOCK, min(x.shape[1], (block + 1) * BLOCK)
    if logarithm:
        shift = whole[row, 0] + math.log(whole[row, 1])
        for k in range(lo, hi):
            out[row, k] = x[row, k] - shift
    else:
        scale = math.exp(tops[row, block] - whole[row, 0]) / whole[row, 1]
        for k in range(lo, hi):
            out[row, k] *= scale


@aiodev.kernel
def softmax_columns(i: int, chunks: int, width: int, logarithm: bool, x: Any, out: Any, tops: Any, sums: Any) -> None:
    """Along the middle of three dimensions, for ``width`` columns of the last: row after row, so all are read in order.

    ``sums`` are in double precision: they are added up one element after the other.
    """
    outer, first = i // chunks, i % chunks * width
    last, length = min(x.shape[2], first + width), x.shape[1]
    if first < 0:  # never; so the compiler knows that no index is negative
        return
    for j in range(first, last):
        tops[outer, j] = x[outer, 0, j]
        sums[outer, j] = 0
    for k in range(1, length):
        for j in range(first, last):
            tops[outer, j] = x[outer, k, j] if x[outer, k, j] > tops[outer, j] else tops[outer, j]
    for k in range(length):
        for j in range(first, last):
            value = exp(x[outer, k, j] - tops[outer, j])
            sums[outer, j] += value
            if not logarithm:
                out[outer, k, j] = value
    if logarithm:
        for j in range(first, last):
            tops[outer, j] += math.log(sums[outer, j])
        for k in range(length):
            for j in range(first, last):
                out[outer, k, j] = x[outer, k, j] - tops[outer, j]
    else:
        for k in range(length):
            for j in range(first, last):
                out[outer, k, j] /= sums[outer, j]


def mean_and_scale(x: Any, row: int, eps: Any) -> Any:
    """The mean of a row, and one over the square root of its variance plus ``eps``: two passes, so nothing cancels."""
    length = x.shape[1]
    total = x.dtype.type(0)
    for first in range(0, length, CHUNK):
        part = x.dtype.type(0)
        for k in range(first, min(length, first + CHUNK)):
            part += x[row, k]
        total += part
    mean = total / x.dtype.type(length)
    squares = x.dtype.type(0)
    for first in range(0, length, CHUNK):
        part = x.dtype.type(0)
        for k in range(first, min(length, first + CHUNK)):
            part += (x[row, k] - mean) * (x[row, k] - mean)
        squares += part
    return mean, x.dtype.type(1) / math.sqrt(squares / x.dtype.type(length) + eps)


def root_mean_square_scale(x: Any, row: int, eps: Any) -> Any:
    """One over the square root of a row's mean square plus ``eps``."""
    squares = x.dtype.type(0)
    for first in range(0, x.shape[1], CHUNK):
        part = x.dtype.type(0)
        for k in range(first, min(x.shape[1], first + CHUNK)):
            part += x[row, k] * x[row, k]
        squares += part
    return x.dtype.type(1) / math.sqrt(squares / x.dtype.type(x.shape[1]) + eps)


@aiodev.kernel(fastmath=_SUMS)
def layer_norm_rows(i: int, group: int, eps: Any, x: Any, out: Any) -> None:
    """Some rows, with mean 0 and variance 1."""
    for row in range(i * group, min(x.shape[0], (i + 1) * group)):
        mean, scale = mean_and_scale(x, row, eps)
        for k in range(x.shape[1]):
            out[row, k] = (x[row, k] - mean) * scale


@aiodev.kernel(fastmath=_SUMS)
def layer_norm_scaled_rows(i: int, group: int, eps: Any, x: Any, weight: Any, bias: Any, out: Any) -> None:
    """The same, times a weight, plus a bias."""
    for row in range(i * group, min(x.shape[0], (i + 1) * group)):
        mean, scale = mean_and_scale(x, row, eps)
        for k in range(x.shape[1]):
            out[row, k] = (x[row, k] - mean) * scale * weight[k] + bias[k]


@aiodev.kernel(fastmath=_SUMS)
def rms_norm_rows(i: int, group: int, eps: Any, x: Any, out: Any) -> None:
    """Some rows, with a mean square of 1."""
    for row in range(i * group, min(x.shape[0], (i + 1) * group)):
        scale = root_mean_square_scale(x, row, eps)
        for k in range(x.shape[1]):
            out[row, k] = x[row, k] * scale


@aiodev.kernel(fastmath=_SUMS)
def rms_norm_scaled_rows(i: int, group: int, eps: Any, x: Any, weight: Any, out: Any) -> None:
    """The same, times a weight."""
    for row in range(i * group, min(x.shape[0], (i + 1) * group)):
        scale = root_mean_square_scale(x, row, eps)
        for k in range(x.shape[1]):
            out[row, k] = x[row, k] * scale * weight[k]
