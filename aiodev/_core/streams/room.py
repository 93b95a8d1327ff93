"""The room of a bounded stream: what is pending there, and what of it counts.

What a call submits counts as one operation, and is submitted whole or not at all: a function's launches, a kernel with the gate
that it waits at while it is compiled, a replay of a graph with branches. Whoever asks for room cannot know how many those are.
"""

from __future__ import annotations

from collections import deque

__all__ = ["Room"]


class Room:
    """What of a stream's operations does not count.

    Attributes:
        threads: those that are submitting a call.
    """

    __slots__ = ("_before", "_calls", "_others", "threads")

    def __init__(self) -> None:
        self.threads: set[int] = set()
        self._calls = 0  # that threads have begun since there was none
        self._before = 0  # the operation submitted last when the first of them was
        self._others: deque[int] = deque()  # ascending, but for what threads submit at the same time

    def enter(self, thread: int, submitted: int) -> None:
        """A thread begins to submit a call."""
        if not self.threads:
            self._calls, self._before = 0, submitted
        self._calls += 1
        self.threads.add(thread)

    def count(self, submitted: int) -> None:
        """Have calls count as one operation each, when all are submitted: which of them are whose is not known before."""
        if not self.threads:
            self.count_once(self._before + 1, submitted + 1 - self._calls)
            self._before = submitted

    def count_once(self, first: int, last: int) -> None:
        """Have operations ``first`` … ``last`` count as one: the last."""
        others = self._others
        self._others.extend(range(max(first, others[-1] + 1) if others else first, last))

    def uncounted(self, completed: int) -> int:
        """How many of the operations behind ``completed`` do not count."""
        others = self._others
        while others and others[0] <= completed:
            try:
                others.popleft()
            except IndexError:  # another thread was faster
                break
        return len(others)

    def last_but(self, most: int, submitted: int) -> int:
        """The operation behind which no more than ``most`` that count are left, of those up to ``submitted``."""
        value = submitted - most
        for other in reversed(self._others.copy()):
            if other <= value:
                break
            value -= 1
        return value
