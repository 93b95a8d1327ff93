"""Streams of other libraries, by their handles, and copies from and to ordinary memory."""

from __future__ import annotations

import ctypes
from collections.abc import Iterator

import pytest
import standin

from aiodev._backends.cuda import CUDABackend
from aiodev._core.backend import COMPLETED

SECOND = 1_000_000_000


@pytest.fixture
def foreign(backend: CUDABackend) -> Iterator[int]:
    """A CUstream that somebody else made."""
    driver, device = backend.executor.driver, backend.executor.devices[0]
    with driver.bound(device.context):
        stream = driver.number("cuStreamCreateWithPriority", 1, 0, doing="making a stream")
        yield stream
        driver.call("cuStreamDestroy", stream, doing="destroying a stream")


def test_a_queue_waits_for_a_foreign_stream(backend: CUDABackend, foreign: int) -> None:
    """For what that stream was given before, and for nothing that it is given later."""
    driver = backend.executor.driver
    device = backend.executor.devices[0]
    word = (ctypes.c_int64 * 1).from_address(device.memory.allocate_pinned(8))
    word[0] = 0
    queue, counters = backend.create_queue(0, 0, False)
    driver.call("cuStreamWaitValue64", foreign, ctypes.addressof(word), 1, 0, doing="holding a stream")
    held = backend.wait_foreign(queue, foreign)
    driver.call("cuStreamWaitValue64", foreign, ctypes.addressof(word), 2, 0, doing="holding a stream")
    assert not backend.spin(queue, held, 2_000_000) and counters[COMPLETED] == 0
    word[0] = 1
    assert backend.spin(queue, held, SECOND)
    word[0] = 2
    backend.destroy_queue(queue)


def test_a_foreign_stream_waits_for_a_queue(backend: CUDABackend, foreign: int) -> None:
    """For a value that is on its way; behind a shut gate the answer is no, and the caller waits by itself."""
    queue, _ = backend.create_queue(0, 0, False)
    memory = backend.allocate(0, 64)
    value = backend.fill(queue, memory, 64, b"\0")
    assert backend.foreign_wait(foreign, queue, value)
    gated, gate = backend.gate(queue)
    assert not backend.foreign_wait(foreign, queue, gated)
    backend.open_gate(gate, False)
    assert backend.spin(queue, gated, SECOND)
    assert backend.foreign_wait(foreign, queue, gated)
    backend.destroy_queue(queue)
    backend.deallocate(0, memory, 64)


@pytest.mark.parametrize("nbytes", [1, 4 << 20, (9 << 20) + 7])
def test_ordinary_memory_goes_through_page_locked_memory(
    nbytes: int, backend: CUDABackend, driver: standin.StandIn
) -> None:
    """Of any size, in pieces that keep their order, without the driver ever seeing an address that it does not know."""
    queue, _ = backend.create_queue(0, 0, False)
    memory = backend.allocate(0, nbytes)
    host = bytes(range(251)) * (nbytes // 251 + 1)
    source = ctypes.create_string_buffer(host[:nbytes], nbytes)
    target = ctypes.create_string_buffer(nbytes)
    backend.copy(queue, memory, ctypes.addressof(source), nbytes)
    backend.fill(queue, memory, 1, b"\xee")
    done = backend.copy(queue, ctypes.addressof(target), memory, nbytes)
    assert backend.spin(queue, done, 20 * SECOND)
    assert target.raw == b"\xee" + host[1:nbytes]
    backend.destroy_queue(queue)
    backend.deallocate(0, memory, nbytes)
