"""Sorting of few numbers by the thread that has them."""

from __future__ import annotations

from typing import Any

import numpy

__all__ = ["sort"]


def sort(x: Any) -> None:
    """Sort a one-dimensional array of numbers, usually a slice of a larger one, in ascending order, NaN last.

    For few numbers of which each index of a kernel has its own, as for medians of windows; :func:`aiodev.kernels.sort` is for
    arrays. On the CPU this is a network of vectors, which takes as long whatever the order was, and as long for two numbers
    as for sixty.

    Args:
        x: floats or integers of four or eight bytes, without gaps; on the CPU at most 128 KiB of them.

    Raises:
        ValueError: there are more.

    Example:
        >>> import aiodev
        >>> from aiodev.lang import sort
        >>> @aiodev.kernel
        ... def medians(i, x, windows, out):
        ...     for k in range(5):
        ...         windows[i, k] = x[i + k]
        ...     sort(windows[i])
        ...     out[i] = windows[i, 2]
        >>> x = aiodev.asarray([1.0, 9.0, 2.0, 3.0, 8.0, 4.0, 0.0], device="cpu")
        >>> windows, out = aiodev.empty((3, 5), device="cpu"), aiodev.empty(3, device="cpu")
        >>> medians[3](x, windows, out).synchronize_blocking()
        >>> out.numpy_blocking()
        array([3., 4., 3.])
    """
    x[:] = numpy.sort(x)
