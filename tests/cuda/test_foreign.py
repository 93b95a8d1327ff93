"""Streams of other libraries, by their handles, and copies from and to ordinary memory."""

from __future__ import annotations

import concurrent.futures
import ctypes
import struct
from collections.abc import Callable, Iterator

import pytest
import standin

import aiodev
from aiodev._backends.cuda import CUDABackend
from aiodev._backends.cuda.structs import Queue
from aiodev._backends.cuda.tuning import CHANNEL_WINDOW, CHANNELS, STREAM_SLOTS
from aiodev._core.backend.interface import COMPLETED, SUBMITTED, Command
from aiodev._core.streams.native_calls import pack

#: ns that nothing takes
PATIENCE = 30_000_000_000


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
    queue, counters = backend.executor.create_queue(0, 0, False)
    driver.call("cuStreamWaitValue64", foreign, ctypes.addressof(word), 1, 0, doing="holding a stream")
    held = backend.executor.wait_foreign(queue, foreign)
    driver.call("cuStreamWaitValue64", foreign, ctypes.addressof(word), 2, 0, doing="holding a stream")
    assert not backend.executor.spin(queue, held, 2_000_000) and counters[COMPLETED] == 0
    word[0] = 1
    assert backend.executor.spin(queue, held, PATIENCE)
    word[0] = 2
    backend.executor.destroy_queue(queue)


def test_events_are_used_again(backend: CUDABackend, driver: standin.StandIn, foreign: int) -> None:
    """Waiting for a foreign stream makes no event where an earlier one is free; one that a shut gate keeps from use is not."""
    queue, _ = backend.executor.create_queue(0, 0, False)
    assert backend.executor.spin(queue, backend.executor.wait_foreign(queue, foreign), PATIENCE)
    made = driver.count("cuEventCreate")
    for _ in range(20):  # an event is free once the driver has been told of the wait for it, which another thread may do
        assert backend.executor.spin(queue, backend.executor.wait_foreign(queue, foreign), PATIENCE)
    assert driver.count("cuEventCreate") == made
    gate = backend.executor.create_gate()
    backend.executor.gate(queue, gate)
    for _ in range(5):
        last = backend.executor.wait_foreign(queue, foreign)
    found = driver.count("cuEventCreate") - made
    assert found > 0
    backend.executor.open_gate(gate, False)
    assert backend.executor.spin(queue, last, PATIENCE)
    backend.executor.destroy_queue(queue)
    other, _ = backend.executor.create_queue(0, 0, False)
    for _ in range(20):
        assert backend.executor.spin(other, backend.executor.wait_foreign(other, foreign), PATIENCE)
    assert driver.count("cuEventCreate") - made == found
    backend.executor.destroy_queue(other)


def test_a_foreign_stream_waits_for_a_queue(backend: CUDABackend, foreign: int) -> None:
    """For a value that is on its way; behind a shut gate the answer is no, and the caller waits by itself."""
    queue, _ = backend.executor.create_queue(0, 0, False)
    memory = backend.allocate(0, 64)
    value = backend.executor.fill(queue, memory, 64, b"\0")
    assert backend.executor.foreign_wait(foreign, queue, value)
    gate = backend.executor.create_gate()
    gated = backend.executor.gate(queue, gate)
    assert not backend.executor.foreign_wait(foreign, queue, gated)
    backend.executor.open_gate(gate, False)
    assert backend.executor.spin(queue, gated, PATIENCE)
    assert backend.executor.foreign_wait(foreign, queue, gated)
    backend.executor.destroy_queue(queue)
    backend.deallocate(0, memory, 64)


def test_a_foreign_stream_does_not_follow_the_next_owner_of_a_queue(
    backend: CUDABackend, driver: standin.StandIn, foreign: int
) -> None:
    """What it waits for is done, though it looks only when the queue is used again, and counts from 0."""
    calls = backend.executor.driver
    word = (ctypes.c_int64 * 1).from_address(backend.allocate_pinned(0, 8))
    word[0] = 0
    calls.call("cuStreamWaitValue64", foreign, ctypes.addressof(word), 1, 0, doing="holding a stream")
    queue, _ = backend.executor.create_queue(0, 0, False)
    memory = backend.allocate(0, 64)
    driver.latency(0.01)
    value = backend.executor.fill(queue, memory, 64, b"\0")
    assert backend.executor.foreign_wait(foreign, queue, value)
    driver.latency(0)
    assert backend.executor.spin(queue, value, PATIENCE)
    backend.executor.destroy_queue(queue)
    word[0] = 1
    mine, _ = backend.executor.create_queue(0, 0, False)
    assert backend.executor.spin(mine, backend.executor.wait_foreign(mine, foreign), PATIENCE), "it waits for the next owner"
    backend.executor.destroy_queue(mine)
    backend.deallocate(0, memory, 64)


