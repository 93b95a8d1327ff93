"""Latches: tests hold a stream, a queue or all workers of a device until they choose to let go; nothing sleeps."""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import TracebackType
from typing import NoReturn, Protocol

from aiodev._backends.cpu.host import HostBackend
from aiodev._core.arguments import instance
from aiodev._core.backend.interface import Executor
from aiodev._core.streams.stream import Stream

__all__ = ["Latch", "QueueLatch", "held_workers"]

_ENTRY = ctypes.CFUNCTYPE(
    ctypes.c_int32, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64, ctypes.c_int64
)

#: Functions that workers have not been through within the timeout: they are called whenever a worker comes.
_still_called: list[object] = []


class _Gate(Protocol):
    value: int

    def open(self, error: BaseException | None = None) -> None: ...


class Latch:
    """Holds a stream from now on, until released; leaving the block releases it.

    Example:
        >>> import aiodev
        >>> from aiodev.testing import Latch
        >>> stream = aiodev.Stream("cpu")
        >>> with Latch(stream):
        ...     event = stream.record_event()
        ...     event.query()
        False
        >>> event.synchronize_blocking()
        >>> event.query()
        True
    """

    def __init__(self, stream: Stream) -> None:
        self._gate = instance("Latch", "stream", stream, Stream, "a Stream")._gate(True)

    @property
    def value(self) -> int:
        """The latch's operation on the stream's timeline."""
        return self._gate.value

    def __reduce__(self) -> NoReturn:
        """One of them holds the stream."""
        raise TypeError("latches are not pickled or copied: each holds what it was made for")

    def __repr__(self) -> str:
        return f"<aiodev.testing.Latch, operation {self._gate.value}>"

    def release(self, error: BaseException | None = None) -> None:
        """Let the stream go on; with an ``error`` it fails here. A second call does nothing."""
        self._gate.open(error)

    def __enter__(self) -> Latch:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.release()


class QueueLatch:
    """Holds a queue of a backend's executor from now on, until released; leaving the block releases it.

    Example:
        >>> from aiodev.testing import QueueLatch, SimulatedBackend
        >>> backend = SimulatedBackend()
        >>> backend.start()
        >>> executor = backend.executor
        >>> queue, counters = executor.create_queue(0, 0, False)
        >>> with QueueLatch(executor, queue) as latch:
        ...     executor.spin(queue, latch.value, 0)  # looks whether it is done: not yet
        False
        >>> executor.spin(queue, latch.value, 10**9)
        True
        >>> executor.destroy_queue(queue)
        >>> backend.stop()
    """

    def __init__(self, executor: Executor, queue: int) -> None:
        self._gate = executor.create_gate()
        self.value = executor.gate(queue, self._gate)
        self._executor = executor
        self._held = True

    def __reduce__(self) -> NoReturn:
        """One of them holds the queue."""
        raise TypeError("latches are not pickled or copied: each holds what it was made for")

    def __repr__(self) -> str:
        return f"<aiodev.testing.QueueLatch, operation {self.value}>"

    def release(self, failed: bool = False) -> None:
        """Let the queue go on; with ``failed`` it fails here. A second call does nothing."""
        if self._held:
            self._held = False
            self._executor.open_gate(self._gate, failed)

    def __enter__(self) -> QueueLatch:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.release()


@contextmanager
def held_workers(backend: HostBackend, index: int = 0, timeout: float = 30.0) -> Iterator[None]:
    """Keep every worker of device ``index`` busy inside the block, so that nothing else of the device runs.

    For backends of this process's threads. Each worker is given a kernel that waits; it needs no core meanwhile.

    Raises:
        TimeoutError: the workers did not all come within ``timeout`` seconds.

    Example:
        >>> import aiodev
        >>> from aiodev.testing import held_workers
        >>> stream = aiodev.Stream("cpu")
        >>> array = aiodev.zeros(8, device="cpu")
        >>> with held_workers(aiodev.get_backend("cpu")):
        ...     stream.copy(array, array.reshape(8)).query()
        False
    """
    executor = backend.executor
    count = executor.thread_count
    entered, release = threading.Semaphore(0), threading.Event()

    def hold(*_: object) -> int:
        entered.release()
        release.wait()
        return 0

    entry = backend.reserve_entry()
    callback = _ENTRY(hold)
    if executor.kind == "native":
        executor.set_entry(entry, ctypes.cast(callback, ctypes.c_void_p).value or 0)
    else:
        executor.set_entry(entry, hold)
    queues = [executor.create_queue(index, backend.capabilities.priorities[0], False)[0] for _ in range(count)]
    executor.hold_reserve(True)
    try:
        for queue in queues:
            executor.launch(queue, entry, 1, b"", 0)
        for _ in queues:
            if not entered.acquire(timeout=timeout):
                raise TimeoutError(f"not all of {count} workers could be held within {timeout} s")
        yield
    finally:
        release.set()
        for queue in queues:
            if not executor.spin(queue, 1, int(timeout * 1e9)):
                _still_called.append(callback)
            executor.destroy_queue(queue)
        executor.hold_reserve(False)
