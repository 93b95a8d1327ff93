"""Radix sort, from the least significant digit, of keys that are in the order of the elements.

Elements become *keys* (:mod:`aiodev.kernels.sorting.keys`), unsigned integers of as many bytes, and these are sorted digit
by digit, from the lowest: each pass counts how often each value of a digit occurs, and moves every key behind those with
smaller ones, in order. So equal elements keep their order.

Digits are those of what a key is above the least one, so keys that are close to each other take few passes. Keys that are far
apart are told apart by their upper bits already, but for some: then passes are spared below, and the keys that are not in order
yet are inserted where they belong. That is given up for all passes where there are too many of them.

Rows are sorted one by one by each of a few groups, or, long ones, in parts (:mod:`aiodev.kernels.sorting.sample_sort`). On CUDA
there are other bodies (:mod:`aiodev.kernels.sorting.cuda_tile`).

See Knuth, The Art of Computer Programming, vol. 3, 5.2.5, and for the insertions at the end 5.2.1 and exercise 5.2.5-12.
"""

# The bodies that are made here are numba's to type.
# mypy: disable-error-code="no-untyped-def, no-untyped-call"

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

import aiodev
from aiodev.kernels.naming import named_kernel
from aiodev.kernels.sorting.cuda_tile import make_team_rows
from aiodev.kernels.thread_block import on_teams

__all__ = ["BITS", "EVEN", "LANES", "WIDE_BITS", "Kernels", "copy", "make_kernels", "sort_keys", "sort_pairs"]

#: Bits of a digit at most; and where keys are many, more of these, so that more values are as good as for nothing.
BITS, WIDE_BITS = 8, 11
#: Counters for each value of a digit: those that come again and again would wait for one.
LANES = 4
#: Bytes of keys of which, if they are few, all digits are counted in one pass: counters of different digits do not wait either.
AT_ONCE = 4
#: Up to this many keys are sorted by insertion.
SHORT = 40
#: By so many of their upper bits, beyond those of ``n``, all but some of ``n`` keys are told apart that are spread evenly; and
#: of those of any floats, which are not.
EVEN, UNEVEN = 3, 12
#: Keys that are looked at together, whether they are in order.
CHECKED = 64

BYTES = 1 << BITS

Plain = Callable[..., Any]


class Kernels(NamedTuple):
    """The kernels for one type of element. All arrays are flat; ``keys`` and ``other`` take turns, and so do the places.

    Both sort groups of ``each`` rows, whole, by digits of at most ``bits``.
    """

    rows: aiodev.Kernel  #: (i, rows, each, length, bits, x, keys, other, counts, out)
    rows_places: aiodev.Kernel  #: (i, rows, each, length, bits, x, keys, other, places, others, counts, out)


def copy(source, target):
    """Element by element."""
    for k in range(source.size):
        target[k] = source[k]


def count_digits(source, least, shift, bits, counts):
    """Where each value of a digit begins."""
    values = 1 << bits
    down, mask = np.uint64(shift), np.uint64(values - 1)
    for counter in range(LANES * values):
        counts[counter] = 0
    fours = source.size // 4
    for q in range(fours):
        k = 4 * q
        counts[((source[k] - least) >> down) & mask] += 1
        counts[(((source[k + 1] - least) >> down) & mask) + np.uint64(values)] += 1
        counts[(((source[k + 2] - least) >> down) & mask) + np.uint64(2 * values)] += 1
        counts[(((source[k + 3] - least) >> down) & mask) + np.uint64(3 * values)] += 1
    for k in range(4 * fours, source.size):
        counts[((source[k] - least) >> down) & mask] += 1
    before = 0
    for value in range(values):
        count = counts[value] + counts[value + values] + counts[value + 2 * values] + counts[value + 3 * values]
        counts[value] = before
        before += count


def move_keys(source, least, shift, bits, counts, target):
    """Put each key where its digit goes next."""
    down, mask = np.uint64(shift), np.uint64((1 << bits) - 1)
    for k in range(source.size):
        key = source[k]
        digit = ((key - least) >> down) & mask
        place = counts[digit]
        counts[digit] = place + 1
        target[np.uint64(place)] = key


