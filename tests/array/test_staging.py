"""Copies in pieces between the host and a device that it does not reach: order, lifetimes, failures, and who waits for whom."""

from __future__ import annotations

import gc
import logging
import weakref
from collections.abc import Iterator
from typing import Any

import anyio
import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

import aiodev
from aiodev._array import reading, staging
from aiodev.testing.latch import Latch
from aiodev.testing.simulated import SimulatedBackend

pytestmark = pytest.mark.anyio
COUNT = 50_000


@pytest.fixture(scope="module")
def backend() -> SimulatedBackend:
    """The simulated backend of this process."""
    if "sim" not in aiodev.available_backends():
        aiodev.register_backend("sim", SimulatedBackend)
    aiodev.init_blocking("sim")
    found = aiodev.get_backend("sim")
    assert isinstance(found, SimulatedBackend)
    return found


@pytest.fixture(autouse=True)
def small_pieces(backend: SimulatedBackend, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """So that small arrays are many pieces, and nothing is copied at once."""
    monkeypatch.setattr(staging, "PIECE", 8192)
    monkeypatch.setattr(staging, "DIRECT", 0)
    monkeypatch.setattr(reading, "IN_A_BLOCK", 0)
    yield


def numbers(start: int = 0) -> np.ndarray[Any, np.dtype[np.int32]]:
    """About 24 pieces."""
    return np.arange(start, start + COUNT, dtype=np.int32)


@given(st.integers(1, 3_000), st.integers(1, 200))
@settings(deadline=None, max_examples=30)
def test_any_number_of_pieces(nbytes: int, piece: int) -> None:
    """There and back, whatever is left for the last piece."""
    host = np.random.default_rng(nbytes).integers(0, 255, nbytes, np.uint8)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(staging, "PIECE", piece)
        found = np.zeros_like(host)
        with aiodev.Stream("sim") as stream:
            array = aiodev.asarray(host)
            stream.copy(found, array).synchronize_blocking(30)
    assert np.array_equal(found, host)


async def test_host_memory_is_used_in_stream_order() -> None:
    """What the stream wrote to it before is read; what it is given later comes after the last piece."""
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


async def test_source_and_target_live_until_the_last_piece() -> None:
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


@pytest.mark.parametrize("at", [0, 7])
@pytest.mark.parametrize("direction", ["upload", "download", "numpy"])
async def test_a_piece_that_fails(
    backend: SimulatedBackend, caplog: pytest.LogCaptureFixture, at: int, direction: str
) -> None:
    """The waiter is told the cause, once; the stream works again; the lane reports nothing of its own."""
    with caplog.at_level(logging.ERROR, "aiodev"):
        async with aiodev.Stream("sim") as stream:
            array = aiodev.asarray(numbers())
            await stream.synchronize()
            backend.fail(aiodev.DeviceError("a bad wire"), after=at)
            with pytest.raises((aiodev.DeviceError, aiodev.DependencyError)) as caught:
                if direction == "upload":
                    await array.copy_from(numbers(1))
                elif direction == "download":
                    await stream.copy(np.empty(COUNT, np.int32), array)
                else:
                    await array.numpy()
            assert "a bad wire" in str(caught.value) or "a bad wire" in str(caught.value.__cause__)
            if direction == "numpy":  # which has the array's stream wait for it, so that its waiters are told, too
                with pytest.raises(aiodev.DependencyError):
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


async def test_host_arrays_of_ours_are_staged_too() -> None:
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


async def test_bounded_streams_take_a_copy_as_one_piece() -> None:
    """However large it is; a full stream refuses it."""
    stream = aiodev.Stream("sim", maxsize=4)
    async with stream:
        array = aiodev.empty(COUNT, "i4")
        await stream.copy(array, numbers())
        found = np.empty(COUNT, np.int32)
        await stream.copy(found, array)
        assert np.array_equal(found, numbers())
        with Latch(stream):
            for _ in range(3):
                stream.call(int)
            with pytest.raises(aiodev.StreamFullError):
                stream.copy(array, found)


async def test_small_copies_of_an_idle_stream_read_the_source_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing ahead could write it; the source is free as soon as the call returns."""
    monkeypatch.setattr(staging, "DIRECT", 1 << 20)
    monkeypatch.setattr(reading, "IN_A_BLOCK", 1 << 20)
    async with aiodev.Stream("sim") as stream:
        array, host = aiodev.empty(COUNT, "i4"), numbers()
        await stream.synchronize()
        array.copy_from(host)
        host[:] = -1
        assert np.array_equal(await array.numpy(), numbers())


async def test_from_one_kind_of_device_to_another_by_way_of_the_host() -> None:
    """Neither reaches the other."""

    class Other(SimulatedBackend):
        name = "othersim"

    if "othersim" not in aiodev.available_backends():
        aiodev.register_backend("othersim", Other)
    array = aiodev.asarray(numbers(), device="sim")
    moved = array.to("othersim")
    assert moved.device == aiodev.Device("othersim")
    assert np.array_equal(await moved.numpy(), numbers())
