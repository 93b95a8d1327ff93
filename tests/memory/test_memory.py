"""The public functions of aiodev.memory, on the CPU device."""

from __future__ import annotations

import concurrent.futures
import gc
from collections.abc import Iterator

import pytest

import aiodev
from aiodev import memory
from aiodev._memory.stats import COUNTS, Totals
from aiodev._memory.views import CountsView
from aiodev.testing.latch import Latch

MIB = 1 << 20


@pytest.fixture(autouse=True)
def clean() -> Iterator[None]:
    """Nothing cached before, no limit after."""
    aiodev.synchronize_blocking("cpu")
    memory.empty_cache("cpu")
    memory.reset_peak_memory_stats("cpu")
    yield
    memory.set_per_process_memory_fraction(1.0, "cpu")


def test_allocated_follows_the_arrays_and_reserved_the_cache() -> None:
    """Up when made, down when dropped; the cache keeps until it is emptied."""
    allocated, reserved = memory.memory_allocated("cpu"), memory.memory_reserved("cpu")
    array = aiodev.empty(8 * MIB, "u1", "cpu")
    assert memory.memory_allocated("cpu") == allocated + array.nbytes
    del array
    assert memory.memory_allocated("cpu") == allocated
    assert memory.max_memory_allocated("cpu") >= allocated + 8 * MIB
    assert memory.memory_reserved("cpu") == reserved + 8 * MIB
    memory.empty_cache("cpu")
    assert memory.memory_reserved("cpu") == reserved
    memory.reset_peak_memory_stats("cpu")
    assert memory.max_memory_reserved("cpu") == reserved


def test_views_keep_their_memory() -> None:
    """The last view of a buffer frees it."""
    allocated = memory.memory_allocated("cpu")
    view = aiodev.empty((4, MIB), "u1", "cpu")[1:2].T
    assert memory.memory_allocated("cpu") == allocated + 4 * MIB
    del view
    assert memory.memory_allocated("cpu") == allocated


def test_memory_of_work_in_flight_is_pending_until_it_is_done() -> None:
    """Dropping an array behind a latch: its block is neither active nor inactive, and not given back."""
    stream = aiodev.Stream("cpu")
    with aiodev.stream(stream):
        array = aiodev.empty(3 * MIB, "u1", "cpu")
        with Latch(stream):
            stream.copy(array, bytearray(3 * MIB))
            address = array._address
            del array
            assert state(address) == "active_pending_free"
            memory.empty_cache("cpu")
            assert state(address) == "active_pending_free"
        stream.synchronize_blocking()
    assert state(address) == "inactive"
    memory.empty_cache("cpu")
    assert state(address) is None


def state(address: int) -> str | None:
    """What the snapshot says of a block."""
    blocks = [block for segment in memory.memory_snapshot("cpu") for block in segment["blocks"]]
    return next((block["state"] for block in blocks if block["address"] == address), None)


def test_a_fraction_limits_this_process() -> None:
    """OutOfMemoryError says so; lifting the limit helps."""
    free, total = memory.mem_get_info("cpu")
    assert 0 < free <= total
    memory.set_per_process_memory_fraction((memory.memory_reserved("cpu") + 4 * MIB) / total, "cpu")
    with pytest.raises(aiodev.OutOfMemoryError) as caught:
        aiodev.empty(64 * MIB, "u1", "cpu")
    assert caught.value.requested == 64 * MIB
    memory.set_per_process_memory_fraction(1.0, "cpu")
    aiodev.empty(64 * MIB, "u1", "cpu")
    for bad in (-0.1, 1.5):
        with pytest.raises(ValueError):
            memory.set_per_process_memory_fraction(bad, "cpu")


def test_a_lower_limit_gives_back_what_is_cached() -> None:
    """As far as nobody uses it."""
    total = memory.mem_get_info("cpu")[1]
    used = aiodev.empty(8 * MIB, "u1", "cpu")
    del [aiodev.empty(64 * MIB, "u1", "cpu")][:]
    limit = memory.memory_reserved("cpu") - 32 * MIB
    memory.set_per_process_memory_fraction(limit / total, "cpu")
    assert used.nbytes <= memory.memory_reserved("cpu") <= limit


