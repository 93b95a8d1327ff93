"""Helping: threads that wait do a part of the work meanwhile."""

from __future__ import annotations

import ctypes
import os
import threading
import time

import pytest
from pieces import MS, PATIENCE, Entry, busy_for, help_until, one_worker_held, started

from aiodev._backends.cpu.structs import Queue
from aiodev._backends.cpu.tuning import ALONE, INDEX, LOOK_EVERY, SHORT
from aiodev._core.backend.interface import BLOCKED


def is_cheap(entry: Entry) -> bool:
    """Make it so: a helper leaves what costs much alone, and where its core was taken meanwhile an index seems to."""
    entry.say_cost(MS // 100)
    return True


def test_who_waits_awake_helps() -> None:
    """With the other worker busy, the one that has the range waits in each piece until this thread has had one, too."""
    with started(2) as executor, one_worker_held(executor):
        queue, _ = executor.create_queue(0, 0, False)
        entry, here = Entry(executor, MS // 100), threading.get_ident()
        begun, helped = threading.Event(), threading.Event()

        def before(lo: int, hi: int) -> None:
            if threading.get_ident() == here:
                helped.set()
            else:
                begun.set()
                assert helped.wait(30)

        entry.before = before
        value = executor.launch(queue, entry.address, 1000, b"", 0)
        following = executor.launch(queue, Entry(executor, 1).address, 1, b"", 0)
        assert begun.wait(30)
        assert executor.spin(queue, value, PATIENCE)
        assert entry.covered(1000)
        assert len(entry.threads()) == 2 and here in entry.threads()
        assert executor.spin(queue, following, PATIENCE)  # by whoever came last


def test_who_waits_helps_workers_that_have_a_range_to_themselves() -> None:
    """They may be on one core, and this thread on the other. Both wait in their first piece until it has had one."""
    with started(2, spin_ns=0) as executor:
        queue, _ = executor.create_queue(0, 0, False)
        entry, here = Entry(executor, MS // 100), threading.get_ident()
        begun, helped = threading.Event(), threading.Event()

        def before(lo: int, hi: int) -> None:
            if threading.get_ident() == here:
                helped.set()
                return
            if len(entry.threads()) == 2:
                begun.set()
            assert helped.wait(30)

        entry.before = before
        value = executor.launch(queue, entry.address, 1000, b"", 0)
        assert begun.wait(30)
        assert executor.spin(queue, value, PATIENCE)
        assert entry.covered(1000)
        assert len(entry.threads()) == 3 and here in entry.threads()


@pytest.mark.parametrize(("cost", "uniform"), [(MS // 100, False), (10_000 * MS, True)])
def test_who_waits_does_not_help(cost: int, uniform: bool) -> None:
    """Not with kernels that do not say that they are uniform, nor with indices that take longer than is waited for."""
    with started(2) as executor, one_worker_held(executor):
        queue, _ = executor.create_queue(0, 0, False)
        entry, release = Entry(executor, cost, uniform), threading.Event()
        entry.before = lambda lo, hi: release.wait(30) and None
        value = executor.launch(queue, entry.address, 64, b"", 0)
        assert not executor.spin(queue, value, 20_000_000)
        release.set()
        while not executor.spin(queue, value, 0):
            pass
        assert entry.covered(64)
        assert threading.get_ident() not in entry.threads()


def test_who_will_not_help_sends_for_another() -> None:
    """A range that is opened while a thread waits awake wakes no worker; the thread does, when it sees that it cannot help."""
    with started(2) as executor:
        queue, _ = executor.create_queue(0, 0, False)
        entry, both, lock = Entry(executor, 20_000 * MS), threading.Event(), threading.Lock()

        def before(lo: int, hi: int) -> None:
            with lock:
                if len(entry.threads()) == 2:
                    both.set()
            assert both.wait(20)

        entry.before = before
        value = executor.launch(queue, entry.address, 64, b"", 0)
        assert executor.spin(queue, value, 5 * 10**9)
        assert entry.covered(64) and len(entry.threads()) == 2
        assert threading.get_ident() not in entry.threads()


def test_a_worker_comes_where_helpers_are_expected_and_do_not() -> None:
    """As after a range that waiting threads helped with: the worker that opens the next one wakes the other when it is time."""
    with started(2, spin_ns=0) as executor:
        queue, _ = executor.create_queue(0, 0, False)
        Queue(queue).expected_helpers.value = 1
        entry, last, both, done = Entry(executor, MS // 100), Entry(executor, 1), threading.Event(), threading.Event()

        def before(lo: int, hi: int) -> None:
            if len(entry.threads()) == 2:
                both.set()
            if len(entry.pieces) > 1:
                assert both.wait(20)
            else:
                busy_for(2 * ALONE)  # so that it is time

        entry.before = before
        last.before = lambda lo, hi: done.set()
        executor.launch(queue, entry.address, 1000, b"", 0)
        value = executor.launch(queue, last.address, 1, b"", 0)
        assert done.wait(30)  # and not awake, as a helper would
        assert entry.covered(1000) and len(entry.threads()) == 2
        assert executor.spin(queue, value, PATIENCE)


def test_what_a_helper_leaves_others_finish() -> None:
    """A thread that stops waiting leaves the range to a worker that was not woken for its sake."""
    with started(2) as executor:
        queue, _ = executor.create_queue(0, 0, False)
        for _ in range(50):
            entry = Entry(executor, MS // 20)
            value = executor.launch(queue, entry.address, 200, b"", 0)
            executor.spin(queue, value, 100_000)
            assert executor.spin(queue, value, PATIENCE)
            assert entry.covered(200)


def test_a_helper_begins_a_queue_that_waits_for_a_worker() -> None:
    """And goes on up to what it waits for, not beyond."""
    with started(1) as executor, one_worker_held(executor):
        queue, counters = executor.create_queue(0, 0, False)
        entries = [Entry(executor, cost) for cost in (1000, MS // 100, 1000, 1000)]
        values = [executor.launch(queue, entry.address, 1000, b"", 0) for entry in entries]
        help_until(executor, queue, values[2], lambda: counters[0] >= values[2])
        assert counters[0] == values[2]
        assert all(entry.covered(1000) and entry.threads() == {threading.get_ident()} for entry in entries[:3])
        assert entries[3].pieces == []
        help_until(executor, queue, values[3], lambda: counters[0] == values[3])


@pytest.mark.parametrize(("cost", "uniform"), [(1000, False), (0, True), (10_000 * MS, True)])
def test_a_helper_begins_nothing_else(cost: int, uniform: bool) -> None:
    """Not what is not uniform, was never run, or takes longer than there is time for; what came before it is run."""
    with started(1) as executor, one_worker_held(executor):
        queue, counters = executor.create_queue(0, 0, False)
        first, second = Entry(executor, 1000), Entry(executor, cost, uniform)
        before = executor.launch(queue, first.address, 100, b"", 0)
        value = executor.launch(queue, second.address, 100, b"", 0)
        assert executor.help(queue, value, 10**9, -1)
        assert counters[0] == before and first.covered(100)
        assert not executor.help(queue, value, 10**9, -1)
        assert second.pieces == []


def test_a_blocked_thread_goes_by_the_average() -> None:
    """Of kernels that may depend on elements. Others may be waited for by a loop, and leave them to workers."""
    with started(1) as executor, one_worker_held(executor):
        queue, counters = executor.create_queue(0, 0, False)
        entry = Entry(executor, 1000, False, irregular=True)
        value = executor.launch(queue, entry.address, 100, b"", 0)
        assert not executor.help(queue, value, 10**9, -1) and not executor.spin(queue, value, 1_000_000)
        assert entry.pieces == []
        began = time.monotonic()
        while counters[0] < value and time.monotonic() < began + 10:
            entry.say_cost(1000)  # what seems to be long, since this process is kept from its core, it leaves to workers
            executor.help(queue, value, 10**9, BLOCKED)
        assert counters[0] == value
        assert entry.covered(100) and entry.threads() == {threading.get_ident()}


@pytest.mark.parametrize(
    ("cost", "size", "irregular"), [(1000, 100, False), (0, 100, True), (SHORT * 10, 101, True), (SHORT * 1001, 1, True)]
)
def test_a_blocked_thread_takes_nothing_else_by_the_average(cost: int, size: int, irregular: bool) -> None:
    """Not what is for workers alone, was never run, or is long: a signal would wait for the end of a piece."""
    with started(1) as executor, one_worker_held(executor):
        queue, _ = executor.create_queue(0, 0, False)
        entry = Entry(executor, cost, False, irregular=irregular)
        value = executor.launch(queue, entry.address, size, b"", 0)
        assert not executor.help(queue, value, 10**9, BLOCKED)
        assert entry.pieces == []


@pytest.mark.parametrize("said", [1000, 100_000])
def test_a_blocked_thread_tries_one_index_of_an_irregular_kernel(said: int) -> None:
    """And leaves the others to workers if that takes so long that the kernel is not short."""
    with started(1) as executor, one_worker_held(executor):
        queue, _ = executor.create_queue(0, 0, False)
        entry = Entry(executor, said, False, irregular=True)
        entry.before = lambda lo, hi: busy_for(8 * SHORT)
        value = executor.launch(queue, entry.address, 100, b"", 0)
        assert executor.help(queue, value, 10**9, BLOCKED)
        assert [hi - lo for _, lo, hi in entry.pieces] == [1]
        entry.before = lambda lo, hi: None


def test_a_helper_lets_more_urgent_work_go_first() -> None:
    """A stream that another one outranks is not begun."""
    with started(1) as executor, one_worker_held(executor):
        low, _ = executor.create_queue(0, 1, False)
        high, _ = executor.create_queue(0, -1, False)
        entry = Entry(executor, 1000)
        value = executor.launch(low, entry.address, 100, b"", 0)
        urgent = executor.launch(high, entry.address, 100, b"", 0)
        assert not executor.help(low, value, 10**9, -1) and entry.pieces == []
        assert executor.help(high, urgent, 10**9, -1) and executor.help(low, value, 10**9, -1)


def test_a_helper_is_called_away() -> None:
    """Soon after its descriptor has become readable; and again and again, as long as it is."""
    descriptor = os.eventfd(0, os.EFD_NONBLOCK)
    with started(1) as executor, one_worker_held(executor):
        queue, counters = executor.create_queue(0, 0, False)
        entry = Entry(executor, MS // 100)

        def before(lo: int, hi: int) -> None:
            busy_for(LOOK_EVERY)
            if len(entry.pieces) == 3:
                os.eventfd_write(descriptor, 1)

        entry.before = before
        value = executor.launch(queue, entry.address, 1_000, b"", 0)
        help_until(executor, queue, value, lambda: is_cheap(entry) and len(entry.pieces) >= 3, descriptor)
        assert 3 <= len(entry.pieces) <= 5 and counters[0] < value
        executor.help(queue, value, PATIENCE, descriptor)  # which may be called away before it has begun
        assert len(entry.pieces) <= 8 and counters[0] < value
        os.eventfd_read(descriptor)
        help_until(executor, queue, value, lambda: is_cheap(entry) and counters[0] >= value, descriptor)
        assert counters[0] == value and entry.covered(1_000)
    os.close(descriptor)


def test_a_helper_comes_and_goes() -> None:
    """Its time ends again and again, with workers inside and without; nothing is run twice, and nothing is left."""
    for threads in (1, 2, 3):
        with started(threads) as executor:
            queue, counters = executor.create_queue(0, 0, False)
            for _ in range(50):
                entries = [Entry(executor, MS // 20) for _ in range(3)]
                values = [executor.launch(queue, entry.address, 100, b"", 0) for entry in entries]
                while counters[0] < values[-1]:
                    executor.help(queue, values[-1], 200_000, -1)
                assert all(entry.covered(100) for entry in entries)


def test_a_failure_that_a_helper_meets() -> None:
    """It is recorded as a worker's would be, and what comes after it is skipped."""
    with started(1) as executor, one_worker_held(executor):
        queue, counters = executor.create_queue(0, 0, False)
        failing, skipped = Entry(executor, 1000, fails_at=0), Entry(executor, 1000)
        failed = executor.launch(queue, failing.address, 100, b"", 0)
        value = executor.launch(queue, skipped.address, 100, b"", 0)
        help_until(executor, queue, value, lambda: counters[0] == value)
        assert skipped.pieces == []
        assert [(fault.first, fault.last) for fault in executor.faults(queue)] == [(failed, None)]


@pytest.mark.parametrize("reserved", [False, True])
def test_a_helper_that_leaves_nobody_inside_sends_for_a_worker(reserved: bool) -> None:
    """Not only where it opened the range when all workers had gone back to sleep, having found nothing to do."""
    blocks = (ctypes.c_char * (4 << 20))()
    address = ctypes.addressof(blocks)
    with started(2, spin_ns=0) as executor:
        queue, counters = executor.create_queue(0, 0, reserved)
        for count in (1 << 13, 1 << 19):  # what they cost is known then
            assert executor.spin(queue, executor.fill(queue, address, count, b"12345678"), PATIENCE)
        for duration in range(60_000, 200_000, 500):
            for _ in range(duration // 30_000):
                executor.fill(queue, address, 1 << 13, b"12345678")
            value = executor.fill(queue, address, 1 << 19, b"12345678")
            executor.help(queue, value, duration, -1)
            deadline = time.monotonic() + 10
            while counters[0] < value:
                assert time.monotonic() < deadline, "what the helper left is on the open list, and everybody sleeps"
                time.sleep(0.0001)  # who parks, or submits, has a worker come; who waits awake helps


def test_who_may_be_called_away_begins_no_long_index() -> None:
    """It could not leave before the end of that. One that is not to be called away has the time."""
    descriptor = os.eventfd(0, os.EFD_NONBLOCK)
    with started(1) as executor, one_worker_held(executor):
        queue, counters = executor.create_queue(0, 0, False)
        entry = Entry(executor, 2000 * INDEX)
        value = executor.launch(queue, entry.address, 2, b"", 0)
        assert not executor.help(queue, value, PATIENCE, descriptor) and entry.pieces == []
        help_until(executor, queue, value, lambda: counters[0] == value)
    os.close(descriptor)


def test_what_is_no_kernel_takes_time_too() -> None:
    """A helper whose time is over leaves a long row of stamps to others."""
    cells = (ctypes.c_int64 * 1)()
    with started(1) as executor, one_worker_held(executor):
        queue, counters = executor.create_queue(0, 0, False)
        for _ in range(50_000):
            value = executor.stamp(queue, ctypes.addressof(cells))
        executor.help(queue, value, 100_000, -1)
        assert counters[0] < value
        help_until(executor, queue, value, lambda: counters[0] == value)


@pytest.mark.parametrize(("said", "size"), [(1000, 64), (1_000_000, 640)])
def test_a_helper_is_not_kept_by_what_costs_more_than_it_did(said: int, size: int) -> None:
    """What is learnt of an index depends on the arguments: here it takes a thousand times as long, and more.

    On a busy machine it may seem to take so long that the rest is left to workers.
    """
    with started(1) as executor, one_worker_held(executor):
        queue, _ = executor.create_queue(0, 0, False)
        entry = Entry(executor, said)
        entry.before = lambda lo, hi: busy_for(1_000_000 * (hi - lo))
        value = executor.launch(queue, entry.address, size, b"", 0)
        any(executor.help(queue, value, 100_000_000, -1) for _ in range(300))
        assert entry.pieces and all(hi - lo <= 4 for _, lo, hi in entry.pieces)
        entry.before = lambda lo, hi: None


def test_who_takes_a_queue_that_was_given_back_is_expected_to_help_as_the_last_one_did() -> None:
    """A request has a stream of its own, and the next one has its queue."""
    with started(2) as executor:
        queue, _ = executor.create_queue(0, 0, False)
        entry = Entry(executor, MS // 1000)
        value = executor.launch(queue, entry.address, 20, b"", 0)
        assert executor.spin(queue, value, PATIENCE)
        for expected in (1, 0):
            Queue(queue).expected_helpers.value = expected
            executor.destroy_queue(queue)
            until = time.monotonic_ns() + PATIENCE
            while Queue(queue).pending.value and time.monotonic_ns() < until:
                pass  # a worker that looks for work holds on to it
            again, counters = executor.create_queue(0, 0, False)
            assert (again, counters[0], Queue(again).expected_helpers.value) == (queue, 0, expected)


def test_helpers_that_do_not_come_are_soon_not_expected() -> None:
    """However short the ranges are that are opened meanwhile."""
    with started(2) as executor:
        queue, counters = executor.create_queue(0, 0, False)
        Queue(queue).expected_helpers.value = 1
        entry, last, done = Entry(executor, MS // 1000), Entry(executor, 1), threading.Event()
        entry.before = lambda lo, hi: busy_for(10_000)
        last.before = lambda lo, hi: done.set()
        for _ in range(100):
            value = executor.launch(queue, entry.address, 20, b"", 0)
        executor.launch(queue, last.address, 1, b"", 0)
        assert done.wait(30)  # and not awake, as a helper would
        assert counters[0] >= value and Queue(queue).expected_helpers.value == 0
