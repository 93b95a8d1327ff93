"""Ranges: every index once, by workers and by threads that wait awake."""

from __future__ import annotations

import ctypes
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from aiodev._backends.cpu import layout
from aiodev._backends.cpu.arena import arena, words_at
from aiodev._backends.cpu.executor import NativeExecutor
from aiodev._backends.cpu.native.ranges import BACK
from aiodev.testing.latch import _ENTRY

_PATIENCE = 10**10
_MS = 10**9  # in ps


class Entry:
    """An entry in Python that records its pieces, and before each one calls ``before(lo, hi)``."""

    def __init__(self, executor: NativeExecutor, cost: int, uniform: bool = True, fails_at: int = -1) -> None:
        self.pieces: list[tuple[int, int, int]] = []  #: thread, first index, end
        self.before = lambda lo, hi: None
        self.address = arena.allocate(layout.ENTRY_BYTES)
        self._fails_at = fails_at
        self._callback = _ENTRY(self._run)
        words = words_at(self.address, layout.ENTRY_BYTES // 8)
        words[layout.E_COST // 8], words[layout.E_UNIFORM // 8] = cost, uniform
        executor.set_entry(self.address, ctypes.cast(self._callback, ctypes.c_void_p).value or 0)

    def _run(self, _result: int, _excinfo: int, _arguments: int, lo: int, hi: int) -> int:
        self.pieces.append((threading.get_ident(), lo, hi))
        self.before(lo, hi)
        return int(lo <= self._fails_at < hi)

    def covered(self, size: int) -> bool:
        """Whether the pieces are all of the range, once."""
        spans = sorted((lo, hi) for _, lo, hi in self.pieces)
        return [lo for lo, _ in spans] == [0, *(hi for _, hi in spans[:-1])] and spans[-1][1] == size

    def threads(self) -> set[int]:
        return {thread for thread, _, _ in self.pieces}


@contextmanager
def started(threads: int, spin_ns: int = 200_000) -> Iterator[NativeExecutor]:
    executor = NativeExecutor(1, threads, spin_ns)
    try:
        yield executor
    finally:
        executor.stop()


@contextmanager
def one_worker_held(executor: NativeExecutor) -> Iterator[None]:
    """Keep one worker busy with something else."""
    entered, release = threading.Event(), threading.Event()
    entry = Entry(executor, 0, uniform=False)

    def hold(lo: int, hi: int) -> None:
        entered.set()
        release.wait(30)

    entry.before = hold
    queue, _ = executor.create_queue(0, 0, False)
    value = executor.launch(queue, entry.address, 1, b"", 0)
    try:
        assert entered.wait(30)
        yield
    finally:
        release.set()
        assert executor.spin(queue, value, _PATIENCE)


@pytest.mark.parametrize("threads", [1, 2, 3])
@pytest.mark.parametrize("size", [1, 2, 63, 64, 65, 129, 1000, 4097])
@pytest.mark.parametrize("cost", [0, 10_000, _MS // 100])
def test_every_index_once(threads: int, size: int, cost: int) -> None:
    """Whatever the size, and what an index is thought to cost."""
    with started(threads) as executor:
        queue, _ = executor.create_queue(0, 0, False)
        for _ in range(4):
            entry = Entry(executor, cost)
            assert executor.spin(queue, executor.launch(queue, entry.address, size, b"", 0), _PATIENCE)
            assert entry.covered(size), entry.pieces


def starts_of(executor: NativeExecutor, queue: int, cost: int, size: int) -> list[int]:
    """Where the pieces of one range begin, in the order in which they are run."""
    entry = Entry(executor, cost)
    assert executor.spin(queue, executor.launch(queue, entry.address, size, b"", 0), _PATIENCE)
    assert entry.covered(size)
    return [lo for _, lo, _ in entry.pieces]


@pytest.mark.parametrize("size", [1000, 1024])
def test_short_ranges_are_run_to_and_fro(size: int) -> None:
    """From the end that was reached last; with whole pieces."""
    with started(1) as executor:
        queue, _ = executor.create_queue(0, 0, False)
        runs = [starts_of(executor, queue, _MS // 50_000, size) for _ in range(4)]
        assert all(len(run) > 1 for run in runs)
        assert [run == sorted(run) for run in runs] in ([True, False] * 2, [False, True] * 2)
        assert all(run == sorted(run, reverse=True) for run in runs if run != sorted(run))
        assert all(start % 64 == 0 for run in runs for start in run)


def test_long_ranges_are_run_one_way() -> None:
    """Their pieces are long, and follow one another."""
    with started(1) as executor:
        queue, _ = executor.create_queue(0, 0, False)
        runs = [starts_of(executor, queue, _MS // 1000, 1000) for _ in range(3)]
        assert all(len(run) > 1 and run == sorted(run) for run in runs)


def test_who_waits_awake_helps() -> None:
    """With the other worker busy, the one that has the range waits in each piece until this thread has had one, too."""
    with started(2) as executor, one_worker_held(executor):
        queue, _ = executor.create_queue(0, 0, False)
        entry, helped, here = Entry(executor, _MS // 100), threading.Event(), threading.get_ident()

        def before(lo: int, hi: int) -> None:
            if threading.get_ident() == here:
                helped.set()
            else:
                assert helped.wait(30)

        entry.before = before
        value = executor.launch(queue, entry.address, 1000, b"", 0)
        following = executor.launch(queue, Entry(executor, 1).address, 1, b"", 0)  # which a worker has to go on with
        assert executor.spin(queue, value, _PATIENCE)
        assert entry.covered(1000)
        assert len(entry.threads()) == 2 and here in entry.threads()
        assert executor.spin(queue, following, _PATIENCE)


@pytest.mark.parametrize(("cost", "uniform"), [(_MS // 100, False), (10_000 * _MS, True)])
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
        entry, both, lock = Entry(executor, 10_000 * _MS), threading.Event(), threading.Lock()

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


def test_a_worker_comes_where_guests_are_expected_and_do_not() -> None:
    """As after a range that guests helped with: the worker that opens the next one wakes the other when it is time."""
    with started(2, spin_ns=0) as executor:
        queue, _ = executor.create_queue(0, 0, False)
        words_at(queue, layout.QUEUE_BYTES // 8)[layout.Q_RANGE_GUESTS // 8] = 1
        entry, last, both, done = Entry(executor, _MS // 100), Entry(executor, 1), threading.Event(), threading.Event()

        def before(lo: int, hi: int) -> None:
            if len(entry.threads()) == 2:
                both.set()
            if len(entry.pieces) > 1:
                assert both.wait(20)
            late = time.monotonic_ns() + 2 * BACK
            while time.monotonic_ns() < late:
                pass

        entry.before = before
        last.before = lambda lo, hi: done.set()
        executor.launch(queue, entry.address, 1000, b"", 0)
        value = executor.launch(queue, last.address, 1, b"", 0)
        assert done.wait(30)  # and not awake, as a guest would
        assert entry.covered(1000) and len(entry.threads()) == 2
        assert executor.spin(queue, value, _PATIENCE)


def test_what_a_guest_leaves_others_finish() -> None:
    """A thread that stops waiting leaves the range to a worker that was not woken for its sake."""
    with started(2) as executor:
        queue, _ = executor.create_queue(0, 0, False)
        for _ in range(50):
            entry = Entry(executor, _MS // 20)
            value = executor.launch(queue, entry.address, 200, b"", 0)
            executor.spin(queue, value, 100_000)
            assert executor.spin(queue, value, _PATIENCE)
            assert entry.covered(200)


def test_a_failure_ends_the_range() -> None:
    """No more pieces are handed out, and the queue goes on."""
    with started(2) as executor:
        queue, _ = executor.create_queue(0, 0, False)
        for _ in range(10):
            entry = Entry(executor, _MS // 100, fails_at=500)
            assert executor.spin(queue, executor.launch(queue, entry.address, 1000, b"", 0), _PATIENCE)
            assert any(lo <= 500 < hi for _, lo, hi in entry.pieces)
            executor.forgive(queue)
            entry = Entry(executor, _MS // 100)
            assert executor.spin(queue, executor.launch(queue, entry.address, 1000, b"", 0), _PATIENCE)
            assert entry.covered(1000)
