"""Who is kept out while an array is brought to the host: what streams are given after the call is not seen."""

from __future__ import annotations

import concurrent.futures
import contextlib
import gc
import random
import weakref
from typing import Any

import anyio
import numpy as np
import pytest
from halves import LARGE, halves, put, refuse
from selection import examples

import aiodev
from aiodev.testing.latch import held_workers

pytestmark = pytest.mark.anyio


@aiodev.kernel
def work_and_put(i: int, steps: int, x: Any, value: float) -> None:
    """Fill, after so many steps for each index."""
    worked = 1.0
    for _ in range(steps):
        worked = 0.5 * worked + 1
    x[i] = value if worked > 0 else -1.0


@pytest.mark.parametrize("size", [10, LARGE])
@pytest.mark.parametrize("failing", [False, True])
async def test_a_read_keeps_all_its_writers_out_and_fails_none_of_them(size: int, failing: bool) -> None:
    """What they are given after the call is not seen, and runs, though another writer fails."""
    array, *parts = halves(size)
    streams = aiodev.Stream("cpu"), aiodev.Stream("cpu")
    gates = [stream._gate() for stream in streams]
    put[size // 2, streams[0]](parts[0], 1.0)
    if failing:
        refuse[size // 2, streams[1]](parts[1])
    else:
        put[size // 2, streams[1]](parts[1], 1.0)
    found: list[Any] = []

    async def read() -> None:
        if failing:
            with pytest.raises(aiodev.KernelError):
                await array.numpy()
        else:
            found.append(await array.numpy())

    async with anyio.create_task_group() as group:
        group.start_soon(read)
        await anyio.wait_all_tasks_blocked()
        done = [put[size // 2, stream](part, 2.0) for stream, part in zip(streams, parts, strict=True)]
        for gate in gates:
            gate.open()
    await done[0]
    if failing:
        with pytest.raises(aiodev.DependencyError):
            await done[1]
    else:
        await done[1]
        assert (found[0] == 1).all() and (await array.numpy() == 2).all()


async def test_a_writer_that_has_more_to_do_is_kept_out_too() -> None:
    """The copy is not the next thing on its stream, which waits for it."""
    array, *_ = halves(LARGE)
    stream = aiodev.Stream("cpu")
    for _ in range(20):
        gate = stream._gate()
        put[LARGE, stream](array, 1.0)
        stream.call(int)
        found: list[Any] = []

        async def read(found: list[Any] = found) -> None:
            found.append(await array.numpy())

        async with anyio.create_task_group() as group:
            group.start_soon(read)
            await anyio.wait_all_tasks_blocked()
            put[LARGE, stream](array, 2.0)
            gate.open()
        assert (found[0] == 1).all()


@pytest.mark.parametrize("size", [10, LARGE])
@pytest.mark.parametrize("read_before", [False, True])
@pytest.mark.parametrize("follows", [False, True])
async def test_a_writer_that_is_done_is_kept_out_too(size: int, read_before: bool, follows: bool) -> None:
    """A part of the contents is from it, whether or not its write was over when another one's came, or a read looked.

    Also where the other one follows it.
    """
    array, *parts = halves(size)
    first, second = aiodev.Stream("cpu"), aiodev.Stream("cpu")
    put[size // 2, first](parts[0], 1.0)
    if read_before:
        put[size // 2, second](parts[1], 1.0)
        assert (await array.numpy() == 1).all()
    if follows:
        second.wait_stream(first)
    else:
        await first.synchronize()
    gate = second._gate()
    put[size // 2, second](parts[1], 1.0)
    found: list[Any] = []

    async def read() -> None:
        found.append(await array.numpy())

    async with anyio.create_task_group() as group:
        group.start_soon(read)
        await anyio.wait_all_tasks_blocked()
        later = put[size // 2, first](parts[0], 2.0)
        gate.open()
    assert (found[0] == 1).all()
    await later
    assert (await array.numpy() == np.repeat([2, 1], size // 2)).all()


async def test_streams_that_have_written_and_are_gone_are_not_kept() -> None:
    """By an array that others write: nobody submits to them any more. The last ones are ahead of what follows, for a while."""
    array, *_ = halves(LARGE)
    timelines = []
    for _ in range(100):
        stream = aiodev.Stream("cpu")
        put[LARGE, stream](array, 1.0)
        await stream.synchronize()
        timelines.append(weakref.ref(stream.timeline))
    assert (await array.numpy() == 1).all()
    del stream
    with anyio.fail_after(30):  # a thread of its own may destroy them
        while sum(timeline() is not None for timeline in timelines) > 10:
            gc.collect()
            await anyio.sleep(0.01)
    assert len(array._buffer._former) < 60


@pytest.mark.parametrize("seed", range(examples(3)))
async def test_snapshots_of_an_array_whose_parts_are_refreshed(seed: int) -> None:
    """Each stream refreshes a part of its own, again and again; each read sees the parts as they were to be at its call."""
    chosen, parts, size = random.Random(seed), 4, 4000
    array = aiodev.empty(parts * size, device="cpu")
    streams, model = [aiodev.Stream("cpu") for _ in range(parts)], [-1.0] * parts
    for part, stream in enumerate(streams):
        stream.wait_stream(aiodev.default_stream("cpu"))
        put[size, stream](array[part * size : (part + 1) * size], -1.0)
    wrong: list[tuple[list[float], list[float]]] = []

    async def read(by: aiodev.Stream | None) -> None:
        with by or contextlib.nullcontext():
            expected = list(model)
            found = (await array.numpy()).reshape(parts, size)
        if not (found == np.array(expected)[:, None]).all():
            wrong.append((expected, found.mean(1).tolist()))

    async with anyio.create_task_group() as group:
        for step in range(200):
            part, what = chosen.randrange(parts), chosen.random()
            if what < 0.6:
                model[part] = step
                own, steps = array[part * size : (part + 1) * size], chosen.choice([0, 0, 300])
                work_and_put[size, streams[part]](steps, own, float(step))
            elif what < 0.7:
                await streams[part].synchronize()
            else:
                group.start_soon(read, chosen.choice([None, streams[part]]))
                await anyio.lowlevel.checkpoint()
    assert not wrong, wrong[:3]


async def test_a_read_keeps_the_current_stream_out_where_all_is_written() -> None:
    """What it goes on to do with a large array, of a writer that is done, is not seen."""
    writer, current = aiodev.Stream("cpu"), aiodev.Stream("cpu", priority=-1)
    with writer:
        array = aiodev.zeros(4_000_000)
    for number in range(5):
        with writer:
            array[:] = 2.0 * number
        await writer.synchronize()
        current.wait_stream(writer)
        found: list[Any] = []

        async def read(found: list[Any] = found) -> None:
            with current:
                found.append(await array.numpy())

        async with anyio.create_task_group() as group:
            with held_workers(aiodev.get_backend("cpu")):
                group.start_soon(read)
                await anyio.wait_all_tasks_blocked()
                with current:
                    array[:] = 2.0 * number + 1
        assert (found[0] == 2 * number).all()
        writer.wait_stream(current)


async def test_a_read_keeps_the_current_stream_out_where_that_follows_the_writers() -> None:
    """It has joined them, and goes on with the array; a stream that has not is not held up."""
    array, *parts = halves(LARGE)
    first, second, joined, other = (aiodev.Stream("cpu") for _ in range(4))
    gates = first._gate(), second._gate()
    for stream, part in zip((first, second), parts, strict=True):
        put[LARGE // 2, stream](part, 1.0)
        joined.wait_stream(stream)
    found: dict[aiodev.Stream, Any] = {}

    async def read(current: aiodev.Stream) -> None:
        with current:
            found[current] = await array.numpy()

    async with anyio.create_task_group() as group:
        for current in (joined, other):
            group.start_soon(read, current)
        await anyio.wait_all_tasks_blocked()
        await other.call(int)
        put[LARGE, joined](array, 2.0)
        for gate in gates:
            gate.open()
    assert (found[joined] == 1).all()  # what the other's read found depends on the writer
    assert (await array.numpy() == 2).all()


@pytest.mark.parametrize("size", [10, LARGE])
async def test_a_read_holds_nobody_whom_the_program_may_wait_for(size: int) -> None:
    """A writer waits for a future, which comes when another writer's stream is done: the read waits, and has it all."""
    array, *parts = halves(size)
    first, second = aiodev.Stream("cpu"), aiodev.Stream("cpu")
    future: Any = concurrent.futures.Future()
    second.wait_future(future)
    gate = first._gate()
    for stream, part in zip((first, second), parts, strict=True):
        put[size // 2, stream](part, 1.0)
    found: list[Any] = []

    async def read() -> None:
        found.append(await array.numpy())

    async with anyio.create_task_group() as group:
        group.start_soon(read)
        await anyio.wait_all_tasks_blocked()
        gate.open()
        await first.synchronize()
        await first.call(int)
        assert not found
        future.set_result(None)
    assert (found[0] == 1).all()
