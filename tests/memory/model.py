"""Timelines and raw memory without a backend, and what is truly ordered before what."""

from __future__ import annotations

from typing import Any

from aiodev._core.backend import COMPLETED, COUNTER_WORDS, SUBMITTED


class FakeTimeline:
    """Numbered operations that a test completes one by one; a wait completes only after what it waits for."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.counters = [0] * COUNTER_WORDS
        self.frontier: tuple[int, dict[Any, int]] = (0, {})
        self.waits: dict[int, tuple[FakeTimeline, int]] = {}

    def __repr__(self) -> str:
        return self.name

    @property
    def submitted(self) -> int:
        """Operations so far."""
        return self.counters[SUBMITTED]

    @property
    def completed(self) -> int:
        """Operations done."""
        return self.counters[COMPLETED]

    def submit(self) -> int:
        """Append an operation."""
        self.counters[SUBMITTED] += 1
        return self.counters[SUBMITTED]

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

    def advance(self) -> bool:
        """Complete the next operation, if it may."""
        number = self.completed + 1
        if number > self.submitted:
            return False
        if number in self.waits:
            other, value = self.waits[number]
            if other.completed < value:
                return False
        self.counters[COMPLETED] = number
        return True

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
        return found


class FakeMemory:
    """Raw memory of a fixed size, given out at rising addresses."""

    def __init__(self, total: int) -> None:
        self.total = total
        self.held: dict[int, int] = {}
        self._next = 1 << 20

    def allocate(self, nbytes: int) -> int:
        """See ``RawMemory``."""
        if sum(self.held.values()) + nbytes > self.total:
            raise MemoryError(f"{nbytes} bytes")
        address, self._next = self._next, self._next + nbytes + 4096
        self.held[address] = nbytes
        return address

    def deallocate(self, address: int, nbytes: int) -> None:
        """See ``RawMemory``."""
        assert self.held.pop(address) == nbytes

    def info(self) -> tuple[int, int]:
        """See ``RawMemory``."""
        return self.total - sum(self.held.values()), self.total
