"""Kernels for single lengths: a loop whose length the compiler knows is no loop, and many such rows go side by side in vectors.

A sequence that grows meets every length, most of them once, and each kernel takes some tenths of a second to compile. So a
kernel for all lengths serves until the one for a length is there, which is compiled in the background where the length recurs.
Both are made of one body, which does the same in the same order, so that results do not depend on when that is.
"""

from __future__ import annotations

import functools
from collections import Counter
from collections.abc import Callable

import aiodev
from aiodev.kernels.tuning import LONGEST, RECURRING

__all__ = ["PerLength", "launch"]


class PerLength:
    """A kernel for all lengths, and one for each that recurs.

    Args:
        make: makes the kernel for a length; that for all lengths if it is given 0.
    """

    def __init__(self, make: Callable[[int], aiodev.Kernel]) -> None:
        self._make = functools.cache(make)
        self._calls: Counter[int] = Counter()

    def of(self, length: int, args: tuple[object, ...]) -> tuple[aiodev.Kernel, bool]:
        """The kernel for a launch with such arguments, and whether another will take its place."""
        if length > LONGEST:
            return self._make(0), False
        self._calls[length] += 1
        if self._calls[length] > RECURRING:
            kernel = self._make(length)
            if kernel.prepare(*args):
                return kernel, False
        return self._make(0), True


def launch(
    call: aiodev.Call, kernel: aiodev.Kernel | PerLength, length: int, shape: int | tuple[int, ...], /, *args: object
) -> None:
    """Launch a kernel, or the best that there is for a length."""
    if isinstance(kernel, PerLength):
        kernel, provisional = kernel.of(length, args)
        if provisional:
            call.once()
    call.launch(kernel, shape, *args)