def move_pairs(source, places, least, shift, bits, counts, target, others):
    """Put each key, and the place that it comes from, where its digit goes next."""
    down, mask = np.uint64(shift), np.uint64((1 << bits) - 1)
    for k in range(source.size):
        key = source[k]
        digit = ((key - least) >> down) & mask
        place = counts[digit]
        counts[digit] = place + 1
        target[np.uint64(place)] = key
        others[np.uint64(place)] = places[k]


def span_of(keys):
    """The least key, and how many bits those above it have."""
    least = most = keys[0]
    for k in range(keys.size):
        least, most = min(least, keys[k]), max(most, keys[k])
    return np.uint64(least), number_of_bits(np.uint64(most) - np.uint64(least))


def number_of_bits(value):
    """How many bits a number has."""
    bits = 0
    while (np.uint64(value) >> np.uint64(bits)) > 0 and bits < 64:
        bits += 1
    return bits


def plan_passes(size, bits, most, spare):
    """How many passes, over how many bits each, from which bit on; those below are left out."""
    passes = (min(bits, number_of_bits(size) + spare) + most - 1) // most
    if passes * most < bits:
        return passes, most, bits - passes * most
    return passes, (bits + passes - 1) // max(passes, 1), 0


def is_in_order(keys):
    """Whether none is greater than the next."""
    greater = np.int64(0)
    before, after = keys[: keys.size - 1], keys[1:]
    for k in range(before.size):
        greater += np.int64(before[k] > after[k])
    return greater == 0


def count_bytes(source, counts):
    """How often each value of each of four bytes occurs."""
    for counter in range(counts.size):
        counts[counter] = 0
    for k in range(source.size):
        key = np.uint64(source[k])
        count_byte(key, 0, counts)
        count_byte(key, 1, counts)
        count_byte(key, 2, counts)
        count_byte(key, 3, counts)


def count_byte(key, byte, counts):
    """One more of such a byte."""
    counts[np.uint64(byte * BYTES) + ((key >> np.uint64(byte * BITS)) & np.uint64(BYTES - 1))] += 1


def start_of_bytes(key, counts, n):
    """Turn counts into where each value of each byte begins; which bytes are all as those of ``key``, as bits."""
    alike = 0
    for byte in range(AT_ONCE):
        if counts[np.uint64(byte * BYTES) + ((np.uint64(key) >> np.uint64(byte * BITS)) & np.uint64(BYTES - 1))] == n:
            alike |= 1 << byte
    a, b = counts[:BYTES], counts[BYTES : 2 * BYTES]
    c, d = counts[2 * BYTES : 3 * BYTES], counts[3 * BYTES :]
    before_a = before_b = before_c = before_d = counts.dtype.type(0)
    for value in range(BYTES):
        in_a, in_b, in_c, in_d = a[value], b[value], c[value], d[value]
        a[value], b[value], c[value], d[value] = before_a, before_b, before_c, before_d
        before_a, before_b, before_c, before_d = before_a + in_a, before_b + in_b, before_c + in_c, before_d + in_d
    return alike


def sort_by_bytes(keys, other, counts):
    """Sort keys of four bytes, by each of these; whether they are in ``other`` then."""
    swapped = False
    count_bytes(keys, counts)
    alike = start_of_bytes(keys[0], counts, keys.size)
    for byte in range(AT_ONCE):
        if not alike >> byte & 1:
            move_keys(keys, 0, BITS * byte, BITS, counts[byte * BYTES :], other)
            keys, other, swapped = other, keys, not swapped
    return swapped


def sort_pairs_by_bytes(keys, other, places, others, counts):
    """Sort keys of four bytes, and the places that they come from, by each byte; whether they are in ``other`` then."""
    swapped = False
    count_bytes(keys, counts)
    alike = start_of_bytes(keys[0], counts, keys.size)
    for byte in range(AT_ONCE):
        if not alike >> byte & 1:
            move_pairs(keys, places, 0, BITS * byte, BITS, counts[byte * BYTES :], other, others)
            keys, other, places, others, swapped = other, keys, others, places, not swapped
    return swapped


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


def insert_few(keys):
    """Sort keys that are almost in order; gives up, and says so, if they are not."""
    left = keys.size
    for lo in range(1, keys.size, CHECKED):
        hi = min(lo + CHECKED, keys.size)
        if is_in_order(keys[lo - 1 : hi]):
            continue
        for k in range(lo, hi):
            key = keys[k]
            j = k
            while j > 0 and keys[j - 1] > key:
                keys[j] = keys[j - 1]
                j -= 1
            keys[j] = key
            left -= k - j
            if left < 0:
                return False
    return True


