"""Entries in Python, to see which pieces of a range are run by whom; and executors to run them."""

from __future__ import annotations

import ctypes
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from aiodev._backends.cpu.executor.executor import NativeExecutor
from aiodev._backends.cpu.structs import Entry as Code, Queue
from aiodev._backends.executor.arena import arena
from aiodev._native.fields import sizeof
from aiodev.testing.latch import _ENTRY

#: How long (ns) to wait for what must happen.
PATIENCE = 10**10
MS = 10**9  #: in ps, as what an index costs is stated

#: Those of all tests: a worker may be in one after its test is over, since an executor that is stopped waits for a moment only.
_entries: list[Entry] = []


class Entry:
    """An entry in Python that records its pieces, and before each one calls ``before(lo, hi)``."""

    def __init__(
        self, executor: NativeExecutor, cost: int, uniform: bool = True, fails_at: int = -1, irregular: bool = False
    ) -> None:
        self.pieces: list[tuple[int, int, int]] = []  #: thread, first index, end
        self.before = lambda lo, hi: None
        self.address = arena.allocate(sizeof(Code))
        self._fails_at = fails_at
        self._callback = _ENTRY(self._run)
        self._code = Code(self.address)
        self._code.uniform, self._code.irregular = uniform, irregular
        self.say_cost(cost)
        _entries.append(self)
        executor.set_entry(self.address, ctypes.cast(self._callback, ctypes.c_void_p).value or 0)

    def _run(self, _result: int, _excinfo: int, _arguments: int, lo: int, hi: int) -> int:
        self.pieces.append((threading.get_ident(), lo, hi))
        self.before(lo, hi)
        return int(lo <= self._fails_at < hi)

    def say_cost(self, cost: int) -> None:
        """What an index is thought to cost from now on: more was measured if the thread lost its core meanwhile."""
        self._code.cost = cost

    def covered(self, size: int) -> bool:
        """Whether the pieces are all of the range, once."""
        spans = sorted((lo, hi) for _, lo, hi in self.pieces)
        return [lo for lo, _ in spans] == [0, *(hi for _, hi in spans[:-1])] and spans[-1][1] == size

    def threads(self) -> set[int]:
        return {thread for thread, _, _ in self.pieces}


def busy_for(duration: int) -> None:
    """Keep a core for so many ns."""
    end = time.thread_time_ns() + duration
    while time.thread_time_ns() < end:
        pass


@contextmanager
def started(threads: int, spin_ns: int = 200_000, reserve: int = 0) -> Iterator[NativeExecutor]:
    """An executor for which the machine is not crowded, unless the test says so, whatever else runs on it."""
    executor = NativeExecutor(1, threads, spin_ns, reserve)
    executor._crowd.span = -1
    executor._crowd.until.value = 0  # its workers have seen something of the machine already
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
        assert executor.spin(queue, value, PATIENCE)


def help_until(
    executor: NativeExecutor, queue: int, value: int, is_done: Callable[[], bool], descriptor: int = -1
) -> None:
    """Help again and again.

    On a busy machine the thread loses its core, and then a wait may seem over, or the queue to have had its turn.
    """
    until = time.monotonic() + 60
    while not is_done():
        assert time.monotonic() < until
        Queue(queue).time.value = 0
        executor.help(queue, value, PATIENCE, descriptor)
