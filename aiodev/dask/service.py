"""An inference service whose model is on several workers."""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Callable
from types import TracebackType
from typing import Any

from distributed import Client, Future, wait

from aiodev._core.arguments import function, instance, integer
from aiodev.dask.arrays import until_written

__all__ = ["Service"]


class Service:
    """Answers requests by a model that is on several workers: ``await service(request)``, from any number of tasks.

    With ``combine`` each shard is a part of the model: it answers every request, and the answers are combined in the shards'
    order. Without, each is a replica, and a request goes to that which has the fewest. A request that is cancelled is
    withdrawn from the workers. If a worker dies, Dask loads its shard on another one, and asks again.

    Args:
        client: of the cluster, asynchronous.
        load: gives the model's shard of a number, from 0; a plain or a coroutine function.
        answer: of a shard and a request; it must not write to them.
        shards: how many. Each goes to a worker, in turn.
        combine: of two answers.
        maxsize: how many requests are with the workers at once; others wait.

    Raises:
        RuntimeError: it is called outside of its block.
        ValueError: a number is less than 1.
        TypeError: an argument is of another type.

    Example:
        >>> async def serve(client, load, answer, requests):
        ...     async with aiodev.dask.Service(client, load, answer, shards=2) as service:
        ...         return await asyncio.gather(*map(service, requests))
    """

    def __init__(
        self,
        client: Client,
        load: Callable[[int], Any],
        answer: Callable[[Any, Any], Any],
        *,
        shards: int,
        combine: Callable[[Any, Any], Any] | None = None,
        maxsize: int = 64,
    ) -> None:
        self._client = instance("Service", "client", client, Client, "a client of dask.distributed")
        self._load = function("Service", "load", load)
        self._answer = function("Service", "answer", answer)
        self._combine = combine if combine is None else function("Service", "combine", combine)
        self._count = integer("Service", "shards", shards, least=1)
        self._room = asyncio.Semaphore(integer("Service", "maxsize", maxsize, least=1))
        self._shards: list[Future] = []
        self._under_way: list[int] = []

    async def __aenter__(self) -> Service:
        workers = sorted(await self._client.run(int))  # their addresses
        self._shards = [
            self._client.submit(
                self._load, shard, workers=workers[shard % len(workers)], allow_other_workers=True, pure=False
            )
            for shard in range(self._count)
        ]
        self._under_way = [0] * self._count
        await wait(self._shards)
        for shard in self._shards:
            if shard.status == "error":
                await shard  # which raises
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        for shard in self._shards:
            shard.release()
        self._shards = []

    async def __call__(self, request: Any) -> Any:
        """The answer to a request.

        Raises:
            KernelError: a kernel failed; or whatever ``answer`` raised.
        """
        async with self._room:
            await until_written(request)  # it is pickled where it is submitted
            if not self._shards:
                raise RuntimeError("a Service answers only inside its `async with` block")
            least = min(range(self._count), key=self._under_way.__getitem__)
            asked = [least] if self._combine is None else list(range(self._count))
            for shard in asked:
                self._under_way[shard] += 1
            answers = [self._client.submit(self._answer, self._shards[shard], request, pure=False) for shard in asked]
            try:
                replies = await self._client.gather(answers)
            finally:
                for shard, future in zip(asked, answers, strict=True):
                    self._under_way[shard] -= 1
                    future.release()
        return replies[0] if self._combine is None else functools.reduce(self._combine, replies)

    def __repr__(self) -> str:
        return f"<aiodev.dask.Service of {self._count} shards, {sum(self._under_way)} requests under way>"
