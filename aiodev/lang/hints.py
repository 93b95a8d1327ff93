"""Hints to the processor, which change no result."""

from __future__ import annotations

from typing import Any, SupportsIndex

__all__ = ["prefetch"]


def prefetch(x: Any, at: SupportsIndex | None = None) -> None:
    """Have the elements of a one-dimensional array, usually a slice of a larger one, brought to the nearest cache.

    Args:
        x: the array.
        at: fetch only the element there, and its neighbours on the same cache line; it may be beyond the end. For a loop
            that is about to write at many places in turn.

    A processor looks ahead by itself where a loop reads memory in order, but not far: a core that asks for what it will read
    some 16 KiB later can read half as fast again. Ask for a few KiB at a time, between loops: a loop that asks is not turned
    into vector code. On CUDA, where other threads run while one waits for memory, this does nothing.

    Example:
        >>> import aiodev
        >>> from aiodev.lang import prefetch
        >>> @aiodev.kernel
        ... def sums(i, x, out):
        ...     lo, hi = i * 1024, (i + 1) * 1024
        ...     prefetch(x[lo + 4096 : hi + 4096])
        ...     total = 0.0
        ...     for value in x[lo:hi]:
        ...         total += value
        ...     out[i] = total
        >>> out = aiodev.empty(100, device="cpu")
        >>> sums[100](aiodev.ones(102400, device="cpu"), out).synchronize_blocking()
        >>> float(out.numpy_blocking().max())
        1024.0
    """
