"""A piece of device memory, and the last operations that use it.

**Problem.** An array may be dropped while work that reads or writes it is still queued. Its memory must then serve nobody
else before that work is done, and nothing may be kept per operation: a launch has no time for it.

**Invariants.**

1.  A buffer knows, for each timeline that used it, the number of its last use there: ``_timeline`` and ``_value`` for the
    use that tells what became of its contents, ``_uses`` for the others. Numbers only grow.
2.  A number in ``_uses`` may lag behind for the timeline that is also ``_timeline``; the larger one counts.
3.  The contents are good if the operation ``_value`` of ``_timeline`` succeeded. It is the last that may have written them;
    what only read them on another timeline is noted aside. Whatever ran before on other timelines was ordered before it,
    and would have made it fail, or somebody was told.
4.  A fresh buffer inherits the use that its memory was freed with, when it may still be running; ``inherited`` tells that
    one from the buffer's own, since a failure of the former is none of the latter's business.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

from aiodev._core.backend import COMPLETED, FAULTS
from aiodev._core.finalizing import until_exit

if TYPE_CHECKING:
    from aiodev._core.device import Device
    from aiodev._core.timeline import Timeline

__all__ = ["Buffer", "Foreign", "Source"]


class Source(Protocol):
    """Where buffers come from, and go when they die."""

    device: Device
    host_accessible: bool

    def release(self, buffer: Buffer) -> None:
        """The buffer is gone; its memory's uses may still be running. Called by the garbage collector, in any thread."""


@until_exit
class Buffer:
    """Memory that arrays share; it goes back to its source when the last of them is dropped.

    Attributes:
        address: of its first byte.
        block: what its source knows it by.
    """

    __slots__ = ("__weakref__", "_timeline", "_uses", "_value", "address", "block", "source")

    address: int
    source: Source
    block: Any
    _timeline: Timeline
    _value: int
    _uses: dict[Timeline, int] | None

    def __init__(self, address: int, source: Source, block: Any, timeline: Timeline, value: int) -> None:
        self.address = address
        self.source = source
        self.block = block
        self._timeline = timeline
        self._value = value
        self._uses = None

    def _stamp(self, timeline: Timeline, value: int) -> None:
        """Note that operation ``value`` of ``timeline`` uses the memory, and may write it."""
        if self._timeline is timeline:
            if self._value < value:
                self._value = value
            return
        uses = self._uses
        if uses is None:
            uses = self._uses = {}
        if uses.get(timeline, 0) > value:
            return
        # No call from here on, so that no other thread comes between: a launch there may store to ``_value`` at any call.
        uses[self._timeline] = self._value
        self._timeline = timeline
        self._value = value

    def _stamp_aside(self, timeline: Timeline, value: int) -> None:
        """Note that operation ``value`` of ``timeline`` reads the memory."""
        if self._timeline is timeline:
            self._stamp(timeline, value)
            return
        uses = self._uses
        if uses is None:
            uses = self._uses = {}
        if uses.get(timeline, 0) < value:
            uses[timeline] = value

    def uses(self) -> list[tuple[Timeline, int]]:
        """The last use on each timeline, inherited ones included; that which tells of the contents is first."""
        timeline, value, uses = self._timeline, self._value, self._uses
        found = [(timeline, value)]
        if uses is not None:
            found += [(t, v) for t, v in uses.copy().items() if t is not timeline or v > value]
        return found

    def pending(self) -> list[tuple[Timeline, int]]:
        """The uses that are not done."""
        return [(timeline, value) for timeline, value in self.uses() if timeline.counters[COMPLETED] < value]

    def check(self) -> None:
        """Raise what went wrong with the contents, when the last use that tells of them is done (invariant 3)."""
        timeline, value = self._timeline, self._value
        if timeline.counters[FAULTS] and value and not self.inherited(timeline, value):
            timeline.check(value)

    def inherited(self, timeline: Timeline, value: int) -> bool:
        """Whether a use is one of the memory's life before this buffer (invariant 4)."""
        block = self.block
        return block is not None and block.timeline is timeline and block.value == value

    def __del__(self) -> None:
        self.source.release(self)


class Foreign:
    """The source of buffers over memory that somebody else owns, such as a NumPy array.

    What a buffer's ``owner`` is kept alive until its uses are done.
    """

    def __init__(self, device: Device, owner: Any) -> None:
        self.device = device
        self.host_accessible = True
        self.owner = owner

    def release(self, buffer: Buffer) -> None:
        """Keep the owner for what is still running."""
        for timeline, value in buffer.pending():
            timeline.keep(value, self.owner)
