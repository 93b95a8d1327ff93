"""Bringing arrays to the host: what is waited for, what is seen, and what becomes of failures."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from typing import Any

import anyio
import numpy as np
import pytest
from halves import LARGE, halves, put, refuse

import aiodev
from aiodev._array import readback
from aiodev._core.waiting.blocking import wait_all_blocking
from aiodev.testing.latch import Latch

pytestmark = pytest.mark.anyio


@pytest.mark.parametrize("size", [10, LARGE])
async def test_a_read_waits_for_its_own_memory_alone(size: int) -> None:
    """Work that the same stream was given later, and that does not end, does not matter."""
    stream = aiodev.Stream("cpu")
    async with stream:
        array = aiodev.arange(size)
        with Latch(stream):
            assert np.array_equal(await array.numpy(), np.arange(size))
    await stream.synchronize()


class Soon:
    """Two streams that are about to write a half of an array each, once a latch lets them."""

    def __init__(self, size: int, fails: bool = False) -> None:
        self.streams = [aiodev.Stream("cpu") for _ in range(2)]
        self.array = aiodev.zeros(2 * size, device="cpu")
        for stream in self.streams:
            stream.wait_stream(aiodev.default_stream("cpu"))
        self.latches = [Latch(stream) for stream in self.streams]
        for number, stream in enumerate(self.streams):
            half = self.array[number * size : (number + 1) * size]
            if fails and number:
                refuse[size, stream](half)
            else:
                put[size, stream](half, 1.0)
        self.submitted = self._submitted()
        self.spins = 0

    def _submitted(self) -> list[int]:
        return [stream.timeline.submitted for stream in self.streams]

    def submits(self) -> bool:
        """Whether the streams were given more since."""
        return self._submitted() != self.submitted

    def release(self) -> None:
        for latch in self.latches:
            latch.release()

    def spin(self, timeline: Any, value: int) -> bool:
        """One in which all of it is written."""
        self.spins += 1
        self.release()
        wait_all_blocking([(timeline, value)], 30)
        return True


@pytest.mark.parametrize("helps", [False, True])
async def test_what_is_about_to_be_written_is_read_where_it_lies(helps: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """If spins see all of it written, or this thread helps until it is: nothing is submitted."""
    soon = Soon(10)
    monkeypatch.setattr(readback, "spin", (lambda timeline, value: False) if helps else soon.spin)
    if helps:
        monkeypatch.setattr(readback, "help_at_once", soon.spin)
    assert (await soon.array.numpy() == 1).all()
    assert soon.spins >= 1 and not soon.submits()


async def test_a_failure_of_what_was_about_to_be_written_reaches_the_reader(monkeypatch: pytest.MonkeyPatch) -> None:
    soon = Soon(10, fails=True)
    monkeypatch.setattr(readback, "spin", soon.spin)
    with pytest.raises(aiodev.KernelError, match="no such tile"):
        await soon.array.numpy()
    assert not soon.submits()
    for stream in soon.streams:
        await stream.synchronize()


@pytest.mark.parametrize(("size", "sees"), [(10, False), (LARGE, True)])
async def test_else_a_copy_is_submitted(size: int, sees: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where a spin is in vain, and of what is large."""
    soon, spins = Soon(size), []

    def spin(timeline: Any, value: int) -> bool:
        spins.append(value)
        return sees

    monkeypatch.setattr(readback, "spin", spin)
    async with anyio.create_task_group() as group:

        async def read() -> None:
            assert (await soon.array.numpy() == 1).all()

        group.start_soon(read)
        for _ in range(5):  # it has begun by then
            await anyio.lowlevel.checkpoint()
        soon.release()
    assert len(spins) == (0 if sees else 1)


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


