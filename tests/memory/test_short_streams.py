"""Streams that come and go, one for each request: what one of them has used serves the next, and nothing keeps it."""

from __future__ import annotations

import asyncio
import gc
import threading
import time
import weakref
from typing import Any

import aiodev
from aiodev import kernels

SIZE = 1000
PATIENCE = 30.0  #: seconds that nothing takes


class Held:
    """A stream whose work waits until it is let go."""

    def __init__(self) -> None:
        self._go_on = threading.Event()
        self.stream = aiodev.Stream("cpu")
        self.stream.call(self._go_on.wait)

    def writes(self) -> aiodev.Array:
        """An array of its own, that it has still to write."""
        with self.stream:
            array = aiodev.empty(SIZE, dtype="float32")
            kernels.add(array, 1.0, out=array)
        return array

    async def finish(self) -> None:
        """Let its work go on, and wait for it."""
        self._go_on.set()
        await self.stream.synchronize()


async def until_gone(timeline: weakref.ref[Any]) -> None:
    """Wait until nobody holds it: the portable executor's are ended by a thread, which may be in the midst of that."""
    until = time.monotonic() + PATIENCE
    while timeline() is not None:
        assert time.monotonic() < until, f"somebody holds {timeline()}"
        await asyncio.sleep(0.001)


def pending(array: Any) -> set[aiodev.Stream]:
    """The streams that have work to do that uses an array's memory."""
    return {timeline.stream for timeline, _ in array._buffer.pending()}


def test_memory_of_a_stream_whose_work_is_done_serves_another_one() -> None:
    """Though it was freed while that was under way; and what was known of that stream goes."""

    async def main() -> None:
        first = Held()
        used = first.writes()
        address, block = used._address, used._buffer.block
        del used  # its memory is in use
        assert block.timeline is first.stream.timeline
        await first.finish()
        gone = weakref.ref(first.stream.timeline)
        del first
        with aiodev.Stream("cpu") as second:
            got = aiodev.empty(SIZE, dtype="float32")
            assert got._address == address and not pending(got)
            assert block.timeline is None
            await until_gone(gone)
            got[:] = 3.0
            await second.synchronize()

    asyncio.run(main())


def test_memory_of_a_stream_at_work_does_not() -> None:
    """Another stream has other memory, until that is done."""

    async def main() -> None:
        first = Held()
        used = first.writes()
        address = used._address
        del used
        with aiodev.Stream("cpu"):
            assert aiodev.empty(SIZE, dtype="float32")._address != address
        await first.finish()

    asyncio.run(main())


def test_who_has_read_an_array_is_forgotten_by_the_next_reader() -> None:
    """An array that every request reads keeps the last of their streams alone."""

    async def main() -> None:
        weights = aiodev.ones(SIZE, device="cpu")
        await aiodev.synchronize("cpu")
        former = None
        for _ in range(5):
            with aiodev.Stream("cpu") as stream:
                result = kernels.add(weights, 1.0)
                await stream.synchronize()
            del result
            if former is not None:
                await until_gone(former)
            assert weights._buffer._reader is stream.timeline
            former = weakref.ref(stream.timeline)
            del stream
            gc.collect()

    asyncio.run(main())


def test_readers_that_are_at_work_are_all_known() -> None:
    """Who writes to the array waits for each; those that are done need not be."""

    async def main() -> None:
        weights = aiodev.ones(SIZE, device="cpu")
        await aiodev.synchronize("cpu")
        readers = [Held() for _ in range(3)]
        sums = []
        for reader in readers:
            with reader.stream:
                sums.append(kernels.sum(weights))
        assert pending(weights) == {reader.stream for reader in readers}
        await readers[1].finish()
        assert pending(weights) == {readers[0].stream, readers[2].stream}
        with aiodev.Stream("cpu") as writer:
            weights._buffer.join_uses(writer.timeline)
            kernels.multiply(weights, 5.0, out=weights)
        for reader in readers:
            await reader.finish()
        await writer.synchronize()
        assert [await each.item() for each in sums] == [SIZE] * 3 and (await weights.numpy() == 5).all()

    asyncio.run(main())
