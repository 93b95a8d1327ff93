"""Withdrawing what the driver does not have yet; what was handed to it has begun."""

from __future__ import annotations

import ctypes

from aiodev._backends.cuda import CUDABackend
from aiodev._backends.cuda.tuning import WINDOW
from aiodev._core.backend.interface import Fault

#: ns that nothing takes
PATIENCE = 30_000_000_000


def test_what_the_driver_has_is_not_withdrawn(backend: CUDABackend) -> None:
    """Behind work that does not end, as many operations as the window has are handed on and run; the others do not."""
    queue, _ = backend.executor.create_queue(0, 0, True)
    memory, count, word = backend.allocate(0, 4096), 3 * WINDOW, backend.allocate_pinned(0, 64)
    assert backend.executor.spin(queue, backend.executor.fill(queue, memory, 4096, b"\0"), PATIENCE)
    ctypes.memset(word, 0, 8)
    driver, device = backend.executor.driver, backend.executor.devices[0]
    with driver.bound(device.context):
        driver.call("cuStreamWaitValue64", backend.executor.handle_of(queue), word, 1, 0, doing="holding a stream")
    for i in range(count):
        backend.executor.fill(queue, memory + i, 1, b"\1")
    issued, last = WINDOW + 1, count + 1
    assert backend.executor.withdraw(queue, issued, last, False) == 0
    assert backend.executor.withdraw(queue, 2, last, True) == issued + 1
    ctypes.memset(word, 1, 1)
    assert backend.executor.spin(queue, last, PATIENCE)
    found = (ctypes.c_char * count)()
    assert backend.executor.spin(queue, backend.executor.copy(queue, ctypes.addressof(found), memory, count), PATIENCE)
    assert found.raw == b"\1" * WINDOW + bytes(count - WINDOW)
    assert backend.executor.faults(queue) == [Fault(issued + 1, last, None, withdrawn=True)]
    backend.executor.destroy_queue(queue)
    backend.deallocate(0, memory, 4096)
    backend.deallocate_pinned(0, word)