def test_copies_wait_for_their_own_queue_alone(backend: CUDABackend) -> None:
    """One behind work that takes long holds up no other queue's copy of ordinary memory."""
    calls, context = backend.executor.driver, backend.executor.devices[0].context
    slow, quick = (backend.executor.create_queue(0, 0, True)[0] for _ in range(2))
    memory, nbytes = backend.allocate(0, 1 << 20), 1 << 19
    source = ctypes.create_string_buffer(b"x" * nbytes, nbytes)
    word = (ctypes.c_int64 * 1).from_address(backend.allocate_pinned(0, 8))
    word[0] = 0
    with calls.bound(context):
        stream = Queue(slow).stream
        calls.call("cuStreamWaitValue64", stream, ctypes.addressof(word), 1, 0, doing="holding a stream")
    backend.executor.fill(slow, memory, nbytes, b"y")
    behind = backend.executor.copy(slow, memory, ctypes.addressof(source), nbytes)
    last = backend.executor.copy(quick, memory + nbytes, ctypes.addressof(source), nbytes)
    assert backend.executor.spin(quick, last, PATIENCE)
    word[0] = 1
    assert backend.executor.spin(slow, behind, PATIENCE)
    for queue in (slow, quick):
        backend.executor.destroy_queue(queue)
    backend.deallocate(0, memory, 1 << 20)


def test_what_is_being_captured_is_not_waited_for(backend: CUDABackend, driver: standin.StandIn, foreign: int) -> None:
    """A stream that another library captures does nothing yet; to wait for it would draw our stream into its graph."""
    queue, counters = backend.executor.create_queue(0, 0, False)
    driver.capture(True, foreign)
    with pytest.raises(aiodev.CaptureError, match="cuda:0"):
        backend.executor.wait_foreign(queue, foreign)
    driver.capture(False)
    assert backend.executor.spin(queue, backend.executor.wait_foreign(queue, foreign), PATIENCE) and counters[SUBMITTED] == 1
    backend.executor.destroy_queue(queue)


def test_all_streams_are_waited_for_while_a_graph_is_made(backend: CUDABackend, driver: standin.StandIn) -> None:
    """The driver says nothing of a context of which a stream is being captured, as one of ours is then."""
    queue, _ = backend.executor.create_queue(0, 0, False)
    device, calls = backend.executor.devices[0], backend.executor.driver
    stream, graph = device.native.capture_stream, ctypes.c_int64()
    held, asked_for = device.native.capture_lock.held, 1  # which is written by who asks for it
    held.value = 2
    with calls.bound(device.context):
        calls.call("cuStreamBeginCapture", stream, 2, doing="capturing")
    with concurrent.futures.ThreadPoolExecutor(1) as threads:
        waiting = threads.submit(backend.executor.wait_foreign, queue, 0)
        while held.value != asked_for:
            assert not waiting.done(), waiting.result()
        with calls.bound(device.context):
            calls.call("cuStreamEndCapture", stream, ctypes.byref(graph), doing="capturing")
            calls.call("cuGraphDestroy", graph, doing="capturing")
        held.value = 0
        assert backend.executor.spin(queue, waiting.result(30), PATIENCE)
    backend.executor.destroy_queue(queue)


def test_other_threads_may_capture(backend: CUDABackend, driver: standin.StandIn) -> None:
    """Neither our threads nor allocating and freeing, which would be unsafe otherwise, invalidate what others capture."""
    queue, _ = backend.executor.create_queue(0, 0, False)
    before = driver.capture(True)
    asked, waited = driver.count("cuStreamQuery"), driver.count("cuEventSynchronize")
    memory = backend.allocate(0, 1 << 20)
    host = ctypes.create_string_buffer(1 << 20)
    staged = backend.executor.copy(queue, memory, ctypes.addressof(host), 1 << 20)
    assert backend.executor.spin(queue, staged, PATIENCE)
    driver.latency(0.05)
    value = backend.executor.fill(queue, memory, 8, b"x")
    assert backend.executor.spin(queue, value, PATIENCE)  # long enough for a look at the device's health
    driver.latency(0)
    backend.deallocate(0, memory, 1 << 20)
    assert driver.count("cuStreamQuery") > asked and driver.count("cuEventSynchronize") > waited
    assert driver.capture(False) == before
    backend.executor.destroy_queue(queue)


