"""Draws that are recorded once and replayed many times, as a graph is.

A kernel that was recorded is launched again with the very same arguments, yet must draw new numbers. So while draws
are recorded they get no seed and no offset of their own, but a device array of two words, the seed and a base offset, and
an offset from that base. Before each replay the words are refilled from the generator, which moves on by the whole
recording's use. Hence each replay equals the same calls made directly at that moment.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import numpy as np

from aiodev._array.array import Array
from aiodev._array.creation import empty
from aiodev._core.streams.completion import Completion
from aiodev._core.streams.stream import Stream
from aiodev._generator.generator import Generator, Reservation, recordings
from aiodev._generator.state import BLOCK

__all__ = ["Recording"]


class Recording:
    """The draws from one generator between two moments of a task, so that they can be replayed.

    Attributes:
        generator: from which.
        words: where kernels find the seed and the base offset; two ``uint64`` on the generator's device.
        count: how many words a replay takes, so far.
    """

    def __init__(self, generator: Generator) -> None:
        self.generator = generator
        self.words: Array = empty(2, np.uint64, generator.device)
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
        return Reservation(0, offset, self.words)

    def refill(self, stream: Stream) -> Completion[None]:
        """Take the words of one replay from the generator, and submit to ``stream`` what makes the kernels use them.

        The replay must come after, and the next refill after that, in the order of the stream.

        Raises:
            ValueError: the generator has fewer words left.
        """
        seed, offset, _ = self.generator.reserve(self.count)
        return stream.copy(self.words, np.array([seed, offset], np.uint64))
