"""Host arrays and page-locked blocks live until the copy is done, and no longer than until somebody learns that."""

from __future__ import annotations

import gc
import threading
import weakref
from collections.abc import Callable, Iterator
from typing import Any

import anyio
import numpy as np
import pytest

import aiodev
from aiodev import Stream
from aiodev.testing.latch import Latch
from aiodev.testing.simulated import SimulatedBackend

pytestmark = pytest.mark.anyio

COUNT = 20_000


@pytest.fixture(params=["cpu", "sim"])
def device(request: pytest.FixtureRequest) -> str:
    """Memory that the host reaches, and memory that it does not."""
    if request.param == "sim" and "sim" not in aiodev.available_backends():
        aiodev.register_backend("sim", SimulatedBackend)
    aiodev.init_blocking(request.param)
    return str(request.param)


@pytest.fixture(autouse=True)
def without_the_collector() -> Iterator[None]:
    """Memory comes back by itself."""
    gc.collect()
    gc.disable()
    yield
    gc.enable()


async def as_completed(done: aiodev.Completion, stream: Stream, array: aiodev.Array) -> None:
    async for found in aiodev.as_completed([done]):
        assert found is done


async def until(ask: Callable[[], bool]) -> None:
    while not ask():
        await anyio.lowlevel.checkpoint()


async def event(done: aiodev.Completion, stream: Stream, array: aiodev.Array) -> None:
    await stream.record_event()


#: Ways of learning that a copy, the last operation of a stream, is done.
WAYS: dict[str, Callable[[aiodev.Completion, Stream, aiodev.Array], Any]] = {
    "await": lambda done, stream, array: done.synchronize(),
    "await when done": lambda done, stream, array: await_when_done(done, stream),
    "synchronize": lambda done, stream, array: stream.synchronize(),
    "synchronize the device": lambda done, stream, array: aiodev.synchronize(stream.device),
    "block": lambda done, stream, array: anyio.to_thread.run_sync(done.synchronize_blocking, 30),
    "block for the stream": lambda done, stream, array: anyio.to_thread.run_sync(stream.synchronize_blocking, 30),
    "query": lambda done, stream, array: until(done.query),
    "query the stream": lambda done, stream, array: until(stream.query),
    "query an event": lambda done, stream, array: until(stream.record_event().query),
    "event": event,
    "as_completed": as_completed,
    "await what comes later": lambda done, stream, array: stream.call(int).synchronize(),
}


async def await_when_done(done: aiodev.Completion, stream: Stream) -> None:
    while stream.qsize():
        await anyio.lowlevel.checkpoint()
    await done


@pytest.mark.parametrize("way", WAYS)
async def test_a_source_is_let_go_of_when_somebody_learns_that_the_copy_is_done(device: str, way: str) -> None:
    """However they learn it."""
    with Stream(device) as stream:
        array, source, target = aiodev.empty(COUNT), np.zeros(COUNT), np.zeros(COUNT)
        gone = [weakref.ref(source), weakref.ref(target)]
        held = Latch(stream)
        stream.copy(array, source)
        done = stream.copy(target, array)
        del source, target
        assert all(reference() is not None for reference in gone)
        held.release()
        await WAYS[way](done, stream, array)
        assert [reference() for reference in gone] == [None, None]


async def test_a_read_array_is_its_readers_alone(device: str) -> None:
    """The result of a read is held by nobody else once it is there."""
    with Stream(device) as stream:
        array = aiodev.zeros(COUNT)
        held = Latch(stream)
        stream.copy(array, np.ones(COUNT))
        held.release()
        found = await array.numpy()
        gone = weakref.ref(found if found.base is None else found.base)
        del found
        assert gone() is None


@pytest.mark.parametrize("nbytes", [1 << 20, 20 << 20])
async def test_what_nobody_waits_for_is_let_go_of(device: str, nbytes: int) -> None:
    """Large sources of a stream that nobody asks for anything: the watcher sees to it."""
    with Stream(device) as stream:
        array, source, gone = aiodev.empty(nbytes, "u1"), np.zeros(nbytes, np.uint8), threading.Event()
        weakref.finalize(source, gone.set)
        stream.copy(array, source)
        del source
        assert await anyio.to_thread.run_sync(gone.wait, 30)


async def test_little_that_nobody_waits_for_is_bounded(device: str) -> None:
    """Small sources come together to 1 MiB at most, though nobody asks for anything."""
    with Stream(device) as stream:
        array, gone = aiodev.empty(COUNT), []
        for _ in range(20):  # 160 kB each
            source = np.zeros(COUNT)
            gone.append(threading.Event())
            weakref.finalize(source, gone[-1].set)
            stream.copy(array, source)
            del source
        for event in gone[:-8]:
            assert await anyio.to_thread.run_sync(event.wait, 30)


class Locking(SimulatedBackend):
    """A simulated device with page-locked memory."""

    name = "locking"

    def __init__(self) -> None:
        super().__init__()
        self.locked: dict[int, np.ndarray[Any, Any]] = {}

    def allocate_pinned(self, index: int, nbytes: int) -> int:
        memory = np.empty(nbytes, np.uint8)
        self.locked[memory.ctypes.data] = memory
        return memory.ctypes.data

    def deallocate_pinned(self, index: int, address: int) -> None:
        del self.locked[address]


async def test_page_locked_blocks_come_back(register: Callable[[type[Any]], str]) -> None:
    """Those by which constructors take values, when the copies are done."""
    locking = register(Locking)
    aiodev.init_blocking(locking)

    def in_use() -> int:
        return aiodev.memory.host_memory_stats(locking)["allocated_bytes.current"]

    with Stream(locking) as stream:
        held, host = Latch(stream), np.arange(1000)
        arrays = [aiodev.asarray(host) for _ in range(10)]
        host[:] = -1
        assert in_use() == 10 * 8192
        held.release()
        await stream.synchronize()
        assert in_use() == 0
        for array in arrays:
            assert np.array_equal(await array.numpy(), np.arange(1000))


async def test_an_owner_of_shared_memory_is_let_go_of() -> None:
    """What ``from_dlpack`` shares, dropped with work on it to come."""
    with Stream("cpu") as stream:
        owner, gone = np.zeros(COUNT), threading.Event()
        weakref.finalize(owner, gone.set)
        shared, held = aiodev.from_dlpack(owner), Latch(stream)
        stream.copy(aiodev.empty(COUNT), shared)
        del owner, shared
        assert not gone.is_set()
        held.release()
        assert await anyio.to_thread.run_sync(gone.wait, 30)