def test_a_hook_may_be_there_twice() -> None:
    """Each registration of a function is taken away by itself, in any order, and once."""
    calls: list[int] = []

    def hook(device: aiodev.Device, nbytes: int) -> None:
        calls.append(nbytes)

    first, second = (memory.on_out_of_memory(hook, "cpu") for _ in range(2))
    memory.set_per_process_memory_fraction(memory.memory_reserved("cpu") / memory.mem_get_info("cpu")[1], "cpu")
    for remove, expected in ((second, 1), (second, 1), (first, 0)):
        remove()
        calls.clear()
        with pytest.raises(aiodev.OutOfMemoryError):
            aiodev.empty(1 << 40, "u1", "cpu")
        assert len(calls) == expected


def test_a_fraction_is_of_what_the_device_has() -> None:
    """A limit leaves less to this process, and less to lease; the total stays what it is, for the next limit."""
    total = memory.mem_get_info("cpu")[1]
    try:
        for room in (8 * MIB, 16 * MIB, 4 * MIB):
            reserved = memory.memory_reserved("cpu")
            memory.set_per_process_memory_fraction((reserved + room) / total, "cpu")
            free, found = memory.mem_get_info("cpu")
            assert found == total
            assert room - 1 <= free <= room
            assert memory.lease(1, "cpu")._admission._capacity() == free + reserved
            with pytest.raises(aiodev.OutOfMemoryError) as caught:
                aiodev.empty(64 * MIB + reserved, "u1", "cpu")
            assert caught.value.total == free + reserved < total
    finally:
        memory.set_per_process_memory_fraction(1.0, "cpu")
    assert memory.mem_get_info("cpu")[1] == total


def test_statistics_have_torchs_names_and_a_table() -> None:
    """Counts add up: allocated less freed is current."""
    kept = aiodev.empty(100, device="cpu")
    stats = memory.memory_stats("cpu")
    for name in ("allocated_bytes", "reserved_bytes", "segment", "allocation"):
        ever, freed = stats[f"{name}.all.allocated"], stats[f"{name}.all.freed"]
        assert stats[f"{name}.all.current"] == ever - freed > 0
    summary = memory.memory_summary("cpu")
    assert "cpu:0" in summary
    assert "allocated" in summary
    del kept


def test_more_than_the_machine_has_is_out_of_memory() -> None:
    """No overcommitted mapping that kills the process later."""
    with pytest.raises(aiodev.OutOfMemoryError):
        aiodev.empty(1 << 50, "u1", "cpu")


@pytest.mark.parametrize("way", ["call", "wait_future"])
def test_a_handled_failure_gives_its_memory_back(way: str) -> None:
    """The frame that handled it held arrays whose memory had been in use on that stream; the allocator keeps none of them."""

    def fail() -> None:
        raise KeyError("no such row")

    def handle() -> None:
        stream = aiodev.Stream("cpu")
        with stream:
            for _ in range(2):  # the second one has the memory of the first, which may still be in use
                array = aiodev.zeros(MIB, "u1")
        failed: concurrent.futures.Future[None] = concurrent.futures.Future()
        failed.set_exception(KeyError("no such row"))
        try:
            (stream.call(fail) if way == "call" else stream.wait_future(failed)).synchronize_blocking()
        except KeyError:
            assert array.nbytes == MIB

    handle()
    gc.collect()
    before = memory.memory_allocated("cpu")
    for _ in range(20):
        handle()
    gc.collect()
    assert memory.memory_allocated("cpu") <= before


def test_native_code_has_the_counts_where_they_are() -> None:
    """The first ones, in their order."""
    assert tuple(CountsView.fields) == COUNTS[: len(CountsView.fields)]
    totals = Totals()
    totals.allocated, totals.peak_allocated = 3, 5
    counts = CountsView(totals.address)
    assert (counts.allocated, counts.frees, counts.peak_allocated) == (3, 0, 5)
