"""Timelines and raw memory without a backend, and what is truly ordered before what."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from aiodev._core.backend.interface import COMPLETED, COUNTER_WORDS, SUBMITTED


class _Counters(list[int]):
    """Counters that tell when somebody looks at them."""

    def __init__(self, counters: list[int], on_look: Callable[[], object]) -> None:
        super().__init__(counters)
        self._on_look = on_look

    def __getitem__(self, index: Any) -> Any:
        self._on_look()
        return super().__getitem__(index)


class FakeTimeline:
    """Numbered operations that a test completes one by one; a wait completes only after what it waits for."""

    withdrew = False

    def __init__(self, name: str) -> None:
        self.name, self.recording = name, None
        self.counters = [0] * COUNTER_WORDS
        self._looks = 0  # until the next operation is done; 0 where that is not set
        self.frontier: tuple[int, dict[Any, int]] = (0, {})
        self.waits: dict[int, tuple[FakeTimeline, int]] = {}
        self.holds: dict[int, dict[FakeTimeline, int]] = {}

    def __repr__(self) -> str:
        return self.name

    @property
    def submitted(self) -> int:
        """Operations so far."""
        return list.__getitem__(self.counters, SUBMITTED)  # what the model reads is no look

    @property
    def completed(self) -> int:
        """Operations done."""
        return list.__getitem__(self.counters, COMPLETED)

    def submit(self) -> int:
        """Append an operation."""
        self.counters[SUBMITTED] = self.submitted + 1
        return self.submitted

    def join(self, other: FakeTimeline) -> None:
        """Wait for all that ``other`` was given so far, as ``Timeline.join`` keeps account of it."""
        value = other.submitted
        if other is self or other.completed >= value or self.frontier[1].get(other, 0) >= value:
            return
        number = self.submit()
        self.waits[number] = (other, value)
        merged = {t: v for t, v in self.frontier[1].items() if t.completed < v}
        for t, v in other.frontier[1].items():
            if t is not self:
                merged[t] = max(v, merged.get(t, 0))
        merged[other] = value
        self.frontier = (number, merged)

    def hold(self, points: dict[FakeTimeline, int]) -> int | None:
        """Wait for points of several timelines, as ``hold_until`` does."""
        left = {t: v for t, v in points.items() if t is not self and t.completed < v}
        if not left:
            return points.get(self, 0)
        number = self.submit()
        self.holds[number] = left
        return number

    def advance(self) -> bool:
        """Complete the next operation, if it may."""
        number = self.completed + 1
        if number > self.submitted:
            return False
        if number in self.waits:
            other, value = self.waits[number]
            if other.completed < value:
                return False
        if any(other.completed < value for other, value in self.holds.get(number, {}).items()):
            return False
        self.counters[COMPLETED] = number
        return True

    def advance_at_look(self, number: int) -> None:
        """Complete the next operation just before the counters are looked at for the so-manieth time from now; 0: never."""
        self._looks = number
        if not isinstance(self.counters, _Counters):
            self.counters = _Counters(self.counters, self._look)

    def _look(self) -> None:
        if self._looks:
            self._looks -= 1
            if self._looks == 0:
                self.advance()

    def ordered_before_next(self) -> dict[FakeTimeline, int]:
        """The last operation of each timeline that is done before anything that is submitted here from now on runs."""
        found: dict[FakeTimeline, int] = {}
        todo = [(self, self.submitted)]
        while todo:
            timeline, value = todo.pop()
            if found.get(timeline, -1) >= value:
                continue
            found[timeline] = value
            todo += [wait for number, wait in timeline.waits.items() if number <= value]
            todo += [point for number, points in timeline.holds.items() if number <= value for point in points.items()]
        return found


class FakeMemory:
    """Raw memory of a fixed size, given out at rising addresses; with a granularity it maps ranges, too."""

    def __init__(self, total: int, granularity: int = 0) -> None:
        self.total = total
        self.held: dict[int, int] = {}
        self.ranges: dict[int, int] = {}
        self._granularity = granularity
        self._next = 1 << 32

    @property
    def nbytes(self) -> int:
        """Bytes that are held."""
        return sum(self.held.values())

    def allocate(self, nbytes: int) -> int:
        """See ``RawMemory``."""
        self._check(nbytes)
        address = self._reserve(nbytes)
        self.held[address] = nbytes
        return address

    def _check(self, nbytes: int) -> None:
        if self.nbytes + nbytes > self.total:
            raise MemoryError(f"{nbytes} bytes")

    def _reserve(self, nbytes: int) -> int:
        unit = self._granularity or 4096
        address, self._next = self._next, (self._next + nbytes) // unit * unit + 2 * unit
        return address

    def deallocate(self, address: int, nbytes: int) -> None:
        """See ``RawMemory``."""
        assert self.held.pop(address) == nbytes

    def info(self) -> tuple[int, int]:
        """See ``RawMemory``."""
        return self.total - self.nbytes, self.total

    def granularity(self) -> int:
        """See ``RawMemory``."""
        return self._granularity

    def reserve_range(self, nbytes: int) -> int:
        """See ``RawMemory``."""
        assert nbytes % self._granularity == 0
        address = self._reserve(nbytes)
        self.ranges[address] = nbytes
        return address

    def map_range(self, address: int, nbytes: int) -> None:
        """See ``RawMemory``."""
        self._check(nbytes)
        for granule in self._granules(address, nbytes):
            assert granule not in self.held
            self.held[granule] = self._granularity

    def unmap_range(self, address: int, nbytes: int) -> None:
        """See ``RawMemory``."""
        for granule in self._granules(address, nbytes):
            del self.held[granule]

    def release_range(self, address: int, nbytes: int) -> None:
        """See ``RawMemory``."""
        assert self.ranges.pop(address) == nbytes
        assert not any(address <= granule < address + nbytes for granule in self.held)

    def _granules(self, address: int, nbytes: int) -> range:
        assert nbytes > 0 and address % self._granularity == 0 and nbytes % self._granularity == 0
        assert any(start <= address and address + nbytes <= start + size for start, size in self.ranges.items())
        return range(address, address + nbytes, self._granularity)

    def has(self, start: int, stop: int) -> bool:
        """Whether all of that is memory that is held."""
        found = start
        for address in sorted(self.held):
            if address <= found < address + self.held[address]:
                found = address + self.held[address]
        return found >= stop
