"""Streams of ours on other libraries' CUstreams, and the other way round."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import standin

import aiodev
from aiodev._backends.cuda import CUDABackend
from aiodev._core.streams.native_calls import external_handle

#: ns that nothing takes
PATIENCE = 30_000_000_000
LEGACY = 1


@pytest.fixture
def foreign(backend: CUDABackend) -> Iterator[int]:
    """A CUstream that somebody else made on cuda:1."""
    driver, device = backend.executor.driver, backend.executor.devices[1]
    with driver.bound(device.context):
        stream = driver.number("cuStreamCreateWithPriority", 1, 0, doing="making a stream")
    yield stream
    with driver.bound(device.context):
        driver.call("cuStreamDestroy", stream, doing="destroying a stream")


def test_work_goes_to_the_other_librarys_stream(backend: CUDABackend, foreign: int) -> None:
    """Behind what that library submitted before, and before what it submits next; the queue's place is used again."""
    driver, device = backend.executor.driver, backend.executor.devices[1]
    word = (ctypes.c_int64 * 2).from_address(backend.allocate_pinned(1, 16))
    word[0] = word[1] = 0
    here = ctypes.addressof(word)
    with driver.bound(device.context):
        driver.call("cuStreamWaitValue64", foreign, here, 1, 0, doing="holding a stream")
    seen = set()
    for turn in (1, 2):
        queue, _ = backend.executor.adopt_stream(1, foreign)
        seen.add(queue)
        assert backend.executor.handle_of(queue) == foreign
        filled = backend.executor.fill(queue, here + 8, 8, bytes([turn]))
        with driver.bound(device.context):
            driver.call("cuMemsetD8Async", here + 15, 9, 1, foreign, doing="writing")
        if turn == 1:
            assert not backend.executor.spin(queue, filled, 1_000_000)
            word[0] = 1
        last = backend.executor.fill(queue, here + 8, 1, b"\7")
        assert backend.executor.spin(queue, last, PATIENCE)
        assert list(word.__class__.from_address(here))[1] == int.from_bytes(bytes([7, *[turn] * 6, 9]), "little")
        backend.executor.destroy_queue(queue)
    assert len(seen) == 1
    backend.deallocate_pinned(1, here)


def test_a_thousand_rounds_keep_their_order(backend: CUDABackend, foreign: int) -> None:
    """However much is pending, what is submitted in turn to one stream, here and by its owner, is done in turn."""
    driver, device = backend.executor.driver, backend.executor.devices[1]
    rounds = 1000  # some are more than a channel has room for, so the stream is let go of meanwhile
    word = (ctypes.c_int64 * 1).from_address(backend.allocate_pinned(1, 8))
    word[0] = 0
    memory, seen = backend.allocate(1, 64), backend.allocate(1, rounds)
    queue, _ = backend.executor.adopt_stream(1, foreign)
    with driver.bound(device.context):
        driver.call("cuStreamWaitValue64", foreign, ctypes.addressof(word), 1, 0, doing="holding a stream")
        for turn in range(rounds):
            if turn == 300:
                word[0] = 1
            backend.executor.fill(queue, memory, 1, bytes([turn % 251]))
            driver.call("cuMemcpyAsync", seen + turn, memory, 1, foreign, doing="reading")
    found = (ctypes.c_uint8 * rounds)()
    assert backend.executor.spin(queue, backend.executor.copy(queue, ctypes.addressof(found), seen, rounds), PATIENCE)
    assert list(found) == [turn % 251 for turn in range(rounds)]
    backend.executor.destroy_queue(queue)
    for address, nbytes in ((memory, 64), (seen, rounds)):
        backend.deallocate(1, address, nbytes)


