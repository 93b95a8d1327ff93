"""Constructors take the values that the host has when they are called, whatever the streams are doing."""

from __future__ import annotations

import io
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import aiodev
from aiodev.testing.latch import Latch
from aiodev.testing.simulated import SimulatedBackend

pytestmark = pytest.mark.anyio

HostArray = np.ndarray[Any, np.dtype[Any]]
COUNT = 3000


@pytest.fixture(params=["cpu", "sim"])
def device(request: pytest.FixtureRequest) -> str:
    """Memory that the host reaches, and memory that it does not."""
    if request.param == "sim" and "sim" not in aiodev.available_backends():
        aiodev.register_backend("sim", SimulatedBackend)
    aiodev.init_blocking(request.param)
    return str(request.param)


class Interface:
    """What has NumPy's array interface and is none of NumPy's arrays."""

    def __init__(self, host: HostArray) -> None:
        self.host = host
        self.__array_interface__ = host.__array_interface__


class Holder:
    """What hands NumPy its own array."""

    def __init__(self, host: HostArray) -> None:
        self.host = host

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> HostArray:
        return self.host


def read_only(host: HostArray) -> HostArray:
    view = host[:]
    view.flags.writeable = False
    return view


MAKERS: dict[str, Callable[[HostArray, str], aiodev.Array]] = {
    "plain": lambda h, d: aiodev.asarray(h, device=d),
    "copy": lambda h, d: aiodev.asarray(h, device=d, copy=True),
    "other dtype": lambda h, d: aiodev.asarray(h, "f4", d),
    "other byte order": lambda h, d: aiodev.asarray(h.view(h.dtype.newbyteorder()), ">i8" if h.dtype.isnative else None, d),
    "with gaps": lambda h, d: aiodev.asarray(h[::2], device=d),
    "reversed": lambda h, d: aiodev.asarray(h[::-1], device=d),
    "transposed": lambda h, d: aiodev.asarray(h.reshape(3, -1).T, device=d),
    "repeated": lambda h, d: aiodev.asarray(np.broadcast_to(h, (2, h.size)), device=d),
    "read-only": lambda h, d: aiodev.asarray(read_only(h), device=d),
    "memoryview": lambda h, d: aiodev.asarray(memoryview(h), device=d),
    "interface": lambda h, d: aiodev.asarray(Interface(h), device=d),
    "holder": lambda h, d: aiodev.asarray(Holder(h), device=d),
    "list of arrays": lambda h, d: aiodev.asarray([h, h], device=d),
    "no dimensions": lambda h, d: aiodev.asarray(h[:1].reshape(()), device=d),
    "DLPack copy": lambda h, d: aiodev.from_dlpack(h, device=d, copy=True),
}


@pytest.mark.parametrize("maker", MAKERS)
async def test_a_constructor_takes_the_values_of_the_call(device: str, maker: str) -> None:
    """The host array changes right after the call, while the stream is held and memory is taken over from work to come."""
    async with aiodev.Stream(device) as stream:
        host = np.arange(COUNT)
        expected = await MAKERS[maker](host, device).numpy()
        held = Latch(stream)
        made = []
        for number in range(20):
            array = MAKERS[maker](host, device)
            stream.copy(aiodev.empty(array.shape, array.dtype, device), array)  # so that its memory is used when it is dropped
            if number % 2:
                made.append(array)
            del array  # whose memory the next one takes over
            host[:] = -1
            host[:] = np.arange(COUNT)
        host[:] = -1
        held.release()
        for array in made:
            assert np.array_equal(await array.numpy(), expected)


async def test_hundreds_of_arrays_of_one_host_array_behind_busy_streams(device: str) -> None:
    """Each has the values that it was made of."""
    streams = [aiodev.Stream(device) for _ in range(4)]
    host = np.empty(200, np.int64)
    latches = [Latch(stream) for stream in streams]
    arrays = []
    for number in range(400):
        host[:] = number
        with streams[number % 4]:
            arrays.append(aiodev.asarray(host, device=device))
    host[:] = -1
    for latch in latches:
        latch.release()
    for number, array in enumerate(arrays):
        assert (await array.numpy() == number).all()


async def test_a_receive_buffer_is_used_again(device: str) -> None:
    """``readinto`` the same buffer, and an array each time."""
    source = io.BytesIO(b"".join(np.full(1000, number, np.float32).tobytes() for number in range(3)))
    buffer = bytearray(4000)
    async with aiodev.Stream(device) as stream:
        held = Latch(stream)
        arrays = []
        while source.readinto(buffer):
            arrays.append(aiodev.asarray(np.frombuffer(buffer, np.float32), device=device))
        held.release()
        assert [int((await array.numpy())[-1]) for array in arrays] == [0, 1, 2]


async def test_memory_that_work_to_come_uses_is_written_behind_that_work() -> None:
    """What was dropped with a copy of it to come is copied as it was."""
    async with aiodev.Stream("cpu") as stream:
        first, kept = aiodev.asarray(np.full(COUNT, 1)), aiodev.empty(COUNT, "i8")
        held = Latch(stream)
        stream.copy(kept, first)
        address = first.address
        del first
        second = aiodev.asarray(np.full(COUNT, 2))
        assert second.address == address
        held.release()
        assert (await kept.numpy() == 1).all() and (await second.numpy() == 2).all()


async def test_memory_that_the_host_reaches_and_nothing_uses_needs_no_operation() -> None:
    """The values are there when the call returns, whatever the stream still has to do."""
    async with aiodev.Stream("cpu") as stream:
        held = Latch(stream)
        submitted = stream.timeline.submitted
        array = aiodev.asarray(np.arange(5.0), "f4")
        assert stream.timeline.submitted == submitted
        assert (await array.numpy()).tolist() == [0, 1, 2, 3, 4]
        held.release()


async def test_values_are_converted_as_numpy_does(device: str) -> None:
    """To another kind of number, from strings and from Python's objects, as ``np.asarray`` has it."""
    for given, dtype in (
        (np.array([1.7, -2.5]), "i4"),
        (np.array([0, 3]), "?"),
        (np.array(["1.5", "2"]), "f8"),
        (np.array([1, 2.5], object), "f4"),
        (["3", "4"], "i8"),
        (np.array([1, 2], ">u2"), None),
    ):
        found = await aiodev.asarray(given, dtype, device).numpy()
        expected = np.asarray(given, dtype)
        assert np.array_equal(found, expected) and found.dtype == expected.dtype.newbyteorder("=")


async def test_a_copy_from_the_host_is_asynchronous(device: str) -> None:
    """``copy_from`` and ``Stream.copy`` read the host array in stream order, as they say."""
    async with aiodev.Stream(device) as stream:
        host, array, other = np.zeros(COUNT), aiodev.empty(COUNT, device=device), aiodev.empty(COUNT, device=device)
        held = Latch(stream)
        array.copy_from(host)
        stream.copy(other, host)
        host[:] = 2
        held.release()
        assert (await array.numpy() == 2).all() and (await other.numpy() == 2).all()


async def test_a_range_takes_its_bounds_at_the_call(device: str) -> None:
    """NumPy's numbers without dimensions can change; large ranges are computed later."""
    async with aiodev.Stream(device) as stream:
        stop, held = np.array(50_000), Latch(stream)
        array = aiodev.arange(stop, device=device)
        stop[...] = 7
        held.release()
        assert np.array_equal(await array.numpy(), np.arange(50_000))
