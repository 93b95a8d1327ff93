"""The kernels behind sorting: radix sort, from the least significant digit, of keys that are in the order of the elements.

Elements become *keys* (:mod:`aiodev.kernels.sorting_keys`), unsigned integers of as many bytes, and these are sorted digit
by digit, from the lowest: each pass counts how often each value of a digit occurs, and moves every key behind those with
smaller ones, in order. So equal elements keep their order. A pass whose digit is the same everywhere moves nothing.

A long row is cut into blocks. In each pass blocks are counted side by side, one index sums up where each block's keys of each
byte go, and blocks are moved side by side. Many rows are sorted one by one by each of a few groups. On CUDA the same kernels
have bodies for teams, which share the work out in another way (:mod:`aiodev.kernels.sorting_teams`).

See Knuth, The Art of Computer Programming, vol. 3, 5.2.5.
"""

# The bodies that are made here are numba's to type.
# mypy: disable-error-code="no-untyped-def, no-untyped-call"

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

import aiodev
from aiodev.kernels import sorting_teams as teams

__all__ = ["BITS", "COUNTERS", "LANES", "WIDE_BITS", "Kernels", "choose_places", "make_kernels", "sum_up"]

#: Bits of a digit of a long row, and how many values they have; and of a digit of a row that the caches hold, where more places
#: to move keys to are as near.
BITS, WIDE_BITS = 8, 11
BYTES = 1 << BITS
#: Counters for each value of a digit: those that come again and again would wait for one.
LANES = 4
#: Bytes of keys from which on all digits of a row are counted in one pass: counters of different digits do not wait either.
AT_ONCE = 4
#: Counters of a block.
COUNTERS = LANES * BYTES
#: Rows up to this length are sorted by insertion.
SHORT = 40

Plain = Callable[..., Any]


class Kernels(NamedTuple):
    """Those for one type of element. All arrays are flat; ``keys`` and ``other`` take turns, as do ``places`` and ``others``.

    ``state[p]`` says which has the keys before pass ``p``: 0 the first, 1 the second. A block is ``block`` elements of ``n``.
    """

    encode: aiodev.Kernel  #: (i, x, keys)
    encode_places: aiodev.Kernel  #: (i, x, keys, places)
    decode: aiodev.Kernel  #: (i, n, block, p, keys, other, state, out)
    count: aiodev.Kernel  # type: ignore[assignment]  #: (i, n, block, p, keys, other, state, counts)
    move: aiodev.Kernel  #: (i, n, block, p, keys, other, state, counts)
    move_places: aiodev.Kernel  #: (i, n, block, p, keys, other, places, others, state, counts)
    rows: aiodev.Kernel  #: (i, rows, each, length, bits, x, keys, other, counts, out): groups of ``each`` rows, whole
    rows_places: aiodev.Kernel  #: (i, rows, each, length, bits, x, keys, other, places, others, counts, out)


@aiodev.kernel
def sum_up(i, n, blocks, p, state, counts):
    """Turn how often each block has each byte into where the block's keys with that byte go; one index."""
    before = 0
    alike = False
    for byte in range(BYTES):
        first = before
        for block in range(blocks):
            count = counts[block * COUNTERS + byte]
            counts[block * COUNTERS + byte] = before
            before += count
        if before - first == n:
            alike = True
    state[p + 1] = state[p] if alike else 1 - state[p]


@aiodev.kernel
def choose_places(i, n, block, p, places, others, state, out):
    """The places after the last pass, block by block."""
    lo, hi = i * block, min((i + 1) * block, n)
    if state[p] == 0:
        copy(places[lo:hi], out[lo:hi])
    else:
        copy(others[lo:hi], out[lo:hi])


teams.add_shared_teams(sum_up, choose_places)


def copy(source, target):
    """Element by element."""
    for k in range(source.size):
        target[k] = source[k]


def count_digits(source, shift, bits, counts):
    """How often each value of a digit occurs."""
    values = 1 << bits
    for counter in range(counts.size):
        counts[counter] = 0
    fours = source.size // 4
    for q in range(fours):
        k = 4 * q
        counts[np.uint64((source[k] >> shift) & (values - 1))] += 1
        counts[np.uint64(((source[k + 1] >> shift) & (values - 1)) + values)] += 1
        counts[np.uint64(((source[k + 2] >> shift) & (values - 1)) + 2 * values)] += 1
        counts[np.uint64(((source[k + 3] >> shift) & (values - 1)) + 3 * values)] += 1
    for k in range(4 * fours, source.size):
        counts[np.uint64((source[k] >> shift) & (values - 1))] += 1
    for value in range(values):
        counts[value] += counts[value + values] + counts[value + 2 * values] + counts[value + 3 * values]


