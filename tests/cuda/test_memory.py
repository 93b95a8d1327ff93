"""Ranges of addresses that memory is mapped into, on the stand-in, which refuses what the driver's documentation forbids."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterator

import pytest
import standin

from aiodev._backends.cuda import CUDABackend
from aiodev._backends.cuda.driver import DriverError
from aiodev._backends.cuda.memory import DeviceMemory

#: ns that nothing takes
PATIENCE = 30_000_000_000
GRANULE = 2 << 20
INVALID_VALUE, OUT_OF_MEMORY, NOT_SUPPORTED = 1, 2, 801


@pytest.fixture
def start(backend: CUDABackend) -> Iterator[int]:
    """A range of eight granules, which must be empty again when the test ends."""
    free = backend.memory_info(0)[0]
    address = backend.reserve_range(0, 8 * GRANULE)
    yield address
    backend.release_range(0, address, 8 * GRANULE)
    assert backend.memory_info(0)[0] == free, "memory was kept"


def test_the_granularity_follows_the_device(backend: CUDABackend) -> None:
    """The driver's own on a small device."""
    assert backend.granularity(0) == GRANULE


def test_large_granules(backend: CUDABackend) -> None:
    """Of 32 MiB on a device of 139 GiB, at multiples of that whatever the driver's addresses are."""
    device = backend.executor.devices[0]
    memory = DeviceMemory(device.driver, 0, 0, device.context, 139 << 30)
    assert memory.granularity == 32 << 20
    free = memory.info()[0]
    ranges = [memory.reserve(4 * memory.granularity) for _ in range(3)]
    for address in ranges:
        assert address % memory.granularity == 0
        memory.map(address + memory.granularity, 2 * memory.granularity)
        assert memory.info()[0] == free - 2 * memory.granularity
        memory.unmap(address + memory.granularity, 2 * memory.granularity)
        memory.release(address, 4 * memory.granularity)
    assert memory.info()[0] == free


@pytest.mark.parametrize(("function", "after", "tried"), [("cuMemCreate", 0, 2), ("cuMemSetAccess", 0, 2), ("cuInit", 0, 1)])
def test_mapping_is_tried_first(
    function: str, after: int, tried: int, backend: CUDABackend, driver: standin.StandIn
) -> None:
    """What the driver has by its attributes, but refuses, is done without: memory for remote access, then mapping at all."""
    device = backend.executor.devices[0]
    before, free = driver.count("cuMemCreate"), backend.memory_info(0)[0]
    driver.inject(function, NOT_SUPPORTED, after)
    assert DeviceMemory(device.driver, 0, 0, device.context, 1 << 30).granularity == GRANULE
    assert driver.count("cuMemCreate") - before == tried and backend.memory_info(0)[0] == free
    driver.inject("", 0)


def test_memory_is_counted_where_it_is_mapped(backend: CUDABackend, start: int) -> None:
    """Reserving takes none; what is unmapped is free again, in whatever pieces it was mapped."""
    free = backend.memory_info(0)[0]
    backend.map_range(0, start, 3 * GRANULE)
    backend.map_range(0, start + 3 * GRANULE, GRANULE)
    assert backend.memory_info(0)[0] == free - 4 * GRANULE
    backend.unmap_range(0, start + GRANULE, GRANULE)
    backend.unmap_range(0, start + 2 * GRANULE, 2 * GRANULE)
    assert backend.memory_info(0)[0] == free - GRANULE
    backend.unmap_range(0, start, GRANULE)


@pytest.mark.parametrize(
    ("function", "after"), [("cuMemCreate", 0), ("cuMemCreate", 2), ("cuMemMap", 0), ("cuMemMap", 2), ("cuMemSetAccess", 0)]
)
@pytest.mark.parametrize(("status", "kind"), [(OUT_OF_MEMORY, MemoryError), (INVALID_VALUE, DriverError)])
def test_a_refused_mapping_leaves_nothing(
    function: str, status: int, kind: type[Exception], after: int, backend: CUDABackend, driver: standin.StandIn, start: int
) -> None:
    """Whichever call is refused, for whichever granule: no memory is kept, and the same range can be mapped afterwards."""
    free = backend.memory_info(0)[0]
    driver.inject(function, status, after)
    with pytest.raises(kind, match="mapping 8,388,608 bytes on cuda:0"):
        backend.map_range(0, start, 4 * GRANULE)
    assert backend.memory_info(0)[0] == free
    backend.map_range(0, start, 4 * GRANULE)
    backend.unmap_range(0, start, 4 * GRANULE)


def test_addresses_that_the_driver_has_not(backend: CUDABackend, driver: standin.StandIn) -> None:
    """Running out of addresses is a MemoryError, which the allocator answers with a smaller range."""
    driver.inject("cuMemAddressReserve", OUT_OF_MEMORY)
    with pytest.raises(MemoryError, match="reserving 2,097,152 bytes of addresses on cuda:0"):
        backend.reserve_range(0, GRANULE)


def test_misuse_is_seen(backend: CUDABackend, start: int) -> None:
    """The stand-in refuses what the driver would: mapping what is mapped, giving back what is not, or in use."""
    backend.map_range(0, start, 2 * GRANULE)
    with pytest.raises(DriverError):
        backend.map_range(0, start + GRANULE, 2 * GRANULE)
    with pytest.raises(DriverError):
        backend.unmap_range(0, start + 2 * GRANULE, GRANULE)
    with pytest.raises(DriverError):
        backend.release_range(0, start, 8 * GRANULE)
    with pytest.raises(DriverError):
        backend.deallocate(0, start, GRANULE)
    backend.unmap_range(0, start, 2 * GRANULE)


