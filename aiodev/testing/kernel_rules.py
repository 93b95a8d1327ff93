"""Rules about kernels: every index once, in order with everything else, and failures that say what and where.

The argument block is a row of little-endian 8-byte words: the launch's shape, the scalars in order, then for each array
its address and shape.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any

from aiodev._core import callsites
from aiodev._core.backend.interface import KernelSpec
from aiodev._core.errors import KernelError
from aiodev.testing.rule import NotApplicable, rule
from aiodev.testing.workbench import Cells, Workbench

__all__ = ["RULES"]


def _count(i: int, step: int, x: Any) -> None:
    x[i] = x[i] + step


def _number(i: int, j: int, x: Any) -> None:
    x[i, j] = x[i, j] + 1000 * i + j + 1


def _reject(i: int, bad: int, x: Any) -> None:
    if i == bad:
        raise ValueError("bad row", 3)
    x[i] = 1


def _load(bench: Workbench, function: Callable[..., None], ndim: int, *arguments: str) -> int:
    spec = KernelSpec(function.__name__.strip("_"), function, ndim, arguments)
    try:
        return bench.backend.load(spec, "")
    except NotImplementedError as error:
        raise NotApplicable(f"it loads no kernels: {error}") from error


def _words(*words: int) -> bytes:
    return struct.pack(f"<{len(words)}q", *words)


def _vector(scalar: int, cells: Cells) -> bytes:
    """Block of a one-dimensional launch over ``cells`` with one scalar."""
    return _words(len(cells), scalar, cells.address, len(cells))


@rule
def kernels_run_every_index_once(bench: Workbench) -> None:
    """A launch runs its body once for each index of its range, whatever the size, and is complete only then."""
    entry = _load(bench, _count, 1, "i8", "A1i8C")
    for size in (1, 2, 7, 64, 1000, 16385, 300_001):
        lane, cells = bench.lane(), bench.cells([5] * size)
        lane.reach(bench.executor.launch(lane.number, entry, size, _vector(3, cells), 0))
        assert bench.values(cells) == [8] * size, f"not every one of {size} indices ran exactly once"


@rule
def empty_launches_complete(bench: Workbench) -> None:
    """A launch of no indices does nothing and completes in its turn."""
    entry = _load(bench, _count, 1, "i8", "A1i8C")
    lane, cells = bench.lane(), bench.cells([5])
    lane.reach(bench.executor.launch(lane.number, entry, 0, _vector(3, cells), 0))
    assert bench.values(cells) == [5] and not lane.faults()


@rule
def two_dimensions_run_in_rows(bench: Workbench) -> None:
    """The flat indices of a launch of two dimensions are its rows one after the other."""
    entry = _load(bench, _number, 2, "A2i8C")
    for rows, columns in ((1, 1), (3, 5), (37, 211), (4000, 6)):
        lane, cells = bench.lane(), bench.cells([0] * (rows * columns))
        block = _words(rows, columns, cells.address, rows, columns)
        lane.reach(bench.executor.launch(lane.number, entry, rows * columns, block, 0))
        expected = [1000 * i + j + 1 for i in range(rows) for j in range(columns)]
        assert bench.values(cells) == expected, f"a launch over {rows} x {columns} is wrong"


@rule
def kernels_keep_order_with_copies(bench: Workbench) -> None:
    """Kernels and copies of a queue see each other's results, also when the ranges are long enough to be shared."""
    entry = _load(bench, _count, 1, "i8", "A1i8C")
    for size, rounds in ((8, 300), (100_000, 20)):
        lane, first, second = bench.lane(), bench.cells([0] * size), bench.cells([0] * size)
        for _ in range(rounds):
            bench.executor.launch(lane.number, entry, size, _vector(1, first), 0)
            bench.executor.copy(lane.number, second.address, first.address, 8 * size)
            bench.executor.launch(lane.number, entry, size, _vector(1, second), 0)
            bench.executor.copy(lane.number, first.address, second.address, 8 * size)
        lane.finish()
        assert bench.values(first) == [2 * rounds] * size, "kernels and copies of one queue overtook each other"


@rule
def kernels_of_many_queues_run_together(bench: Workbench) -> None:
    """Launches of one kernel on many queues, fed at once, do not disturb each other."""
    entry = _load(bench, _count, 1, "i8", "A1i8C")
    lanes = bench.lanes(16)
    cells = [bench.cells([0] * 20_000) for _ in lanes]
    for step in range(10):
        for lane, mine in zip(lanes, cells, strict=True):
            bench.executor.launch(lane.number, entry, len(mine), _vector(step, mine), 0)
    for lane, mine in zip(lanes, cells, strict=True):
        lane.finish()
        assert bench.values(mine) == [45] * len(mine)


@rule
def a_kernels_exception_is_its_fault(bench: Workbench) -> None:
    """What a body raises is the cause of a KernelError that names the kernel and the place of its launch."""
    entry = _load(bench, _reject, 1, "i8", "A1i8C")
    site = callsites.here(0)
    for size in (10, 200_000):
        lane, cells, chain = bench.lane(), bench.cells([0] * size), bench.chain(4, 3)
        failed = bench.executor.launch(lane.number, entry, size, _vector(size - 3, cells), site)
        last = lane.copy_chain(chain)
        lane.finish()
        (fault,) = lane.faults()
        assert (fault.first, fault.last, fault.dependency) == (failed, None, None), fault
        error = fault.error
        assert isinstance(error, KernelError), f"the error is {error!r}, not a KernelError"
        assert isinstance(error.__cause__, ValueError) and error.__cause__.args == ("bad row", 3), error.__cause__
        assert error.kernel == "reject" and error.submitted_at == callsites.describe_site(site), str(error)
        assert bench.last(chain) == 0, "a copy behind a failed kernel ran"
        lane.forgive()
        lane.reach(lane.copy_chain(chain))
        assert bench.last(chain) == 4
        assert lane.faults()[0].last == last


@rule
def failures_of_many_queues_stay_apart(bench: Workbench) -> None:
    """Of kernels that run at once, those that fail tell their own queue only."""
    entry = _load(bench, _reject, 1, "i8", "A1i8C")
    lanes, cells = bench.lanes(12), [bench.cells([0] * 500) for _ in range(12)]
    for number, (lane, mine) in enumerate(zip(lanes, cells, strict=True)):
        for _ in range(10):
            bench.executor.launch(lane.number, entry, 500, _vector(7 if number % 3 == 0 else -1, mine), 0)
    for number, lane in enumerate(lanes):
        lane.finish()
        assert [fault.first for fault in lane.faults()] == ([1] if number % 3 == 0 else []), repr(lane)


RULES = (
    kernels_run_every_index_once,
    empty_launches_complete,
    two_dimensions_run_in_rows,
    kernels_keep_order_with_copies,
    kernels_of_many_queues_run_together,
    a_kernels_exception_is_its_fault,
    failures_of_many_queues_stay_apart,
)