def count_bytes(source, counts):
    """How often each value of each byte occurs, of a row that is counted in one pass; four or eight bytes."""
    for counter in range(counts.size):
        counts[counter] = 0
    for k in range(source.size):
        key = np.uint64(source[k])
        count_byte(key, 0, counts)
        count_byte(key, 1, counts)
        count_byte(key, 2, counts)
        count_byte(key, 3, counts)
        if source.itemsize > 4:
            count_byte(key, 4, counts)
            count_byte(key, 5, counts)
            count_byte(key, 6, counts)
            count_byte(key, 7, counts)


def count_byte(key, byte, counts):
    """One more of such a byte."""
    counts[np.uint64(byte * BYTES) + ((key >> np.uint64(byte * BITS)) & np.uint64(BYTES - 1))] += 1


def start_of_bytes(key, counts, n):
    """Turn counts into where each value of each byte begins; which bytes are all as those of ``key``, as bits."""
    alike = 0
    for byte in range(counts.size // BYTES):
        if counts[np.uint64(byte * BYTES) + ((np.uint64(key) >> np.uint64(byte * BITS)) & np.uint64(BYTES - 1))] == n:
            alike |= 1 << byte
    for lo in range(0, counts.size, 4 * BYTES):
        a, b = counts[lo : lo + BYTES], counts[lo + BYTES : lo + 2 * BYTES]
        c, d = counts[lo + 2 * BYTES : lo + 3 * BYTES], counts[lo + 3 * BYTES : lo + 4 * BYTES]
        before_a = before_b = before_c = before_d = counts.dtype.type(0)
        for value in range(BYTES):
            in_a, in_b, in_c, in_d = a[value], b[value], c[value], d[value]
            a[value], b[value], c[value], d[value] = before_a, before_b, before_c, before_d
            before_a, before_b, before_c, before_d = before_a + in_a, before_b + in_b, before_c + in_c, before_d + in_d
    return alike


def move_keys(source, shift, bits, counts, target):
    """Put each key where its digit goes next."""
    mask = (1 << bits) - 1
    for k in range(source.size):
        key = source[k]
        digit = np.uint64((key >> shift) & mask)
        place = counts[digit]
        counts[digit] = place + 1
        target[np.uint64(place)] = key


def move_pairs(source, places, shift, bits, counts, target, others):
    """The same, with the places that the keys come from."""
    mask = (1 << bits) - 1
    for k in range(source.size):
        key = source[k]
        digit = np.uint64((key >> shift) & mask)
        place = counts[digit]
        counts[digit] = place + 1
        target[np.uint64(place)] = key
        others[np.uint64(place)] = places[k]


def start_of_digits(bits, counts, n):
    """Turn counts into where each value of a digit begins; whether there is only one."""
    before = 0
    alike = False
    for value in range(1 << bits):
        count = counts[value]
        if count == n:
            alike = True
        counts[value] = before
        before += count
    return alike


def insert(keys):
    """Sort a few keys."""
    for k in range(1, keys.size):
        key = keys[k]
        j = k
        while j > 0 and keys[j - 1] > key:
            keys[j] = keys[j - 1]
            j -= 1
        keys[j] = key


def insert_pairs(keys, places):
    """Sort a few keys, with their places."""
    for k in range(1, keys.size):
        key, place = keys[k], places[k]
        j = k
        while j > 0 and keys[j - 1] > key:
            keys[j], places[j] = keys[j - 1], places[j - 1]
            j -= 1
        keys[j], places[j] = key, place


def make_kernels(name: str, to_key: Plain, to_place_key: Plain, from_key: Plain, key: Any) -> Kernels:
    """The kernels for elements that ``to_key`` makes keys of, and ``from_key`` makes of keys.

    ``to_place_key`` is for sorting places: elements that are equal have equal keys. ``key`` is the type of keys.
    """

    def encode(i, x, keys):
        keys[i] = to_key(x[i])

    def encode_places(i, x, keys, places):
        keys[i] = to_place_key(x[i])
        places[i] = i

    def encode_all(source, target):
        for k in range(source.size):
            target[k] = to_key(source[k])

    def encode_all_places(source, target, places):
        for k in range(source.size):
            target[k] = to_place_key(source[k])
            places[k] = k

    def decode_all(source, target):
        for k in range(source.size):
            target[k] = from_key(source[k])

    def decode(i, n, block, p, keys, other, state, out):
        lo, hi = i * block, min((i + 1) * block, n)
        if state[p] == 0:
            decode_all(keys[lo:hi], out[lo:hi])
        else:
            decode_all(other[lo:hi], out[lo:hi])

    def count(i, n, block, p, keys, other, state, counts):
        lo, hi = i * block, min((i + 1) * block, n)
        mine = counts[i * COUNTERS : (i + 1) * COUNTERS]
        if state[p] == 0:
            count_digits(keys[lo:hi], BITS * p, BITS, mine)
        else:
            count_digits(other[lo:hi], BITS * p, BITS, mine)

    def move(i, n, block, p, keys, other, state, counts):
        lo, hi = i * block, min((i + 1) * block, n)
        mine = counts[i * COUNTERS : (i + 1) * COUNTERS]
        if state[p + 1] > state[p]:
            move_keys(keys[lo:hi], BITS * p, BITS, mine, other)
        elif state[p + 1] < state[p]:
            move_keys(other[lo:hi], BITS * p, BITS, mine, keys)

    def move_places(i, n, block, p, keys, other, places, others, state, counts):
        lo, hi = i * block, min((i + 1) * block, n)
        mine = counts[i * COUNTERS : (i + 1) * COUNTERS]
        if state[p + 1] > state[p]:
            move_pairs(keys[lo:hi], places[lo:hi], BITS * p, BITS, mine, other, others)
        elif state[p + 1] < state[p]:
            move_pairs(other[lo:hi], others[lo:hi], BITS * p, BITS, mine, keys, places)

    def rows(i, rows, each, length, bits, x, keys, other, counts, out):
        counters = max(LANES, keys.itemsize) << bits
        at_once = bits == BITS and keys.itemsize >= AT_ONCE
        mine = counts[i * counters : (i + 1) * counters]
        first, second = keys[i * length : (i + 1) * length], other[i * length : (i + 1) * length]
        for row in range(i * each, min((i + 1) * each, rows)):
            encode_all(x[row * length : (row + 1) * length], first)
            swapped = False
            if length <= SHORT:
                insert(first)
            else:
                alike = 0
                if at_once:
                    count_bytes(first, mine)
                    alike = start_of_bytes(first[0], mine, length)
                for shift in range(0, 8 * keys.itemsize, bits):
                    own = mine[shift << (BITS - 3) :] if at_once else mine
                    skipped = alike >> (shift >> 3) & 1
                    if not at_once:
                        count_digits(second if swapped else first, shift, bits, own)
                        skipped = start_of_digits(bits, own, length)
                    if not skipped:
                        if swapped:
                            move_keys(second, shift, bits, own, first)
                        else:
                            move_keys(first, shift, bits, own, second)
                        swapped = not swapped
            decode_all(second if swapped else first, out[row * length : (row + 1) * length])

    def rows_places(i, rows, each, length, bits, x, keys, other, places, others, counts, out):
        counters = max(LANES, keys.itemsize) << bits
        at_once = bits == BITS and keys.itemsize >= AT_ONCE
        mine = counts[i * counters : (i + 1) * counters]
        first, second = keys[i * length : (i + 1) * length], other[i * length : (i + 1) * length]
        here, there = places[i * length : (i + 1) * length], others[i * length : (i + 1) * length]
        for row in range(i * each, min((i + 1) * each, rows)):
            encode_all_places(x[row * length : (row + 1) * length], first, here)
            swapped = False
            if length <= SHORT:
                insert_pairs(first, here)
            else:
                alike = 0
                if at_once:
                    count_bytes(first, mine)
                    alike = start_of_bytes(first[0], mine, length)
                for shift in range(0, 8 * keys.itemsize, bits):
                    own = mine[shift << (BITS - 3) :] if at_once else mine
                    skipped = alike >> (shift >> 3) & 1
                    if not at_once:
                        count_digits(second if swapped else first, shift, bits, own)
                        skipped = start_of_digits(bits, own, length)
                    if not skipped:
                        if swapped:
                            move_pairs(second, there, shift, bits, own, first, here)
                        else:
                            move_pairs(first, here, shift, bits, own, second, there)
                        swapped = not swapped
            copy(there if swapped else here, out[row * length : (row + 1) * length])

    bodies = (encode, encode_places, decode, count, move, move_places, rows, rows_places)
    found = Kernels(*(_kernel(name, body) for body in bodies))
    teams.add_sorting_teams(found, to_key, to_place_key, from_key, key)
    return found


def _kernel(name: str, body: Plain) -> aiodev.Kernel:
    body.__name__ = body.__qualname__ = name  # under which errors name it
    return aiodev.kernel(body)
