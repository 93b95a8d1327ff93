"""Radix sort of long rows by teams on CUDA: kernels of its own.

Rows are cut into blocks of tiles (:mod:`aiodev.kernels.sorting.cuda_tile`), and sorted byte by byte: a team counts the bytes
of a block; a team for each byte sums up where each block's keys go; and a team moves a block, tile by tile, sorted first, so
that neighbouring threads write side by side. No two threads exchange anything through the arguments of one launch, which do not
alias.

See Satish, Harris and Garland, Designing Efficient Sorting Algorithms for Manycore GPUs (2009).
"""

# The bodies that are made here are numba's to type.
# mypy: disable-error-code="no-untyped-def, no-untyped-call, assignment"

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

import aiodev
from aiodev.kernels.naming import named_kernel
from aiodev.kernels.sorting.cuda_tile import ORDERS, RANKED, TILE, Plain, bits_of, running_sum, sort_by_byte
from aiodev.kernels.thread_block import TEAM, on_teams
from aiodev.lang import atomic_add, team_array, team_barrier, team_rank

__all__ = [
    "BYTES",
    "SERIAL",
    "STATES",
    "Cut",
    "TeamKernels",
    "choose_places",
    "cut_rows",
    "make_team_kernels",
    "sum_up",
]

BYTES = 256
#: States of a row: one before each pass, and one after the last.
STATES = 9
#: Counts of bytes, of each warp by itself.
_WARPS = TEAM >> 5
_COUNTERS = _WARPS * BYTES
#: Bytes whose counts a thread sums up.
_SHARE = BYTES // TEAM
#: Blocks of a row up to which a thread sums up their counts of a byte.
SERIAL = 32
#: Teams that a launch over blocks should have.
_TEAMS = 1 << 10


class TeamKernels(NamedTuple):
    """The kernels for one type of element, of all rows, in blocks.

    ``keys`` and ``other`` take turns, as do ``places`` and ``others``.

    ``state[row * STATES + p]`` counts the passes before pass ``p`` that have moved keys: an odd number puts them in
    ``other``.
    """

    encode: aiodev.Kernel  #: (i, x, keys)
    encode_places: aiodev.Kernel  #: (i, x, keys, places)
    decode: aiodev.Kernel  #: (i, n, block, p, keys, other, state, out)
    count_bytes: aiodev.Kernel  #: (i, n, block, p, keys, other, state, counts)
    move: aiodev.Kernel  #: (i, n, block, p, keys, other, state, counts)
    move_places: aiodev.Kernel  #: (i, n, block, p, keys, other, places, others, state, counts)


class Cut(NamedTuple):
    """How rows of one length are shared out."""

    each: int  #: rows that a team takes; 0 where rows are cut into blocks
    block: int  #: keys of a block, whole tiles
    blocks: int  #: of a row


