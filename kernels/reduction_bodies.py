"""The kernels behind reductions, made for each operation and type from a few plain functions.

An operation has an identity, a ``load`` from an element to what is combined, ``combine``, and ``finish`` from the combined
value and a number to the result. What is combined is wide (``int64``, ``float64``), so that rounding happens once, at the
end. Largest and least are found among integers that are in the order of the floats they stand for, with NaN on top: such a
loop needs no branch, and the compiler keeps it in vectors.

The order of a sum follows from the shape alone: blocks of :data:`BLOCK` elements, each in several partial sums, then the blocks
one after the other. It does not depend on how many threads there are.
"""

# The bodies that are made here are numba's to type.
# mypy: disable-error-code="no-untyped-def, no-untyped-call"

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

import aiodev

__all__ = ["BLOCK", "COLUMNS", "ROWS", "SPAN", "Kernels", "make_kernels", "make_places", "make_scan", "make_spread"]

#: Elements that one index of a launch takes of a long row.
BLOCK = 1 << 14
#: Elements whose largest is found at once where its place is wanted.
SPAN = 1 << 10
#: Columns that are reduced side by side, at most, and rows at a time.
COLUMNS, ROWS = 1 << 9, 1 << 7

_SUMS = frozenset({"reassoc", "contract"})
Plain = Callable[..., Any]


class Kernels(NamedTuple):
    """Those of one operation on one type. All arrays are flat; results may be of no dimensions, too."""

    rows: aiodev.Kernel  #: (i, x, length, identity, number, out): rows of ``length`` elements to results
    blocks: aiodev.Kernel  #: (i, blocks, x, length, identity, parts): blocks of rows to parts
    parts: aiodev.Kernel  #: (i, parts, blocks, identity, number, out): parts of rows to results
    columns: (
        aiodev.Kernel
    )  #: (i, slabs, strips, x, length, inner, identity, parts): slabs of rows, side by side, to parts
    strips: aiodev.Kernel  #: (i, strips, parts, slabs, inner, identity, number, out): parts of columns to results


def make_kernels(name: str, load: Plain, combine: Plain, finish: Plain) -> Kernels:
    """The kernels of an operation.

    Their loops run over slices: an index that may be negative, as far as the compiler knows, would keep them out of vectors.
    """

    def fold(x, total):
        for k in range(x.size):
            total = combine(total, load(x[k]))
        return total

    def rows(i, x, length, identity, number, out):
        total = identity
        for lo in range(i * length, (i + 1) * length, BLOCK):
            total = combine(total, fold(x[lo : min(lo + BLOCK, (i + 1) * length)], identity))
        store(out, i, finish(total, number))

    def blocks(i, blocks, x, length, identity, parts):
        row, block = i // blocks, i % blocks
        lo, hi = block * BLOCK, min((block + 1) * BLOCK, length)
        parts[i] = fold(x[row * length + lo : row * length + hi], identity)

    def parts(i, parts, blocks, identity, number, out):
        total = identity
        for k in range(i * blocks, (i + 1) * blocks):
            total = combine(total, parts[k])
        store(out, i, finish(total, number))

    def columns(i, slabs, strips, x, length, inner, identity, parts):
        outer, slab, strip = i // (slabs * strips), i // strips % slabs, i % strips
        left, right = strip * COLUMNS, min((strip + 1) * COLUMNS, inner)
        totals = parts[(outer * slabs + slab) * inner + left : (outer * slabs + slab) * inner + right]
        for j in range(totals.size):
            totals[j] = identity
        first, last = outer * length + slab * ROWS, outer * length + min((slab + 1) * ROWS, length)
        fours = (last - first) // 4
        for q in range(fours):
            r = first + 4 * q
            a, b = x[r * inner + left : r * inner + right], x[(r + 1) * inner + left : (r + 1) * inner + right]
            c, d = (
                x[(r + 2) * inner + left : (r + 2) * inner + right],
                x[(r + 3) * inner + left : (r + 3) * inner + right],
            )
            for j in range(totals.size):
                pair = combine(combine(load(a[j]), load(b[j])), combine(load(c[j]), load(d[j])))
                totals[j] = combine(totals[j], pair)
        for r in range(first + 4 * fours, last):
            a = x[r * inner + left : r * inner + right]
            for j in range(totals.size):
                totals[j] = combine(totals[j], load(a[j]))

    def strips(i, strips, parts, slabs, inner, identity, number, out):
        outer, strip = i // strips, i % strips
        for j in range(strip * COLUMNS, min((strip + 1) * COLUMNS, inner)):
            total = identity
            for slab in range(slabs):
                total = combine(total, parts[(outer * slabs + slab) * inner + j])
            out[outer * inner + j] = finish(total, number)

    return Kernels(*(_kernel(name, body) for body in (rows, blocks, parts, columns, strips)))