@pytest.mark.parametrize("size", [4, LARGE])
@pytest.mark.parametrize("first", ["read", "withdrawn"])
async def test_a_read_of_what_is_withdrawn_fails_nothing_else(first: str, size: int) -> None:
    """What the stream is given later waits until the copy is over, which is not made."""
    stream, other, outcomes = aiodev.Stream("cpu"), aiodev.Stream("cpu"), []
    with stream:
        x, y = aiodev.ones(size), aiodev.zeros(size)
    await stream.synchronize()
    gate = stream._gate()
    done = put[size, stream](x, 5.0)
    put[1, stream](aiodev.empty(1), 0.0)  # so that the read is not the next thing on the stream

    async def read() -> None:
        try:
            await x.numpy()
        except aiodev.WithdrawnError as error:
            outcomes.append(error)

    async with anyio.create_task_group() as group:
        if first == "withdrawn":
            assert done.cancel()
        group.start_soon(read)
        await anyio.wait_all_tasks_blocked()
        if first == "read":
            assert done.cancel()
        last = put[size, stream](y, 2.0)
        other.wait_stream(stream)
        behind = put[size, other](y, 3.0)
        gate.open()
    await last
    await behind
    assert len(outcomes) == 1 and (await y.numpy() == 3).all()


async def test_the_failure_that_a_read_was_given_up_behind_is_told_once(caplog: pytest.LogCaptureFixture) -> None:
    """By the stream that failed. The reader's own, which nobody knows, has none to tell."""
    async with aiodev.Stream("cpu") as stream:
        x, y = aiodev.zeros(4), aiodev.zeros(4)
        await stream.synchronize()
        gate = stream._gate()
        done = refuse[4, stream](x)
        y.copy_from(x)  # so that the read is not the next thing on the stream
        with anyio.move_on_after(0.01):
            await x.numpy()
        gate.open()
        with pytest.raises(aiodev.KernelError):
            await done
        await stream.synchronize()
        await aiodev.synchronize("cpu")
    assert not caplog.records


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


@pytest.mark.parametrize("size", [4, 1 << 20])
def test_a_blocking_read_without_time_only_looks(size: int) -> None:
    """What is written is there, whatever its stream has to do; what is not raises TimeoutError, and nothing is submitted."""
    stream = aiodev.Stream("cpu")
    with stream:
        array = aiodev.zeros(size)
        stream.synchronize_blocking()
        with Latch(stream):
            assert (array.numpy_blocking(0) == 0).all()
            array.copy_from(np.ones(size))
            before = stream.timeline.submitted
            with pytest.raises(TimeoutError):
                array.numpy_blocking(timeout=0)
            assert stream.timeline.submitted == before


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


