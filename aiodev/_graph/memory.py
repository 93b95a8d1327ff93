"""The memory of graphs: what a capture has made, which operations may mean it, and who replays in it."""

from __future__ import annotations

import bisect
import weakref
from typing import TYPE_CHECKING, NamedTuple

from aiodev._core.backend.interface import COMPLETED
from aiodev._core.config import settings
from aiodev._memory.buffer import Buffer
from aiodev._memory.pool import MemoryPool

if TYPE_CHECKING:
    from aiodev._core.backend.device import Device
    from aiodev._core.streams.stream import Stream
    from aiodev._core.timeline.timeline import Timeline
    from aiodev._memory.allocator import CachingAllocator

__all__ = ["Made", "Memory", "Replays"]


class Replays:
    """The last replay of the graphs that share a pool (invariant 5)."""

    __slots__ = ("stream", "timeline", "value")

    def __init__(self) -> None:
        self.timeline: Timeline | None = None
        self.value = 0
        self.stream = ""

    def come_to(self, timeline: Timeline, shares_state: bool) -> None:
        """Have the next replay be on a timeline, behind the last one; unless they share state, however that comes out."""
        last = self.timeline
        if last is timeline or last is None:
            return
        if shares_state:
            timeline.join(last, self.value, last.clock_at(self.value))
        elif last.counters[COMPLETED] < self.value:  # who comes next follows this wait, if there is no replay behind it
            self.value = timeline.come_after(last, self.value)
            self.timeline, self.stream = timeline, timeline.label

    def check(self, stream: Stream) -> None:
        """Refuse a replay that would run beside the last one.

        Raises:
            RuntimeError: the stream is not ordered after it.
        """
        timeline, last = stream.timeline, self.timeline
        if last is timeline or last is None or last.counters[COMPLETED] >= self.value:
            return
        if timeline.frontier[1].get(last, 0) < self.value:
            raise RuntimeError(
                f"replay on {stream!r}: the graph, or another one with its memory, still runs on {self.stream}; "
                f"replay it there, or have the stream wait for that first"
            )


class Made(NamedTuple):
    """Memory that a capture has made.

    Attributes:
        nbytes: how many bytes were asked for.
        behind: how many operations each stream had been given by then: they may use the same memory, for something else.
    """

    nbytes: int
    behind: tuple[int, ...]

    def may_be_used_by(self, lane: int, value: int) -> bool:
        """Whether an operation of a stream was captured when this memory had been made."""
        return lane >= len(self.behind) or value > self.behind[lane]


class Memory:
    """The memory of a graph: a pool, which is made when something is first allocated, and whose buffers are listed.

    Attributes:
        made: memory that the capture has made and that is not free again.
        replays: of the graphs that share it.
    """

    def __init__(self, device: Device, pool: MemoryPool | None) -> None:
        self.made: weakref.WeakKeyDictionary[Buffer, Made] = weakref.WeakKeyDictionary()
        #: Where operations have memory that the capture has made, or had it: ascending, and apart from each other.
        self.spans: list[tuple[int, int]] = []
        self._all: list[Buffer] = []  # in debug mode, which takes what is written to after it was freed for a fault
        self.replays = Replays() if pool is None else _replays.setdefault(pool, Replays())
        self._device = device
        self._pool: MemoryPool | None = None
        if pool is not None:
            self._take(pool)

    @property
    def pool(self) -> MemoryPool:
        """The pool."""
        pool = self._pool
        if pool is None:
            pool = MemoryPool(self._device)
            _replays[pool] = self.replays
            self._take(pool)
        return pool

    def _take(self, pool: MemoryPool) -> None:
        """Keep the memory of a pool where it is, the free part as well, for as long as this object lives."""
        self._pool = pool
        pool._allocator.pin()
        weakref.finalize(self, _unpin, pool._allocator, self.made).atexit = False

    def allocate(self, nbytes: int, timeline: Timeline) -> Buffer:
        """See :meth:`CachingAllocator.allocate`."""
        return self._allocate(nbytes, timeline)[0]

    def allocate_fresh(self, nbytes: int, timeline: Timeline) -> Buffer:
        """Memory that no captured operation has had: what is there is written when a replay begins, ahead of all of them."""
        aside: list[Buffer] = []
        while True:
            buffer, is_fresh = self._allocate(nbytes, timeline)
            if is_fresh:
                return buffer
            aside.append(buffer)

    def _allocate(self, nbytes: int, timeline: Timeline) -> tuple[Buffer, bool]:
        """Memory, and whether no captured operation has had some of it."""
        buffer = self.pool._allocator.allocate(nbytes, timeline)
        recording = timeline.recording
        self.made[buffer] = Made(nbytes, () if recording is None else recording.progress())
        if settings.debug:
            self._all.append(buffer)
        return buffer, self._note(buffer.address, buffer.address + buffer.block.size)

    def _note(self, first: int, last: int) -> bool:
        """Note where operations have memory; whether that was nowhere in what is noted."""
        spans = self.spans
        begin = end = bisect.bisect_left(spans, (first,))
        if begin and spans[begin - 1][1] > first:
            begin -= 1
        while end < len(spans) and spans[end][0] < last:
            end += 1
        if begin == end:
            spans.insert(begin, (first, last))
            return True
        spans[begin:end] = [(min(first, spans[begin][0]), max(last, spans[end - 1][1]))]
        return False


def _unpin(allocator: CachingAllocator, made: weakref.WeakKeyDictionary[Buffer, Made]) -> None:
    """The graph is gone: its memory may go back, that of arrays which outlive it when they are dropped."""
    for buffer in list(made):
        weakref.finalize(buffer, allocator.return_abandoned).atexit = False
    allocator.unpin()


_replays: weakref.WeakKeyDictionary[MemoryPool, Replays] = weakref.WeakKeyDictionary()
