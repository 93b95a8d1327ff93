"""Protocols of a line of operations, for those who wait: as much of a timeline as there is to wait for.

A point is such a line and the number of one of its operations. Waiting stands below timelines, which have it tend their own
finished operations.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol

from aiodev._core.backend.interface import Executor

__all__ = ["Reachable", "Tended", "Waited"]


class Waited(Protocol):
    """A queue of an executor, as wait sets know it.

    Attributes:
        parked: how many wait sets have waiters of it.
    """

    counters: Sequence[int]
    operations: Executor
    parked: int
    queue: int


class Starting(Protocol):
    """A backend that may be starting."""

    def start_soon(self, callback: Callable[[BaseException | None], object]) -> None: ...


class Reachable(Waited, Protocol):
    """A line whose points tasks wait for."""

    deferred: bool

    @property
    def handle(self) -> Starting: ...

    def reached(self, value: int) -> bool: ...


class Tended(Reachable, Protocol):
    """A timeline that the watcher waits for, or has let go of what its finished operations needed."""

    tended: bool

    @property
    def needed(self) -> Any: ...  # true while there is something

    def let_go(self) -> None: ...
