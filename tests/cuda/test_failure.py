"""What the driver refuses, and devices that are lost."""

from __future__ import annotations

import ctypes
import struct
from collections.abc import Callable
from typing import Any

import pytest
import standin

from aiodev._backends.cuda import CUDABackend
from aiodev._backends.cuda.driver import DriverError
from aiodev._core.backend.interface import FAULTS, KernelSpec

#: ns that nothing takes
PATIENCE = 30_000_000_000
INVALID_VALUE, LAUNCH_FAILED = 1, 719


@pytest.mark.parametrize(
    ("function", "submit"),
    [
        ("cuMemsetD8Async", lambda b, q, m: b.fill(q, m, 8, b"\1")),
        ("cuMemsetD16Async", lambda b, q, m: b.fill(q, m, 8, b"\1\2")),
        ("cuMemsetD32Async", lambda b, q, m: b.fill(q, m, 8, b"\1\2\3\4")),
        ("cuMemsetD2D32Async", lambda b, q, m: b.fill(q, m, 8, bytes(range(16)))),
        ("cuMemcpyAsync", lambda b, q, m: b.copy(q, m, m + 512, 8)),
        ("cuLaunchHostFunc", lambda b, q, m: b.stamp(q, m)),
    ],
)
def test_a_refused_call_fails_its_operation(
    function: str, submit: Callable[[Any, int, int], int], backend: CUDABackend, driver: standin.StandIn
) -> None:
    """The operation fails with the driver's name and number; the queue is as usable as after any failure."""
    queue, counters = backend.executor.create_queue(0, 0, False)
    memory = backend.allocate(0, 1024)
    assert backend.executor.spin(queue, backend.executor.fill(queue, memory, 1024, b"\0"), PATIENCE)
    driver.inject(function, INVALID_VALUE)
    failed = submit(backend.executor, queue, memory)
    behind = backend.executor.fill(queue, memory, 1, b"\xff")
    assert backend.executor.spin(queue, behind, PATIENCE)
    (fault,) = backend.executor.faults(queue)
    assert (fault.first, fault.last) == (failed, None) and isinstance(fault.error, DriverError)
    assert fault.error.status == INVALID_VALUE and "cuda:0" in str(fault.error)
    backend.executor.forgive(queue)
    assert backend.executor.spin(queue, backend.executor.fill(queue, memory, 1, b"\xff"), PATIENCE)
    assert len(backend.executor.faults(queue)) == 1 and counters[FAULTS] == 1
    backend.executor.destroy_queue(queue)
    backend.deallocate(0, memory, 1024)


def test_a_refused_launch_fails_itself(backend: CUDABackend, driver: standin.StandIn) -> None:
    """A launch that the driver refuses fails alone; what is behind it does not run, and the queue runs again later."""
    entry = backend.load(KernelSpec("add_one", _add_one, 1, ("A1i8C",)), "")
    queue, _ = backend.executor.create_queue(0, 0, False)
    memory = backend.allocate(0, 64)
    block = struct.pack("<qqq", 8, memory, 8)
    backend.executor.fill(queue, memory, 8, bytes(8))
    driver.inject("cuLaunchKernel", 701)
    failed = backend.executor.launch(queue, entry, 8, block, 0)
    assert backend.executor.spin(queue, backend.executor.launch(queue, entry, 8, block, 0), PATIENCE)
    (fault,) = backend.executor.faults(queue)
    assert fault.first == failed and isinstance(fault.error, DriverError) and fault.error.status == 701
    backend.executor.forgive(queue)
    backend.executor.launch(queue, entry, 8, block, 0)
    found = (ctypes.c_int64 * 8)()
    assert backend.executor.spin(queue, backend.executor.copy(queue, ctypes.addressof(found), memory, 64), PATIENCE)
    assert list(found) == [1] * 8
    backend.executor.destroy_queue(queue)
    backend.deallocate(0, memory, 64)


def _add_one(i: int, x: Any) -> None:
    x[i] += 1


