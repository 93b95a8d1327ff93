"""Bringing arrays to the host: what is waited for, what is seen, and what becomes of failures."""

from __future__ import annotations

import time
from typing import Any

import anyio
import numpy as np
import pytest

import aiodev
from aiodev.testing.latch import Latch

pytestmark = pytest.mark.anyio
LARGE = 100_000  # too large to be copied at once


@pytest.mark.parametrize("size", [10, LARGE])
async def test_a_read_waits_for_its_own_memory_alone(size: int) -> None:
    """Work that the same stream was given later, and that does not end, does not matter."""
    stream = aiodev.Stream("cpu")
    async with stream:
        array = aiodev.arange(size)
        with Latch(stream):
            assert np.array_equal(await array.numpy(), np.arange(size))
    await stream.synchronize()


@pytest.mark.parametrize("size", [10, LARGE])
async def test_a_read_waits_for_work_on_the_array(size: int) -> None:
    """The copy is behind a latch: so is the read."""
    stream = aiodev.Stream("cpu")
    async with stream:
        array = aiodev.zeros(size, "i4")
        latch = Latch(stream)
        array.copy_from(np.arange(size, dtype="i4"))
        found: list[Any] = []

        async def read() -> None:
            found.append(await array.numpy())

        async with anyio.create_task_group() as group:
            group.start_soon(read)
            await anyio.wait_all_tasks_blocked()
            assert not found
            latch.release()
        assert np.array_equal(found[0], np.arange(size))


@pytest.mark.parametrize("size", [10, LARGE])
async def test_a_read_sees_the_state_of_its_call(size: int) -> None:
    """What is submitted while it waits comes after it."""
    stream = aiodev.Stream("cpu")
    async with stream:
        array = aiodev.zeros(size, "i4")
        latch = Latch(stream)
        array.copy_from(np.full(size, 1, "i4"))
        found: list[Any] = []

        async def read() -> None:
            found.append(await array.numpy())

        async with anyio.create_task_group() as group:
            group.start_soon(read)
            await anyio.wait_all_tasks_blocked()
            array.copy_from(np.full(size, 2, "i4"))
            latch.release()
        assert (found[0] == 1).all()
        assert (await array.numpy() == 2).all()


async def test_a_failure_reaches_the_reader_and_its_stream_works_again() -> None:
    """The first failure is raised as it is; other streams' reads do not notice; the stream was told."""
    stream, other = aiodev.Stream("cpu"), aiodev.Stream("cpu")

    def fail() -> None:
        raise KeyError("no such row")

    for size in (10, LARGE):
        async with other:
            good = aiodev.ones(size)
        async with stream:
            array = aiodev.ones(size)
            stream.call(fail)
            array.copy_from(np.zeros(size))
            with pytest.raises(aiodev.DependencyError) as caught:
                await array.numpy()
            assert isinstance(caught.value.__cause__, KeyError)
            assert (await good.numpy() == 1).all()
            array.copy_from(np.full(size, 3.0))
            assert (await array.numpy() == 3).all()


@pytest.mark.parametrize("size", [10, LARGE])
async def test_a_failure_that_is_over_reaches_the_reader_too(size: int) -> None:
    """Nothing is left to wait for, and the array was never computed: every read says so."""
    stream = aiodev.Stream("cpu")

    def fail() -> None:
        raise KeyError("no such row")

    async with stream:
        array = aiodev.ones(size)
        stream.call(fail)
        array.copy_from(np.zeros(size))
        with pytest.raises(KeyError):
            await stream.synchronize()
        for _ in range(2):
            with pytest.raises(aiodev.DependencyError):
                await array.numpy()
        array.copy_from(np.full(size, 2.0))
        assert (await array.numpy() == 2).all()


async def test_an_array_that_a_failed_stream_only_read_is_good() -> None:
    """It was the source of a copy that did not run."""
    writer, reader = aiodev.Stream("cpu"), aiodev.Stream("cpu")

    def fail() -> None:
        raise KeyError("no such row")

    async with writer:
        array = aiodev.ones(10)
    await writer.synchronize()
    reader.call(fail)
    reader.copy(np.empty(10), array)
    with pytest.raises(KeyError):
        await reader.synchronize()
    assert (await array.numpy() == 1).all()


async def test_a_cancelled_read_leaves_the_array_alone() -> None:
    """The waiting stops; the copy's memory lives until it is done; later reads work."""
    stream = aiodev.Stream("cpu")
    async with stream:
        array = aiodev.zeros(LARGE, "i4")
        latch = Latch(stream)
        array.copy_from(np.arange(LARGE, dtype="i4"))
        async with anyio.create_task_group() as group:
            group.start_soon(array.numpy)
            await anyio.wait_all_tasks_blocked()
            group.cancel_scope.cancel()
        latch.release()
        assert np.array_equal(await array.numpy(), np.arange(LARGE))


async def test_reads_of_views_with_gaps() -> None:
    """Small gaps are copied along, large ones are not; both give the elements."""
    host = np.arange(1000 * 1000, dtype="i4").reshape(1000, 1000)
    array = aiodev.asarray(host, device="cpu")
    for index in [np.s_[::2, 1::3], np.s_[::-1, ::-1], np.s_[:, 7], np.s_[500], np.s_[3:3], np.s_[:, :, None]]:
        assert np.array_equal(await array[index].numpy(), host[index])
    assert np.array_equal(await array.T.numpy(), host.T)


async def test_reading_and_copying_leave_the_loop_free() -> None:
    """While 64 MiB come and go, the loop's other task is never held up for as long as the copies take."""
    array = aiodev.zeros(64 << 20, "u1", "cpu")
    host = np.ones(64 << 20, "u1")
    await array.numpy()
    worst, busy = 0.0, True

    async def beat() -> None:
        nonlocal worst
        last = time.perf_counter()
        while busy:
            await anyio.lowlevel.checkpoint()
            now = time.perf_counter()
            worst, last = max(worst, now - last), now

    async with anyio.create_task_group() as group:
        group.start_soon(beat)
        began = time.perf_counter()
        for _ in range(4):
            array.copy_from(host)
            await array.numpy()
        took = time.perf_counter() - began
        busy = False
    assert worst < took / 2


def test_blocking_reads_time_out() -> None:
    """TimeoutError, and the array is as good as before."""
    stream = aiodev.Stream("cpu")
    with stream:
        array = aiodev.zeros(4)
        with Latch(stream):
            array.copy_from(np.ones(4))
            with pytest.raises(TimeoutError):
                array.numpy_blocking(timeout=0.01)
        assert (array.numpy_blocking() == 1).all()


async def test_an_array_dropped_with_work_in_flight_keeps_its_memory() -> None:
    """Another stream's new array never gets the memory that a queued copy writes."""
    stream, other = aiodev.Stream("cpu"), aiodev.Stream("cpu")
    latch = Latch(stream)
    async with stream:
        for _ in range(50):
            aiodev.asarray(np.full(1000, 9, "i4"))
    async with other:
        fresh = [aiodev.zeros(1000, "i4") for _ in range(100)]
        await other.synchronize()
    latch.release()
    await stream.synchronize()
    for array in fresh:
        assert not (await array.numpy()).any()
