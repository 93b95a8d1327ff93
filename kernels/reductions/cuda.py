"""Reductions by teams on CUDA: the bodies that go with those of :mod:`aiodev.kernels.reductions.bodies`.

Each takes the arguments of the kernel that it belongs to. An index is a team's: of ``rows`` and ``parts`` as many rows as its
lanes have room for, of ``blocks`` a piece of a row, of columns a strip of a slab (:mod:`aiodev.kernels.thread_block`).
Positions are unsigned where they index, since a signed one is tested for being negative.
"""

# The bodies that are made here are numba's to type.
# mypy: disable-error-code="no-untyped-def, no-untyped-call"

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

import aiodev
from aiodev.kernels.reductions.accumulators import add, square, store
from aiodev.kernels.thread_block import (
    TEAM,
    TEAM_BITS,
    column_bits,
    lane_bits,
    make_gather,
    on_teams,
    piece_of,
    place_in_team,
    strips_of,
)
from aiodev.lang import team_array, team_barrier, team_rank

__all__ = ["add_kernel_teams", "add_arg_extreme_teams", "add_variance_teams"]

Plain = Callable[..., Any]


def slab_of(i: int, slabs: int, strips: int, length: int) -> tuple[int, int, int, int, int]:
    """The outer index, slab and strip of index ``i`` of a launch over columns, and the slab's rows from and to."""
    if slabs <= 0 or strips <= 0:  # never
        return 0, 0, 0, 0, 0
    whole, strip = i // strips, i % strips
    outer, slab = whole // slabs, whole % slabs
    depth = (length + slabs - 1) // slabs
    first = min(slab * depth, length)
    return outer, slab, strip, first, min(first + depth, length)


def add_kernel_teams(kernels: Any, load: Plain, combine: Plain, finish: Plain, identity: Any) -> None:
    """The bodies for the kernels of an operation."""
    gather, wide = make_gather(combine), identity.dtype

    def fold(x, k, end, step, total):
        while k < end:
            total = combine(total, load(x[np.uint64(k)]))
            k += step
        return total

    def fold_parts(parts, k, end, step, total):
        while k < end:
            total = combine(total, parts[np.uint64(k)])
            k += step
        return total

    def rows(i, x, length, identity, number, out):
        bits = lane_bits(length)
        row, lane = place_in_team(i, bits)
        end = (row + 1) * length if row < out.size else 0
        total = gather(fold(x, row * length + lane, end, 1 << bits, identity), 1, 1 << bits, wide)
        if lane == 0 and row < out.size:
            store(out, row, finish(total, number))

    def blocks(i, blocks, x, length, identity, parts):
        row, lo, hi = piece_of(i, blocks, length)
        start, rank = row * length, team_rank()
        total = gather(fold(x, start + lo + rank, start + hi, TEAM, identity), 1, TEAM, wide)
        if rank == 0:
            parts[i] = total

    def parts(i, parts, blocks, identity, number, out):
        bits = lane_bits(blocks)
        row, lane = place_in_team(i, bits)
        end = (row + 1) * blocks if row < out.size else 0
        total = gather(fold_parts(parts, row * blocks + lane, end, 1 << bits, identity), 1, 1 << bits, wide)
        if lane == 0 and row < out.size:
            store(out, row, finish(total, number))

    def columns(i, slabs, strips, x, length, inner, identity, parts):
        outer, slab, strip, first, last = slab_of(i, slabs, strips, length)
        bits, rank = column_bits(inner), team_rank()
        column, lane = (strip << bits) + (rank & ((1 << bits) - 1)), rank >> bits
        start = outer * length * inner + column
        end = start + last * inner if column < inner else 0
        step = inner << (TEAM_BITS - bits)
        total = gather(fold(x, start + (first + lane) * inner, end, step, identity), 1 << bits, TEAM, wide)
        if lane == 0 and column < inner:
            parts[(outer * slabs + slab) * inner + column] = total

    def strips(i, strips, parts, slabs, inner, number, out):
        outer, _, strip, _, _ = slab_of(i, 1, strips, slabs)
        bits, rank = column_bits(inner), team_rank()
        column, lane = (strip << bits) + (rank & ((1 << bits) - 1)), rank >> bits
        start = outer * slabs * inner + column
        end = start + slabs * inner if column < inner else 0
        total = fold_parts(parts, start + lane * inner, end, inner << (TEAM_BITS - bits), identity)
        total = gather(total, 1 << bits, TEAM, wide)
        if lane == 0 and column < inner:
            out[outer * inner + column] = finish(total, number)

    def whole_columns(i, x, length, inner, identity, number, out):
        outer, _, strip, _, _ = slab_of(i, 1, strips_of(inner), length)
        bits, rank = column_bits(inner), team_rank()
        column, lane = (strip << bits) + (rank & ((1 << bits) - 1)), rank >> bits
        start = outer * length * inner + column
        end = start + length * inner if column < inner else 0
        total = fold(x, start + lane * inner, end, inner << (TEAM_BITS - bits), identity)
        total = gather(total, 1 << bits, TEAM, wide)
        if lane == 0 and column < inner:
            out[outer * inner + column] = finish(total, number)

    _add(kernels[:6], (rows, blocks, parts, columns, strips, whole_columns))


