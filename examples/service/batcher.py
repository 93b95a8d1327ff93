"""Dynamic batching: what has come by the time a stream is free is computed at once."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable

import numpy as np
from network import LARGEST_BATCH, Network

import aiodev
from aiodev import memory

__all__ = ["WAYS_TO_WAIT", "Batcher", "Closed"]


class Closed(Exception):
    """The service is shutting down."""


async def _await(array: aiodev.Array) -> np.ndarray:
    return await array.numpy()


async def _thread(array: aiodev.Array) -> np.ndarray:
    return await asyncio.to_thread(array.numpy_blocking)


async def _block(array: aiodev.Array) -> np.ndarray:
    return array.numpy_blocking()  # the loop stands still: what not to do


#: How to wait for the device; all but the first are there to be compared with.
WAYS_TO_WAIT: dict[str, Callable[[aiodev.Array], Awaitable[np.ndarray]]] = {
    "await": _await,
    "thread": _thread,
    "block": _block,
}


class Batcher:
    """Answers requests in batches, two of which may be under way at a time, on a stream each."""

    def __init__(self, network: Network, wait: str = "await", streams: int = 2) -> None:
        self.sizes: deque[int] = deque(maxlen=10_000)
        self.answered = 0
        self._network = network
        self._wait = WAYS_TO_WAIT[wait]
        self._waiting: deque[tuple[np.ndarray, asyncio.Future[np.ndarray]]] = deque()
        self._arrived = asyncio.Event()
        self._closing = False
        self._workers = [asyncio.create_task(self._serve()) for _ in range(streams)]

    def __len__(self) -> int:
        return len(self._waiting)

    async def ask(self, image: np.ndarray) -> np.ndarray:
        """The probabilities of one image. Cancelling takes the request off the queue, if it is still there."""
        if self._closing:
            raise Closed
        answer: asyncio.Future[np.ndarray] = asyncio.get_running_loop().create_future()
        self._waiting.append((image, answer))
        self._arrived.set()
        return await answer

    async def _serve(self) -> None:
        async with aiodev.Stream() as stream:
            while True:
                while not self._waiting:
                    if self._closing:
                        await stream.aclose()
                        return
                    self._arrived.clear()
                    await self._arrived.wait()
                # Other users of the device may have taken its memory: wait for ours, rather than fail.
                async with memory.lease(Network.workspace):
                    await self._answer(self._take())

    def _take(self) -> list[tuple[np.ndarray, asyncio.Future[np.ndarray]]]:
        batch = []
        while self._waiting and len(batch) < LARGEST_BATCH:
            image, answer = self._waiting.popleft()
            if not answer.done():  # whoever asked has gone
                batch.append((image, answer))
        return batch

    async def _answer(self, batch: list[tuple[np.ndarray, asyncio.Future[np.ndarray]]]) -> None:
        if not batch:
            return
        try:
            probabilities = await self._wait(self._network.submit(np.stack([image for image, _ in batch])))
        except Exception as error:  # whatever it is, those who asked must hear of it
            for _, answer in batch:
                if not answer.done():
                    answer.set_exception(error)
            return
        self.sizes.append(len(batch))
        self.answered += len(batch)
        for (_, answer), row in zip(batch, probabilities, strict=True):
            if not answer.done():
                answer.set_result(row)

    async def aclose(self) -> None:
        """Answer what is waiting, and take no more."""
        self._closing = True
        self._arrived.set()
        await asyncio.gather(*self._workers)