def test_copies_between_devices_name_both(backend: CUDABackend, driver: standin.StandIn) -> None:
    """Mapped memory can be reached from its own device alone; a copy between two, by a stream of either, arrives."""
    ranges = [backend.reserve_range(index, GRANULE) for index in range(2)]
    found = (ctypes.c_char * 16)()
    for index, address in enumerate(ranges):
        backend.map_range(index, address, GRANULE)
    for index in range(2):
        queue, _ = backend.executor.create_queue(index, 0, False)
        before = driver.count("cuMemcpyPeerAsync")
        backend.executor.fill(queue, ranges[index], 16, b"\x07" if index else b"\x09")
        backend.executor.copy(queue, ranges[1 - index], ranges[index], 16)
        backend.executor.copy(queue, ranges[1 - index] + 16, ranges[1 - index], 16)
        done = backend.executor.copy(queue, ctypes.addressof(found), ranges[1 - index] + 16, 16)
        assert backend.executor.spin(queue, done, PATIENCE) and not backend.executor.faults(queue)
        assert found.raw == (b"\x07" if index else b"\x09") * 16
        assert driver.count("cuMemcpyPeerAsync") == before + 1
        backend.executor.destroy_queue(queue)
    for index, address in enumerate(ranges):
        backend.unmap_range(index, address, GRANULE)
        backend.release_range(index, address, GRANULE)


def test_what_is_not_mapped_cannot_be_used(run: Callable[..., str]) -> None:
    """Unmapped again, addresses are no memory: the copy that uses them is refused."""
    said = run(
        """
backend.start()
queue, _ = backend.executor.create_queue(0, 0, False)
granule = backend.granularity(0)
start = backend.reserve_range(0, 2 * granule)
backend.map_range(0, start, 2 * granule)
assert backend.executor.spin(queue, backend.executor.fill(queue, start + granule - 8, 16, b"x"), 30 * 10**9)
backend.unmap_range(0, start, granule)
value = backend.executor.fill(queue, start + granule - 8, 16, b"x")
assert backend.executor.spin(queue, value, 30 * 10**9)
print(type(backend.executor.faults(queue)[0].error).__name__)
"""
    )
    assert said == "DeviceLostError\n"


def test_devices_without_virtual_memory(run: Callable[..., str]) -> None:
    """The allocator works there with allocations of fixed size."""
    said = run(
        """
async def main():
    x = aiodev.zeros(1000, device="cuda")
    await aiodev.synchronize("cuda")
    print(backend.granularity(0), driver.count("cuMemCreate"), aiodev.memory.memory_reserved("cuda"))
asyncio.run(main())
""",
        STANDIN_NO_VIRTUAL_MEMORY="1",
    )
    assert said == f"0 0 {2 << 20}\n"


def test_arrays_lie_in_ranges(run: Callable[..., str]) -> None:
    """A program's arrays are mapped memory; when they are gone and the cache is emptied, so is the memory."""
    said = run(
        """
import numpy as np
async def main():
    await aiodev.zeros(1, device="cuda").numpy()
    free, before = backend.memory_info(0)[0], driver.count("cuMemAlloc")
    host = np.arange(3 << 20, dtype="f4")
    arrays = [aiodev.asarray(host, device="cuda") for _ in range(3)]
    for x in arrays:
        assert (await x.numpy() == host).all()
    print(driver.count("cuMemCreate") - driver.count("cuMemUnmap"), driver.count("cuMemAlloc") - before)
    del arrays, x
    await aiodev.synchronize("cuda")
    aiodev.memory.empty_cache("cuda")
    print(backend.memory_info(0)[0] - free, driver.count("cuMemCreate") - driver.count("cuMemUnmap"))
asyncio.run(main())
"""
    )
    assert said == "19 0\n2097152 0\n"  # one of them for the first array, which is little enough to be kept


def test_arrays_with_gaps_between_devices(run: Callable[..., str]) -> None:
    """Kernels reach the memory of their own device: what has gaps is packed, and unpacked, where it is."""
    said = run(
        """
import numpy as np

async def main():
    await aiodev.init("cuda")
    host = np.arange(80 * 50).reshape(80, 50)
    for there, here in (("cuda:0", "cuda:1"), ("cuda:1", "cuda:0")):
        for whose in (there, here):
            x, y = aiodev.asarray(host, device=there), aiodev.zeros((100, 160), "i8", here)
            plain = aiodev.zeros((25, 40), "i8", here)
            with aiodev.Stream(whose) as stream:
                await aiodev.synchronize(there)
                await aiodev.synchronize(here)
                stream.copy(y[::4, ::4], x[::2, ::2].T)     # gaps on both sides
                stream.copy(plain, x[::2, ::2].T)           # of the source alone
                done = stream.copy(y[1::4, 1::4], x.reshape(100, 40)[:25])   # of the target alone
                await done
            expected = np.zeros((100, 160), int)
            expected[::4, ::4], expected[1::4, 1::4] = host[::2, ::2].T, host.reshape(100, 40)[:25]
            assert ((await y.numpy()) == expected).all() and ((await plain.numpy()) == host[::2, ::2].T).all()
    y[::4, ::4].copy_from(x[::2, ::2].T)    # on a stream that is chosen
    assert ((await y.numpy()) == expected).all()
    print("done")

asyncio.run(main())
"""
    )
    assert said == "done\n"