def add_variance_teams(kernels: Any, load: Plain, finish: Plain, wide: Any) -> None:
    """The bodies for the kernels of a variance; pieces are merged by the mean of all.

    Means are from a first element, and half of that, and added up as shares: so none overflows, and no sum on the way to one.
    """
    gather = make_gather(add)

    def distance(x, origin, k):
        return load(x[np.uint64(k)]) * 0.5 - load(x[np.uint64(origin)]) * 0.5

    def total_of(x, origin, k, end, step, count):
        total, part = wide(0), np.divide(1.0, np.float64(count))
        while k < end:
            total += distance(x, origin, k) * part
            k += step
        return total

    def squares_of(x, origin, k, end, step, mean):
        total = 0.0
        while k < end:
            half = distance(x, origin, k) - mean
            total += square(half + half)
            k += step
        return total

    def share(total, least, span):
        """The mean, for the threads whose totals were gathered: the first ``least`` of each ``span`` have them."""
        means = team_array(TEAM, wide)
        rank = team_rank()
        lane = rank & (span - 1)
        if lane < least:
            means[rank] = total
        team_barrier()
        return means[rank - lane + (lane & (least - 1))]

    def measure(x, origin, k, end, step, count, least, span):
        mean = share(gather(total_of(x, origin, k, end, step, count), least, span, wide), least, span)
        return mean, gather(squares_of(x, origin, k, end, step, mean), least, span, np.float64)

    def merge(means, squares, start, stride, k, step, pieces, length, least, span):
        """The squares of all ``pieces``, ``stride`` apart from ``start`` on; this thread's: every ``step``-th from ``k``."""
        width = (length + pieces - 1) // pieces if pieces > 0 else 0
        total, part, first = wide(0), np.divide(1.0, np.float64(length)), k
        while k < pieces and k * width < length:
            total += means[np.uint64(start + k * stride)] * (np.float64(min(width, length - k * width)) * part)
            k += step
        mean, squared, k = share(gather(total, least, span, wide), least, span), 0.0, first
        while k < pieces and k * width < length:
            half = means[np.uint64(start + k * stride)] - mean
            further = square(half + half) * np.float64(min(width, length - k * width))
            squared += squares[np.uint64(start + k * stride)] + further
            k += step
        return gather(squared, least, span, np.float64)

    def rows(i, x, length, number, out):
        bits = lane_bits(length)
        row, lane = place_in_team(i, bits)
        end = (row + 1) * length if row < out.size else 0
        _, total = measure(x, row * length, row * length + lane, end, 1 << bits, length, 1, 1 << bits)
        if lane == 0 and row < out.size:
            store(out, row, finish(total, number))

    def blocks(i, blocks, x, length, means, squares):
        row, lo, hi = piece_of(i, blocks, length)
        start, rank = row * length, team_rank()
        mean, total = measure(x, start, start + lo + rank, start + hi, TEAM, hi - lo, 1, TEAM)
        if rank == 0:
            means[i], squares[i] = mean, total

    def parts(i, means, squares, blocks, length, number, out):
        bits = lane_bits(blocks)
        row, lane = place_in_team(i, bits)
        pieces = blocks if row < out.size else 0
        total = merge(means, squares, row * blocks, 1, lane, 1 << bits, pieces, length, 1, 1 << bits)
        if lane == 0 and row < out.size:
            store(out, row, finish(total, number))

    def columns(i, slabs, strips, x, length, inner, means, squares):
        outer, slab, strip, first, last = slab_of(i, slabs, strips, length)
        bits, rank = column_bits(inner), team_rank()
        column, lane = (strip << bits) + (rank & ((1 << bits) - 1)), rank >> bits
        start = outer * length * inner + column
        end = start + last * inner if column < inner else 0
        step = inner << (TEAM_BITS - bits)
        mean, total = measure(x, start, start + (first + lane) * inner, end, step, last - first, 1 << bits, TEAM)
        if lane == 0 and column < inner:
            place = (outer * slabs + slab) * inner + column
            means[place], squares[place] = mean, total

    def strips(i, strips, means, squares, slabs, length, inner, number, out):
        outer, _, strip, _, _ = slab_of(i, 1, strips, slabs)
        bits, rank = column_bits(inner), team_rank()
        column, lane = (strip << bits) + (rank & ((1 << bits) - 1)), rank >> bits
        pieces, step = slabs if column < inner else 0, TEAM >> bits
        start = outer * slabs * inner + column
        total = merge(means, squares, start, inner, lane, step, pieces, length, 1 << bits, TEAM)
        if lane == 0 and column < inner:
            out[outer * inner + column] = finish(total, number)

    def whole_columns(i, x, length, inner, number, out):
        outer, _, strip, _, last = slab_of(i, 1, strips_of(inner), length)
        bits, rank = column_bits(inner), team_rank()
        column, lane = (strip << bits) + (rank & ((1 << bits) - 1)), rank >> bits
        start = outer * length * inner + column
        end = start + last * inner if column < inner else 0
        _, total = measure(x, start, start + lane * inner, end, inner << (TEAM_BITS - bits), length, 1 << bits, TEAM)
        if lane == 0 and column < inner:
            out[outer * inner + column] = finish(total, number)

    _add(kernels, (rows, blocks, parts, columns, strips, whole_columns))


