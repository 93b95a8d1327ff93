"""Scheduling with every worker held: what happens is then exact, not likely."""

from __future__ import annotations

import ctypes
import threading

import pytest

import aiodev
from aiodev._backends.cpu.host import HostBackend
from aiodev._backends.cpu.portable.executor import PortableExecutor
from aiodev._backends.cpu.structs import Queue
from aiodev._backends.cpu.tuning import PORTABLE_GRAIN
from aiodev.testing import QueueLatch, held_workers

_PATIENCE = 10**10


def test_urgent_work_that_came_last_runs_first(cpu: HostBackend) -> None:
    """With all workers held, low, then normal, then high become ready; freed one by one, they run high to low."""
    cells = (ctypes.c_int64 * 3)()
    queues = []
    with held_workers(cpu):
        for i, priority in enumerate((1, 0, -1)):
            queue, counters = cpu.executor.create_queue(0, priority, False)
            block = (ctypes.c_char * (8 << 20))()
            cpu.executor.stamp(queue, ctypes.addressof(cells) + 8 * i)
            # Long, so that a second worker that is freed at the same time is not soon done with the next queue.
            cpu.executor.fill(queue, ctypes.addressof(block), 1 << 20, b"12345678")
            queues.append((queue, block))
            assert counters[0] == 0, "a worker that should be held ran something"
    for queue, _ in queues:
        assert cpu.executor.spin(queue, 2, _PATIENCE)
        cpu.executor.destroy_queue(queue)
    if cpu.executor.thread_count == 1:
        assert cells[2] < cells[1] < cells[0]
    assert cells[2] < cells[0], "a low-priority queue that came first ran before a high-priority one"


def test_submitting_needs_no_worker(cpu: HostBackend) -> None:
    """Submission, arming and queries work while no worker is free."""
    with held_workers(cpu):
        queue, counters = cpu.executor.create_queue(0, 0, False)
        for _ in range(1000):
            cpu.executor.fill(queue, 0, 0, b"x")
        assert counters[0] == 0 and not cpu.executor.spin(queue, 1, 0)
    assert cpu.executor.spin(queue, 1000, _PATIENCE)
    cpu.executor.destroy_queue(queue)


def test_reserved_queue_runs_while_all_others_are_held(cpu: HostBackend) -> None:
    """A reserved queue of the native executor has a worker of its own."""
    if cpu.executor.kind != "native":
        pytest.skip("queues of the portable executor own nothing")
    queue, _ = cpu.executor.create_queue(0, 0, True)
    with held_workers(cpu):
        assert cpu.executor.spin(queue, cpu.executor.fill(queue, 0, 0, b"x"), _PATIENCE)
    cpu.executor.destroy_queue(queue)


def test_queue_latch_holds_and_fails(cpu: HostBackend) -> None:
    """A queue latch holds until released, once, and can fail the queue."""
    queue, counters = cpu.executor.create_queue(0, 0, False)
    with QueueLatch(cpu.executor, queue) as latch:
        assert not cpu.executor.spin(queue, latch.value, 1000)
    latch.release()
    assert cpu.executor.spin(queue, latch.value, _PATIENCE)
    failing = QueueLatch(cpu.executor, queue)
    failing.release(failed=True)
    assert cpu.executor.spin(queue, failing.value, _PATIENCE)
    assert cpu.executor.faults(queue)[0].first == failing.value
    cpu.executor.destroy_queue(queue)


def test_workers_share_a_long_range() -> None:
    """A long range is run by several workers at once, each index once, and completes when all are done."""
    executor = PortableExecutor(1, 2)
    meeting = threading.Barrier(2, timeout=30)
    seen: list[tuple[int, int]] = []

    def body(arguments: bytes, lo: int, hi: int) -> None:
        if len(seen) < 2:
            seen.append((lo, hi))
            meeting.wait()  # passes only when two workers are inside
        else:
            seen.append((lo, hi))

    entry = 1
    executor.set_entry(entry, body)
    queue, _ = executor.create_queue(0, 0, False)
    size = 10 * PORTABLE_GRAIN + 1
    assert executor.spin(queue, executor.launch(queue, entry, size, b"", 0), _PATIENCE)
    covered = sorted(seen)
    assert covered[0][0] == 0 and covered[-1][1] == size
    assert all(a[1] == b[0] for a, b in zip(covered, covered[1:], strict=False))
    assert executor.faults(queue) == []
    executor.stop()


@aiodev.kernel
def chain(i, steps, out):
    """Takes its time over every index."""
    value = out[i]
    for _ in range(steps):
        value = value * 1.0000001 + 1e-9
    out[i] = value


async def test_only_what_can_be_divided_is_shared() -> None:
    """A long kernel of one index stays with its worker: a helper could only move it, and what follows, to another core."""
    await aiodev.init("cpu")
    if aiodev.get_backend("cpu").executor_kind != "native":
        pytest.skip("the portable executor divides by size alone")
    stream = aiodev.Stream("cpu")
    out = aiodev.zeros(64, dtype="f8", device="cpu")
    first = Queue(stream.timeline.queue).partitions
    untouched, steps = -1, 200_000
    first.end = untouched
    for _ in range(10):
        await chain[1, stream](steps, out)
    assert first.end == untouched
    await chain[64, stream](steps, out)
    assert 0 < first.end <= 64


def test_a_failing_chunk_ends_the_range() -> None:
    """After one chunk failed no more are handed out, and the first error is the operation's."""
    executor = PortableExecutor(1, 2)
    ran: list[int] = []

    def body(arguments: bytes, lo: int, hi: int) -> None:
        ran.append(lo)
        raise ValueError(lo)

    entry = 1
    executor.set_entry(entry, body)
    queue, _ = executor.create_queue(0, 0, False)
    assert executor.spin(queue, executor.launch(queue, entry, 100 * PORTABLE_GRAIN, b"", 0), _PATIENCE)
    assert len(ran) <= 2
    assert isinstance(executor.faults(queue)[0].error, ValueError)
    executor.stop()


def test_launching_an_empty_entry_fails_the_operation() -> None:
    """An entry that has no code yet fails what launches it."""
    executor = PortableExecutor(1, 2)
    queue, _ = executor.create_queue(0, 0, False)
    value = executor.launch(queue, 99, 1, b"", 0)
    assert executor.spin(queue, value, _PATIENCE)
    with pytest.raises(RuntimeError, match="loaded"):
        raise executor.faults(queue)[0].error or AssertionError
    executor.stop()
