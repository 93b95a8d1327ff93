"""A generator's state: a seed, and how many 32-bit words were drawn under it.

1. The offset is a multiple of 4: words are made in blocks of four, one for each value of Philox's counter.
2. What :meth:`State.reserve` gave is given to nobody else, whatever threads and tasks ask at once, until the generator is
   reseeded or set back. Seed and offset are read and written together.
3. While a replay runs that draws as often as the device decides, the host does not know the offset. Then ``ahead`` says where
   the device has it when that is done, and ``offset`` is beyond all offsets. So :meth:`State.reserve`, which must compare with
   their end anyway, finds out without another look.
"""

from __future__ import annotations

import operator
import os
import struct
import threading
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, SupportsIndex

from aiodev._core.at_fork import first_in_child

if TYPE_CHECKING:
    from aiodev._array.array import Array
    from aiodev._core.streams.stream import Stream
    from aiodev._generator.ahead import Ahead

__all__ = ["BLOCK", "State", "check_offset", "check_seed", "fresh_seed", "guard", "parse_state"]

#: Words that one value of the counter gives.
BLOCK = 4
_LIMIT = 1 << 64
#: How many words a seed has. The last block is not among them: where it ends is no number of 64 bits.
_END = _LIMIT - BLOCK
_FORMAT = struct.Struct("<QQ")
_SEED_ONLY = struct.Struct("<Q")

# One lock for all states: each is held for some bytecodes, and one is easily made anew after a fork. Re-entrant, for a
# signal handler may draw, too.
_lock = threading.RLock()


def guard() -> AbstractContextManager[object]:
    """The lock under which states are changed."""
    return _lock


def _forget_after_fork() -> None:
    global _lock
    _lock = threading.RLock()


first_in_child(_forget_after_fork)


class State:
    """The seed and the offset.

    Attributes:
        seed: the key.
        offset: of the next word; or beyond all offsets, where ``ahead`` has it.
        ahead: what is drawn before the next word, as often as the device says; or None.
    """

    __slots__ = ("ahead", "offset", "seed")

    def __init__(self, seed: int, offset: int = 0) -> None:
        self.seed = seed
        self.offset = offset
        self.ahead: Ahead | None = None

    def read(self) -> tuple[int, int]:
        """Seed and offset, of one moment. Blocks while the offset is the device's to tell (invariant 3).

        Raises:
            SyncError: it has to wait, and an event loop runs here whose task does not want that.
        """
        while True:
            with _lock:
                ahead = self.look_ahead()
                if ahead is None:
                    return self.seed, self.offset
            ahead.wait_blocking()

    def look_ahead(self) -> Ahead | None:
        """Where the device has the offset, as long as it is not known here. Never blocks."""
        with _lock:
            if self.ahead is not None:
                news = self.ahead.look()
                if isinstance(news, int):
                    self.offset, self.ahead = min(news, _END), None  # where a replay drew beyond it, none are left
                else:
                    self.ahead = news
            return self.ahead

    def write(self, seed: int, offset: int) -> None:
        """Set both."""
        with _lock:
            self.seed, self.offset, self.ahead = seed, offset, None

    def follow(self, ahead: Ahead) -> None:
        """Continue from where the device says."""
        with _lock:
            self.offset, self.ahead = _LIMIT, ahead

    def copy(self) -> State:
        """Another one that stands where this one does. Never blocks."""
        with _lock:
            state = State(self.seed, self.offset)
            state.ahead = self.ahead
            return state

    def reserve(self, count: int) -> tuple[int, int] | tuple[int, int, Array]:
        """Take ``count`` words, rounded up to whole blocks; the seed, and the offset of the first. Never blocks.

        Where the device is to tell the offset, it is counted from what the device has in the array that is given as well, and
        the current stream is ordered after what tells it.

        Raises:
            ValueError: there are not so many left.
        """
        with _lock:
            seed, offset = self.seed, self.offset
            after = offset + count + (-count % BLOCK)
            if after > _END:
                return self.reserve_ahead(count, None)
            self.offset = after
            return seed, offset

    def reserve_ahead(self, count: int, stream: Stream | None) -> tuple[int, int] | tuple[int, int, Array]:
        """As :meth:`reserve`, also where the device has the offset, for a stream, or the current one."""
        with _lock:
            ahead, words = self.look_ahead(), count + (-count % BLOCK)
            self.check_left(count, ahead)
            if ahead is not None:
                ahead.order(stream)
                self.follow(ahead._replace(distance=ahead.distance + words))
                return 0, ahead.offset, ahead.told.words
            seed, offset = self.seed, self.offset
            self.offset = offset + words
            return seed, offset

    def check_left(self, count: int, ahead: Ahead | None, what: str = "") -> None:
        """Raise ValueError if not so many words are left; behind replays that run, if they may draw what is missing."""
        offset = self.offset if ahead is None else ahead.bounds()[1]
        if offset + count > _END:
            behind = "" if ahead is None else " whatever is drawn by replays that run"
            raise ValueError(
                f"{count} words asked for{what}, {max(_END - offset, 0)} are left under seed {self.seed}{behind}; "
                f"seed the generator anew, or draw from what it spawns"
            )

    def reserve_known(self, count: int) -> tuple[int, int]:
        """As :meth:`reserve`, of words whose offset the host knows. Blocks as :meth:`read`."""
        while True:
            self.read()
            with _lock:
                if self.ahead is None:
                    seed, offset, *_ = self.reserve(count)
                    return seed, offset

    def to_bytes(self) -> bytes:
        """16 bytes, little-endian: the seed, then the offset."""
        return _FORMAT.pack(*self.read())


