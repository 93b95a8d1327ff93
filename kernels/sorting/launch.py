"""What is launched to sort long rows, in buckets and by teams, and the memory that it takes."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np

import aiodev
from aiodev.kernels.sorting import cuda_radix as teams, sample_sort as splits
from aiodev.kernels.sorting.plan import Plan, place_type
from aiodev.kernels.sorting.radix import BITS
from aiodev.kernels.thread_block import TEAM

__all__ = ["SplitWork", "Step", "sort_by_teams", "sort_places_by_teams"]

DType = np.dtype[Any]
#: A launch: a kernel, its indices and arguments, and which of those are the row, the result or scratch.
Step = tuple[aiodev.Kernel, int, tuple[Any, ...], tuple[int | None, ...]]
_X, _OUT, _SCRATCH = 0, 1, -1


@functools.cache
def _cores(device: aiodev.Device) -> int:
    return aiodev.get_device_properties(device).multi_processor_count


class SplitWork:
    """Long rows of one length, one after the other, each split into buckets; see :mod:`aiodev.kernels.sorting.sample_sort`."""

    def __init__(
        self, kernels: splits.SplitKernels, key: DType, length: int, device: aiodev.Device, *, with_places: bool
    ) -> None:
        self._kernels, self._length, self._device = kernels, length, device
        size = splits.RADIX if with_places else splits.NETWORK.get(key.itemsize, splits.RADIX)
        self._cut = cut = splits.cut_row(length, _cores(device), *size)
        word, number = splits.word_of(key), place_type(length)
        self._keys, self._other = self._room(key), self._room(key)
        self._places = [self._room(number) for _ in range(2 if with_places else 0)]
        self._choice = tuple(
            aiodev.empty(size, dtype, device)
            for size, dtype in ((cut.sample, key), (3, word), (splits.DIGITS, np.uint32))
        )
        self._offsets = aiodev.empty(cut.blocks * splits.CHUNK, word, device)
        self._found = self._room(np.uint16)
        self._counts = aiodev.empty(cut.blocks * cut.buckets, number, device)
        self._starts = aiodev.empty(cut.buckets + 1, np.int64, device)
        self._counters = aiodev.empty(cut.groups * splits.COUNTERS, number, device)

    def _room(self, dtype: Any) -> aiodev.Array:
        return aiodev.empty(self._length, dtype, self._device)

    def _find_buckets(self, x: aiodev.Array) -> tuple[tuple[int, int, int], list[Step]]:
        """What splitting begins with; and the launches that choose buckets, and find out where each block's keys of each go."""
        cut, kernels = self._cut, self._kernels
        sizes = self._length, cut.block, cut.buckets
        choice = 3 * (_SCRATCH,)
        args = self._length, cut.buckets, x, *self._choice
        choose = kernels.choose, 1, args, (None, None, _X, *choice)
        found = *self._choice[1:], self._offsets, self._found, self._counts
        count = kernels.count_keys, cut.blocks, (*sizes, x, *found), (None, None, None, _X, *(_SCRATCH for _ in found))
        args = cut.blocks, cut.buckets, self._counts, self._starts
        return sizes, [choose, count, (splits.sum_up_buckets, 1, args, (None, None, _SCRATCH, _SCRATCH))]

    def sort(self, x: aiodev.Array, out: aiodev.Array) -> list[Step]:
        """The launches that sort one row."""
        cut, kernels = self._cut, self._kernels
        sizes, steps = self._find_buckets(x)
        own: tuple[aiodev.Array, ...] = self._found, self._counts, self._keys
        steps.append((kernels.split, cut.blocks, (*sizes, x, *own), (None, None, None, _X, *(_SCRATCH for _ in own))))
        own = self._starts, self._keys, self._other, self._counters
        takes = None, None, *(_SCRATCH for _ in own), _OUT
        return [*steps, (kernels.finish, cut.groups, (cut.each, cut.buckets, *own, out), takes)]

    def sort_places(self, x: aiodev.Array, out: aiodev.Array) -> list[Step]:
        """The launches that find the places of one row in order."""
        cut, kernels = self._cut, self._kernels
        sizes, steps = self._find_buckets(x)
        places, others = self._places
        own: tuple[aiodev.Array, ...] = self._found, self._counts, self._keys, places
        takes: tuple[int | None, ...] = None, None, None, _X, *(_SCRATCH for _ in own)
        steps.append((kernels.split_places, cut.blocks, (*sizes, x, *own), takes))
        own = self._starts, self._keys, self._other, places, others, self._counters
        takes = None, None, *(_SCRATCH for _ in own), _OUT
        return [*steps, (kernels.finish_places, cut.groups, (cut.each, cut.buckets, *own, out), takes)]


