"""Products that take one launch, or two: one that makes parts and one that combines them. Either is remembered."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Any, NamedTuple

import aiodev

__all__ = ["Step", "StepCache"]


class Step(NamedTuple):
    """A launch; its last arguments are arrays, and of these the last is what it writes."""

    kernel: aiodev.Kernel
    indices: int
    args: tuple[Any, ...]

    def submit(self, stream: aiodev.Stream) -> None:
        """Submit it once."""
        self.kernel[self.indices, stream](*self.args)

    def takes(self, *operands: int) -> tuple[int | None, ...]:
        """What a cache of launches is told: which operands the arrays are."""
        return *(None for _ in self.args[len(operands) :]), *operands


class StepCache:
    """The steps of functions of two arrays, for each combination of layouts."""

    def __init__(self) -> None:
        self._launches = aiodev.LaunchCache(2)
        # Of two steps: the one that makes parts, for an array of results or None; and the one that combines them.
        self._firsts, self._seconds = aiodev.LaunchCache(3), aiodev.LaunchCache(1)

    def repeat(self, key: Hashable, x1: aiodev.Array, x2: aiodev.Array, out: aiodev.Array | None) -> aiodev.Array | None:
        """Submit what has been submitted before for arrays of these layouts; None where that is not known."""
        found = self._launches.repeat(key, x1, x2, out)
        if found is None:
            parts = self._firsts.repeat(key, x1, x2, out, None)
            if parts is not None:
                found = self._seconds.repeat((key, x1.shape, x2.shape), parts, out)
        return found

    def submit(
        self,
        key: Hashable,
        operands: tuple[aiodev.Array, aiodev.Array],
        out: aiodev.Array,
        steps: Sequence[Step],
        places: tuple[int, int],
        *,
        made: bool,
    ) -> None:
        """Submit one step or two to the current stream, to be repeated under ``key``.

        Args:
            key: whatever else than the layouts decides.
            operands: those of the function.
            out: the result.
            steps: the arrays of the first are the operands and what it writes, those of the second are that and the result.
            places: which operands the arrays of the first are.
            made: whether ``out`` is new.
        """
        first, second = steps[0], steps[-1]
        if first is second:
            self._launches.launch(key, operands, out, *first, first.takes(*places, 2), made=made)
            return
        parts = first.args[-1]
        given = *operands, None if made else out
        self._firsts.launch(key, given, parts, *first, first.takes(*places, 3), made=True)
        shapes = tuple(x.shape for x in operands)
        self._seconds.launch((key, *shapes), (parts,), out, *second, second.takes(0, 1), made=made)