def test_other_threads_may_capture_while_we_submit(backend: CUDABackend, driver: standin.StandIn) -> None:
    """Nor does a submission, by whichever thread: libraries may allocate in what they are called for, and graphs are made."""
    queue, _ = backend.executor.create_queue(0, 0, False)
    memory = backend.allocate(0, 8)
    before, loaded = driver.capture(True), driver.count("cuCtxSynchronize")
    synchronize = backend.executor.driver.address("cuCtxSynchronize")
    value = backend.executor.call_native(queue, pack([(synchronize,)], None))
    assert backend.executor.spin(queue, value, PATIENCE) and driver.count("cuCtxSynchronize") > loaded
    gate = backend.executor.create_gate()
    backend.executor.gate(queue, gate)
    value = backend.executor.call_native(queue, pack([(synchronize,)], None))
    buffer, _ = backend.executor.create_buffer(0, [Command("fill", 0, 8, struct.pack("<q", memory) + b"z")])
    for _ in range(3):
        value = backend.executor.execute(queue, buffer, b"")
    backend.executor.open_gate(gate, False)
    assert backend.executor.spin(queue, value, PATIENCE)  # this thread hands on what others do not come to
    backend.executor.destroy_buffer(buffer)
    assert driver.capture(False) == before
    backend.deallocate(0, memory, 8)
    backend.executor.destroy_queue(queue)


def test_small_ordinary_memory_waits_for_no_stream(run: Callable[..., str]) -> None:
    """The driver may wait for what its stream has ahead, if it is given ordinary memory: it is not."""
    said = run(
        """
import ctypes
import struct
backend.start()
calls, device = backend.executor.driver, backend.executor.devices[0]
word = (ctypes.c_int64 * 1).from_address(backend.allocate_pinned(0, 8))
word[0] = 0
memory = backend.allocate(0, 1 << 16)
with calls.bound(device.context):
    theirs = calls.number("cuStreamCreateWithPriority", 1, 0, doing="making a stream")
    calls.call("cuStreamWaitValue64", theirs, ctypes.addressof(word), 1, 0, doing="holding a stream")
queues = [backend.executor.adopt_stream(0, theirs)[0] for _ in range(50)]
source, target = (ctypes.create_string_buffer(1000) for _ in range(2))
last = []
for turn, queue in enumerate(queues):  # more than there are slots, so some go through the thread
    source.raw = bytes([turn]) * 1000
    last.append(backend.executor.copy(queue, memory + 1000 * turn, ctypes.addressof(source), 1000))
    if turn < 8:
        source.raw = bytes(1000)  # which was taken already
print("submitted")
word[0] = 1
for turn, (queue, value) in enumerate(zip(queues, last)):
    assert backend.executor.spin(queue, value, 30 * 10**9)
    back = backend.executor.copy(queue, ctypes.addressof(target), memory + 1000 * turn, 1000)
    assert backend.executor.spin(queue, back, 30 * 10**9) and (turn >= 8 or target.raw == bytes([turn]) * 1000)
print("copied")
"""
    )
    assert said == "submitted\ncopied\n"


def test_small_ordinary_memory_goes_at_once(backend: CUDABackend, driver: standin.StandIn) -> None:
    """Up to 64 KiB on an idle queue go without the staging thread; what is ahead has its turn first all the same."""
    queue, counters = backend.executor.create_queue(0, 0, False)
    memory = backend.allocate(0, 1 << 17)
    source, target = (ctypes.create_string_buffer(1 << 17) for _ in range(2))
    waited = driver.count("cuEventSynchronize")
    source.raw = b"a" * (1 << 17)
    assert backend.executor.spin(queue, backend.executor.copy(queue, memory, ctypes.addressof(source), 1 << 16), PATIENCE)
    assert driver.count("cuEventSynchronize") == waited
    gate = backend.executor.create_gate()
    backend.executor.gate(queue, gate)
    backend.executor.copy(queue, memory, ctypes.addressof(source), 1 << 16)
    source.raw = b"b" * (1 << 17)
    backend.executor.open_gate(gate, False)
    done = backend.executor.copy(queue, ctypes.addressof(target), memory, 1 << 16)
    assert backend.executor.spin(queue, done, PATIENCE) and target.raw[: 1 << 16] == b"b" * (1 << 16)
    waited = driver.count("cuEventSynchronize")
    assert backend.executor.spin(queue, backend.executor.copy(queue, memory, ctypes.addressof(source), 1 << 17), PATIENCE)
    assert driver.count("cuEventSynchronize") > waited
    backend.executor.destroy_queue(queue)
    backend.deallocate(0, memory, 1 << 17)


