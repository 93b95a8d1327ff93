"""A worker that helps leaves the core of the one that it helps."""

from __future__ import annotations

import os
from collections.abc import Iterator

import numpy as np
import pytest
from numba import njit

from aiodev._backends.cpu import layout
from aiodev._backends.cpu.native import cores
from aiodev._backends.cpu.native.intrinsics import sched_getcpu

pytestmark = pytest.mark.skipif(not cores.MOVES, reason="a thread cannot tell its core here")


@njit
def _move(worker: int, queue: int, here: bool) -> tuple[int, int]:
    """Join a range that was opened on this thread's core, or on none; the cores before and after."""
    before = sched_getcpu()
    if here:
        cores.note_core(queue)
    cores.step_aside(worker, queue)
    return before, sched_getcpu()


@pytest.fixture
def allowed() -> Iterator[set[int]]:
    """The cores that this thread may use, which it gets back."""
    found = os.sched_getaffinity(0)
    yield found
    os.sched_setaffinity(0, found)


def _structures() -> tuple[np.ndarray, np.ndarray]:
    return np.zeros(layout.WORKER_BYTES // 8, np.int64), np.full(layout.QUEUE_BYTES // 8, -1, np.int64)


def test_it_moves_and_stays_free_to_be_moved(allowed: set[int]) -> None:
    """It goes to another core of its set, which is as it was; from another core than the range's it does not move."""
    if len(allowed) < 2:
        pytest.skip("one core")
    moved = 0
    for _ in range(10):  # the system may move it back at once
        worker, queue = _structures()
        before, after = _move(worker.ctypes.data, queue.ctypes.data, True)
        moved += before != after
        assert after in allowed
        assert os.sched_getaffinity(0) == allowed
    assert moved >= 5
    worker, queue = _structures()
    _move(worker.ctypes.data, queue.ctypes.data, False)
    assert worker[layout.W_MOVED // 8] == 0


def test_it_does_not_move_twice_within_a_moment(allowed: set[int]) -> None:
    """Where all cores are taken, moving does not help, and costs."""
    worker, queue = _structures()
    _move(worker.ctypes.data, queue.ctypes.data, True)
    first = worker[layout.W_MOVED // 8]
    assert first > 0
    worker[layout.W_MOVED // 8] = later = first + 10**12
    _move(worker.ctypes.data, queue.ctypes.data, True)
    assert worker[layout.W_MOVED // 8] == later


def test_with_one_core_it_stays(allowed: set[int]) -> None:
    """A set of one core is left alone."""
    only = {min(allowed)}
    os.sched_setaffinity(0, only)
    worker, queue = _structures()
    before, after = _move(worker.ctypes.data, queue.ctypes.data, True)
    assert {before, after} == only
    assert os.sched_getaffinity(0) == only
