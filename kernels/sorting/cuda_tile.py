"""Tiles: sorting within a team's memory on CUDA, and rows that are no longer than one tile.

*Tiles* are sorted four bits at a time: each thread counts how often each value occurs among its few neighbouring keys, the
counts of all threads are summed up in the order of the values, and each key's number, not the key, is moved to where its value
goes next. So equal keys keep their order, and keys are read once.

Short rows are ranked instead: each key counts those before it. Rows of up to a tile are sorted by a team as a whole; longer
ones are for :mod:`aiodev.kernels.sorting.cuda_radix`.

See Satish, Harris and Garland, Designing Efficient Sorting Algorithms for Manycore GPUs (2009).
"""

# The bodies that are made here are numba's to type.
# mypy: disable-error-code="no-untyped-def, no-untyped-call, assignment"

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from aiodev.kernels.reductions.accumulators import add
from aiodev.kernels.thread_block import TEAM, make_running
from aiodev.lang import team_array, team_barrier, team_rank

__all__ = ["ORDERS", "RANKED", "TILE", "Plain", "bits_of", "make_team_rows", "running_sum", "sort_by_byte"]

#: Keys that a thread has of a tile, an odd number for the sake of the memory's banks, and keys of a tile.
_ITEMS = 9
TILE = _ITEMS * TEAM
#: Rows up to this length are ranked.
RANKED = 64
#: Values of four bits.
_VALUES = 16
_COUNTERS = _VALUES * TEAM
#: Two orders of a tile.
ORDERS = 2 * TILE

Plain = Callable[..., Any]
running_sum = make_running(add)


def bits_of(key, shift, mask):
    """Some bits of a key."""
    return np.int64((np.uint64(key) >> np.uint64(shift)) & np.uint64(mask))


def sort_by_byte(tile, count, shift, order):
    """Order the keys of a tile by eight bits, four at a time: their numbers move to the other half of ``order`` and back."""
    counters = team_array(_COUNTERS, np.uint16)
    rank = team_rank()
    first = rank * _ITEMS
    last = min(first + _ITEMS, count)
    for half in range(2):
        source, target, low = half * TILE, TILE - half * TILE, shift + 4 * half
        for value in range(_VALUES):
            counters[value * TEAM + rank] = 0
        for k in range(first, last):
            value = bits_of(tile[order[source + k]], low, _VALUES - 1)
            counters[value * TEAM + rank] += 1
        team_barrier()
        own = 0
        for k in range(rank * _VALUES, (rank + 1) * _VALUES):
            own += np.int64(counters[k])
        before, _ = running_sum(own, 0, np.int64)
        for k in range(rank * _VALUES, (rank + 1) * _VALUES):
            tally = np.int64(counters[k])
            counters[k] = before
            before += tally
        team_barrier()
        for k in range(first, last):
            number = order[source + k]
            place = bits_of(tile[number], low, _VALUES - 1) * TEAM + rank
            order[target + np.int64(counters[place])] = number
            counters[place] += 1
        team_barrier()


def make_rows(to_key: Plain, pick: Plain, key: Any) -> Plain:
    """``(i, rows, each, length, x, out)``: sort rows whole; ``pick(key, number)`` is what is written of a key."""

    passes = np.dtype(key).itemsize

    def rank_rows(start, count, length, x, tile, out):
        k = team_rank()
        while k < count:
            tile[k] = to_key(x[np.uint64(start + k)])
            k += TEAM
        team_barrier()
        k = team_rank()
        while k < count and length > 0:
            mine, first = tile[k], k // length * length
            place = first
            for j in range(first, first + length):
                if tile[j] < mine or (tile[j] == mine and j < k):
                    place += 1
            out[np.uint64(start + place)] = pick(mine, k - first)
            k += TEAM

    def sort_row(start, length, x, tile, out):
        order = team_array(ORDERS, np.uint16)
        k = team_rank()
        while k < length:
            tile[k], order[k] = to_key(x[np.uint64(start + k)]), k
            k += TEAM
        team_barrier()
        for p in range(passes):
            sort_by_byte(tile, length, 8 * p, order)
        k = team_rank()
        while k < length:
            number = order[k]
            out[np.uint64(start + k)] = pick(tile[number], np.int64(number))
            k += TEAM

    def sort_rows(i, rows, each, length, x, out):
        tile = team_array(TILE, key)
        start = i * each * length
        if length <= RANKED:
            rank_rows(start, min(each, rows - i * each) * length, length, x, tile, out)
        else:
            sort_row(start, length, x, tile, out)

    return sort_rows


def make_team_rows(to_key: Plain, to_place_key: Plain, from_key: Plain, key: Any) -> tuple[Plain, Plain]:
    """The bodies that sort rows whole, and their places; keys are of type ``key``."""
    sort_rows = make_rows(to_key, lambda key, number: from_key(key), key)
    sort_places = make_rows(to_place_key, lambda key, number: number, key)

    def rows(i, rows, each, length, bits, x, keys, other, counts, out):
        sort_rows(i, rows, each, length, x, out)

    def rows_places(i, rows, each, length, bits, x, keys, other, places, others, counts, out):
        sort_places(i, rows, each, length, x, out)

    return rows, rows_places