def make_spread(name: str) -> tuple[aiodev.Kernel, aiodev.Kernel]:
    """Sums of |x - mean|²: (i, x, length, means, out) of rows, and (i, blocks, x, length, means, parts) of blocks of rows."""

    def fold(x, mean):
        total = 0.0
        for k in range(x.size):
            difference = x[k] - mean
            total += difference.real * difference.real + difference.imag * difference.imag
        return total

    def rows(i, x, length, means, out):
        total = 0.0
        for lo in range(i * length, (i + 1) * length, BLOCK):
            total += fold(x[lo : min(lo + BLOCK, (i + 1) * length)], means[i])
        out[i] = total

    def blocks(i, blocks, x, length, means, parts):
        row, block = i // blocks, i % blocks
        lo, hi = block * BLOCK, min((block + 1) * BLOCK, length)
        parts[i] = fold(x[row * length + lo : row * length + hi], means[row])

    return _kernel(name, rows), _kernel(name, blocks)


def make_scan(name: str, load: Plain, combine: Plain) -> tuple[aiodev.Kernel, aiodev.Kernel]:
    """Running totals.

    (i, blocks, identity, parts) turns what the blocks of row ``i`` come to into what comes before each of them; then
    (i, blocks, x, length, parts, before, width, out) writes the totals of block ``i % blocks`` of a row to a row of ``width``:
    before each element, or after it and behind the others if the row is wider.
    """

    def offsets(i, blocks, identity, parts):
        total = identity
        for k in range(i * blocks, (i + 1) * blocks):
            part = parts[k]
            parts[k] = total
            total = combine(total, part)

    def totals(i, blocks, x, length, parts, before, width, out):
        row, block = i // blocks, i % blocks
        lo, hi = block * BLOCK, min((block + 1) * BLOCK, length)
        start = row * width + (width - length)
        total = parts[i]
        if width > length and block == 0:
            out[start - 1] = total
        for k in range(lo, hi):
            after = combine(total, load(x[row * length + k]))
            out[start + k] = total if before else after
            total = after

    return _kernel(name, offsets), _kernel(name, totals)


def make_places(name: str, load: Plain) -> tuple[aiodev.Kernel, aiodev.Kernel]:
    """The first place of the largest.

    (i, blocks, x, length, parts, places) of blocks of rows, and (i, blocks, parts, places, out) of rows.
    """

    def fold(x):
        largest = load(x[0])
        for k in range(x.size):
            largest = larger(largest, load(x[k]))
        return largest

    def blocks(i, blocks, x, length, parts, places):
        row, block = i // blocks, i % blocks
        lo, hi = row * length + block * BLOCK, row * length + min((block + 1) * BLOCK, length)
        best, place = load(x[lo]), lo
        for start in range(lo, hi, SPAN):
            largest = fold(x[start : min(start + SPAN, hi)])
            if largest > best:
                best, place = largest, start
        while load(x[place]) != best:
            place += 1
        parts[i], places[i] = best, place - row * length

    def rows(i, blocks, parts, places, out):
        best = i * blocks
        for k in range(i * blocks + 1, (i + 1) * blocks):
            if parts[k] > parts[best]:
                best = k
        store(out, i, places[best])

    return _kernel(name, blocks), _kernel(name, rows)


def store(out: Any, i: int, value: Any) -> None:
    """Write result ``i``, which is the only one of an array of no dimensions."""
    if out.ndim == 0:
        out[()] = value
    else:
        out[i] = value


def _kernel(name: str, body: Plain) -> aiodev.Kernel:
    body.__name__ = body.__qualname__ = name  # under which errors name it
    return aiodev.kernel(fastmath=_SUMS)(body)