def test_queues_share_the_room_of_a_channel(backend: CUDABackend, driver: standin.StandIn) -> None:
    """However many queues there are, the device is given no more than its channels take without blocking."""
    queues = [backend.executor.create_queue(1, 1, False)[0] for _ in range(3 * STREAM_SLOTS)]
    gates = [backend.executor.create_gate() for queue in queues]
    for queue, gate in zip(queues, gates, strict=True):
        backend.executor.gate(queue, gate)
    memory = backend.allocate(1, 64)
    word = (ctypes.c_int64 * 1).from_address(backend.allocate_pinned(1, 8))
    word[0] = 0
    driver_calls = backend.executor.driver
    streams = {Queue(queue).stream for queue in queues}
    assert len(streams) == STREAM_SLOTS
    for stream in streams:
        with driver_calls.bound(backend.executor.devices[1].context):
            driver_calls.call("cuStreamWaitValue64", stream, ctypes.addressof(word), 1, 0, doing="holding a stream")
    for gate in gates:
        backend.executor.open_gate(gate, False)
    before = driver.count("cuMemsetD8Async")
    last = [[backend.executor.fill(queue, memory, 1, b"x") for _ in range(200)][-1] for queue in queues]
    assert driver.count("cuMemsetD8Async") - before <= CHANNELS * CHANNEL_WINDOW
    word[0] = 1
    for queue, value in zip(queues, last, strict=True):
        assert backend.executor.spin(queue, value, PATIENCE)
        backend.executor.destroy_queue(queue)
    assert driver.count("cuMemsetD8Async") - before == 200 * len(queues)
    backend.deallocate(1, memory, 64)


def test_a_stream_that_is_gone_is_not_touched(run: Callable[..., str]) -> None:
    """A consumer may destroy its stream before it lets go of an array: the memory waits for all that the device was given."""
    said = run(
        """
import ctypes
import struct
from aiodev._array import capsules

async def main():
    await aiodev.init("cuda")
    calls, device = backend.executor.driver, backend.executor.devices[0]
    word = (ctypes.c_int64 * 1).from_address(backend.allocate_pinned(0, 8))
    for foreign in ("theirs", 2, 1):
        word[0] = 0
        x = aiodev.zeros(8, "i4", "cuda:0")
        await aiodev.synchronize("cuda:0")
        with calls.bound(device.context):
            handle = foreign
            if foreign == "theirs":
                handle = calls.number("cuStreamCreateWithPriority", 1, 0, doing="making a stream")
            lent = capsules.import_capsule(x.__dlpack__(stream=handle, max_version=(1, 0)))
            # a thread's own stream is in step with the legacy one, which the stand-in does not know
            calls.call("cuStreamWaitValue64", 1 if foreign == 2 else handle, ctypes.addressof(word), 1, 0, doing="holding")
            if foreign == "theirs":
                calls.call("cuStreamDestroy", handle, doing="destroying a stream")
        buffer = x._buffer
        del lent
        print(len(buffer.pending()), end=" ")
        word[0] = 1
        await aiodev.synchronize("cuda:0")
        for timeline, value in buffer.pending():
            await aiodev.Completion(timeline, value)
        print(len(buffer.pending()))

asyncio.run(main())
"""
    )
    assert said == "1 0\n" * 3


def test_memory_is_found_by_its_address(backend: CUDABackend) -> None:
    """On whichever device it is; memory that no device has is refused."""
    for index in (0, 1):
        address = backend.allocate(index, 64)
        assert backend.home_of(address) == index
        backend.deallocate(index, address, 64)
    host = ctypes.create_string_buffer(64)
    with pytest.raises(BufferError, match="on no CUDA device"):
        backend.home_of(ctypes.addressof(host))


def test_priorities(backend: CUDABackend, driver: standin.StandIn) -> None:
    """Ours go with every other library's, unless they ask for more: the driver's least priority is everybody's default."""
    found = []
    for priority in (-1, 0, 1):
        queue, _ = backend.executor.create_queue(0, priority, True)
        found.append(driver.priority(backend.executor.handle_of(queue)))
        backend.executor.destroy_queue(queue)
    assert found == [-5, 0, 0]


@pytest.mark.parametrize("nbytes", [1, 4 << 20, (9 << 20) + 7])
def test_ordinary_memory_goes_through_page_locked_memory(
    nbytes: int, backend: CUDABackend, driver: standin.StandIn
) -> None:
    """Of any size, in pieces that keep their order, without the driver ever seeing an address that it does not know."""
    queue, _ = backend.executor.create_queue(0, 0, False)
    memory = backend.allocate(0, nbytes)
    host = bytes(range(251)) * (nbytes // 251 + 1)
    source = ctypes.create_string_buffer(host[:nbytes], nbytes)
    target = ctypes.create_string_buffer(nbytes)
    backend.executor.copy(queue, memory, ctypes.addressof(source), nbytes)
    backend.executor.fill(queue, memory, 1, b"\xee")
    done = backend.executor.copy(queue, ctypes.addressof(target), memory, nbytes)
    assert backend.executor.spin(queue, done, PATIENCE)
    assert target.raw == b"\xee" + host[1:nbytes]
    backend.executor.destroy_queue(queue)
    backend.deallocate(0, memory, nbytes)