def cut_rows(rows: int, length: int) -> Cut:
    """The shares of ``rows`` rows, neither number being 0."""
    if length <= TILE:
        return Cut(TILE // length if length <= RANKED else 1, 0, 0)
    tiles = -(-length // TILE)
    block = -(-tiles // min(tiles, -(-_TEAMS // rows))) * TILE
    return Cut(0, block, -(-length // block))


def by_teams(name: str, body: Plain) -> aiodev.Kernel:
    """A kernel that is for teams only."""
    kernel = named_kernel(name, body)
    on_teams(kernel, body)
    return kernel


def block_of(i, n, block):
    """Row, number, begin and end of block ``i``, and how many blocks a row has."""
    if block <= 0:  # never; so dividing cannot raise
        return 0, 0, 0, 0, 1
    blocks = (n + block - 1) // block
    if blocks <= 0:
        return 0, 0, 0, 0, 1
    row, number = i // blocks, i % blocks
    return row, number, row * n + number * block, row * n + min((number + 1) * block, n), blocks


def count_block(source, lo, hi, shift, row, number, blocks, counts):
    """How often each byte occurs in a block."""
    counters = team_array(_COUNTERS, np.int32)
    rank = team_rank()
    k = rank
    while k < _COUNTERS:
        counters[k] = 0
        k += TEAM
    team_barrier()
    k = lo + rank
    while k < hi:
        atomic_add(counters, (rank >> 5) * BYTES + bits_of(source[np.uint64(k)], shift, BYTES - 1), 1)
        k += TEAM
    team_barrier()
    byte = rank
    while byte < BYTES:
        total = 0
        for warp in range(_WARPS):
            total += np.int64(counters[warp * BYTES + byte])
        counts[np.uint64((row * BYTES + byte) * (blocks + 1) + number)] = total
        byte += TEAM


@aiodev.kernel
def sum_up(i, n, blocks, p, state, counts):
    """For a byte of a row: what comes before each block, and behind them how many there are.

    A thread does so by itself where there are few blocks, else a team; bytes are numbered through all rows.
    """
    if blocks <= SERIAL:
        byte = i * TEAM + team_rank()
        if byte * (blocks + 1) < counts.size:
            carry = 0
            for k in range(byte * (blocks + 1), byte * (blocks + 1) + blocks):
                count = counts[np.uint64(k)]
                counts[np.uint64(k)] = carry
                carry += count
            note_total(byte, n, blocks, p, state, counts, carry)
    else:
        rank, done, carry = team_rank(), 0, 0
        while done < blocks:
            inside = done + rank < blocks
            k = np.uint64(i * (blocks + 1) + done + rank)
            before, total = running_sum(counts[k] if inside else 0, 0, np.int64)
            if inside:
                counts[k] = carry + before
            carry += total
            done += TEAM
        if rank == 0:
            note_total(i, n, blocks, p, state, counts, carry)


def note_total(byte, n, blocks, p, state, counts, total):
    """How often a byte of a row occurs; if it is the only one, the pass moves nothing."""
    counts[np.uint64(byte * (blocks + 1) + blocks)] = total
    if total == n:
        place = (byte >> 8) * STATES + p
        state[place + 1] = state[place]


def find_bases(base, row, number, blocks, start, counts):
    """Where the keys of a block with each byte go first."""
    rank = team_rank()
    own = 0
    for byte in range(rank * _SHARE, (rank + 1) * _SHARE):
        own += counts[np.uint64((row * BYTES + byte) * (blocks + 1) + blocks)]
    before, _ = running_sum(own, 0, np.int64)
    for byte in range(rank * _SHARE, (rank + 1) * _SHARE):
        place = (row * BYTES + byte) * (blocks + 1)
        base[byte] = start + before + counts[np.uint64(place + number)]
        before += counts[np.uint64(place + blocks)]
    team_barrier()


def sort_tile(source, done, count, shift, tile, order):
    """Read a tile and order it by a byte."""
    k = team_rank()
    while k < count:
        tile[k], order[k] = source[np.uint64(done + k)], k
        k += TEAM
    team_barrier()
    sort_by_byte(tile, count, shift, order)


def find_starts(tile, order, count, shift, starts):
    """Where each byte begins in a tile that is in order."""
    k = team_rank()
    while k < count:
        byte = bits_of(tile[order[k]], shift, BYTES - 1)
        if k == 0 or bits_of(tile[order[k - 1]], shift, BYTES - 1) != byte:
            starts[byte] = k
        k += TEAM
    team_barrier()


def pass_bases(tile, order, count, shift, starts, base):
    """Count what has been moved of each byte."""
    team_barrier()
    k = team_rank()
    while k < count:
        byte = bits_of(tile[order[k]], shift, BYTES - 1)
        if k == count - 1 or bits_of(tile[order[k + 1]], shift, BYTES - 1) != byte:
            base[byte] += k + 1 - starts[byte]
        k += TEAM
    team_barrier()


@aiodev.kernel
def choose_places(i, n, block, p, places, others, state, out):
    """The places after the last pass; as they were if no pass moved anything."""
    row, _, lo, hi, _ = block_of(i, n, block)
    k, moves = lo + team_rank(), state[row * STATES + p]
    while k < hi:
        place = np.int64(others[np.uint64(k)] if moves & 1 else places[np.uint64(k)])
        out[np.uint64(k)] = place if moves > 0 else k - row * n
        k += TEAM


on_teams(sum_up, sum_up.py_func)
on_teams(choose_places, choose_places.py_func)


def make_team_kernels(name: str, to_key: Plain, to_place_key: Plain, from_key: Plain, key: Any) -> TeamKernels:
    """The kernels that sort long rows; keys are of type ``key``."""

    def encode(i, x, keys):
        keys[i] = to_key(x[i])

    def encode_places(i, x, keys, places):
        keys[i] = to_place_key(x[i])

    def decode(i, n, block, p, keys, other, state, out):
        row, _, lo, hi, _ = block_of(i, n, block)
        k, swapped = lo + team_rank(), state[row * STATES + p] & 1
        while k < hi:
            out[np.uint64(k)] = from_key(other[np.uint64(k)] if swapped else keys[np.uint64(k)])
            k += TEAM

    def count(i, n, block, p, keys, other, state, counts):
        row, number, lo, hi, blocks = block_of(i, n, block)
        place = row * STATES + p
        moves = state[place]
        if number == 0 and team_rank() == 0:
            state[place + 1] = moves + 1  # unless there is only one byte
        count_block(other if moves & 1 else keys, lo, hi, 8 * p, row, number, blocks, counts)

    def move(i, n, block, p, keys, other, state, counts):
        tile, order = team_array(TILE, key), team_array(ORDERS, np.uint16)
        base, starts = team_array(BYTES, np.int64), team_array(BYTES, np.int32)
        row, number, done, end, blocks = block_of(i, n, block)
        moves, shift = state[row * STATES + p], 8 * p
        if state[row * STATES + p + 1] == moves:
            done = end
        source, target = other if moves & 1 else keys, keys if moves & 1 else other
        find_bases(base, row, number, blocks, row * n, counts)
        while done < end:
            size = min(TILE, end - done)
            sort_tile(source, done, size, shift, tile, order)
            find_starts(tile, order, size, shift, starts)
            k = team_rank()
            while k < size:
                element = tile[order[k]]
                byte = bits_of(element, shift, BYTES - 1)
                target[np.uint64(base[byte] + k - starts[byte])] = element
                k += TEAM
            pass_bases(tile, order, size, shift, starts, base)
            done += TILE

    def move_places(i, n, block, p, keys, other, places, others, state, counts):
        tile, order = team_array(TILE, key), team_array(ORDERS, np.uint16)
        base, starts = team_array(BYTES, np.int64), team_array(BYTES, np.int32)
        row, number, done, end, blocks = block_of(i, n, block)
        moves, shift = state[row * STATES + p], 8 * p
        if state[row * STATES + p + 1] == moves:
            done = end
        source, target = other if moves & 1 else keys, keys if moves & 1 else other
        here, there = others if moves & 1 else places, places if moves & 1 else others
        find_bases(base, row, number, blocks, row * n, counts)
        while done < end:
            size = min(TILE, end - done)
            sort_tile(source, done, size, shift, tile, order)
            find_starts(tile, order, size, shift, starts)
            k = team_rank()
            while k < size:
                own = np.int64(order[k])
                byte = bits_of(tile[own], shift, BYTES - 1)
                to = np.uint64(base[byte] + k - starts[byte])
                target[to] = tile[own]
                there[to] = np.int64(here[np.uint64(done + own)]) if moves > 0 else done + own - row * n
                k += TEAM
            pass_bases(tile, order, size, shift, starts, base)
            done += TILE

    others = (by_teams(name, body) for body in (decode, count, move, move_places))
    return TeamKernels(named_kernel(name, encode), named_kernel(name, encode_places), *others)