def insert_few_pairs(keys, places):
    """Sort keys that are almost in order, with the places that they come from; gives up, and says so, if they are not."""
    left = keys.size
    for lo in range(1, keys.size, CHECKED):
        hi = min(lo + CHECKED, keys.size)
        if is_in_order(keys[lo - 1 : hi]):
            continue
        for k in range(lo, hi):
            key, place = keys[k], places[k]
            j = k
            while j > 0 and keys[j - 1] > key:
                keys[j], places[j] = keys[j - 1], places[j - 1]
                j -= 1
            keys[j], places[j] = key, place
            left -= k - j
            if left < 0:
                return False
    return True


def sort_keys(keys, other, most, spare, counts):
    """Sort keys by digits of at most ``most`` bits; whether they are in ``other`` then.

    ``spare``: :data:`EVEN` or :data:`UNEVEN`, as keys are spread.
    """
    if keys.size <= SHORT:
        insert(keys)
        return False
    least, bits = span_of(keys)
    passes, width, shift = plan_passes(keys.size, bits, most, spare)
    swapped = False
    while True:
        for _ in range(passes):
            count_digits(keys, least, shift, width, counts)
            move_keys(keys, least, shift, width, counts, other)
            keys, other, swapped = other, keys, not swapped
            shift += width
        if passes * width >= bits or insert_few(keys):
            return swapped
        passes, shift = (bits + width - 1) // width, 0


def sort_pairs(keys, other, places, others, most, spare, counts):
    """Sort keys by digits, as :func:`sort_keys`, and move the places that they come from with them."""
    if keys.size <= SHORT:
        insert_pairs(keys, places)
        return False
    least, bits = span_of(keys)
    passes, width, shift = plan_passes(keys.size, bits, most, spare)
    swapped = False
    while True:
        for _ in range(passes):
            count_digits(keys, least, shift, width, counts)
            move_pairs(keys, places, least, shift, width, counts, other, others)
            keys, other, places, others, swapped = other, keys, others, places, not swapped
            shift += width
        if passes * width >= bits or insert_few_pairs(keys, places):
            return swapped
        passes, shift = (bits + width - 1) // width, 0


def make_kernels(name: str, to_key: Plain, to_place_key: Plain, from_key: Plain, key: Any) -> Kernels:
    """The kernels for elements that ``to_key`` makes keys of, and ``from_key`` makes of keys.

    ``to_place_key`` is for sorting places: elements that are equal have equal keys. ``key`` is the type of keys.
    """

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

    def rows(i, rows, each, length, bits, x, keys, other, counts, out):
        counters = LANES << bits
        at_once = bits == BITS and keys.itemsize == AT_ONCE and length > SHORT
        mine = counts[i * counters : (i + 1) * counters]
        first, second = keys[i * length : (i + 1) * length], other[i * length : (i + 1) * length]
        for row in range(i * each, min((i + 1) * each, rows)):
            encode_all(x[row], first)
            swapped = sort_by_bytes(first, second, mine) if at_once else sort_keys(first, second, bits, UNEVEN, mine)
            decode_all(second if swapped else first, out[row])

    def rows_places(i, rows, each, length, bits, x, keys, other, places, others, counts, out):
        counters = LANES << bits
        at_once = bits == BITS and keys.itemsize == AT_ONCE and length > SHORT
        mine = counts[i * counters : (i + 1) * counters]
        first, second = keys[i * length : (i + 1) * length], other[i * length : (i + 1) * length]
        here, there = places[i * length : (i + 1) * length], others[i * length : (i + 1) * length]
        for row in range(i * each, min((i + 1) * each, rows)):
            encode_all_places(x[row], first, here)
            if at_once:
                swapped = sort_pairs_by_bytes(first, second, here, there, mine)
            else:
                swapped = sort_pairs(first, second, here, there, bits, UNEVEN, mine)
            copy(there if swapped else here, out[row])

    kernels = Kernels(named_kernel(name, rows), named_kernel(name, rows_places))
    for kernel, body in zip(kernels, make_team_rows(to_key, to_place_key, from_key, key), strict=True):
        on_teams(kernel, body)
    return kernels
