"""Streams of ours on other libraries' CUstreams, and the other way round."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import standin

import aiodev
from aiodev._backends.cuda import CUDABackend
from aiodev._core.native import external_handle

SECOND = 1_000_000_000
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
        queue, _ = backend.adopt_stream(1, foreign)
        seen.add(queue)
        assert backend.handle_of(queue) == foreign
        filled = backend.fill(queue, here + 8, 8, bytes([turn]))
        with driver.bound(device.context):
            driver.call("cuMemsetD8Async", here + 15, 9, 1, foreign, doing="writing")
        if turn == 1:
            assert not backend.spin(queue, filled, 1_000_000)
            word[0] = 1
        last = backend.fill(queue, here + 8, 1, b"\7")
        assert backend.spin(queue, last, SECOND)
        assert list(word.__class__.from_address(here))[1] == int.from_bytes(bytes([7, *[turn] * 6, 9]), "little")
        backend.destroy_queue(queue)
    assert len(seen) == 1
    backend.deallocate_pinned(1, here)


def test_failures_are_those_of_the_queue(backend: CUDABackend, driver: standin.StandIn, foreign: int) -> None:
    """A call that is refused fails its operation, on the adopted stream as on any."""
    queue, _ = backend.adopt_stream(1, foreign)
    memory = backend.allocate(1, 64)
    driver.inject("cuMemsetD8Async", 1)
    failed = backend.fill(queue, memory, 8, b"x")
    assert backend.spin(queue, failed, SECOND) and backend.faults(queue)[0].first == failed
    backend.forgive(queue)
    assert backend.spin(queue, backend.fill(queue, memory, 8, b"x"), SECOND) and len(backend.faults(queue)) == 1
    backend.destroy_queue(queue)
    backend.deallocate(1, memory, 64)


def test_streams_that_cannot_be_taken(backend: CUDABackend, driver: standin.StandIn, foreign: int) -> None:
    """Those of another device, and those that are being captured."""
    with pytest.raises(ValueError, match="cuda:0: it is of another device"):
        backend.adopt_stream(0, foreign)
    driver.capture(True, foreign)
    with pytest.raises(aiodev.CaptureError, match="cuda:1"):
        backend.adopt_stream(1, foreign)
    driver.capture(False)


def test_a_handle_only_when_nothing_would_be_overtaken(backend: CUDABackend) -> None:
    """While an operation is held on the host the stream is not given away."""
    queue, _ = backend.create_queue(0, 0, False)
    handle = backend.handle_of(queue)
    assert handle != 0
    value, gate = backend.gate(queue)
    assert backend.handle_of(queue) == 0
    backend.open_gate(gate, False)
    assert backend.spin(queue, value, SECOND) and backend.handle_of(queue) == handle
    backend.destroy_queue(queue)


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