@pytest.mark.parametrize("size", [10, LARGE])
async def test_a_read_waits_for_every_writer(size: int) -> None:
    """Two streams fill a half each; whichever is slower, the read has both."""
    for slower in (0, 1):
        array, *parts = halves(size)
        streams = aiodev.Stream("cpu"), aiodev.Stream("cpu")
        latches = [Latch(stream) for stream in streams]
        for stream, part in zip(streams, parts, strict=True):
            put[size // 2, stream](part, 1.0)
        found: list[Any] = []

        async def read(array: aiodev.Array = array, found: list[Any] = found) -> None:
            found.append(await array.numpy())

        async with anyio.create_task_group() as group:
            group.start_soon(read)
            await anyio.wait_all_tasks_blocked()
            latches[1 - slower].release()
            await streams[1 - slower].synchronize()
            await anyio.wait_all_tasks_blocked()
            assert not found
            latches[slower].release()
        assert (found[0] == 1).all()


@pytest.mark.parametrize("size", [10, LARGE])
@pytest.mark.parametrize("way", ["numpy", "numpy_blocking", "asarray", "from_dlpack"])
@pytest.mark.parametrize("failing", [0, 1])
def test_the_failure_of_any_writer_reaches_every_read(size: int, way: str, failing: int) -> None:
    """Until somebody writes who has heard of it; the other writer's stream does not notice."""
    array, *parts = halves(size)
    streams = aiodev.Stream("cpu"), aiodev.Stream("cpu")
    with Latch(streams[0]), Latch(streams[1]):
        refuse[size // 2, streams[failing]](parts[failing])
        put[size // 2, streams[1 - failing]](parts[1 - failing], 1.0)
    ways: dict[str, Any] = {
        "numpy": lambda: anyio.run(array.numpy),
        "numpy_blocking": array.numpy_blocking,
        "asarray": lambda: np.asarray(array),
        "from_dlpack": lambda: np.from_dlpack(array),
    }
    for _ in range(2):
        with pytest.raises(aiodev.KernelError):
            ways[way]()
    streams[1 - failing].synchronize_blocking()
    put[size, streams[1 - failing]](array, 2.0)
    assert (ways[way]() == 2).all()


async def test_several_failures_are_told_one_after_the_other() -> None:
    """Each read raises one; what nobody was told of first."""
    array, *parts = halves(10)
    streams = aiodev.Stream("cpu"), aiodev.Stream("cpu")
    with Latch(streams[0]), Latch(streams[1]):
        for stream, part in zip(streams, parts, strict=True):
            refuse[5, stream](part)
    for _ in range(2):
        with pytest.raises(aiodev.KernelError):
            await array.numpy()
    for stream in streams:
        await stream.synchronize()  # both were told
    with pytest.raises(aiodev.KernelError):
        await array.numpy()


@pytest.mark.parametrize("passed", [False, True])
def test_what_a_told_failure_kept_from_being_written(passed: bool) -> None:
    """Reading it raises, a stream that joins its uses runs, and another write stands for it: passed by its stream or not."""
    array, stream, holder, other = aiodev.zeros(10), aiodev.Stream("cpu"), aiodev.Stream("cpu"), aiodev.Stream("cpu")
    latch = Latch(holder)
    failed = stream.call(int, "x")
    stream.wait_stream(holder)
    skipped = put[10, stream](array, 1.0)
    if passed:
        latch.release()
        while not skipped.query():
            pass
    with pytest.raises(ValueError):
        failed.synchronize_blocking(30)
    assert skipped.query() is passed
    array._buffer.join_uses(other.timeline)
    run = other.call(int, 7)
    latch.release()
    assert run.synchronize_blocking(30) == 7
    with pytest.raises(aiodev.DependencyError):
        array.numpy_blocking(30)
    hold = Latch(holder)
    stream.call(int, "x")
    stream.wait_stream(holder)
    put[10, stream](array, 1.0)
    with pytest.raises(ValueError):
        aiodev.Completion(stream.timeline, stream.timeline.submitted - 2).synchronize_blocking(30)
    put[10, other](array, 2.0)
    hold.release()
    assert (array.numpy_blocking(30) == 2).all()


async def test_a_stream_that_is_noted_does_not_hide_what_writes() -> None:
    """Work of other libraries is one more writer, and no operation is none."""
    array, half, _ = halves(10)
    writer, idle = aiodev.Stream("cpu"), aiodev.Stream("cpu")
    with Latch(writer):
        put[5, writer](half, 1.0)
        array.record_stream(idle)
        idle.call(int)
        array.record_stream(idle)
        with pytest.raises(TimeoutError):
            array.numpy_blocking(0.01)
    assert (await half.numpy() == 1).all()


TWO_DEVICES = """
import aiodev, numpy as np
from aiodev.testing import Latch

@aiodev.kernel
def put(i, x, value):
    x[i] = value

@aiodev.kernel
def refuse(i, x):
    raise ValueError("no such tile")

for over in (False, True):
    for fails in (False, True):
        first, second = aiodev.Stream("cpu:0"), aiodev.Stream("cpu:0")
        with first:
            x = aiodev.zeros(10)
        first.synchronize_blocking()
        latches = Latch(first), Latch(second)
        if fails:
            refuse[5, first](x[:5])
        else:
            put[5, first](x[:5], 1.0)
        put[5, second](x[5:], 1.0)
        if over:
            for latch in latches:
                latch.release()
            while not (first.query() and second.query()):
                pass
        y = x.to("cpu:1")
        z = aiodev.empty(10, device="cpu:1")
        z.copy_from(x)
        for latch in latches:
            latch.release()
        for copy in (y, z):
            try:
                print(copy.numpy_blocking().sum())
            except aiodev.DependencyError as error:
                print(repr(error.__cause__.__cause__))
        aiodev.current_stream("cpu:1").query()
        for stream in (aiodev.current_stream("cpu:0"), aiodev.current_stream("cpu:1"), first, second):
            try:
                stream.synchronize_blocking()
            except aiodev.AiodevError:
                pass
"""


def test_copies_to_other_devices_wait_for_every_writer() -> None:
    """And fail with each of them, whether it has failed already or is going to."""
    found = subprocess.run(
        [sys.executable, "-c", TWO_DEVICES], env={**os.environ, "AIODEV_CPU_DEVICES": "2"},
        capture_output=True, text=True, timeout=120, check=True,
    )  # fmt: skip
    assert found.stdout.splitlines() == 2 * (2 * ["10.0"] + 2 * ["ValueError('no such tile')"])
