"""Rows: what each round of a loop on the device has written, handed to the event loop while later rounds run.

The body of the loop ends with a command that completes the next position of a *signal*: a queue that is given no operations.
So whoever waits for a row waits as for any operation, and is woken by the worker that ran the round. A replay has a signal of
its own, which the device learns of by a patch; position ``n`` is done when row ``n - 1`` is written. A reader waits for the
next position or for the end of the replay, whichever comes first: loops may end early, fail, or not begin.
"""

from __future__ import annotations

import ctypes
import weakref
from collections.abc import Generator, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from aiodev._array.dtypes import DType
from aiodev._array.layout import extent
from aiodev._array.protocols import address_of
from aiodev._array.tuning import DIRECT
from aiodev._core.at_fork import first_in_child
from aiodev._core.backend.interface import COMPLETED
from aiodev._core.finalizing import until_exit
from aiodev._core.streams.completion import Completion
from aiodev._core.streams.stream import Stream
from aiodev._core.waiting.reactor import others_first, wait_any
from aiodev._core.waiting.watcher import watcher

if TYPE_CHECKING:
    from aiodev._array.array import Array
    from aiodev._core.backend.registry import BackendHandle
    from aiodev._core.timeline.points import Reachable
    from aiodev._core.timeline.timeline import Timeline

__all__ = ["Rows", "Signal"]

_signals: weakref.WeakSet[Signal] = weakref.WeakSet()


@until_exit
class Signal:
    """A queue without operations, whose positions are completed by commands of other queues; as wait sets know timelines.

    Attributes:
        counters: of the queue: how many positions are completed.
        deferred: never: its executor has started.
        handle: of its backend.
        operations: its executor.
        parked: how many wait sets have waiters of it.
        queue: the executor's number for it.
    """

    __slots__ = ("__weakref__", "counters", "deferred", "handle", "operations", "parked", "queue")

    def __init__(self, handle: BackendHandle, index: int) -> None:
        self.handle = handle
        self.operations = handle.backend.executor
        self.parked = 0
        self.deferred = False
        self.counters: Sequence[int]
        self.queue, self.counters = self.operations.create_queue(index, 0, False)
        _signals.add(self)

    def reached(self, value: int) -> bool:
        """Whether a position is completed."""
        return self.counters[COMPLETED] >= value

    def __del__(self) -> None:
        queue = getattr(self, "queue", 0)  # who made it may have been interrupted
        if queue:  # by the watcher: the collector may have called us while the executor holds its lock
            watcher.call(partial(self.operations.destroy_queue, queue))


def _forget_after_fork() -> None:
    for signal in list(_signals):
        signal.queue = 0


first_in_child(_forget_after_fork)


class Rows:
    """The rows that one replay writes, in order, each as soon as it is written; what :meth:`Graph.rows` gives."""

    __slots__ = ("_array", "_contents", "_next", "_reader", "_replay", "_signal")

    def __init__(
        self, array: Array, signal: Signal, contents: list[tuple[Timeline, int]], replay: Completion[None]
    ) -> None:
        self._array, self._signal, self._replay = array, signal, replay
        self._contents = contents  # of the array's memory, as the replay is to leave it
        self._next = 0
        self._reader: Stream | None = None

    def is_of(self, array: Array) -> bool:
        """Whether the rows are those of an array."""
        own = self._array
        kind, other = (own.shape, own.strides, own.dtype), (array.shape, array.strides, array.dtype)
        return own._buffer is array._buffer and own._address == array._address and kind == other

    def anew(self) -> Rows:
        """The rows, from the first one on, for another reader."""
        return Rows(self._array, self._signal, self._contents, self._replay)

    def __aiter__(self) -> Rows:
        return self

    async def __anext__(self) -> Any:
        """The next row: a copy on the host, or a number where rows have no dimensions.

        Raises:
            RuntimeError: a later operation may have written to the array before the row was read.
            KernelError: the round that was to write it failed.
            BaseException: as ``await`` of the replay.
        """
        number, signal, replay = self._next, self._signal, self._replay
        if not (signal.reached(number + 1) or replay.query()):
            await _Either([(signal, number + 1), (replay.timeline, replay.value)])
        else:
            await others_first
        if not signal.reached(number + 1):  # all rounds signal before the replay is done
            await replay
            raise StopAsyncIteration
        row = await self._read(number)
        if replay.query() and self._array._buffer.contents() != self._contents:
            raise RuntimeError(
                f"rows: row {number} was not read before something else that writes to the array was submitted; read the rows "
                "of a replay first, or have the next one write to another array, by Graph.update"
            )
        self._next = number + 1
        return row

    async def _read(self, number: int) -> Any:
        """Copy a row to the host, ahead of the end of the replay."""
        row = self._array[number]
        first, last = extent(row._layout, row.itemsize)
        nbytes = last - first
        staging = np.empty(max(1, nbytes), np.uint8)
        target = address_of(staging)
        is_here = row._buffer.source.host_accessible
        if is_here and nbytes <= DIRECT:
            ctypes.memmove(target, row._address + first, nbytes)
        elif nbytes:
            if self._reader is None:
                self._reader = Stream(row.device, priority=-1, reserve=not is_here)  # in no queue with the replay
            timeline = self._reader.timeline
            copied = timeline.queue, target, row._address + first, nbytes
            # We may be cancelled; the copy is not.
            value = timeline.submit_with((staging, row), nbytes, timeline.operations.copy, *copied)
            await Completion(timeline, value)
        elements: np.ndarray[Any, DType] = np.ndarray(row.shape, row.dtype, staging, -first, row.strides)
        return elements[()] if row.ndim == 0 else elements

    def __repr__(self) -> str:
        return f"<aiodev rows of {self._array.shape[0]}, {self._next} read>"


class _Either:
    """Wait until one of several points is reached."""

    __slots__ = ("_points",)

    def __init__(self, points: list[tuple[Reachable, int]]) -> None:
        self._points = points

    def __await__(self) -> Generator[Any, Any, None]:
        return wait_any(self._points)