PENDING = """
import ctypes, struct, threading, time
from aiodev._core.backend.interface import Command, KernelSpec
from aiodev._core.streams.native_calls import pack

def line(i, x):
    x[i] = i

backend.start()
calls, device = backend.executor.driver, backend.executor.devices[0]
word = (ctypes.c_int64 * 1).from_address(backend.allocate_pinned(0, 8))
word[0] = 0
memory = backend.allocate(0, 64)
ours, counters = backend.executor.create_queue(0, 0, False)
done = backend.executor.fill(ours, memory, 1, b"x")
assert backend.executor.spin(ours, done, 30 * 10**9)
with calls.bound(device.context):
    theirs = calls.number("cuStreamCreateWithPriority", 1, 0, doing="making a stream")
    calls.call("cuStreamWaitValue64", theirs, ctypes.addressof(word), 1, 0, doing="holding a stream")
    calls_seen = []
    called = ctypes.CFUNCTYPE(None, ctypes.c_void_p)(lambda _: calls_seen.append(sys.stdout.write("called\\n")))
    calls.call("cuLaunchHostFunc", theirs, called, None, doing="calling Python")

def until(condition):
    while not condition():
        time.sleep(0.001)

def let_go(condition):
    def run():
        until(condition)
        word[0] = 1
    threading.Thread(target=run).start()
"""


@pytest.mark.parametrize(
    "program",
    [
        """
let_go(lambda: driver.count("cuCtxSynchronize") > 0)
backend.executor.call_native(ours, pack([(calls.address("cuCtxSynchronize"),)], None))
""",
        """
let_go(lambda: driver.blocked() > 0)
queue, _ = backend.executor.adopt_stream(0, theirs)
for _ in range(1100):
    backend.executor.fill(queue, memory, 1, b"x")
""",
        """
driver.waits(True)
before = driver.count("cuMemsetD8Async"), driver.count("cuMemAlloc")
let_go(lambda: driver.count("cuMemsetD8Async") > before[0])
thread = threading.Thread(target=lambda: backend.deallocate(0, backend.allocate(0, 64), 64))
thread.start()
until(lambda: driver.count("cuMemAlloc") > before[1])
backend.executor.fill(ours, memory, 1, b"y")
thread.join()
""",
        """
with calls.bound(device.context):
    for _ in range(1022):
        calls.call("cuMemsetD8Async", memory, 1, 1, theirs, doing="filling a channel")
    calls.call("cuStreamWaitValue64", backend.executor.handle_of(ours), ctypes.addressof(word), 1, 0, doing="holding a stream")
value = backend.executor.fill(ours, memory, 1, b"y")
let_go(lambda: driver.blocked() > 0)
assert backend.executor.foreign_wait(theirs, ours, value)
""",
        """
queue, _ = backend.executor.adopt_stream(0, theirs)
driver.waits(True)
thread = threading.Thread(target=lambda: [backend.executor.fill(queue, memory, 1, b"x") for _ in range(1100)])
thread.start()
until(lambda: driver.blocked() > 0)
before = driver.count("cuMemsetD8Async")
let_go(lambda: driver.count("cuMemsetD8Async") > before)
backend.executor.fill(ours, memory, 1, b"y")
thread.join()
""",
        """
command = Command("fill", 0, 8, struct.pack("<q", memory) + b"z")
buffer, _ = backend.executor.create_buffer(0, [command])
for _ in range(2):
    assert backend.executor.spin(ours, backend.executor.execute(ours, buffer, b""), 30 * 10**9)
driver.waits(True)
before = driver.count("cuGraphExecDestroy"), driver.count("cuMemAlloc")
let_go(lambda: driver.count("cuGraphExecDestroy") > before[0])
thread = threading.Thread(target=lambda: backend.deallocate(0, backend.allocate(0, 64), 64))
thread.start()
until(lambda: driver.count("cuMemAlloc") > before[1])
backend.executor.destroy_buffer(buffer)
thread.join()
""",
        """
entry = backend.load(KernelSpec("line", line, 1, ("A1i8C",)), "")
elsewhere, there = backend.executor.create_queue(1, 0, False)[0], backend.allocate(1, 64)
value = backend.executor.launch(elsewhere, entry, 8, struct.pack("<qqq", 8, there, 8), 0)
assert backend.executor.spin(elsewhere, value, 30 * 10**9)
driver.waits(True)
before = driver.count("cuLaunchKernel")
let_go(lambda: driver.count("cuLaunchKernel") > before)
backend.executor.launch(ours, entry, 8, struct.pack("<qqq", 8, memory, 8), 0)
""",
        """
with calls.bound(device.context):
    for _ in range(1022):
        calls.call("cuMemsetD8Async", memory, 1, 1, theirs, doing="filling a channel")
let_go(lambda: driver.blocked() > 0)
backend.executor.wait_foreign(ours, 0)
""",
        """
driver.waits(True)
other = backend.executor.create_queue(0, 0, False)[0]
before, place = (driver.count("cuMemsetD8Async"), driver.count("cuMemAlloc")), ctypes.c_int64()
let_go(lambda: driver.count("cuMemsetD8Async") > before[0])
allocate = calls.address("cuMemAlloc"), ctypes.addressof(place), 64
backend.executor.call_native(other, pack([allocate], None, True))
until(lambda: driver.count("cuMemAlloc") > before[1])
backend.executor.fill(ours, memory, 1, b"y")
""",
        """
queue, _ = backend.executor.adopt_stream(0, theirs)
with calls.bound(device.context):
    for _ in range(1019):
        calls.call("cuMemsetD8Async", memory, 1, 1, theirs, doing="filling a channel")
driver.waits(True)
host, before = ctypes.create_string_buffer(64), driver.count("cuMemsetD8Async")
let_go(lambda: driver.count("cuMemsetD8Async") > before)
backend.executor.copy(queue, ctypes.addressof(host), memory, 64)
until(lambda: driver.blocked() > 0)
backend.executor.fill(ours, memory, 1, b"y")
""",
        """
command = Command("fill", 0, 8, struct.pack("<q", memory) + b"z")
buffer, (place,) = backend.executor.create_buffer(0, [command])
for _ in range(2):
    assert backend.executor.spin(ours, backend.executor.execute(ours, buffer, b""), 30 * 10**9)
held = device.native.capture_lock.held
held.value = 1  # somebody makes another graph
def end():
    until(lambda: device.native.waiters.value > 0)
    held.value = 0
    word[0] = 1
threading.Thread(target=end).start()
value = backend.executor.execute(ours, buffer, struct.pack("<qq", place, memory + 8))
assert backend.executor.spin(ours, value, 30 * 10**9)
""",
    ],
    ids=[
        "calls of a library", "a full channel", "a launch while memory is allocated", "another stream that waits for ours",
        "a launch while another waits for room", "a graph that is destroyed while memory is allocated",
        "the first launch on another device", "a wait for all streams", "a library that allocates in a thread",
        "a staged copy without room", "a graph that is made anew",
    ],
)  # fmt: skip
def test_nobody_waits_for_the_device_with_the_gil(program: str, run: Callable[..., str]) -> None:
    """A device that waits for a Python function goes on: whatever waits for the device lets that function have the GIL."""
    end = "until(lambda: calls_seen)\nsys.stdout.write('through\\n')\n"
    said = run(f"{PENDING}\n{program}\n{end}")
    assert sorted(said.split()) == ["called", "through"]


