"""A worker leaves the core of the thread that it works for."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator

import numpy as np
import pytest

from aiodev._backends.cpu.executor import affinity
from aiodev._backends.cpu.executor.affinity import (
    MOVING,
    has_moved,
    in_the_way,
    may_move,
    note_core,
    send_away,
    send_member_away,
    step_aside,
)
from aiodev._backends.cpu.structs import Crowd, Device, Queue, Worker
from aiodev._backends.executor.arena import arena
from aiodev._native.compile import boolean, exported, int64, void
from aiodev._native.emit import emit
from aiodev._native.fields import Cell, sizeof
from aiodev._native.intrinsics import sched_getcpu
from aiodev._native.native_code import NativeCode

pytestmark = pytest.mark.skipif(not affinity.MOVES, reason="a thread cannot tell its core here")


@exported(void(int64, int64, boolean, int64))
def _step_aside(queue: Queue, worker: Worker, here: bool, seen: Cell[int]) -> None:
    """Be about to join a range that was opened on this thread's core, or on none; the cores before and after."""
    seen[0].value = sched_getcpu()
    if here:
        note_core(queue, worker)
    if in_the_way(queue, worker):
        step_aside(worker)
    seen[1].value = sched_getcpu()


@exported(boolean(int64, int64, int64))
def _send_away(queue: Queue, worker: Worker, seen: Cell[int]) -> bool:
    """Be the worker that woke this thread, on its core, and have it sent away; the cores before and after."""
    seen[0].value = sched_getcpu()
    note_core(queue, worker)
    sent = send_away(queue)
    seen[1].value = sched_getcpu()
    return sent


@exported(void(int64, int64, boolean, int64))
def _send_member_away(queue: Queue, worker: Worker, here: bool, seen: Cell[int]) -> None:
    """Be the last member of a range, here or on no core, and have it sent away; the cores before and after."""
    seen[0].value = sched_getcpu()
    queue.joined = worker
    queue.joined_core = seen[0].value if here else -1
    send_member_away(queue)
    seen[1].value = sched_getcpu()


@exported(boolean(int64))
def _may_move(worker: Worker) -> bool:
    """Where it may not twice at once: the set that another one read would be what it gets back."""
    may = may_move(worker)
    if may:
        if may_move(worker):
            raise MemoryError("it is being moved")
        has_moved(worker)
    return may


@pytest.fixture(scope="module")
def code() -> NativeCode:
    """The functions above, compiled."""
    return NativeCode(emit("test_affinity", [_step_aside, _send_away, _send_member_away, _may_move]))


@pytest.fixture
def seen() -> np.ndarray:
    """The cores before and after."""
    return np.zeros(2, np.int64)


@pytest.fixture
def allowed() -> Iterator[set[int]]:
    """The cores that this thread may use, which it gets back."""
    found = os.sched_getaffinity(0)
    yield found
    os.sched_setaffinity(0, found)


@pytest.fixture
def several(allowed: set[int]) -> set[int]:
    """Those, where there are two or more."""
    if len(allowed) < 2:
        pytest.skip("one core")
    return allowed


_device, _crowd = Device(arena.allocate(sizeof(Device))), Crowd(arena.allocate(sizeof(Crowd)))
_device.crowd = _crowd


def _structures() -> tuple[Queue, Worker]:
    """A queue of the device above, and a worker that is this thread; in memory that stays, since native code writes there."""
    queue, worker = Queue(arena.allocate(sizeof(Queue))), Worker(arena.allocate(sizeof(Worker)))
    queue.core = -1
    queue.range_device = _device
    worker.thread = threading.get_native_id()
    return queue, worker


def test_a_helper_moves_and_stays_free_to_be_moved(several: set[int], code: NativeCode, seen: np.ndarray) -> None:
    """It goes to another core of its set, which is as it was; from another core than the range's it does not move."""
    moved = 0
    for _ in range(10):  # the system may move it back at once
        queue, worker = _structures()
        code.function(_step_aside)(queue.address, worker.address, True, seen.ctypes.data)
        before, after = seen.tolist()
        moved += before != after
        assert after in several
        assert os.sched_getaffinity(0) == several
    assert moved >= 5
    queue, worker = _structures()
    code.function(_step_aside)(queue.address, worker.address, False, seen.ctypes.data)
    assert worker.stay.value == 0


def test_a_worker_on_the_core_of_who_waits_is_sent_away(several: set[int], code: NativeCode, seen: np.ndarray) -> None:
    """Once; then it has to wake somebody again. Its set stays as it was."""
    moved = 0
    for _ in range(10):
        queue, worker = _structures()
        sent = code.function(_send_away)(queue.address, worker.address, seen.ctypes.data)
        before, after = seen.tolist()
        moved += before != after
        assert sent or before != after  # the system moved it before we could
        assert not sent or queue.worker is None
        assert os.sched_getaffinity(0) == several
    assert moved >= 5


def test_a_member_that_is_waited_for_is_sent_away(several: set[int], code: NativeCode, seen: np.ndarray) -> None:
    """Though it has just been moved, to here; but not from another core, nor while another thread moves it."""
    moved = 0
    for _ in range(10):
        queue, worker = _structures()
        worker.stay.value, worker.stayed = 1 << 60, 7
        code.function(_send_member_away)(queue.address, worker.address, True, seen.ctypes.data)
        before, after = seen.tolist()
        moved += before != after
        assert os.sched_getaffinity(0) == several
        assert before != after or worker.stay.value < 1 << 60 or queue.joined is not None
    assert moved >= 5
    for here, stay in ((False, 0), (True, MOVING)):
        queue, worker = _structures()
        worker.stay.value = stay
        code.function(_send_member_away)(queue.address, worker.address, here, seen.ctypes.data)
        assert worker.stay.value == stay


def test_moves_that_do_not_last_become_seldom(code: NativeCode) -> None:
    """Where all cores are taken, moving does not help, and costs."""
    may, (_, worker) = code.function(_may_move), _structures()
    for k in range(12):
        assert may(worker.address)
        assert worker.stayed == min(affinity.SHORTEST << k, affinity.LONGEST)
        assert not may(worker.address)
        worker.stay.value -= worker.stayed  # as if so much time had passed, and no more
    assert may(worker.address)
    worker.stay.value = 1  # long ago: that one lasted
    assert may(worker.address)
    assert worker.stayed == affinity.SHORTEST


def test_on_a_crowded_machine_nobody_moves(code: NativeCode, seen: np.ndarray) -> None:
    """The other cores are as taken as this one."""
    _crowd.until.value = 1 << 62
    try:
        queue, worker = _structures()
        assert not code.function(_send_away)(queue.address, worker.address, seen.ctypes.data)
        code.function(_step_aside)(queue.address, worker.address, True, seen.ctypes.data)
        assert worker.stay.value == 0
    finally:
        _crowd.until.value = 0


def test_with_one_core_a_worker_stays(allowed: set[int], code: NativeCode, seen: np.ndarray) -> None:
    """A set of one core is left alone."""
    only = {min(allowed)}
    os.sched_setaffinity(0, only)
    queue, worker = _structures()
    code.function(_step_aside)(queue.address, worker.address, True, seen.ctypes.data)
    before, after = seen.tolist()
    assert {before, after} == only
    queue, worker = _structures()
    sent = code.function(_send_away)(queue.address, worker.address, seen.ctypes.data)
    before, after = seen.tolist()
    assert {before, after} == only and not sent
    assert os.sched_getaffinity(0) == only
