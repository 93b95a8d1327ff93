"""Withdrawing behind work that runs: what waits for a worker has not begun, what a worker has in hand has."""

from __future__ import annotations

import ctypes
import threading

import pytest

from aiodev._backends.cpu.host import HostBackend
from aiodev._core.backend.interface import Fault
from aiodev.testing import held_workers

_ENTRY = ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.c_void_p, ctypes.c_void_p, *[ctypes.c_int64] * 3)


class Held:
    """A kernel that notes what it ran, and waits in its first piece until it is let go."""

    def __init__(self, cpu: HostBackend) -> None:
        self.entered, self.release = threading.Event(), threading.Event()
        self.ran: list[int] = []
        self.entry = cpu.reserve_entry()
        if cpu.executor.kind == "native":
            self._callback = _ENTRY(lambda result, excinfo, arguments, lo, hi: self.run(lo, hi))
            cpu.executor.set_entry(self.entry, ctypes.cast(self._callback, ctypes.c_void_p).value or 0)
        else:
            cpu.executor.set_entry(self.entry, lambda arguments, lo, hi: self.run(lo, hi))

    def run(self, lo: int, hi: int) -> int:
        self.ran += range(lo, hi)
        self.entered.set()
        assert self.release.wait(30)
        return 0


@pytest.fixture
def queue(cpu: HostBackend, request: pytest.FixtureRequest) -> int:
    """A queue, which is given back when it is idle."""
    made, _ = cpu.executor.create_queue(0, 0, False)
    request.addfinalizer(lambda: cpu.executor.destroy_queue(made))
    return made


def finish(cpu: HostBackend, queue: int, value: int) -> None:
    assert cpu.executor.spin(queue, value, 30 * 10**9)


def test_a_queue_that_waits_for_a_worker_has_not_begun(cpu: HostBackend, queue: int) -> None:
    """Its very first operation can be withdrawn, however long others keep the workers."""
    with held_workers(cpu):
        for value in range(1, 6):
            assert cpu.executor.fill(queue, 0, 0, b"x") == value
        assert cpu.executor.withdraw(queue, 1, 3, False) == 1
        assert not cpu.executor.spin(queue, 1, 0)
    finish(cpu, queue, 5)
    assert cpu.executor.faults(queue) == [Fault(1, 3, None, withdrawn=True)]


@pytest.mark.parametrize("size", [1, 1 << 16], ids=["call", "range"])
def test_what_runs_has_begun_and_what_is_behind_has_not(cpu: HostBackend, queue: int, size: int) -> None:
    """A kernel that a worker is inside of runs to its last index; the operation behind it can be withdrawn."""
    held, behind = Held(cpu), Held(cpu)
    cpu.executor.launch(queue, held.entry, size, b"", 0)
    last = cpu.executor.launch(queue, behind.entry, 1, b"", 0)
    assert held.entered.wait(30)
    assert cpu.executor.withdraw(queue, 1, 2, False) == 0
    assert cpu.executor.withdraw(queue, 1, 2, True) == 2
    held.release.set()
    finish(cpu, queue, last)
    assert sorted(held.ran) == list(range(size)) and behind.ran == []
    assert cpu.executor.faults(queue) == [Fault(2, 2, None, withdrawn=True)]


def test_withdrawals_in_the_middle_of_a_range_end_nothing_else(cpu: HostBackend, queue: int) -> None:
    """What is withdrawn one by one behind a range is passed one by one; the range and the operations between run."""
    held = Held(cpu)
    cpu.executor.launch(queue, held.entry, 1 << 16, b"", 0)
    assert held.entered.wait(30)
    for _ in range(100):
        cpu.executor.fill(queue, 0, 0, b"x")
    for value in range(2, 102, 2):
        assert cpu.executor.withdraw(queue, value, value, False) == value
    held.release.set()
    finish(cpu, queue, 101)
    assert sorted(held.ran) == list(range(1 << 16))
    assert [fault.first for fault in cpu.executor.faults(queue)][-32:] == list(range(2, 102, 2))[-32:]


def test_threads_withdraw_at_once(cpu: HostBackend, queue: int) -> None:
    """Withdrawals from several threads are all kept, and each is answered."""
    gate = cpu.executor.create_gate()
    cpu.executor.gate(queue, gate)
    for _ in range(400):
        cpu.executor.fill(queue, 0, 0, b"x")

    def withdraw(start: int) -> None:
        for value in range(2 + start, 402, 4):
            assert cpu.executor.withdraw(queue, value, value, False) == value

    threads = [threading.Thread(target=withdraw, args=(n,)) for n in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    cpu.executor.open_gate(gate, False)
    finish(cpu, queue, 401)
    assert all(fault.withdrawn and fault.last == fault.first + 2 for fault in cpu.executor.faults(queue))
