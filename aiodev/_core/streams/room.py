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

    __slots__ = ("_others", "threads")

    def __init__(self) -> None:
        self.threads: set[int] = set()
        self._others: deque[int] = deque()  # ascending, but for what threads submit at the same time

    def count_once(self, first: int, last: int) -> None:
        """Have operations ``first`` … ``last`` count as one: the last."""
        self._others.extend(range(first, last))

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
