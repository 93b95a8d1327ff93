"""Tickets: tasks of a loop go on one after the other, in the order in which they asked."""

from __future__ import annotations

from collections import deque

import anyio

__all__ = ["Ticket", "Tickets"]


class Ticket:
    """The place of a task among those who ask for the same.

    To take it needs no waiting, to wait until it is the first does: in between a task may let others run, which a lock's
    ``acquire`` has no room for. Whoever took it gives it back, whatever happens.
    """

    __slots__ = ("_event", "_tickets")

    def __init__(self, tickets: Tickets) -> None:
        self._tickets = tickets
        self._event: anyio.Event | None = None  # of a task that waits

    def take(self) -> None:
        """Stand behind all others."""
        self._tickets.append(self)

    async def first(self) -> None:
        """Wait until everybody ahead has given theirs back."""
        while self._tickets[0] is not self:
            self._event = anyio.Event()
            await self._event.wait()

    def give_back(self) -> None:
        """Let those behind go on; nothing, where it was not taken."""
        tickets = self._tickets
        if self in tickets:
            tickets.remove(self)
        if tickets and tickets[0]._event is not None:
            tickets[0]._event.set()


Tickets = deque[Ticket]