def test_an_event_that_finds_no_room_is_not_waited_for_with_the_gil(run: Callable[..., str]) -> None:
    """The poller records it where the driver is to say that work is done, and submissions let go of the GIL meanwhile."""
    said = run(
        f"""
import os
{PENDING}
queue, _ = backend.executor.adopt_stream(0, theirs)
with calls.bound(device.context):
    for _ in range(1018):
        calls.call("cuMemsetD8Async", memory, 1, 1, theirs, doing="filling a channel")
value = backend.executor.fill(queue, memory, 1, b"x")
driver.waits(True)
before = driver.count("cuMemsetD8Async")
let_go(lambda: driver.count("cuMemsetD8Async") > before)
backend.executor.arm(queue, value, backend.executor.create_waker(os.eventfd(0)))
until(lambda: driver.blocked() > 0)
backend.executor.fill(ours, memory, 1, b"y")
until(lambda: calls_seen)
sys.stdout.write("through\\n")
""",
        AIODEV_CUDA_WAIT="event",
    )
    assert sorted(said.split()) == ["called", "through"]


def test_nobody_begins_to_wait_while_another_submits_with_the_gil(run: Callable[..., str]) -> None:
    """Who has found nobody that waits for the device is through with the driver first."""
    said = run(
        f"""
{PENDING}
word[0] = 1
entry = backend.load(KernelSpec("line", line, 1, ("A1i8C",)), "")
gate = backend.executor.create_gate()
backend.executor.gate(ours, gate)
value = backend.executor.launch(ours, entry, 8, struct.pack("<qqq", 8, memory, 8), 0)
device.native.submitting.value = 1  # as a thread that is in the driver
backend.executor.open_gate(gate, False)
until(lambda: device.native.waiters.value > 0)  # the poller, which is to make a first launch
assert not backend.executor.spin(ours, value, 50_000_000) and driver.count("cuLaunchKernel") == 0
device.native.submitting.value = 0
assert backend.executor.spin(ours, value, 30 * 10**9) and driver.count("cuLaunchKernel") == 1
until(lambda: calls_seen)
sys.stdout.write("through\\n")
"""
    )
    assert sorted(said.split()) == ["called", "through"]


