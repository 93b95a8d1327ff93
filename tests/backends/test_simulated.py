"""The simulated device: hidden memory, injected latency and failures."""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Iterator
from types import SimpleNamespace

import pytest

from aiodev._core.errors import BackendUnavailableError, DeviceError, DeviceLostError
from aiodev.testing import SimulatedBackend, simulated

_PATIENCE = 10**10


@pytest.fixture
def sim() -> Iterator[SimulatedBackend]:
    """A started simulated backend with two devices."""
    made = SimulatedBackend()
    made.start()
    yield made
    made.stop()


def test_the_host_cannot_read_its_memory(sim: SimulatedBackend) -> None:
    """Device addresses are no host addresses, name their device, and capabilities say so."""
    first, second = sim.allocate(0, 64), sim.allocate(1, 64)
    assert not sim.capabilities.host_accessible
    assert (first >> 56, second >> 56) == (0x10, 0x11)
    assert first < 1 << 63
    sim.deallocate(0, first, 64)
    sim.deallocate(1, second, 64)
    assert sim.memory.allocated(0) == sim.memory.allocated(1) == 0


@pytest.mark.parametrize("overrun", [1, 4096])
def test_illegal_access_fails_the_operation(sim: SimulatedBackend, overrun: int) -> None:
    """A copy beyond an allocation fails as on a real device, at its own place on the timeline."""
    queue, _ = sim.executor.create_queue(0, 0, False)
    address, host = sim.allocate(0, 256), ctypes.create_string_buffer(256 + overrun)
    value = sim.executor.copy(queue, address, ctypes.addressof(host), 256 + overrun)
    assert sim.executor.spin(queue, value, _PATIENCE)
    (fault,) = sim.executor.faults(queue)
    assert fault.first == value and isinstance(fault.error, DeviceError)
    sim.deallocate(0, address, 256)


def test_use_after_free_fails_the_operation(sim: SimulatedBackend) -> None:
    """A fill of memory that was given back in the meantime fails instead of corrupting something."""
    queue, _ = sim.executor.create_queue(0, 0, False)
    address = sim.allocate(0, 256)
    gate = sim.executor.create_gate()
    sim.executor.gate(queue, gate)
    value = sim.executor.fill(queue, address, 256, b"x")
    sim.deallocate(0, address, 256)
    sim.executor.open_gate(gate, False)
    assert sim.executor.spin(queue, value, _PATIENCE)
    assert isinstance(sim.executor.faults(queue)[0].error, DeviceError)


def test_injected_failure_hits_the_chosen_operation(sim: SimulatedBackend) -> None:
    """``fail(error, after=n)`` fails the operation after n that run."""
    queue, _ = sim.executor.create_queue(0, 0, False)
    cells = (ctypes.c_int64 * 3)()
    boom = ValueError("boom")
    sim.fail(boom, after=1)
    for i in range(3):
        value = sim.executor.stamp(queue, ctypes.addressof(cells) + 8 * i)
    assert sim.executor.spin(queue, value, _PATIENCE)
    assert cells[0] and not cells[1] and not cells[2]
    assert [(fault.first, fault.error) for fault in sim.executor.faults(queue)] == [(2, boom)]


def test_injected_allocation_failures_are_counted(sim: SimulatedBackend) -> None:
    """``fail_allocations(n)`` fails n allocations, no more."""
    sim.fail_allocations(2)
    for _ in range(2):
        with pytest.raises(MemoryError):
            sim.allocate(0, 1)
    sim.deallocate(0, sim.allocate(0, 1), 1)


def test_a_lost_device_stays_lost_and_hangs_nobody(sim: SimulatedBackend) -> None:
    """After ``lose`` everything on that device completes as failed, forgiven or not; the other device runs on."""
    lost, _ = sim.executor.create_queue(0, 0, False)
    other, _ = sim.executor.create_queue(1, 0, False)
    cell = ctypes.c_int64()
    sim.lose(0, "fell off the bus")
    for _ in range(2):
        assert sim.executor.spin(lost, sim.executor.stamp(lost, ctypes.addressof(cell)), _PATIENCE)
        error = sim.executor.faults(lost)[-1].error
        assert isinstance(error, DeviceLostError) and error.device == "sim:0" and "bus" in str(error)
        sim.executor.forgive(lost)
    assert sim.executor.spin(other, sim.executor.stamp(other, ctypes.addressof(cell)), _PATIENCE)
    assert cell.value and sim.executor.faults(other) == []


def test_latency_is_added_to_each_operation(sim: SimulatedBackend, monkeypatch: pytest.MonkeyPatch) -> None:
    """Once before each, on the device: who submits does not wait for it."""
    over, slept = threading.Event(), list[float]()

    def sleep(seconds: float) -> None:
        assert over.wait(30)
        slept.append(seconds)

    monkeypatch.setattr(simulated, "time", SimpleNamespace(sleep=sleep))
    sim.latency = 0.05
    queue, _ = sim.executor.create_queue(0, 0, False)
    cell = ctypes.c_int64()
    for _ in range(4):
        value = sim.executor.stamp(queue, ctypes.addressof(cell))
    assert slept == [] and not sim.executor.spin(queue, 1, 0)
    over.set()
    assert sim.executor.spin(queue, value, _PATIENCE)
    assert slept == [0.05] * 4


def test_an_unavailable_device_does_not_start() -> None:
    """A simulated reason is told by discovery and by start."""
    sim = SimulatedBackend(unavailable="no driver")
    assert sim.unavailable_reason() == "no driver" and sim.device_count() == 0
    with pytest.raises(BackendUnavailableError, match="no driver"):
        sim.start()
