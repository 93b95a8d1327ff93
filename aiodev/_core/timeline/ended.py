"""What is left of a timeline that has ended: its part of the totals, and its queue while somebody refers to it."""

from __future__ import annotations

import threading
from collections import Counter, deque
from functools import partial
from typing import TYPE_CHECKING, Final

from aiodev._core.finalizing import until_exit
from aiodev._core.waiting.watcher import watcher

if TYPE_CHECKING:
    from aiodev._core.backend.device import Device
    from aiodev._core.backend.interface import Executor

#: So many timelines are added to the totals by who makes the next one, if nobody asks for these.
_MOST_NOTED: Final = 1000


@until_exit
class Lease:
    """The queue of a timeline that has ended, which goes back when nothing refers to the timeline any more.

    It is made when the timeline ends, not before: the collector would call the finalizers of both at once, and the queue would
    go back while the watcher still waits for the timeline that the other finalizer handed to it.

    Its streams may be gone and its work done while somebody waits for it still, in ``synchronize`` of the device. A queue
    that a new timeline got meanwhile would be taken for the old one there.
    """

    __slots__ = ("executor", "queue")

    def __init__(self, executor: Executor) -> None:
        self.executor = executor
        self.queue = 0

    def __del__(self) -> None:
        if not getattr(self, "queue", 0):  # it is the parent's, or Ctrl-C came before it was given
            return
        if self.executor.destroys_anywhere:
            self.executor.destroy_queue(self.queue)
        else:  # by the watcher, for the same reason that it ends the timeline
            watcher.call(partial(self.executor.destroy_queue, self.queue))


class EndedTotals:
    """Operations, and faults, of each device's timelines that have ended, so that totals never fall."""

    def __init__(self) -> None:
        self._operations: Counter[Device] = Counter()
        self._faults: Counter[Device] = Counter()
        self._noted: deque[tuple[Device, int, int]] = deque()  # what is to be added there, which takes several steps
        self._adding = threading.RLock()  # re-entrant: a signal's handler may ask while this thread holds it

    def note(self, device: Device, operations: int, faults: int) -> None:
        """Count a timeline's; for finalizers, which may come at any moment."""
        self._noted.append((device, operations, faults))

    def keep_short(self) -> None:
        """Add what was noted, if that is much."""
        if len(self._noted) > _MOST_NOTED:
            self._add()

    def read(self) -> dict[Device, tuple[int, int]]:
        """The operations and the faults of each device."""
        self._add()
        return {device: (operations, self._faults[device]) for device, operations in list(self._operations.items())}

    def _add(self) -> None:
        with self._adding:
            while self._noted:
                device, operations, faults = self._noted.popleft()
                self._operations[device] += operations
                self._faults[device] += faults

    def forget_after_fork(self) -> None:
        """In a forked child: what the parent did is not counted here, and another thread of it may have held the lock."""
        EndedTotals.__init__(self)


#: Those of this process.
ended_totals = EndedTotals()
