"""What aiodev is measured next to: NumPy's own call, the executors of asyncio, a Python worker thread."""

from __future__ import annotations

import asyncio
import queue
import threading
import time
from collections.abc import Callable
from types import TracebackType

import numpy as np

__all__ = ["PythonWorker", "awaited", "numpy_add", "thread_handover", "timed"]


def timed(function: Callable[[], object], count: int) -> float:
    """µs for each of ``count`` calls."""
    began = time.perf_counter()
    for _ in range(count):
        function()
    return (time.perf_counter() - began) / count * 1e6


async def awaited(function: Callable[[], object], count: int) -> float:
    """µs for each of ``count`` times ``await function()``."""
    began = time.perf_counter()
    for _ in range(count):
        await function()
    return (time.perf_counter() - began) / count * 1e6


def numpy_add(count: int) -> float:
    """µs of ``np.add(a, b, out=c)`` on 8 float32, the unit that Python call costs are stated in."""
    a, b, c = (np.ones(8, np.float32) for _ in range(3))
    began = time.perf_counter()
    for _ in range(count):
        np.add(a, b, out=c)
    return (time.perf_counter() - began) / count * 1e6


class PythonWorker:
    """The usual do-it-yourself device thread: a queue of functions, results by ``call_soon_threadsafe``."""

    def __init__(self) -> None:
        self.completed = 0
        self._queue: queue.SimpleQueue[tuple[Callable[[], object], asyncio.Future[None] | None] | None]
        self._queue = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._work, daemon=True)
        self._dropped = False

    def __enter__(self) -> PythonWorker:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._dropped = True
        self._queue.put(None)
        self._thread.join()

    def push(self, function: Callable[[], object]) -> None:
        """Queue a call that nobody waits for."""
        self._queue.put((function, None))

    def submit(self, function: Callable[[], object]) -> asyncio.Future[None]:
        """Queue a call; the future is done when it is."""
        future = asyncio.get_running_loop().create_future()
        self._queue.put((function, future))
        return future

    def _work(self) -> None:
        while (item := self._queue.get()) is not None:
            function, future = item
            if self._dropped:
                continue
            function()
            self.completed += 1
            if future is not None:
                future.get_loop().call_soon_threadsafe(future.set_result, None)


def thread_handover(count: int) -> float:
    """µs for one hand-over between two Python threads through ``threading.Event``, there and back ``count`` times."""
    there, back = threading.Event(), threading.Event()

    def answer() -> None:
        for _ in range(count):
            there.wait()
            there.clear()
            back.set()

    thread = threading.Thread(target=answer)
    thread.start()
    began = time.perf_counter()
    for _ in range(count):
        there.set()
        back.wait()
        back.clear()
    elapsed = time.perf_counter() - began
    thread.join()
    return elapsed / (2 * count) * 1e6
