"""Tasks as a worker with a device runs them: on a stream and with random numbers of their own, until they are computed.

**Problem.** Tasks of a worker run side by side. They must not fail with each other, nor draw each other's random numbers.
What Dask takes for a result must be one: computed, and not only submitted; a failure is the failure of this task, and nobody
goes on with what it left. A task that nobody wants any more should not keep the device. And one that is run again, since its
worker died, should give the same.

**How.** The worker's plugin is told when a task is about to be executed, and puts a :class:`DeviceTask` in the place of what
the worker would run. So any function is such a task, whoever submits it, and by whichever interface of Dask.

**Invariants.**

1.  A task has a stream of its own, on the worker's device, which is current in it. When the task has ended well, and so its
    work, another task may have that stream.
2.  Its default generators begin with a seed that follows from the seed of the cluster and the task's key alone.
3.  A task ends when all that it has submitted to its stream has, and all that writes what it returns. So what a worker keeps
    is finished, and did not fail.
4.  Dask does not stop a task that runs, or is about to, when its future is cancelled; the plugin does. What the task has
    submitted and has not begun is withdrawn, a coroutine is cancelled, also one that a task in a thread waits for, and Dask is
    told to schedule the task again, should anybody want it meanwhile.
5.  Arrays that are not on the worker's device are brought there first, under a lease, which is waited for on the worker's loop.
"""

from __future__ import annotations

import asyncio
import hashlib
import inspect
from collections.abc import Coroutine, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any
from weakref import WeakValueDictionary

from distributed import Reschedule, get_worker

import aiodev
from aiodev._core.streams.completion import Completion
from aiodev._core.waiting.blocking import wait_all_blocking
from aiodev.dask.arrays import arrays_in, replaced, unfinished, until_written

__all__ = ["DeviceTask", "Running", "leased", "run_on_loop", "seed_of"]

_current: ContextVar[DeviceTask | None] = ContextVar("aiodev.dask.task", default=None)


def seed_of(*names: object) -> int:
    """A seed of 64 bits that follows from what these show."""
    return int.from_bytes(hashlib.blake2b(repr(names).encode(), digest_size=8).digest(), "little")


class Running:
    """What the tasks of a worker have in common.

    Attributes:
        seed: what the seeds of all tasks follow from.
        stopped: how many were stopped since nobody wanted them any more.
    """

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self.stopped = 0
        self._tasks: WeakValueDictionary[Any, DeviceTask] = WeakValueDictionary()
        self._idle: list[aiodev.Stream] = []  # whose tasks ended well; a new one costs a tenth of a task

    def task(self, spec: Any, key: Any) -> DeviceTask:
        """What the worker is to run for a key, in the place of a task of Dask's, or of what it ran for that before."""
        task = self._tasks[key] = DeviceTask(spec.spec if isinstance(spec, DeviceTask) else spec, key, self)
        return task

    def stop(self, key: Any) -> None:
        """Stop a task that nobody wants any more: one that runs, and one that is about to."""
        task = self._tasks.get(key)
        if task is not None and task.stop():
            self.stopped += 1

    def take_stream(self) -> aiodev.Stream:
        """A stream that no task has."""
        try:
            return self._idle.pop()
        except IndexError:
            return aiodev.Stream()

    def give_back(self, stream: aiodev.Stream) -> None:
        """Keep a stream whose task has ended well for the next one."""
        self._idle.append(stream)


