"""Sample sort of long rows: a row is split into buckets, which are then sorted side by side.

**Problem.** Workers that sort one row together digit by digit wait for each other in every pass, and each pass goes through
the whole row, which no cache near a core holds.

**Solution.** A sample tells which keys go to which bucket, of which there are some hundreds. The row is cut into blocks; these
are counted side by side, one index sums up where each block's keys of each bucket go, and they are moved there side by side, in
order. Then each bucket is in its place, and is sorted where its core's caches hold it: by a network of vectors if it is short
and places are not wanted (:mod:`aiodev.kernels.sorting.network`), else by radix sort (:mod:`aiodev.kernels.sorting.radix`), in
as few passes as the span of its keys asks for.

**Invariants.**

1.  A greater key never has a lesser bucket, so buckets one after the other are in order. Equal keys have the same one.
2.  Keys move in order, block by block: equal ones keep theirs.
3.  The sample decides how long it takes, and nothing else. Where it misleads, or where many keys are equal or almost, some
    buckets are large; in the worst case all is one bucket, which one worker sorts.

Buckets are found in a table, without branches that would have to be guessed: the top bits of what a key is above the least one
of the sample are its *digit*. Digits that few keys have share a bucket; one that many have is split evenly, by the bits below.

See Wassenberg and Sanders, Engineering a Multi-core Radix Sort (2011); Axtmann et al., In-Place Parallel Super Scalar
Samplesort (2017).
"""

# The bodies that are made here are numba's to type.
# mypy: disable-error-code="no-untyped-def, no-untyped-call"

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

import aiodev
from aiodev.kernels.naming import named_kernel
from aiodev.kernels.sorting.network import longest
from aiodev.kernels.sorting.radix import EVEN, LANES, copy, sort_keys, sort_pairs
from aiodev.kernels.tuning import (
    CORE_BLOCKS,
    CORE_BUCKETS,
    CORE_GROUPS,
    FEWEST_BUCKETS,
    LONGEST_BLOCK,
    SAMPLED,
    SHORTEST_BLOCK,
)
from aiodev.lang import prefetch, sort

__all__ = [
    "CHUNK",
    "COUNTERS",
    "DIGITS",
    "Cut",
    "SplitKernels",
    "cut_row",
    "make_split_kernels",
    "sum_up_buckets",
    "word_of",
]

#: Neighbours that are sampled together: they are in one cache line.
TOGETHER = 4
#: Values of a digit.
DIGITS = 1 << 11
#: Bits of a digit by which a bucket is sorted, and the counters that it takes.
BITS = 10
COUNTERS = LANES << BITS
#: Keys whose offsets are computed together.
CHUNK = 1 << 10
#: Bytes ahead of what is written next in a bucket, which are to be in the cache by then.
AHEAD = 192
PLACES_AHEAD = AHEAD // 4
#: The halves of an entry of the table.
HALF, LOW = np.uint64(16), np.uint64(0xFFFF)

Plain = Callable[..., Any]


class Cut(NamedTuple):
    """How a long row is shared out."""

    sample: int  #: keys
    buckets: int  #: at most
    block: int  #: keys of a block
    blocks: int
    each: int  #: buckets of a group
    groups: int


