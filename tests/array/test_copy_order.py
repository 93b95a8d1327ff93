"""Copies between the host and devices: their order, what keeps their memory alive, who is told of a failure."""

from __future__ import annotations

import gc
import logging
import weakref
from collections.abc import Callable
from typing import Any

import anyio
import numpy as np
import pytest

import aiodev
from aiodev.testing.latch import Latch
from aiodev.testing.simulated import SimulatedBackend

pytestmark = pytest.mark.anyio
COUNT = 50_000


@pytest.fixture(scope="module", autouse=True)
def backend() -> SimulatedBackend:
    """The simulated backend of this process."""
    if "sim" not in aiodev.available_backends():
        aiodev.register_backend("sim", SimulatedBackend)
    aiodev.init_blocking("sim")
    found = aiodev.get_backend("sim")
    assert isinstance(found, SimulatedBackend)
    return found


def numbers(start: int = 0) -> np.ndarray[Any, np.dtype[np.int32]]:
    """More than is copied at once."""
    return np.arange(start, start + COUNT, dtype=np.int32)


async def test_host_memory_is_used_in_stream_order() -> None:
    """What the stream wrote to it before is read; what it is given later comes after it."""
    async with aiodev.Stream("sim") as stream:
        first, second = aiodev.asarray(numbers()), aiodev.empty(COUNT, "i4")
        host = np.zeros(COUNT, np.int32)
        latch = Latch(stream)
        stream.copy(host, first)
        stream.copy(second, host)
        stream.call(host.fill, -1)
        latch.release()
        assert np.array_equal(await second.numpy(), numbers())
        await stream.synchronize()
        assert (host == -1).all()


async def test_source_and_target_live_until_the_copy_is_done() -> None:
    """Arrays whose only reference is the copy."""
    async with aiodev.Stream("sim") as stream:
        array = aiodev.empty(COUNT, "i4")
        latch = Latch(stream)
        source, target = numbers(5), np.empty(COUNT, np.int32)
        alive = [weakref.ref(source), weakref.ref(target)]
        array.copy_from(source)
        stream.copy(target, array)
        del source, target
        gc.collect()
        assert all(reference() is not None for reference in alive)
        latch.release()
        assert np.array_equal(await array.numpy(), numbers(5))
        await stream.synchronize()


async def test_a_source_that_changes_behind_a_latch_is_read_late() -> None:
    """It must not change until the completion is done; after that it may."""
    async with aiodev.Stream("sim") as stream:
        array, host = aiodev.empty(COUNT, "i4"), numbers()
        done = array.copy_from(host)
        await done
        host[:] = -1
        assert np.array_equal(await array.numpy(), numbers())
        latch = Latch(stream)
        array.copy_from(host)
        host[:] = 9
        latch.release()
        assert (await array.numpy() == 9).all()


async def test_a_cancelled_read_and_the_next_one() -> None:
    """The waiting stops, the copy does not, and its memory lives until it is done."""
    async with aiodev.Stream("sim") as stream:
        array = aiodev.asarray(numbers())
        latch = Latch(stream)
        array.copy_from(numbers(1))
        async with anyio.create_task_group() as group:
            for _ in range(5):
                group.start_soon(array.numpy)
            await anyio.wait_all_tasks_blocked()
            group.cancel_scope.cancel()
        gc.collect()
        latch.release()
        assert np.array_equal(await array.numpy(), numbers(1))


@pytest.mark.parametrize("direction", ["upload", "download", "numpy"])
async def test_a_copy_that_fails(backend: SimulatedBackend, caplog: pytest.LogCaptureFixture, direction: str) -> None:
    """The waiter is told the cause, and nobody else; the stream works again; nothing is left to report."""
    with caplog.at_level(logging.ERROR, "aiodev"):
        async with aiodev.Stream("sim") as stream:
            array = aiodev.asarray(numbers())
            await stream.synchronize()
            backend.fail(aiodev.DeviceError("a bad wire"))
            with pytest.raises((aiodev.DeviceError, aiodev.DependencyError)) as caught:
                if direction == "upload":
                    await array.copy_from(numbers(1))
                elif direction == "download":
                    await stream.copy(np.empty(COUNT, np.int32), array)
                else:
                    await array.numpy()
            assert "a bad wire" in str(caught.value) or "a bad wire" in str(caught.value.__cause__)
            await stream.synchronize()
            array.copy_from(numbers(2))
            assert np.array_equal(await array.numpy(), numbers(2))
        del stream
        gc.collect()
    assert not caplog.records


async def test_what_failed_before_reaches_the_copy(backend: SimulatedBackend) -> None:
    """The copy does not run, and the memory on the host stays as it was."""

    def fail() -> None:
        raise KeyError("no such row")

    async with aiodev.Stream("sim") as stream:
        array, host = aiodev.asarray(numbers()), np.full(COUNT, -1, np.int32)
        await stream.synchronize()
        stream.call(fail)
        with pytest.raises(aiodev.DependencyError) as caught:
            await stream.copy(host, array)
        assert isinstance(caught.value.__cause__, KeyError)
        assert (host == -1).all()
        await stream.copy(host, array)
        assert np.array_equal(host, numbers())


async def test_arrays_of_the_cpu_and_of_a_device() -> None:
    """Between the two devices' streams the order is kept without a wait of the host."""
    async with aiodev.Stream("cpu"), aiodev.Stream("sim") as stream:
        here = aiodev.asarray(numbers(), device="cpu")
        latch = Latch(stream)
        there = here.to("sim")
        here.copy_from(numbers(1))
        back = there.to("cpu")
        latch.release()
        assert np.array_equal(await back.numpy(), numbers())
        assert np.array_equal(await here.numpy(), numbers(1))


async def test_from_one_kind_of_device_to_another_by_way_of_the_host(register: Callable[[type[Any]], str]) -> None:
    """Neither reaches the other."""
    one, other = register(SimulatedBackend), register(SimulatedBackend)
    array = aiodev.asarray(numbers(), device=one)
    moved = array.to(other)
    assert moved.device == aiodev.Device(other)
    assert np.array_equal(await moved.numpy(), numbers())