@pytest.mark.parametrize("function", ["cuStreamWriteValue64", "cuLaunchHostFunc"])
@pytest.mark.parametrize("status", [1, 700, 719])
def test_no_wait_hangs_whatever_the_driver_refuses(function: str, status: int, run: Callable[..., str]) -> None:
    """Not even when it refuses to say that something is done: then the device counts as lost, soon."""
    said = run(
        f"""
import time
backend.start()
queue, counters = backend.executor.create_queue(0, 0, False)
cell = backend.allocate_pinned(0, 8)
driver.inject({function!r}, {status})
value = backend.executor.stamp(queue, cell)
assert backend.executor.spin(queue, value, 30 * 10**9)
while not (faults := backend.executor.faults(queue)):
    time.sleep(0.001)
print(type(faults[0].error).__name__)
"""
    )
    lost = status >= 700 or function == "cuStreamWriteValue64"
    assert said == ("DeviceLostError\n" if lost else "DriverError\n")


def test_memory_that_the_driver_has_not(backend: CUDABackend, driver: standin.StandIn) -> None:
    """Running out of memory is a MemoryError; what else the driver refuses names itself and what was being done."""
    driver.inject("cuMemAlloc", 2)
    with pytest.raises(MemoryError, match="4,096 bytes on cuda:1"):
        backend.allocate(1, 4096)
    driver.inject("cuMemAlloc", INVALID_VALUE)
    with pytest.raises(DriverError, match="allocating 4,096 bytes on cuda:1") as caught:
        backend.allocate(1, 4096)
    assert caught.value.status == INVALID_VALUE


def test_contexts_are_left_as_they_were(backend: CUDABackend, library: str) -> None:
    """Whoever else uses the driver on this thread finds the context that was current before."""
    current = backend.executor.driver
    other = backend.executor.devices[1].context
    queue, _ = backend.executor.create_queue(0, 0, False)
    memory = backend.allocate(0, 64)
    with current.bound(other):
        value = backend.executor.fill(queue, memory, 64, b"\0")
        gate = backend.executor.create_gate()
        backend.executor.gate(queue, gate)
        backend.executor.open_gate(gate, False)
        backend.deallocate(0, backend.allocate(0, 64), 64)
        assert current.number("cuCtxGetCurrent", doing="asking") == other
    assert backend.executor.spin(queue, value + 1, PATIENCE)
    backend.deallocate(0, memory, 64)
    backend.executor.destroy_queue(queue)


def test_no_driver() -> None:
    """Without a driver the reason says so, nothing is counted, and nothing can be started."""
    missing = CUDABackend(library="libno-such-driver.so.1")
    assert "no NVIDIA driver" in str(missing.unavailable_reason())
    assert missing.device_count() == 0


@pytest.mark.parametrize(
    ("environment", "reason"),
    [({"STANDIN_DEVICES": "0"}, "cuInit|NO_DEVICE|no CUDA device|starting the driver")],
)
def test_no_device(run: Callable[..., str], environment: dict[str, str], reason: str) -> None:
    """With a driver but no device the reason says that."""
    said = run("print(backend.device_count(), backend.unavailable_reason())", **environment)
    assert said.startswith("0 ") and said != "0 None\n"


def test_counting_starts_no_driver_here(run: Callable[..., str]) -> None:
    """Asking how many devices there are leaves this process able to fork."""
    said = run("print(backend.device_count(), driver.count('cuInit'), backend.device_properties(1).extra['uuid'])")
    assert said == "2 0 GPU-02020202-0202-0202-0202-020202020202\n"


