"""A worker leaves the core of the thread that it works for."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator

import numpy as np
import pytest
from numba import njit

from aiodev._backends.cpu import layout
from aiodev._backends.cpu.native import cores
from aiodev._backends.cpu.native.intrinsics import sched_getcpu

pytestmark = pytest.mark.skipif(not cores.MOVES, reason="a thread cannot tell its core here")


@njit
def _step_aside(queue: int, worker: int, here: bool) -> tuple[int, int]:
    """Be about to join a range that was opened on this thread's core, or on none; the cores before and after."""
    before = sched_getcpu()
    if here:
        cores.note_core(queue, worker)
    if cores.in_the_way(queue, worker):
        cores.step_aside(worker)
    return before, sched_getcpu()


@njit
def _send_away(queue: int, worker: int) -> tuple[int, bool, int]:
    """Be the worker that woke this thread, on its core, and have it sent away; the cores before and after."""
    before = sched_getcpu()
    cores.note_core(queue, worker)
    sent = cores.send_away(queue)
    return before, sent, sched_getcpu()


@njit
def _may_move(worker: int) -> bool:
    may = cores.may_move(worker)
    if may:
        if cores.may_move(worker):
            raise AssertionError("it is being moved: the set that another one read would be what it gets back")
        cores.has_moved(worker)
    return may


@pytest.fixture
def allowed() -> Iterator[set[int]]:
    """The cores that this thread may use, which it gets back."""
    found = os.sched_getaffinity(0)
    yield found
    os.sched_setaffinity(0, found)


def _structures() -> tuple[np.ndarray, np.ndarray]:
    queue = np.zeros(layout.QUEUE_BYTES // 8, np.int64)
    queue[layout.Q_CORE // 8] = -1
    worker = np.zeros(layout.WORKER_BYTES // 8, np.int64)
    worker[layout.W_THREAD // 8] = threading.get_native_id()
    return queue, worker


def _addresses(*structures: np.ndarray) -> tuple[int, ...]:
    return tuple(words.ctypes.data for words in structures)


def test_a_helper_moves_and_stays_free_to_be_moved(allowed: set[int]) -> None:
    """It goes to another core of its set, which is as it was; from another core than the range's it does not move."""
    if len(allowed) < 2:
        pytest.skip("one core")
    moved = 0
    for _ in range(10):  # the system may move it back at once
        queue, worker = _structures()
        before, after = _step_aside(*_addresses(queue, worker), True)
        moved += before != after
        assert after in allowed
        assert os.sched_getaffinity(0) == allowed
    assert moved >= 5
    queue, worker = _structures()
    _step_aside(*_addresses(queue, worker), False)
    assert worker[layout.W_STAY // 8] == 0


def test_a_worker_on_the_core_of_who_waits_is_sent_away(allowed: set[int]) -> None:
    """Once; then it has to wake somebody again. Its set stays as it was."""
    if len(allowed) < 2:
        pytest.skip("one core")
    moved = 0
    for _ in range(10):
        queue, worker = _structures()
        before, sent, after = _send_away(*_addresses(queue, worker))
        moved += before != after
        assert sent or before != after  # the system moved it before we could
        assert not sent or queue[layout.Q_WORKER // 8] == 0
        assert os.sched_getaffinity(0) == allowed
    assert moved >= 5


def test_moves_that_do_not_last_become_seldom() -> None:
    """Where all cores are taken, moving does not help, and costs."""
    _, worker = _structures()
    (address,) = _addresses(worker)
    stay, stayed = layout.W_STAY // 8, layout.W_STAYED // 8
    for k in range(12):
        assert _may_move(address)
        assert worker[stayed] == min(cores.SHORTEST << k, cores.LONGEST)
        assert not _may_move(address)
        worker[stay] -= worker[stayed]  # as if so much time had passed, and no more
    assert _may_move(address)
    worker[stay] = 1  # long ago: that one lasted
    assert _may_move(address)
    assert worker[stayed] == cores.SHORTEST


def test_with_one_core_a_worker_stays(allowed: set[int]) -> None:
    """A set of one core is left alone."""
    only = {min(allowed)}
    os.sched_setaffinity(0, only)
    queue, worker = _structures()
    before, after = _step_aside(*_addresses(queue, worker), True)
    assert {before, after} == only
    before, sent, after = _send_away(*_addresses(*_structures()))
    assert {before, after} == only and not sent
    assert os.sched_getaffinity(0) == only