@pytest.mark.parametrize(
    "program",
    [
        """
with calls.bound(device.context):
    for _ in range(1022):
        calls.call("cuMemsetD8Async", memory, 1, 1, theirs, doing="filling a channel")
thread = threading.Thread(target=lambda: backend.executor.adopt_stream(0, theirs))
thread.start()
until(lambda: driver.blocked() > 0)
for reserved in (False, True):
    backend.executor.create_queue(0, 0, reserved)
word[0] = 1
thread.join()
""",
        """
def submit(queue):
    gate = backend.executor.create_gate()
    backend.executor.gate(queue, gate)
    value = backend.executor.call_native(queue, pack([(calls.address("cuCtxSynchronize"),)], None))
    backend.executor.open_gate(gate, False)
    return value
other = backend.executor.create_queue(0, 0, False)[0]
submit(other)  # which the poller is kept by
until(lambda: driver.count("cuCtxSynchronize") > 0)
value = submit(ours)
assert not backend.executor.spin(ours, value, 1_000_000)
word[0] = 1
assert backend.executor.spin(ours, value, 30 * 10**9)
""",
    ],
    ids=["a stream without room", "a call of a library"],
)
def test_nobody_waits_for_what_others_block_in(program: str, run: Callable[..., str]) -> None:
    """Neither who makes a stream, nor who looks for a moment whether an operation is done, as loops do."""
    said = run(f"{PENDING}\n{program}\nuntil(lambda: calls_seen)\nsys.stdout.write('through\\n')\n")
    assert sorted(said.split()) == ["called", "through"]


def test_many_queues_do_not_fill_a_channel(run: Callable[..., str]) -> None:
    """Each has so little in the driver's hands that all together have no more than a channel takes: nobody is blocked."""
    said = run(
        f"""
{PENDING}
streams = []
for priority in (0, -1):
    by_stream = {{}}
    for queue in (backend.executor.create_queue(0, priority, False)[0] for _ in range(17 * 32)):
        by_stream.setdefault(backend.executor.handle_of(queue), []).append(queue)
    stream = device.slots[priority][5]  # of one channel with that of the other priority
    streams.append((stream, by_stream[stream]))
with calls.bound(device.context):
    for stream, _ in streams:
        calls.call("cuStreamWaitValue64", stream, ctypes.addressof(word), 1, 0, doing="holding a stream")
for _ in range(15):
    for _, queues in streams:
        for queue in queues:
            last = backend.executor.fill(queue, memory, 1, b"x")
assert driver.blocked() == 0
word[0] = 1
until(lambda: calls_seen)
for _, queues in streams:
    assert all(backend.executor.spin(queue, last, 30 * 10**9) for queue in queues)
sys.stdout.write("through\\n")
""",
        STANDIN_DEPTH="600",
    )
    assert sorted(said.split()) == ["called", "through"]


