"""Launches that sort long rows, in buckets and by teams, and the memory that they take."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np

import aiodev
from aiodev.kernels.sorting import cuda_radix as teams, sample_sort as splits
from aiodev.kernels.sorting.plan import Plan, place_type
from aiodev.kernels.sorting.radix import BITS
from aiodev.kernels.thread_block import TEAM
from aiodev.kernels.tuning import NETWORK_BUCKETS, RADIX_BUCKETS

__all__ = ["SplitWork", "sort_by_teams", "sort_places_by_teams"]

DType = np.dtype[Any]


@functools.cache
def _cores(device: aiodev.Device) -> int:
    return aiodev.get_device_properties(device).multi_processor_count


class SplitWork:
    """Long rows of one length, one after the other, each split into buckets; see :mod:`aiodev.kernels.sorting.sample_sort`."""

    def __init__(
        self, call: aiodev.Call, kernels: splits.SplitKernels, key: DType, length: int, *, with_places: bool
    ) -> None:
        self._call, self._kernels, self._length = call, kernels, length
        size = RADIX_BUCKETS if with_places else NETWORK_BUCKETS.get(key.itemsize, RADIX_BUCKETS)
        self._cut = cut = splits.cut_row(length, _cores(call.device), *size)
        word, number = splits.word_of(key), place_type(length)
        self._keys, self._other = self._room(key), self._room(key)
        self._places = [self._room(number) for _ in range(2 if with_places else 0)]
        self._choice = tuple(
            call.scratch(size, dtype) for size, dtype in ((cut.sample, key), (3, word), (splits.DIGITS, np.uint32))
        )
        self._offsets = call.scratch(cut.blocks * splits.CHUNK, word)
        self._buckets = self._room(np.uint16)
        self._counts = call.scratch(cut.blocks * cut.buckets, number)
        self._starts = call.scratch(cut.buckets + 1, np.int64)
        self._counters = call.scratch(cut.groups * splits.COUNTERS, number)

    def _room(self, dtype: Any) -> aiodev.Array:
        return self._call.scratch(self._length, dtype)

    def _find_buckets(self, x: aiodev.Array) -> tuple[int, int, int]:
        """Choose buckets, and find out where each block's keys of each go; gives what splitting begins with."""
        cut, kernels, launch = self._cut, self._kernels, self._call.launch
        sizes = self._length, cut.block, cut.buckets
        launch(kernels.choose, 1, self._length, cut.buckets, x, *self._choice)
        launch(
            kernels.count_keys, cut.blocks, *sizes, x, *self._choice[1:], self._offsets, self._buckets, self._counts
        )
        launch(splits.sum_up_buckets, 1, cut.blocks, cut.buckets, self._counts, self._starts)
        return sizes

    def sort(self, x: aiodev.Array, out: aiodev.Array) -> None:
        """Sort one row."""
        cut, kernels, launch = self._cut, self._kernels, self._call.launch
        sizes = self._find_buckets(x)
        launch(kernels.split, cut.blocks, *sizes, x, self._buckets, self._counts, self._keys)
        own = self._starts, self._keys, self._other, self._counters
        launch(kernels.finish, cut.groups, cut.each, cut.buckets, *own, out)

    def sort_places(self, x: aiodev.Array, out: aiodev.Array) -> None:
        """Find the places of one row in order."""
        cut, kernels, launch = self._cut, self._kernels, self._call.launch
        sizes = self._find_buckets(x)
        places, others = self._places
        launch(kernels.split_places, cut.blocks, *sizes, x, self._buckets, self._counts, self._keys, places)
        own = self._starts, self._keys, self._other, places, others, self._counters
        launch(kernels.finish_places, cut.groups, cut.each, cut.buckets, *own, out)


class _TeamWork:
    """Where teams sort: all rows at once, each whole or in blocks; see :mod:`aiodev.kernels.sorting.cuda_radix`.

    Attributes:
        teams: as many as there are blocks, of all rows.
        sums: how many sum up the counts.
        counts: for each row and byte, of each block, and of all.
    """

    def __init__(self, call: aiodev.Call, plan: Plan, kernels: teams.TeamKernels, length: int, rows: int) -> None:
        self.call = call
        self.length, self.rows = length, rows
        self.passes = -(-8 * plan.key.itemsize // BITS)
        self.cut = teams.cut_rows(rows, length)
        self._kernels = kernels
        if self.cut.blocks:
            self.teams = rows * self.cut.blocks
            self.sums = rows * teams.BYTES if self.cut.blocks > teams.SERIAL else -(-rows * teams.BYTES // TEAM)
            self.counts = call.scratch(rows * teams.BYTES * (self.cut.blocks + 1), np.int64)
            self.state = aiodev.zeros(rows * teams.STATES, np.int64, call.device)

    def count(self, p: int, keys: aiodev.Array, other: aiodev.Array) -> None:
        """Find out where pass ``p`` moves the keys of each block."""
        sizes = self.length, self.cut.block, p
        self.call.launch(self._kernels.count_bytes, self.teams, *sizes, keys, other, self.state, self.counts)
        self.call.launch(teams.sum_up, self.sums, self.length, self.cut.blocks, p, self.state, self.counts)


def sort_by_teams(
    call: aiodev.Call, plan: Plan, kernels: teams.TeamKernels, x: aiodev.Array, out: aiodev.Array, length: int
) -> None:
    """Sort rows of that length."""
    work = _TeamWork(call, plan, kernels, length, x.size // length)
    cut, launch = work.cut, call.launch
    if not cut.blocks:
        sizes = work.rows, cut.each, length, BITS
        launch(plan.kernels.rows, -(-work.rows // cut.each), *sizes, x, x, x, x, out)
        return
    keys, other = (call.scratch(x.size, plan.key) for _ in range(2))
    launch(kernels.encode, x.size, x, keys)
    for p in range(work.passes):
        work.count(p, keys, other)
        launch(kernels.move, work.teams, length, cut.block, p, keys, other, work.state, work.counts)
    launch(kernels.decode, work.teams, length, cut.block, work.passes, keys, other, work.state, out)


def sort_places_by_teams(
    call: aiodev.Call, plan: Plan, kernels: teams.TeamKernels, x: aiodev.Array, out: aiodev.Array, length: int
) -> None:
    """Find the places of rows of that length in order."""
    work = _TeamWork(call, plan, kernels, length, x.size // length)
    cut, launch = work.cut, call.launch
    if not cut.blocks:
        sizes = work.rows, cut.each, length, BITS
        launch(plan.kernels.rows_places, -(-work.rows // cut.each), *sizes, x, x, x, x, x, x, out)
        return
    keys, other = (call.scratch(x.size, plan.key) for _ in range(2))
    places, others = (call.scratch(x.size, place_type(length)) for _ in range(2))
    launch(kernels.encode_places, x.size, x, keys, places)
    for p in range(work.passes):
        work.count(p, keys, other)
        rooms = keys, other, places, others, work.state, work.counts
        launch(kernels.move_places, work.teams, length, cut.block, p, *rooms)
    launch(teams.choose_places, work.teams, length, cut.block, work.passes, places, others, work.state, out)
