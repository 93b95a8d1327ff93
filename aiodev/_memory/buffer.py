"""A piece of device memory, and the last operations that use it.

**Problem.** An array may be dropped while work that reads or writes it is still queued. Its memory must then serve nobody
else before that work is done, and nothing may be kept per operation: a launch has no time for it.

**Invariants.**

1.  A buffer knows, for each timeline that used it, the number of its last use there: ``_timeline`` and ``_value`` for the
    last that may have written it, ``_reader`` and ``_read`` for the last that only read it, ``_uses`` for those on other
    timelines. Of several numbers for one timeline the largest counts. Numbers only grow.
2.  The contents are good if the operation ``_value`` of ``_timeline`` succeeded. Whatever ran before on other timelines was
    ordered before it, and would have made it fail, or somebody was told. What only reads them leaves them as they are.
3.  A fresh buffer inherits the use that its memory was freed with, when it may still be running; ``inherited`` tells that
    one from the buffer's own, since a failure of the former is none of the latter's business.

A launch stores to ``_value`` and ``_read`` by itself where the timeline is the same as before; so no call may come between
reading one of these fields here and giving it another meaning.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

from aiodev._core.backend import COMPLETED, FAULTS
from aiodev._core.finalizing import until_exit
from aiodev._core.timeline import TENDED_BYTES

if TYPE_CHECKING:
    from aiodev._core.device import Device
    from aiodev._core.timeline import Timeline

__all__ = ["Buffer", "Foreign", "ForeignBuffer", "Source"]


class Source(Protocol):
    """What buffers come from."""

    device: Device
    host_accessible: bool


class Buffer:
    """Memory that arrays share; what becomes of it when the last of them is dropped, the subclasses say.

    Attributes:
        address: of its first byte.
        block: what its source knows it by.
    """

    __slots__ = ("__weakref__", "_read", "_reader", "_timeline", "_uses", "_value", "address", "block", "source")

    address: int
    source: Source
    block: Any
    _timeline: Timeline
    _value: int
    _reader: Timeline
    _read: int
    _uses: dict[Timeline, int] | None

    def __init__(self, address: int, source: Source, block: Any, timeline: Timeline, value: int) -> None:
        self.address = address
        self.source = source
        self.block = block
        self._timeline = timeline
        self._value = value
        self._reader = timeline
        self._read = 0
        self._uses = None

    def _stamp(self, timeline: Timeline, value: int) -> None:
        """Note that operation ``value`` of ``timeline`` uses the memory, and may write it."""
        while (writer := self._timeline) is not timeline:
            uses = self._uses
            if uses is None:
                uses = self._uses = {}
            if uses.get(timeline, 0) > value:
                return
            known = uses.get(writer, 0)
            if self._timeline is writer:  # no call from here on
                if self._value > known:
                    uses[writer] = self._value
                self._timeline = timeline
                self._value = value
                return
        if self._value < value:
            self._value = value

    def _stamp_aside(self, timeline: Timeline, value: int) -> None:
        """Note that operation ``value`` of ``timeline`` reads the memory."""
        while (reader := self._reader) is not timeline:
            uses = self._uses
            if uses is None:
                uses = self._uses = {}
            if uses.get(timeline, 0) > value:
                return
            known = uses.get(reader, 0)
            if self._reader is reader:  # no call from here on
                if self._read > known:
                    uses[reader] = self._read
                self._reader = timeline
                self._read = value
                return
        if self._read < value:
            self._read = value

    def uses(self) -> list[tuple[Timeline, int]]:
        """The last use on each timeline, inherited ones included; a timeline may be there more than once."""
        timeline, value, uses = self._timeline, self._value, self._uses
        found = [(timeline, value)]
        if self._read:
            found.append((self._reader, self._read))
        if uses is not None:
            found += uses.copy().items()
        return found

    def contents(self) -> tuple[Timeline, int]:
        """The operation that the contents are of."""
        return self._timeline, self._value

    def pending(self) -> list[tuple[Timeline, int]]:
        """The uses that are not done; a timeline may be there more than once."""
        return [(timeline, value) for timeline, value in self.uses() if timeline.counters[COMPLETED] < value]

    def check(self) -> None:
        """Raise what went wrong with the contents, when the last use that tells of them is done (invariant 2)."""
        timeline, value = self._timeline, self._value
        if timeline.counters[FAULTS] and value and not self.inherited(timeline, value):
            timeline.check(value)

    def inherited(self, timeline: Timeline, value: int) -> bool:
        """Whether a use is one of the memory's life before this buffer (invariant 3)."""
        block = self.block
        return block is not None and block.timeline is timeline and block.value == value


class Foreign:
    """The source of buffers over memory that somebody else owns, such as a NumPy array: ``owner``, which keeps it."""

    def __init__(self, device: Device, owner: Any, host_accessible: bool = True) -> None:
        self.device = device
        self.host_accessible = host_accessible
        self.owner = owner


@until_exit
class ForeignBuffer(Buffer):
    """Memory of a :class:`Foreign` owner, who is kept until its uses are done."""

    __slots__ = ()

    source: Foreign

    def __del__(self) -> None:
        """Keep the owner for what is still running."""
        for timeline, value in self.pending():
            timeline.keep(value, self.source.owner, TENDED_BYTES)  # how much it is we do not know
