"""Draws that are recorded once and replayed many times, as a graph is.

A kernel that was recorded is launched again with the very same arguments, yet must draw new numbers. So while draws
are recorded they get no seed and no offset of their own, but a device array of two words, the seed and a base offset, and
an offset from that base. Before each replay the words are refilled from the generator, which moves on by the whole
recording's use. Hence each replay equals the same calls made directly at that moment.

**What runs as often as the device decides** moves a base on by itself: at the end of each of its rounds a kernel adds the words
of the round, and what is drawn later counts from there. So rounds draw what the same calls, made directly, would draw, and
so does all that follows. The base of a block is one of its own, made of the one before when the block begins: other streams,
which may still draw from that, do not see it move. How far a replay has come, the host finds out later
(:mod:`aiodev._generator.ahead`).
"""

from __future__ import annotations

import contextlib
import struct
from collections.abc import Iterator
from typing import Any

import numpy as np

from aiodev._array.array import Array
from aiodev._array.creation import empty
from aiodev._core import callsites
from aiodev._core.streams.completion import Completion
from aiodev._core.streams.stream import Stream
from aiodev._core.timeline.noting import Noting
from aiodev._generator.ahead import SKIPPED, UNTOLD, Ahead, Told
from aiodev._generator.generator import Generator, Reservation, recordings
from aiodev._generator.state import BLOCK, State
from aiodev._kernel.kernel import kernel

__all__ = ["Recording", "move_on"]

_words = struct.Struct("<QQ")
callsites.register_library(__package__)


@kernel(reads=("words",))
def move_on(i: Any, words: Any, distance: Any, target: Any) -> None:
    """Have ``target`` say what is ``distance`` words behind where ``words`` says."""
    target[0], target[1] = words[0], words[1] + distance


class Recording:
    """The draws from one generator between two moments of a task, so that they can be replayed.

    Attributes:
        generator: from which.
        words: where kernels find the seed and the base offset; two ``uint64`` on the generator's device.
        last: the same for the draws that come next: ``words``, or those of the last block that runs as often as the device
            decides.
        count: how many words were drawn from there, so far.
    """

    def __init__(self, generator: Generator, words: Array | None = None) -> None:
        self.generator = generator
        self.words: Array = empty(2, np.uint64, generator.device) if words is None else words
        self.last = self.words
        self.count = 0

    @contextlib.contextmanager
    def record(self) -> Iterator[None]:
        """A block, in the running task, whose draws from the generator are recorded.

        What is launched in it must not run before :meth:`refill`.

        Raises:
            RuntimeError: the task records the generator's draws already.
        """
        outer = recordings.get()
        if self.generator in outer:
            raise RuntimeError("this task records draws from this generator already")
        token = recordings.set({**outer, self.generator: self})
        try:
            yield
        finally:
            recordings.reset(token)

    def reserve(self, count: int) -> Reservation:
        """The next words, counted from the base."""
        offset = self.count
        self.count += count + (-count % BLOCK)
        return Reservation(0, offset, self.last)

    @property
    def is_fixed(self) -> bool:
        """Whether each replay draws the same number of words."""
        return self.last is self.words

    def refill(self, stream: Stream) -> bytes:
        """Take the words of one replay from the generator; where :attr:`is_fixed`.

        Gives what ``words`` is to hold before the replay, or nothing, if that is submitted to ``stream`` now. The replay must
        come after, and the next one's words after that, in the order of the stream.

        Raises:
            ValueError: the generator has fewer words left.
        """
        seed, offset, words = Reservation(*self.generator._state.reserve_ahead(self.count, stream))
        if words is None:
            return _words.pack(seed, offset)
        move_on[1, stream](words, np.uint64(offset), self.words)
        return b""

    def begin(self, stream: Stream, state: State) -> tuple[bytes, Telling]:
        """As :meth:`refill`, of a replay that draws as often as the device decides; and what is to tell how far it comes.

        That is submitted behind the replay, under one :func:`guard` with this.

        Raises:
            ValueError: the generator has fewer words left than the replay may draw.
        """
        telling, ahead = Telling(self, stream, state), state.look_ahead()
        if ahead is not None:
            ahead.forget_past()
        state.check_left(SKIPPED + self.count, ahead, " by a replay, which may draw 2**40 in loops and branches")
        if ahead is None:
            telling.began = state.offset
            return _words.pack(state.seed, state.offset), telling
        telling.began = ahead
        ahead.order(stream)
        move_on[1, stream](ahead.told.words, np.uint64(ahead.offset), self.words)
        return b"", telling


class Telling:
    """What tells how far a replay comes.

    Attributes:
        began: where it begins.
    """

    __slots__ = ("_draws", "_host", "_state", "_stream", "_words", "began")

    began: int | Ahead

    def __init__(self, draws: Recording, stream: Stream, state: State) -> None:
        self._draws, self._stream, self._state = draws, stream, state
        with stream:
            self._words = empty(2, np.uint64, stream.device)
        self._host = np.array([state.seed, UNTOLD], np.uint64)

    def submit(self) -> None:
        """Submit it, as a part of the replay, and have the generator continue there."""
        draws, words, host, timeline = self._draws, self._words, self._host, self._stream.timeline
        operations, queue, last = timeline.operations, timeline.queue, draws.last._address
        with Noting():
            value = operations.copy(queue, words._address, last, words.nbytes)
            words._buffer._record_write(timeline, value)
        value = operations.copy(queue, host.__array_interface__["data"][0], last, host.nbytes)
        timeline.keep(value, (host, words, draws), host.nbytes)
        self._state.follow(Ahead(Told(words, host, Completion(timeline, value), self.began, draws.count), 0))