def parse_state(data: object) -> tuple[int, int]:
    """Seed and offset from what :meth:`State.to_bytes` gave; of 8 bytes, the seed alone, the offset is 0.

    Raises:
        TypeError: it is no bytes.
        ValueError: they are no state.
    """
    if not isinstance(data, bytes | bytearray | memoryview):
        raise TypeError(f"state: expected the bytes that get_state() gives, got {type(data).__name__}")
    raw = bytes(data)
    if len(raw) == _SEED_ONLY.size:
        return int(_SEED_ONLY.unpack(raw)[0]), 0
    if len(raw) != _FORMAT.size:
        raise ValueError(f"state: expected the 16 bytes that get_state() gives, got {len(raw)} bytes")
    seed, offset = _FORMAT.unpack(raw)
    if offset % BLOCK:
        raise ValueError(f"state: its offset is {offset}, not a multiple of {BLOCK}; it is no state of a generator")
    return int(seed), int(offset)


def check_seed(seed: SupportsIndex) -> int:
    """A seed as an int of 64 bits.

    Raises:
        TypeError: it is no integer.
        ValueError: it has more bits, or is negative.
    """
    try:
        number = operator.index(seed)
    except TypeError:
        raise TypeError(f"seed: expected an integer, got {type(seed).__name__} {seed!r}") from None
    if not 0 <= number < _LIMIT:
        raise ValueError(f"seed={number}: expected 0 or more, and less than 2**64")
    return number


def check_offset(offset: SupportsIndex) -> int:
    """An offset as an int.

    Raises:
        TypeError: it is no integer.
        ValueError: it is negative, too large, or no multiple of 4.
    """
    try:
        number = operator.index(offset)
    except TypeError:
        raise TypeError(f"offset: expected an integer, got {type(offset).__name__} {offset!r}") from None
    if not 0 <= number < _LIMIT or number % BLOCK:
        raise ValueError(f"offset={number}: expected a multiple of {BLOCK}, 0 or more, and less than 2**64")
    return number


def fresh_seed() -> int:
    """A seed from the operating system."""
    return int.from_bytes(os.urandom(8), "little")
