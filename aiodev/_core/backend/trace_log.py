"""Logs: what was submitted to an executor's queues, and when its workers began and ended it.

A log is a row of words in memory that native code writes. Each operation has a slot of its own, in the order of submission.
Nothing but the executor's own code claims slots of its log, so that no claim needs a lock which native code would have to take.
"""

from __future__ import annotations

import ctypes
import mmap
from typing import Final, NoReturn

__all__ = [
    "FATES", "FATE_DONE", "FATE_FAILED", "FATE_SHIFT", "FATE_SKIPPED", "FATE_WITHDRAWN", "OPERATIONS",
    "OPERATION_MASK", "SLOT_WORDS", "TraceLog",
]  # fmt: skip

#: What an operation is: a kernel, a wait for another queue, a gate, the storing of the time, the execution of a command buffer,
#: a command of that.
OPERATIONS: Final = range(1, 7)
KERNEL, WAIT, GATE, STAMP, BUFFER, COMMAND = OPERATIONS
#: Bits of a slot's word ``what``: the operation, and how it came out.
OPERATION_MASK: Final = 63
FATE_SHIFT: Final = 8
#: How operations come out: done; failed; not run, since one ahead of it had failed; not run, since it was withdrawn.
FATES: Final = range(4)
FATE_DONE, FATE_FAILED, FATE_SKIPPED, FATE_WITHDRAWN = FATES

#: Words of a slot, and which is which: the queue; the operation's number there, of a command that of the execution; what it is
#: (see above); a kernel's entry and size, the queue and number that is waited for, or a command's site and size; when it was
#: submitted, begun and ended (ns of ``time.perf_counter_ns``; 0: not yet).
SLOT_WORDS: Final = 8
QUEUE, VALUE, WHAT, FIRST, SECOND, SUBMITTED, BEGUN, ENDED = range(SLOT_WORDS)
_WORD: Final = 8
#: Words of the log itself: how many slots were asked for, and how many there are.
_CLAIMED, _ROOM = 0, 1


class TraceLog:
    """What an executor notes of its operations while somebody profiles: see :meth:`Executor.trace`.

    An executor in Python calls ``claim``, ``begin`` and ``end``. Native code writes the words that
    ``aiodev/_core/backend/trace_log.py`` describes. Memory is taken as it is written to.

    Args:
        room: how many operations there is room for.

    Attributes:
        address: of its first word.
        room: how many operations it has room for.

    Example:
        >>> log = aiodev.TraceLog(100)
        >>> place = log.claim(1, 1, log.KERNEL, submitted=1_000)  # the first operation of queue 1
        >>> log.begin(place, 2_000)
        >>> log.end(place, 3_000, log.DONE)
        >>> log.claimed
        1
    """

    #: What an operation is: a kernel, copy or fill; a wait for another queue; a gate; the storing of the time; the execution of
    #: a command buffer; and a launch, copy or fill of that, each time that it runs.
    KERNEL, WAIT, GATE, STAMP, BUFFER, COMMAND = OPERATIONS
    #: How it came out: done; failed; not run, since one ahead of it had failed; not run, since it was withdrawn.
    DONE, FAILED, SKIPPED, WITHDRAWN = FATES

    def __init__(self, room: int) -> None:
        nbytes = _WORD * SLOT_WORDS * (1 + room)
        # Private: Python's default is shared, and operations of the parent would be noted in a forked child's.
        self._memory = mmap.mmap(-1, nbytes, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        self._words = memoryview(self._memory).cast("q")
        self.address = ctypes.addressof(ctypes.c_char.from_buffer(self._memory))
        self.room = room
        self._words[_ROOM] = room

    def __reduce__(self) -> NoReturn:
        """Native code writes to it."""
        raise TypeError("logs are not pickled or copied: native code writes to where one is")

    def __repr__(self) -> str:
        return f"<aiodev.TraceLog with room for {self.room} operations>"

    @property
    def claimed(self) -> int:
        """How many operations were to be noted so far, which may be more than there was room for."""
        return self._words[_CLAIMED]

    def slots(self, first: int, last: int) -> memoryview[int]:
        """The words of slots ``first`` … ``last - 1``, as far as there are any."""
        first, last = (SLOT_WORDS * (1 + min(number, self.room)) for number in (first, last))
        return self._words[first:last]

    def claim(self, queue: int, value: int, operation: int, first: int = 0, second: int = 0, submitted: int = 0) -> int:
        """Note an operation that is submitted, before its queue can come to it; calls are serialised by the executor.

        Args:
            queue: the queue.
            value: the operation's number there; of a command, that of the execution.
            operation: what it is: ``KERNEL``, ``WAIT``, ``GATE``, ``STAMP``, ``BUFFER`` or ``COMMAND``.
            first: a kernel's entry, the queue that is waited for, or a command's site; 0 for others.
            second: the indices of a kernel, or the size of a command; or the value that is waited for.
            submitted: when, in ns of ``time.perf_counter_ns``; of a command, when the execution was.

        Returns:
            the operation's place in the log; 0 where there is no room.
        """
        number = self._words[_CLAIMED]
        self._words[_CLAIMED] = number + 1
        if number >= self.room:
            return 0
        place = SLOT_WORDS * (1 + number)
        for offset, word in enumerate((queue, value, operation, first, second, submitted)):
            self._words[place + offset] = word
        return place

    def submitted_at(self, place: int) -> int:
        """When the operation at a place was submitted."""
        return self._words[place + SUBMITTED]

    def name(self, place: int, value: int, second: int) -> None:
        """Note the number of the operation of a slot, and the second word of what it is about."""
        self._words[place + VALUE], self._words[place + SECOND] = value, second

    def begin(self, place: int, time: int) -> None:
        """Note when a queue came to the operation at a place; coming to it again, as to a wait, counts for nothing."""
        if self._words[place + BEGUN] == 0:
            self._words[place + BEGUN] = time

    def end(self, place: int, time: int, fate: int) -> None:
        """Note when the operation at a place was done, and how it came out, before its queue's counter says so."""
        self._words[place + WHAT] |= fate << FATE_SHIFT
        self._words[place + ENDED] = time

    def address_of(self, place: int, word: int) -> int:
        """The address of a word of a slot."""
        return self.address + _WORD * (place + word)