class _TeamWork:
    """Where teams sort: all rows at once, each whole or in blocks; see :mod:`aiodev.kernels.sorting.cuda_radix`.

    Attributes:
        teams: as many as there are blocks, of all rows.
        sums: how many sum up the counts.
        counts: for each row and byte, of each block, and of all.
    """

    def __init__(self, plan: Plan, kernels: teams.TeamKernels, length: int, rows: int, device: aiodev.Device) -> None:
        self.stream = aiodev.current_stream(device)
        self.length, self.rows = length, rows
        self.passes = -(-8 * plan.key.itemsize // BITS)
        self.cut = teams.cut_rows(rows, length)
        self._kernels = kernels
        if self.cut.blocks:
            self.teams = rows * self.cut.blocks
            self.sums = rows * teams.BYTES if self.cut.blocks > teams.SERIAL else -(-rows * teams.BYTES // TEAM)
            self.counts = aiodev.empty(rows * teams.BYTES * (self.cut.blocks + 1), np.int64, device)
            self.state = aiodev.zeros(rows * teams.STATES, np.int64, device)

    def count(self, p: int, keys: aiodev.Array, other: aiodev.Array) -> None:
        """Find out where pass ``p`` moves the keys of each block."""
        sizes = self.length, self.cut.block, p
        self._kernels.count_bytes[self.teams, self.stream](*sizes, keys, other, self.state, self.counts)
        teams.sum_up[self.sums, self.stream](self.length, self.cut.blocks, p, self.state, self.counts)


def sort_by_teams(plan: Plan, kernels: teams.TeamKernels, x: aiodev.Array, out: aiodev.Array, length: int) -> None:
    """Sort rows of that length."""
    work = _TeamWork(plan, kernels, length, x.size // length, x.device)
    cut, stream = work.cut, work.stream
    if not cut.blocks:
        sizes = work.rows, cut.each, length, BITS
        plan.kernels.rows[-(-work.rows // cut.each), stream](*sizes, x, x, x, x, out)
        return
    keys, other = (aiodev.empty(x.size, plan.key, x.device) for _ in range(2))
    kernels.encode[x.size, stream](x, keys)
    for p in range(work.passes):
        work.count(p, keys, other)
        kernels.move[work.teams, stream](length, cut.block, p, keys, other, work.state, work.counts)
    kernels.decode[work.teams, stream](length, cut.block, work.passes, keys, other, work.state, out)


def sort_places_by_teams(
    plan: Plan, kernels: teams.TeamKernels, x: aiodev.Array, out: aiodev.Array, length: int
) -> None:
    """Find the places of rows of that length in order."""
    work = _TeamWork(plan, kernels, length, x.size // length, x.device)
    cut, stream = work.cut, work.stream
    if not cut.blocks:
        sizes = work.rows, cut.each, length, BITS
        plan.kernels.rows_places[-(-work.rows // cut.each), stream](*sizes, x, x, x, x, x, x, out)
        return
    keys, other = (aiodev.empty(x.size, plan.key, x.device) for _ in range(2))
    places, others = (aiodev.empty(x.size, place_type(length), x.device) for _ in range(2))
    kernels.encode_places[x.size, stream](x, keys, places)
    for p in range(work.passes):
        work.count(p, keys, other)
        kernels.move_places[work.teams, stream](
            length, cut.block, p, keys, other, places, others, work.state, work.counts
        )
    teams.choose_places[work.teams, stream](length, cut.block, work.passes, places, others, work.state, out)