LOSING = """
import os, select, time
from aiodev._core.backend.interface import COMPLETED
backend.start()
queue, counters = backend.executor.create_queue(0, 0, False)
held, _ = backend.executor.create_queue(0, 0, False)
memory = backend.allocate(0, 64)
driver.latency(3600.0)
{before}
value = backend.executor.fill(queue, memory, 64, b"x")
gate = backend.executor.create_gate()
behind = backend.executor.gate(held, gate)
reading, writing = os.pipe()
os.set_blocking(writing, False)
waker = backend.executor.create_waker(writing)
assert backend.executor.arm(queue, value, waker) and backend.executor.arm(held, behind, waker)
driver.lose(719)
begin = time.perf_counter()
found = set()
while found != {{queue, held}}:
    assert select.select([reading], [], [], 10)[0], "a waiter hangs"
    os.read(reading, 8)
    found.update(backend.executor.collect(waker))
print(round(time.perf_counter() - begin, 3))
for q in (queue, held):
    fault = backend.executor.faults(q)[-1]
    assert type(fault.error).__name__ == "DeviceLostError" and "cuda:0" in str(fault.error), fault
    backend.executor.forgive(q)
    later = backend.executor.fill(q, memory, 64, b"y")
    assert backend.executor.spin(q, later, 30 * 10**9)
    assert type(backend.executor.faults(q)[-1].error).__name__ == "DeviceLostError"
backend.executor.open_gate(gate, False)
"""


def test_a_lost_device_reaches_every_waiter(run: Callable[..., str]) -> None:
    """Work in flight, work behind a gate, and all that is submitted later: everything fails, nothing hangs, soon."""
    assert float(run(LOSING.format(before=""))) < 5.0


CHOOSING = """
from aiodev._core.config import settings
backend.settings = dataclasses.replace(settings, cuda_wait={way!r})
"""


@pytest.mark.parametrize(("way", "function"), [("callback", "cuLaunchHostFunc"), ("event", "cuEventSynchronize")])
def test_settings_decide_how_waits_end(way: str, function: str, run: Callable[..., str]) -> None:
    """Announced by the driver, or waited for in it, instead of polled for, waits end as well."""
    said = run(
        CHOOSING.format(way=way)
        + f"""
from aiodev.testing import check_backend
backend.start()
names = [r for r in ("an_armed_waker_fires_once", "arming_lower_replaces", "wake_ups_coalesce", "no_wake_up_is_lost")]
print(len(check_backend(backend, rules=names).kept), driver.count({function!r}) > 0)
"""
    )
    assert said == "4 True\n"


def test_what_others_hand_on_is_announced(run: Callable[..., str]) -> None:
    """Who waits for what a gate holds is told by the driver, though the poller was told of the wait before it was under way."""
    said = run(
        CHOOSING.format(way="callback")
        + """
import os, select, time
from aiodev._backends.cuda.structs import SLEEP_DEEP
backend.start()
queue, _ = backend.executor.create_queue(0, 0, False)
memory = backend.allocate(0, 64)
gate = backend.executor.create_gate()
gated = backend.executor.gate(queue, gate)
value = backend.executor.fill(queue, memory, 8, b"x")
reading, writing = os.pipe()
waker = backend.executor.create_waker(writing)
assert backend.executor.arm(queue, value, waker)
while backend.executor.devices[0].native.sleep.value != SLEEP_DEEP:
    time.sleep(0.001)
before = driver.count("cuLaunchHostFunc")
backend.executor.open_gate(gate, False)
told = bool(select.select([reading], [], [], 30)[0])
print(driver.count("cuLaunchHostFunc") - before, told)
"""
    )
    assert said == "1 True\n"


def test_how_long_cuda_looks_without_a_pause_is_a_setting_of_its_own(run: Callable[..., str]) -> None:
    """The CPU's workers have another: what is good for cores that compute is not what is good for a thread that looks."""
    said = run(
        """
from aiodev._core.config import settings
backend.settings = dataclasses.replace(settings, worker_spin_us=9, cuda_spin_us=7)
backend.start()
print([device.native.spin for device in backend.executor.devices])
"""
    )
    assert said == "[7000, 7000]\n"


PARKED = """
import asyncio
async def main():
    driver.latency(0.05)
    streams = [aiodev.Stream("cuda") for _ in range(40)]
    x = [aiodev.zeros(8, "i4", "cuda") for _ in streams]
    await asyncio.gather(*(stream.copy(y, y).synchronize() for stream, y in zip(streams, x)))
    print(sum(stream.query() for stream in streams))
asyncio.run(main())
"""