def cut_row(length: int, cores: int, keys: int, most: int) -> Cut:
    """The shares of a row, with about so many keys in a bucket, and so many buckets at most."""
    wanted = 1 << max(max(FEWEST_BUCKETS, CORE_BUCKETS * cores) - 1, min(most, length // keys) - 1).bit_length()
    block = min(max(SHORTEST_BLOCK, -(-length // (CORE_BLOCKS * cores))), LONGEST_BLOCK)
    each = -(-2 * wanted // (CORE_GROUPS * cores))
    return Cut(SAMPLED * wanted, 2 * wanted, block, -(-length // block), each, -(-2 * wanted // each))


def word_of(key: Any) -> Any:
    """The type in which keys are compared and shifted to find their buckets."""
    return np.uint64 if np.dtype(key).itemsize == 8 else np.uint32


class SplitKernels(NamedTuple):
    """The kernels for one type of element. All arrays are flat; a block is ``block`` elements of ``n``.

    ``limits`` are the least and the greatest key of the sample, and by how much keys are shifted to become digits. ``table``
    has for each digit by how much keys with that are shifted, in the upper half, and what is added then, modulo 2¹⁶, to get
    their bucket. ``found`` keeps the bucket of each element, and ``room`` is for a chunk of each block.
    """

    choose: aiodev.Kernel  #: (i, n, buckets, x, sample, limits, table): one index
    count_keys: aiodev.Kernel  #: (i, n, block, buckets, x, limits, table, room, found, counts)
    split: aiodev.Kernel  #: (i, n, block, buckets, x, found, counts, keys)
    split_places: aiodev.Kernel  #: (i, n, block, buckets, x, found, counts, keys, places)
    finish: aiodev.Kernel  #: (i, each, buckets, starts, keys, other, counts, out): groups of ``each`` buckets
    finish_places: aiodev.Kernel  #: (i, each, buckets, starts, keys, other, places, others, counts, out)


@aiodev.kernel
def sum_up_buckets(i, blocks, buckets, counts, starts):
    """Turn how many keys each block has for each bucket into where they go, and note where buckets begin; one index."""
    before = 0
    for bucket in range(buckets):
        starts[bucket] = before
        for block in range(blocks):
            count = counts[block * buckets + bucket]
            counts[block * buckets + bucket] = before
            before += count
    starts[buckets] = before


def choose_buckets(sample, wanted, limits, table):
    """Set the limits and the table so that buckets have about as many keys of the sample each."""
    low, high = np.uint64(sample[0]), np.uint64(sample[0])
    for k in range(sample.size):
        low, high = min(low, np.uint64(sample[k])), max(high, np.uint64(sample[k]))
    shift = 0
    while ((high - low) >> np.uint64(shift)) >= DIGITS:
        shift += 1
    limits[0], limits[1], limits[2] = low, high, shift
    for digit in range(table.size):
        table[digit] = 0
    for k in range(sample.size):
        table[(np.uint64(sample[k]) - low) >> np.uint64(shift)] += 1
    each = sample.size // wanted
    bucket = 0
    held = np.int64(0)
    for digit in range(table.size):
        own = np.int64(table[digit])
        bits = 0
        if own >= 2 * each:
            if held > 0:
                bucket += 1
                held = np.int64(0)
            while bits < shift and (own >> (bits + 1)) >= each:
                bits += 1
            table[digit] = ((bucket - (digit << bits)) & 0xFFFF) | ((shift - bits) << 16)
            bucket += 1 << bits
        else:
            table[digit] = ((bucket - digit) & 0xFFFF) | (shift << 16)
            held += own
            if held >= each:
                bucket += 1
                held = np.int64(0)


def make_split_kernels(name: str, to_key: Plain, to_place_key: Plain, from_key: Plain, key: Any) -> SplitKernels:
    """The kernels for elements that ``to_key`` makes keys of, and ``from_key`` makes of keys.

    ``to_place_key`` is for sorting places: elements that are equal have equal keys.
    """
    word, most = word_of(key), longest(np.dtype(key))
    ahead = AHEAD // np.dtype(key).itemsize

    def choose(i, n, buckets, x, sample, limits, table):
        for q in range(sample.size // TOGETHER):
            turn = ((q * 0x9E3779B1) & 0xFFFFFFFF) / 4294967296.0
            first = min(np.int64(turn * n), max(n - TOGETHER, 0))
            for k in range(TOGETHER):
                sample[q * TOGETHER + k] = to_place_key(x[min(first + k, n - 1)])
        choose_buckets(sample, buckets // 2, limits, table)

    def find_offsets(source, low, high, offsets):
        for k in range(source.size):
            offsets[k] = word(min(max(word(to_place_key(source[k])), low), high) - low)

    def count_buckets(offsets, shift, table, found, counts):
        for k in range(found.size):
            offset = offsets[k]
            entry = np.uint64(table[np.uint64(offset >> shift)])
            bucket = (((offset >> (entry >> HALF)) & LOW) + (entry & LOW)) & LOW
            found[k] = bucket
            counts[bucket] += 1

    def count(i, n, block, buckets, x, limits, table, room, found, counts):
        low, high, shift = limits[0], limits[1], np.uint64(limits[2])
        offsets, mine = room[i * CHUNK : (i + 1) * CHUNK], counts[i * buckets : (i + 1) * buckets]
        for bucket in range(buckets):
            mine[bucket] = 0
        end = min((i + 1) * block, n)
        for lo in range(i * block, end, CHUNK):
            hi = min(lo + CHUNK, end)
            find_offsets(x[lo:hi], low, high, offsets)
            count_buckets(offsets, shift, table, found[lo:hi], mine)

    def split_keys(source, found, counts, keys):
        for k in range(source.size):
            bucket = np.uint64(found[k])
            place = counts[bucket]
            counts[bucket] = place + 1
            prefetch(keys, np.int64(place) + ahead)
            keys[np.uint64(place)] = to_key(source[k])

    def split_pairs(source, found, counts, first, keys, places):
        for k in range(source.size):
            bucket = np.uint64(found[k])
            place = counts[bucket]
            counts[bucket] = place + 1
            prefetch(keys, np.int64(place) + ahead)
            prefetch(places, np.int64(place) + PLACES_AHEAD)
            keys[np.uint64(place)] = to_place_key(source[k])
            places[np.uint64(place)] = first + k

    def split(i, n, block, buckets, x, found, counts, keys):
        lo, hi = i * block, min((i + 1) * block, n)
        split_keys(x[lo:hi], found[lo:hi], counts[i * buckets : (i + 1) * buckets], keys)

    def split_places(i, n, block, buckets, x, found, counts, keys, places):
        lo, hi = i * block, min((i + 1) * block, n)
        split_pairs(x[lo:hi], found[lo:hi], counts[i * buckets : (i + 1) * buckets], lo, keys, places)

    def decode_all(source, target):
        for k in range(source.size):
            target[k] = from_key(source[k])

    def sort_by_network(keys, other, counts):
        if keys.size > most:
            return sort_keys(keys, other, BITS, EVEN, counts)
        sort(keys)
        return False

    def sort_by_radix(keys, other, counts):
        return sort_keys(keys, other, BITS, EVEN, counts)

    sort_bucket = sort_by_network if most else sort_by_radix

    def finish(i, each, buckets, starts, keys, other, counts, out):
        mine = counts[i * COUNTERS : (i + 1) * COUNTERS]
        room = starts[i * each]
        for bucket in range(i * each, min((i + 1) * each, buckets)):
            lo, hi = starts[bucket], starts[bucket + 1]
            if lo < hi:
                here, there = keys[lo:hi], other[room : room + hi - lo]
                swapped = sort_bucket(here, there, mine)
                decode_all(there if swapped else here, out[lo:hi])

    def finish_places(i, each, buckets, starts, keys, other, places, others, counts, out):
        mine = counts[i * COUNTERS : (i + 1) * COUNTERS]
        room = starts[i * each]
        for bucket in range(i * each, min((i + 1) * each, buckets)):
            lo, hi = starts[bucket], starts[bucket + 1]
            if lo < hi:
                here, there = places[lo:hi], others[room : room + hi - lo]
                swapped = sort_pairs(keys[lo:hi], other[room : room + hi - lo], here, there, BITS, EVEN, mine)
                copy(there if swapped else here, out[lo:hi])

    return SplitKernels(*(named_kernel(name, body) for body in (choose, count, split, split_places, finish, finish_places)))