def add_arg_extreme_teams(kernels: Any, load: Plain, key: Any) -> None:
    """The bodies for the kernels that find places; of equal elements the first wins, whichever thread has it."""

    def gather(best, place, least, span):
        values, places = team_array(TEAM, key), team_array(TEAM, np.int64)
        rank = team_rank()
        values[rank], places[rank] = best, place
        step = span >> 1
        while step >= least:
            team_barrier()
            if (rank & (span - 1)) < step:
                value, other = values[rank + step], places[rank + step]
                if other >= 0 and (place < 0 or value > best or (value == best and other < place)):
                    best, place = value, other
                    values[rank], places[rank] = best, place
            step >>= 1
        return best, place

    def search(x, start, k, end, step, width):
        """The best of elements ``start + k * width``, by steps of ``k`` up to ``end``; its place is -1 if there is none."""
        best, place = key(0), -1
        while k < end:
            value = load(x[np.uint64(start + k * width)])
            if place < 0 or value > best:
                best, place = value, k
            k += step
        return best, place

    def search_parts(parts, places, k, end, step):
        best, place = key(0), -1
        while k < end:
            value, position = parts[np.uint64(k)], places[np.uint64(k)]
            if position >= 0 and (place < 0 or value > best):
                best, place = value, position
            k += step
        return best, place

    def rows(i, x, length, out):
        bits = lane_bits(length)
        row, lane = place_in_team(i, bits)
        best, place = search(x, row * length, lane, length if row < out.size else 0, 1 << bits, 1)
        best, place = gather(best, place, 1, 1 << bits)
        if lane == 0 and row < out.size:
            store(out, row, place)

    def blocks(i, blocks, x, length, parts, places):
        row, lo, hi = piece_of(i, blocks, length)
        best, place = search(x, row * length, lo + team_rank(), hi, TEAM, 1)
        best, place = gather(best, place, 1, TEAM)
        if team_rank() == 0:
            parts[i], places[i] = best, place

    def parts(i, blocks, parts, places, out):
        bits = lane_bits(blocks)
        row, lane = place_in_team(i, bits)
        end = (row + 1) * blocks if row < out.size else 0
        best, place = search_parts(parts, places, row * blocks + lane, end, 1 << bits)
        best, place = gather(best, place, 1, 1 << bits)
        if lane == 0 and row < out.size:
            store(out, row, place)

    def columns(i, slabs, strips, x, length, inner, parts, places):
        outer, slab, strip, first, last = slab_of(i, slabs, strips, length)
        bits, rank = column_bits(inner), team_rank()
        column, lane = (strip << bits) + (rank & ((1 << bits) - 1)), rank >> bits
        end = last if column < inner else 0
        best, place = search(x, outer * length * inner + column, first + lane, end, TEAM >> bits, inner)
        best, place = gather(best, place, 1 << bits, TEAM)
        if lane == 0 and column < inner:
            parts[(outer * slabs + slab) * inner + column] = best
            places[(outer * slabs + slab) * inner + column] = place

    def strips(i, strips, parts, places, slabs, inner, out):
        outer, _, strip, _, _ = slab_of(i, 1, strips, slabs)
        bits, rank = column_bits(inner), team_rank()
        column, lane = (strip << bits) + (rank & ((1 << bits) - 1)), rank >> bits
        start = outer * slabs * inner + column
        end = start + slabs * inner if column < inner else 0
        best, place = search_parts(parts, places, start + lane * inner, end, inner << (TEAM_BITS - bits))
        best, place = gather(best, place, 1 << bits, TEAM)
        if lane == 0 and column < inner:
            out[outer * inner + column] = place

    _add(kernels[:5], (rows, blocks, parts, columns, strips))


def _add(kernels: tuple[aiodev.Kernel, ...], bodies: tuple[Plain, ...]) -> None:
    for kernel, body in zip(kernels, bodies, strict=True):
        on_teams(kernel, body)
