"""Rules about devices, their memory, copies, fills and time."""

from __future__ import annotations

import ctypes
import random
import time

from aiodev._core.backend.interface import Capabilities, DeviceProperties, Executor
from aiodev.testing.rule import NotApplicable, rule
from aiodev.testing.workbench import Workbench

__all__ = ["RULES"]

_LARGE = (3 << 20) + 5


@rule
def devices_are_described(bench: Workbench) -> None:
    """There is a device, no reason to be unavailable, and each device's properties make sense and stay the same."""
    backend = bench.backend
    assert backend.unavailable_reason() is None, backend.unavailable_reason()
    assert backend.device_count() >= 1, "an available backend has no device"
    for index in range(backend.device_count()):
        properties = backend.device_properties(index)
        assert isinstance(properties, DeviceProperties)
        assert (properties.type, properties.index) == (backend.name, index), properties
        assert properties.name and properties.total_memory > 0 and properties.multi_processor_count > 0, properties
        assert properties == backend.device_properties(index), "a device's properties changed"


@rule
def allocations_are_aligned_and_apart(bench: Workbench) -> None:
    """Addresses are positive multiples of 256, and living allocations do not overlap."""
    for index in range(bench.backend.device_count()):
        sizes = [1, 7, 8, 255, 256, 257, 4095, 4097, 1 << 16, (1 << 20) + 1, (5 << 20) + 3]
        spans = sorted((bench.allocate(nbytes, index), nbytes) for nbytes in sizes)
        assert all(address > 0 and address % 256 == 0 for address, _ in spans), f"misaligned: {spans}"
        for (address, nbytes), (following, _) in zip(spans, spans[1:], strict=False):
            assert address + nbytes <= following, "two living allocations overlap"


