"""The timelines that live: those that somebody holds, and those that were dropped with work in flight."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Generic, Protocol, TypeVar

from aiodev._core.backend.interface import COMPLETED, FAULTS, SUBMITTED
from aiodev._core.finalizing import WeakTable
from aiodev._core.timeline.ended import ended_totals

if TYPE_CHECKING:
    from aiodev._core.backend.device import Device

__all__ = ["Living"]


class Line(Protocol):
    """A timeline, as it is known here."""

    counters: Sequence[int]
    device: Device
    lost: BaseException | None

    @property
    def has_ended(self) -> bool: ...

    def drop_all(self) -> None: ...


L = TypeVar("L", bound=Line)


class Living(Generic[L]):
    """All that live.

    Attributes:
        by_stream_id: those that somebody holds.
        dropped: held by the watcher alone, until they are idle.
    """

    def __init__(self) -> None:
        self.by_stream_id: WeakTable[int, L] = WeakTable()
        self.dropped: set[L] = set()

    def of(self, stream_id: int) -> L | None:
        """That of a stream, which may have been dropped with work in flight."""
        return self.by_stream_id.get(stream_id)

    def all(self) -> set[L]:
        """Those that somebody holds, and those that were dropped with work in flight."""
        lines = self.dropped.copy()
        lines.update(self.by_stream_id.values())
        return lines

    def totals(self) -> dict[Device, tuple[int, int, int, int]]:
        """Of each device: streams, operations submitted and completed so far, and faults. Those that are lost do not count."""
        sums = {device: [0, operations, operations, failures] for device, (operations, failures) in ended_totals.read().items()}
        for line in self.all():
            submitted, completed = line.counters[SUBMITTED], line.counters[COMPLETED]
            if line.lost is None and not line.has_ended:
                mine = (1, submitted, min(submitted, completed), line.counters[FAULTS])
                sums[line.device] = [a + b for a, b in zip(sums.get(line.device, (0,) * 4), mine, strict=True)]
        return {device: (counts[0], counts[1], counts[2], counts[3]) for device, counts in sums.items()}

    def drop_lost(self) -> None:
        """In a forked child: drop what lost ones keep."""
        for line in self.all():
            if line.lost is not None:
                line.drop_all()
        self.dropped.clear()