# What operations are made of


def add(a: Any, b: Any) -> Any:
    """Their sum."""
    return a + b


def multiply(a: Any, b: Any) -> Any:
    """Their product."""
    return a * b


def larger(a: Any, b: Any) -> Any:
    """The larger one."""
    return a if a > b else b


def either(a: Any, b: Any) -> Any:
    """1 if one is."""
    return np.uint8(a | b)


def both(a: Any, b: Any) -> Any:
    """1 if both are."""
    return np.uint8(a & b)


def truth(value: Any) -> Any:
    """1 for what is not 0, NaN included."""
    return np.uint8(value != 0)


def signed(value: Any) -> Any:
    """As int64."""
    return np.int64(value)


def unsigned(value: Any) -> Any:
    """As uint64."""
    return np.uint64(value)


def double(value: Any) -> Any:
    """As float64."""
    return np.float64(value)


def double_complex(value: Any) -> Any:
    """As complex128."""
    return np.complex128(value)


def key_4(value: Any) -> Any:
    """An int32 in the order of float32, NaN on top."""
    bits = np.float32(value + np.float32(0)).view(np.int32)  # -0 becomes 0, which it equals
    return np.int32(0x7FFFFFFF) if value != value else np.int32(bits ^ np.int32((bits >> 31) & 0x7FFFFFFF))


def key_8(value: Any) -> Any:
    """An int64 in the order of float64, NaN on top."""
    bits = np.float64(value + np.float64(0)).view(np.int64)  # -0 becomes 0, which it equals
    return np.int64(0x7FFFFFFFFFFFFFFF) if value != value else bits ^ ((bits >> 63) & np.int64(0x7FFFFFFFFFFFFFFF))


def reversed_key_4(value: Any) -> Any:
    """The other way round, NaN still on top."""
    bits = np.float32(value + np.float32(0)).view(np.int32)  # -0 becomes 0, which it equals
    return np.int32(0x7FFFFFFF) if value != value else np.int32(~np.int32(bits ^ np.int32((bits >> 31) & 0x7FFFFFFF)))


def reversed_key_8(value: Any) -> Any:
    """The other way round, NaN still on top."""
    bits = np.float64(value + np.float64(0)).view(np.int64)  # -0 becomes 0, which it equals
    return np.int64(0x7FFFFFFFFFFFFFFF) if value != value else ~(bits ^ ((bits >> 63) & np.int64(0x7FFFFFFFFFFFFFFF)))


def float_of_4(key: Any, number: Any) -> Any:
    """The float32 that a key stands for."""
    return np.int32(key ^ np.int32((key >> 31) & 0x7FFFFFFF)).view(np.float32)


def float_of_8(key: Any, number: Any) -> Any:
    """The float64 that a key stands for."""
    return np.int64(key ^ ((key >> 63) & np.int64(0x7FFFFFFFFFFFFFFF))).view(np.float64)


def float_of_reversed_4(key: Any, number: Any) -> Any:
    """The float32 that a reversed key stands for."""
    if key == 0x7FFFFFFF:
        return np.float32(np.nan)
    return float_of_4(np.int32(~key), number)


def float_of_reversed_8(key: Any, number: Any) -> Any:
    """The float64 that a reversed key stands for."""
    if key == 0x7FFFFFFFFFFFFFFF:
        return np.float64(np.nan)
    return float_of_8(~key, number)


def inverted_signed(value: Any) -> Any:
    """An int64, in the other order."""
    return ~np.int64(value)


def inverted_unsigned(value: Any) -> Any:
    """A uint64, in the other order."""
    return ~np.uint64(value)


def total_of(total: Any, number: Any) -> Any:
    """The combined value."""
    return total


def inverse_of(total: Any, number: Any) -> Any:
    """What was inverted, as it was."""
    return ~total


def mean_of(total: Any, number: Any) -> Any:
    """Divided by the count."""
    return np.divide(total, number)


def spread_of(total: Any, number: Any) -> Any:
    """A variance from a sum of squares."""
    return np.divide(total, number)


def root_of(total: Any, number: Any) -> Any:
    """A deviation from a sum of squares."""
    return np.sqrt(np.divide(total, number))