def test_more_streams_are_awaited_than_threads_wait(run: Callable[..., str]) -> None:
    """Forty streams' waiters with eight threads in the driver: the others are looked after by polling, and all are woken."""
    assert run(CHOOSING.format(way="event") + PARKED) == "40\n"


@pytest.mark.parametrize("way", ["callback", "event"])
def test_a_lost_device_reaches_every_waiter_whoever_watches(way: str, run: Callable[..., str]) -> None:
    """Host functions are not called any more, and waits in the driver fail: the health check finds it all the same."""
    choice = CHOOSING.format(way=way)
    assert float(run(choice + LOSING.format(before=""))) < 5.0


def test_a_driver_that_is_too_old(run: Callable[..., str]) -> None:
    """The reason says what the driver is for and what is needed."""
    said = run(
        """
from aiodev._backends.cuda.driver import Driver
driver._library.standin_version(11080)
try:
    Driver(library)
except aiodev.BackendUnavailableError as error:
    print(error.reason)
"""
    )
    assert "11.8" in said and "12.0" in said


def test_a_lost_device_takes_memory_back(run: Callable[..., str]) -> None:
    """Giving memory back is no error any more, since it is gone; asking for some says that the device is lost."""
    said = run(
        """
backend.start()
start = backend.reserve_range(0, 4 << 20)
backend.map_range(0, start, 4 << 20)
address, pinned = backend.allocate(0, 64), backend.allocate_pinned(0, 64)
driver.lose(719)
backend.unmap_range(0, start, 4 << 20)
backend.release_range(0, start, 4 << 20)
backend.deallocate(0, address, 64)
backend.deallocate_pinned(0, pinned)
for ask in (backend.allocate, backend.reserve_range, backend.allocate_pinned):
    try:
        ask(0, 2 << 20)
    except aiodev.DeviceLostError as error:
        print(error.device)
"""
    )
    assert said == "cuda:0\n" * 3


def test_each_architecture_explains_its_own_failures(run: Callable[..., str]) -> None:
    """Devices of different capabilities have different images, whose statuses need not mean the same."""
    said = run(
        """
import dataclasses, struct
from aiodev._core.backend.interface import KernelSpec

def fail(i, x):
    raise ValueError("no")

class Marked(standin.StandInCompiler):
    def load_image(self, spec, directory, architecture):
        image = super().load_image(spec, directory, architecture)
        explain = lambda kernel, status: aiodev.KernelError(kernel, f"sm_{architecture[0]}{architecture[1]}")
        words = {"cubin": image.cubin, "symbol": image.symbol, "exceptions": True, "explain": staticmethod(explain)}
        return type("Image", (), words)

backend._compiler = Marked()
backend.start()
entry = backend.load(KernelSpec("fail", fail, 1, ("A1i8C",)), "")
for index in (0, 1):
    queue, _ = backend.executor.create_queue(index, 0, False)
    memory = backend.allocate(index, 64)
    last = backend.executor.launch(queue, entry, 1, struct.pack("<qqq", 1, memory, 8), 0)
    assert backend.executor.spin(queue, last, 30 * 10**9)
    print(str(backend.executor.faults(queue)[0].error).split("sm_")[1][:2])
""",
        STANDIN_MIXED="1",
    )
    assert said == "90\n80\n"