def test_failures_are_those_of_the_queue(backend: CUDABackend, driver: standin.StandIn, foreign: int) -> None:
    """A call that is refused fails its operation, on the adopted stream as on any."""
    queue, _ = backend.executor.adopt_stream(1, foreign)
    memory = backend.allocate(1, 64)
    driver.inject("cuMemsetD8Async", 1)
    failed = backend.executor.fill(queue, memory, 8, b"x")
    assert backend.executor.spin(queue, failed, PATIENCE) and backend.executor.faults(queue)[0].first == failed
    backend.executor.forgive(queue)
    value = backend.executor.fill(queue, memory, 8, b"x")
    assert backend.executor.spin(queue, value, PATIENCE) and len(backend.executor.faults(queue)) == 1
    backend.executor.destroy_queue(queue)
    backend.deallocate(1, memory, 64)


def test_a_capture_refuses_operations_alone(
    backend: CUDABackend, driver: standin.StandIn, foreign: int
) -> None:
    """What is submitted while another library captures the stream fails, in its turn; the device lives and goes on after."""
    queue, counters = backend.executor.adopt_stream(1, foreign)
    memory = backend.allocate(1, 64)
    driver.latency(0.02)
    good = backend.executor.fill(queue, memory, 8, b"x")
    driver.capture(True, foreign)
    failed = backend.executor.fill(queue, memory, 8, b"y")
    gate = backend.executor.create_gate()
    behind = backend.executor.gate(queue, gate)
    driver.latency(0)
    assert backend.executor.spin(queue, behind, PATIENCE)
    (fault,) = backend.executor.faults(queue)
    assert fault.first == failed == good + 1 and isinstance(fault.error, aiodev.CaptureError)
    backend.executor.open_gate(gate, False)
    driver.capture(False)
    backend.executor.forgive(queue)
    value = backend.executor.fill(queue, memory, 8, b"x")
    assert backend.executor.spin(queue, value, PATIENCE) and len(backend.executor.faults(queue)) == 1
    backend.executor.destroy_queue(queue)
    backend.deallocate(1, memory, 64)


@pytest.mark.parametrize("status", [400, 900, 905, 908])
@pytest.mark.parametrize("ahead", [0, 3])
def test_a_completion_that_is_refused_fails_alone(
    status: int, ahead: int, backend: CUDABackend, driver: standin.StandIn
) -> None:
    """A stream that takes an operation, and then not the write of its number, costs that operation, not the device."""
    queue, counters = backend.executor.create_queue(0, 0, False)
    memory = backend.allocate(0, 64)
    driver.latency(0.01)
    for _ in range(ahead):
        backend.executor.fill(queue, memory, 8, b"x")
    driver.inject("cuStreamWriteValue64", status)
    failed = backend.executor.fill(queue, memory, 8, b"y")
    behind = backend.executor.fill(queue, memory, 8, b"z")
    driver.latency(0)
    assert backend.executor.spin(queue, behind, PATIENCE)
    (fault,) = backend.executor.faults(queue)
    assert fault.first == failed and (fault.last is None or fault.last >= behind)
    assert isinstance(fault.error, aiodev.CaptureError) == (status >= 900)
    backend.executor.forgive(queue)
    value = backend.executor.fill(queue, memory, 8, b"x")
    assert backend.executor.spin(queue, value, PATIENCE) and len(backend.executor.faults(queue)) == 1
    backend.executor.destroy_queue(queue)
    backend.deallocate(0, memory, 64)


def test_a_stream_that_is_captured_is_not_made_to_wait(backend: CUDABackend, driver: standin.StandIn, foreign: int) -> None:
    """The host waits instead: what is in a graph would wait at each replay, and nothing is submitted to that stream."""
    queue, _ = backend.executor.create_queue(1, 0, False)
    memory = backend.allocate(1, 64)
    driver.latency(0.02)
    value = backend.executor.fill(queue, memory, 8, b"x")
    driver.capture(True, foreign)
    assert not backend.executor.foreign_wait(foreign, queue, value)
    driver.capture(False)
    assert backend.executor.foreign_wait(foreign, queue, value)
    driver.latency(0)
    assert backend.executor.spin(queue, value, PATIENCE)
    backend.executor.destroy_queue(queue)
    backend.deallocate(1, memory, 64)