class DeviceTask:
    """What a worker runs in the place of a task of Dask's.

    Attributes:
        spec: Dask's task.
        is_coro: whether it runs on the worker's loop; Dask asks.
    """

    __slots__ = ("__weakref__", "_asyncio_task", "_key", "_running", "_stopped", "_stream", "is_coro", "spec")

    def __init__(self, spec: Any, key: Any, running: Running) -> None:
        self.spec = spec
        self.is_coro = bool(spec.is_coro)
        self._key = key
        self._running = running
        self._stopped = False
        self._stream: aiodev.Stream | None = None  # while it runs
        self._asyncio_task: asyncio.Task[Any] | None = None  # while it runs on the loop

    def stop(self) -> bool:
        """Withdraw what it has submitted, and cancel it, or have it not begin; False if that was done before."""
        if self._stopped:
            return False
        self._stopped = True
        stream, own = self._stream, self._asyncio_task
        if stream is not None:
            stream.cancel()
        if own is not None:
            own.cancel()
        return True

    @contextmanager
    def _confined(self) -> Iterator[aiodev.Stream]:
        """A stream and a seed of its own for what runs in the block; withdrawn where the block is left by an exception.

        Raises:
            Reschedule: it was stopped, before or meanwhile. What is there was withdrawn, in part.
        """
        running = self._running
        own = self._stream = running.take_stream()  # a stop from here on withdraws
        try:
            if self._stopped:
                raise Reschedule
            with own as stream, aiodev.fork_rng():
                aiodev.manual_seed(seed_of(running.seed, self._key))
                _current.set(self)
                try:
                    yield stream
                except BaseException:
                    stream.cancel()
                    if self._stopped:
                        raise Reschedule from None
                    raise
            if self._stopped:
                raise Reschedule
        finally:
            self._stream = self._asyncio_task = None
            _current.set(None)
        running.give_back(own)

    def __call__(self, data: Mapping[Any, Any]) -> Any:
        """The result, or the coroutine that gives it; ``data`` has the results of other tasks."""
        return self._on_loop(data) if self.is_coro else self._in_thread(data)

    async def _on_loop(self, data: Mapping[Any, Any]) -> Any:
        self._asyncio_task = asyncio.current_task()
        with self._confined() as stream:
            elsewhere = _elsewhere(data, stream)
            if elsewhere:
                async with aiodev.memory.lease(sum(array.nbytes for array in elsewhere), stream.device):
                    data = _bring(data, elsewhere, stream)
                    await stream.synchronize()
            _follow(data, stream)
            result = self.spec(data)
            if inspect.isawaitable(result):
                result = await result
            await stream.synchronize()
            await until_written(result)
            for array in arrays_in(result):
                array._buffer.check()
            return result

    def _in_thread(self, data: Mapping[Any, Any]) -> Any:
        with self._confined() as stream:
            elsewhere = _elsewhere(data, stream)
            if elsewhere:
                with leased(sum(array.nbytes for array in elsewhere), stream.device):
                    data = _bring(data, elsewhere, stream)
                    stream.synchronize_blocking()
            _follow(data, stream)
            result = self.spec(data)
            stream.synchronize_blocking()
            for array in arrays_in(result):
                wait_all_blocking(unfinished(array), None)
                array._buffer.check()
            return result

    async def _stoppable(self, coroutine: Coroutine[Any, Any, Any]) -> Any:
        """What a coroutine gives, on the loop, for this task in its thread."""
        self._asyncio_task = asyncio.current_task()
        try:
            if self._stopped:  # before there was a task to cancel
                coroutine.close()
                raise Reschedule
            return await coroutine
        finally:
            self._asyncio_task = None

    def __reduce__(self) -> tuple[Any, ...]:
        """The task of Dask's: another process, as an executor may have, runs it plainly."""
        return _plain, (self.spec,)

    def __repr__(self) -> str:
        return repr(self.spec)


def run_on_loop(coroutine: Coroutine[Any, Any, Any]) -> Any:
    """What a coroutine gives, to a task in a thread and with its context: run by the worker's loop.

    Where there is no worker, a loop of its own runs it. When the task is stopped, the coroutine is cancelled, and waited for
    still.
    """
    try:
        loop = get_worker().loop.asyncio_loop
    except ValueError:
        return asyncio.run(coroutine)
    task = _current.get()
    return asyncio.run_coroutine_threadsafe(coroutine if task is None else task._stoppable(coroutine), loop).result()


@contextmanager
def leased(nbytes: int, device: aiodev.Device) -> Iterator[None]:
    """Hold a lease in a task in a thread.

    Raises:
        OutOfMemoryError: the device could never have that much.
    """
    lease = aiodev.memory.lease(nbytes, device)
    run_on_loop(lease.__aenter__())
    try:
        yield
    finally:
        lease._leave()


def _plain(spec: Any) -> Any:
    return spec


def _elsewhere(data: Mapping[Any, Any], stream: aiodev.Stream) -> list[aiodev.Array]:
    return [array for array in arrays_in(data) if array.device is not stream.device]


def _bring(data: Mapping[Any, Any], arrays: list[aiodev.Array], stream: aiodev.Stream) -> dict[Any, Any]:
    """The data with copies of these arrays on the stream's device."""
    moved = {id(array): array.to(stream.device) for array in arrays}
    return {key: replaced(value, moved) for key, value in data.items()}


def _follow(data: Mapping[Any, Any], stream: aiodev.Stream) -> None:
    """Order the stream after what still writes arrays that were received.

    Those that came with the task itself, as arguments of ``submit`` or in a function's closure, are not seen. They were
    unpickled where no stream is current, so what writes them was given to the default stream.
    """
    for array in arrays_in(data):
        for point in unfinished(array):
            stream.wait(Completion(*point))
    received = aiodev.default_stream(stream.device).timeline
    if not received.reached(received.submitted):
        stream.timeline.come_after(received, received.submitted)