@pytest.mark.parametrize("function", ["cuLaunchHostFunc", "cuMemsetD8Async", "cuMemcpyAsync"])
def test_what_loses_the_device_is_not_completed_by_it(function: str, run: Callable[..., str]) -> None:
    """A call that tells of the loss was not carried out: the stream is not asked to write that it was."""
    said = run(
        f"""
backend.start()
queue, counters = backend.executor.create_queue(0, 0, False)
memory, cell = backend.allocate(0, 64), backend.allocate_pinned(0, 8)
assert backend.executor.spin(queue, backend.executor.fill(queue, memory, 64, b"x"), 30 * 10**9)
submit = {{
    "cuLaunchHostFunc": lambda: backend.executor.stamp(queue, cell),
    "cuMemsetD8Async": lambda: backend.executor.fill(queue, memory, 8, b"y"),
    "cuMemcpyAsync": lambda: backend.executor.copy(queue, memory, memory + 32, 8),
}}[{function!r}]
driver.inject({function!r}, 700)
before = driver.count("cuStreamWriteValue64")
value = submit()
assert backend.executor.spin(queue, value, 30 * 10**9)
(fault,) = backend.executor.faults(queue)
print(fault.first == value, type(fault.error).__name__, driver.count("cuStreamWriteValue64") - before)
"""
    )
    assert said == "True DeviceLostError 0\n"


def test_a_failure_that_cannot_be_cleared_fails_what_follows(backend: CUDABackend, driver: standin.StandIn) -> None:
    """Kernels pass themselves over while the device's record of a failure stands: then an operation fails, instead of that."""
    fails = backend.load(KernelSpec("fails", _fails, 1, ("A1i8C",)), "")
    queue, _ = backend.executor.create_queue(0, 0, False)
    memory = backend.allocate(0, 64)
    block = struct.pack("<qqq", 8, memory, 8)
    backend.executor.fill(queue, memory, 8, struct.pack("<q", -1))
    assert backend.executor.spin(queue, backend.executor.launch(queue, fails, 8, block, 0), PATIENCE)
    backend.executor.forgive(queue)
    driver.inject("cuMemsetD32Async", INVALID_VALUE)
    refused = backend.executor.launch(queue, fails, 8, block, 0)
    assert backend.executor.spin(queue, refused, PATIENCE)
    *_, fault = backend.executor.faults(queue)
    assert fault.first == refused and isinstance(fault.error, DriverError)
    backend.executor.forgive(queue)
    backend.executor.fill(queue, memory, 8, struct.pack("<q", 3))
    backend.executor.launch(queue, fails, 8, block, 0)
    found = (ctypes.c_int64 * 8)()
    assert backend.executor.spin(queue, backend.executor.copy(queue, ctypes.addressof(found), memory, 64), PATIENCE)
    assert list(found) == [4] * 8 and len(backend.executor.faults(queue)) == 2
    backend.executor.destroy_queue(queue)
    backend.deallocate(0, memory, 64)


def test_a_queue_that_ended_with_a_failure_begins_anew(backend: CUDABackend) -> None:
    """Whoever has it next finds no failure, and kernels that can fail run."""
    fails = backend.load(KernelSpec("fails", _fails, 1, ("A1i8C",)), "")
    memory = backend.allocate(0, 64)
    block = struct.pack("<qqq", 8, memory, 8)
    queue, counters = backend.executor.create_queue(0, 0, False)
    backend.executor.fill(queue, memory, 8, struct.pack("<q", -1))
    assert backend.executor.spin(queue, backend.executor.launch(queue, fails, 8, block, 0), PATIENCE) and counters[FAULTS]
    backend.executor.destroy_queue(queue)
    again = 0
    others = []
    while again != queue:
        again, counters = backend.executor.create_queue(0, 0, False)
        others.append(again)
    assert not counters[FAULTS]
    launched = backend.executor.launch(again, fails, 0, block, 0)
    backend.executor.fill(again, memory, 8, struct.pack("<q", 3))
    backend.executor.launch(again, fails, 8, block, 0)
    found = (ctypes.c_int64 * 8)()
    assert backend.executor.spin(again, backend.executor.copy(again, ctypes.addressof(found), memory, 64), PATIENCE)
    assert launched == 1 and list(found) == [4] * 8 and not backend.executor.faults(again)
    for other in others:
        backend.executor.destroy_queue(other)
    backend.deallocate(0, memory, 64)


def _fails(i: int, x: Any) -> None:
    if x[i] < 0:
        raise ValueError("negative")
    x[i] += 1
