"""trio in guest mode: its tasks wait for devices while an asyncio loop hosts them, and so do the host's own."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
import trio

import aiodev
from aiodev import Stream
from aiodev._core.waiting.loops import running_loop
from aiodev.testing import Latch

LIMIT = 30  # s


async def hosted(main: Callable[[], Awaitable[Any]]) -> Any:
    """The result of a trio run that this loop hosts."""
    loop = asyncio.get_running_loop()
    ended: asyncio.Future[Any] = loop.create_future()
    trio.lowlevel.start_guest_run(main, run_sync_soon_threadsafe=loop.call_soon_threadsafe, done_callback=ended.set_result)
    return (await asyncio.wait_for(ended, LIMIT)).unwrap()


async def waits_for(stream: Stream, kind: str) -> None:
    """Wait in some way for a stream, which another task lets go on."""
    done = stream.call(int)
    if kind == "completion":
        assert await done == 0
    elif kind == "stream":
        await stream.synchronize()
    elif kind == "event":
        await stream.record_event()
    elif kind == "array":
        with stream:
            assert (await aiodev.ones(3, device="cpu").numpy()).sum() == 3
    else:
        await stream.drain()


@pytest.mark.parametrize("kind", ["completion", "stream", "event", "array", "drain"])
async def test_a_guest_and_its_host_wait_side_by_side(kind: str) -> None:
    """Each in its own loop's way; none of them is taken for the other's task."""
    await aiodev.init("cpu")
    host = asyncio.get_running_loop()

    async def guest() -> str:
        assert running_loop() is None
        stream = Stream("cpu", maxsize=4)
        latch = Latch(stream)
        with trio.fail_after(LIMIT):
            async with trio.open_nursery() as nursery:
                nursery.start_soon(waits_for, stream, kind)
                await trio.sleep(0.01)
                latch.release()
        async with aiodev.memory.lease(8, "cpu"), aiodev.StreamGroup("cpu") as group:
            group.stream().call(int)
        return "over"

    async def beside() -> None:
        while not over.is_set():
            assert running_loop() is host
            await Stream("cpu").call(int)
            await asyncio.sleep(0)

    over = asyncio.Event()
    task = asyncio.create_task(beside())
    try:
        assert await hosted(guest) == "over"
    finally:
        over.set()
        await task


def test_a_loop_within_a_task_of_trio_is_the_one_that_runs() -> None:
    """trio stands still meanwhile, so that is who waits."""

    async def inner() -> int:
        assert running_loop() is asyncio.get_running_loop()
        done: int = await Stream("cpu").call(int, 3)
        return done

    async def outer() -> int:
        return asyncio.run(inner())

    assert trio.run(outer) == 3