def test_streams_that_cannot_be_taken(backend: CUDABackend, driver: standin.StandIn, foreign: int) -> None:
    """Those of another device, and those that are being captured."""
    with pytest.raises(ValueError, match="cuda:0: it is of another device"):
        backend.executor.adopt_stream(0, foreign)
    driver.capture(True, foreign)
    with pytest.raises(aiodev.CaptureError, match="cuda:1"):
        backend.executor.adopt_stream(1, foreign)
    driver.capture(False)


def test_a_handle_only_when_nothing_would_be_overtaken(backend: CUDABackend) -> None:
    """While an operation is held on the host the stream is not given away."""
    queue, _ = backend.executor.create_queue(0, 0, False)
    handle = backend.executor.handle_of(queue)
    assert handle != 0
    gate = backend.executor.create_gate()
    value = backend.executor.gate(queue, gate)
    assert backend.executor.handle_of(queue) == 0
    backend.executor.open_gate(gate, False)
    assert backend.executor.spin(queue, value, PATIENCE) and backend.executor.handle_of(queue) == handle
    backend.executor.destroy_queue(queue)


class _Method:
    def __init__(self, *answer: int) -> None:
        self.answer = answer

    def __cuda_stream__(self) -> tuple[int, ...]:
        return self.answer


class _Attribute:
    __cuda_stream__ = (0, 77)


@pytest.mark.parametrize(
    ("given", "handle"), [(_Method(0, 77), 77), (_Attribute(), 77), (_Method(0, 0), LEGACY), (1, 1), (4096, 4096)]
)
def test_handles(given: Any, handle: int) -> None:
    """The protocol as a method or an attribute, and addresses; 0 is the legacy default stream."""
    assert external_handle(given) == handle


@pytest.mark.parametrize(
    ("given", "error"), [("x", TypeError), (_Method(1, 77), ValueError), (_Method(0, 2), ValueError), (2, ValueError)]
)
def test_handles_that_are_none(given: Any, error: type[Exception]) -> None:
    """What has no such stream, another version of the protocol, and a default stream that each thread has its own of."""
    with pytest.raises(error, match="external="):
        external_handle(given)


def test_programs(run: Callable[..., str]) -> None:
    """Arrays and kernels on another library's stream; ours for another library; what makes no sense is refused."""
    said = run(
        """
import numpy as np

@aiodev.kernel
def double(i, x):
    x[i] = 2 * x[i]

class Theirs:
    def __init__(self):
        driver = backend.executor.driver
        with driver.bound(backend.executor.devices[0].context):
            self.handle = driver.number("cuStreamCreateWithPriority", 1, 0, doing="making a stream")
    def __cuda_stream__(self):
        return 0, self.handle

async def main():
    await aiodev.init("cuda")
    theirs = Theirs()
    stream = aiodev.Stream("cuda:0", external=theirs)
    with stream:
        x = aiodev.asarray(np.arange(1000))
        double[1000](x)
        found = await x.numpy()
    assert (found == 2 * np.arange(1000)).all()
    assert stream.__cuda_stream__() == (0, theirs.handle)
    ours = aiodev.Stream("cuda:0")
    version, handle = ours.__cuda_stream__()
    assert version == 0 and handle not in (0, theirs.handle)
    from aiodev.testing import Latch
    with Latch(ours):
        try:
            ours.__cuda_stream__()
        except RuntimeError as error:
            print("overtake" in str(error))
    for arguments in ({"priority": 1}, {"reserve": True}):
        try:
            aiodev.Stream("cuda:0", external=theirs, **arguments)
        except ValueError as error:
            print("already" in str(error))
    try:
        aiodev.Stream("cpu").__cuda_stream__()
    except AttributeError as error:
        print(error)
    try:
        aiodev.Stream("cpu", external=theirs)
    except NotImplementedError as error:
        print(error)
asyncio.run(main())
"""
    )
    refused = "a stream on cpu:0 has no CUDA stream\nbackend 'cpu' cannot submit to another library's stream\n"
    assert said == "True\nTrue\nTrue\n" + refused