@rule
def memory_can_be_given_back(bench: Workbench) -> None:
    """What is deallocated can be had again: 200 rounds of an eighth of the free memory, at most 256 MiB, succeed."""
    for index in range(bench.backend.device_count()):
        nbytes = min(bench.backend.memory_info(index)[0] // 8, 256 << 20)
        for _ in range(200):
            bench.backend.deallocate(index, bench.backend.allocate(index, nbytes), nbytes)


@rule
def memory_info_is_plausible(bench: Workbench) -> None:
    """``memory_info`` gives 0 <= free <= total, and the total is the device's."""
    for index in range(bench.backend.device_count()):
        free, total = bench.backend.memory_info(index)
        assert 0 <= free <= total, (free, total)
        assert total <= bench.backend.device_properties(index).total_memory, "more memory than the device has"


@rule
def too_much_memory_raises(bench: Workbench) -> None:
    """Asking for more than the device's total raises MemoryError, and leaves the device usable."""
    for index in range(bench.backend.device_count()):
        for nbytes in (bench.backend.memory_info(index)[1] + 1, 1 << 60):
            try:
                bench.backend.allocate(index, nbytes)
            except MemoryError:
                continue
            raise AssertionError(f"{nbytes:,} bytes were allocated on a device of {bench.backend.memory_info(index)}")
        bench.allocate(1 << 20, index)


@rule
def ranges_hold_memory_where_it_is_mapped(bench: Workbench) -> None:
    """Neighbouring pieces mapped one by one are one piece of memory; any granules of them may go, and be mapped afresh."""
    backend, lane = bench.backend, bench.lane()
    granule = backend.granularity(0)
    if granule == 0:
        raise NotApplicable("memory cannot be mapped into ranges")
    assert granule > 0 and granule % 256 == 0, f"a granularity of {granule} bytes"
    start = backend.reserve_range(0, 8 * granule)
    assert start > 0 and start % granule == 0, f"a range begins at {start:#x}, which is no multiple of {granule}"
    backend.map_range(0, start, granule)
    backend.map_range(0, start + granule, 3 * granule)
    lane.reach(bench.executor.fill(lane.number, start, 4 * granule, b"\x01"))
    backend.unmap_range(0, start + granule, 2 * granule)
    for kept in (start, start + 3 * granule):
        assert bench.read(kept, 64) == b"\x01" * 64, "memory beside what was unmapped has changed"
    backend.map_range(0, start + 2 * granule, granule)
    backend.map_range(0, start + granule, granule)
    data = random.Random(5).randbytes(256)
    for seam in (start + granule - 128, start + 2 * granule - 128, start + 3 * granule - 128):
        bench.write(seam, data)
        assert bench.read(seam, 256) == data, "two mapped pieces do not adjoin"
    backend.unmap_range(0, start, 4 * granule)
    backend.release_range(0, start, 8 * granule)


@rule
def ranges_are_refused_as_a_whole(bench: Workbench) -> None:
    """A range may be larger than the device; mapping more than that has raises MemoryError and leaves nothing mapped."""
    backend = bench.backend
    granule = backend.granularity(0)
    if granule == 0:
        raise NotApplicable("memory cannot be mapped into ranges")
    free = backend.memory_info(0)[0]
    nbytes = (backend.memory_info(0)[1] // granule + 2) * granule
    start = backend.reserve_range(0, nbytes)
    try:
        backend.map_range(0, start, nbytes)
    except MemoryError:
        pass
    else:
        raise AssertionError(f"{nbytes:,} bytes were mapped on a device of {backend.memory_info(0)}")
    assert abs(backend.memory_info(0)[0] - free) < nbytes // 8, "a refused mapping has kept memory"
    backend.map_range(0, start, granule)
    backend.unmap_range(0, start, granule)
    backend.release_range(0, start, nbytes)


@rule
def copies_move_exactly_their_bytes(bench: Workbench) -> None:
    """Copies of any length at any offset, to, from and within a device, move those bytes and no others."""
    chance, limit = random.Random(2), 1 << 12
    first, second, lane = bench.allocate(limit), bench.allocate(limit), bench.lane()
    image = bytearray(chance.randbytes(limit))
    bench.write(first, bytes(image))
    bench.write(second, b"\0" * limit)
    expected = bytearray(limit)
    for nbytes in (0, 1, 2, 3, 7, 8, 9, 31, 64, 100, 255, 1000):
        src, dst = chance.randrange(limit - nbytes), chance.randrange(limit - nbytes)
        bench.executor.copy(lane.number, second + dst, first + src, nbytes)
        expected[dst : dst + nbytes] = image[src : src + nbytes]
    lane.finish()
    assert bench.read(second, limit) == bytes(expected), "a copy moved the wrong bytes"
    assert bench.read(first, limit) == bytes(image), "a copy changed its source"


@rule
def large_copies_are_whole(bench: Workbench) -> None:
    """A copy of megabytes arrives whole, and what follows it in the queue sees all of it."""
    data = random.Random(3).randbytes(_LARGE)
    first, second, third = (bench.allocate(_LARGE) for _ in range(3))
    bench.write(first, data)
    lane = bench.lane()
    bench.executor.copy(lane.number, second, first, _LARGE)
    bench.executor.copy(lane.number, third, second, _LARGE)
    lane.finish()
    assert bench.read(third, _LARGE) == data, "a large copy is not whole"


@rule
def host_memory_is_read_when_the_copy_runs(bench: Workbench) -> None:
    """A copy reads its source when its turn comes, not at submission."""
    lane, cells, source = bench.lane(), bench.cells([0]), bench.host(8)
    _, gate = lane.gate()
    bench.executor.copy(lane.number, cells[0], ctypes.addressof(source), 8)
    ctypes.memset(ctypes.addressof(source), 99, 1)
    bench.open(gate)
    lane.finish()
    assert bench.values(cells) == [99], "a copy read its source before its turn"


@rule
def fills_repeat_their_pattern(bench: Workbench) -> None:
    """Fills with patterns of 1, 2, 4, 8 and 16 bytes, any count, write exactly that many patterns."""
    chance, lane, room = random.Random(4), bench.lane(), 1 << 14
    for width in (1, 2, 4, 8, 16):
        for count in (0, 1, 2, 3, 17, 256, 511):
            address, pattern = bench.allocate(room), chance.randbytes(width)
            bench.write(address, b"\xee" * room)
            bench.executor.fill(lane.number, address + 16 * width, count, pattern)
            lane.finish()
            body = pattern * count
            expected = b"\xee" * (16 * width) + body
            content = bench.read(address, room)
            assert content == expected.ljust(room, b"\xee"), f"a fill of {count} patterns of {width} bytes is wrong"


@rule
def large_fills_are_whole(bench: Workbench) -> None:
    """A fill of megabytes is whole for each width of pattern."""
    lane = bench.lane()
    for width in (1, 2, 4, 8, 16):
        pattern = bytes(range(1, width + 1))
        count = _LARGE // width
        address = bench.allocate(_LARGE)
        lane.reach(bench.executor.fill(lane.number, address, count, pattern))
        content = bench.read(address, count * width)
        assert content == pattern * count, f"a large fill of {width}-byte patterns is not whole"


@rule
def stamps_tell_the_time_in_order(bench: Workbench) -> None:
    """Stamps of a queue never decrease, and lie between the host's times before submission and after completion."""
    if not bench.backend.capabilities.timing:
        raise NotApplicable("capabilities.timing is false")
    lane, cells = bench.lane(), bench.host(8 * 200)
    before = time.perf_counter_ns()
    for i in range(200):
        bench.executor.stamp(lane.number, ctypes.addressof(cells) + 8 * i)
    lane.finish()
    after = time.perf_counter_ns()
    stamps = list((ctypes.c_int64 * 200).from_buffer(cells))
    assert stamps == sorted(stamps), "a later stamp is earlier"
    assert before <= stamps[0] and stamps[-1] <= after, f"stamps {stamps[0]} … {stamps[-1]} not in {before} … {after}"


@rule
def stamps_measure_a_held_queue(bench: Workbench) -> None:
    """Two stamps around a gate are apart by at least the time that the gate was held shut."""
    if not bench.backend.capabilities.timing:
        raise NotApplicable("capabilities.timing is false")
    lane, cells = bench.lane(), bench.host(16)
    lane.reach(bench.executor.stamp(lane.number, ctypes.addressof(cells)))
    value, gate = lane.gate()
    bench.executor.stamp(lane.number, ctypes.addressof(cells) + 8)
    begin = time.perf_counter_ns()
    lane.spin(value, 5_000_000)
    held = time.perf_counter_ns() - begin
    bench.open(gate)
    lane.finish()
    first, second = (ctypes.c_int64 * 2).from_buffer(cells)
    assert second - first >= held, f"stamps are {second - first} ns apart around a gate held for {held} ns"


@rule
def start_has_made_an_executor(bench: Workbench) -> None:
    """A started backend has one executor, which stays."""
    assert isinstance(bench.executor, Executor), f"it is {bench.executor!r}"
    assert bench.backend.executor is bench.executor, "the executor was replaced"


@rule
def capabilities_agree(bench: Workbench) -> None:
    """What it says that it can do fits together: as memory that is the host's has no number of its own in DLPack."""
    capabilities = bench.backend.capabilities
    assert isinstance(capabilities, Capabilities), f"capabilities are {capabilities!r}"
    highest, lowest = capabilities.priorities
    assert highest <= lowest, f"priorities are highest and lowest, not {highest, lowest}"
    assert not (capabilities.host_accessible and capabilities.dlpack_types), "host memory has the host's number in DLPack"
    assert capabilities.simt or not capabilities.thread_blocks, "there are blocks of threads, and no threads"
    assert capabilities.native_streams or not capabilities.cuda_interfaces, "CUDA's streams are a driver's"


RULES = (
    start_has_made_an_executor,
    capabilities_agree,
    devices_are_described,
    allocations_are_aligned_and_apart,
    memory_can_be_given_back,
    memory_info_is_plausible,
    too_much_memory_raises,
    ranges_hold_memory_where_it_is_mapped,
    ranges_are_refused_as_a_whole,
    copies_move_exactly_their_bytes,
    large_copies_are_whole,
    host_memory_is_read_when_the_copy_runs,
    fills_repeat_their_pattern,
    large_fills_are_whole,
    stamps_tell_the_time_in_order,
    stamps_measure_a_held_queue,
)
