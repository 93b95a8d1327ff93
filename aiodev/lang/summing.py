"""Sums of what one thread reads."""

from __future__ import annotations

from typing import Any

import numpy

__all__ = ["sum"]

#: In what numbers of each kind are summed.
WIDE = {"b": "i8", "i": "i8", "u": "u8", "f": "f8", "c": "c16"}


def sum(x: Any) -> Any:
    """The sum of a one-dimensional array of numbers, usually a slice of a larger one, such as a row.

    On the CPU a slice without gaps is read in vectors, as fast as the caches give it; :func:`aiodev.kernels.sum` is for arrays,
    and reads them by this. Where there are no more than 63 numbers, a loop is as good.

    Args:
        x: integers, floats, complex numbers or booleans.

    Returns:
        ``float64`` of floats, ``complex128`` of complex numbers, ``uint64`` of unsigned integers, ``int64`` of others. Of
        ``float32`` four at a time may be added as such, two by two, before they become ``float64``: the error is at most 2⁻²³
        times the sum of the absolute values. The order follows from the number of elements, and may be another on another
        device.

    Example:
        >>> import aiodev, numpy
        >>> from aiodev import lang
        >>> @aiodev.kernel
        ... def means(i, x, out):
        ...     out[i] = lang.sum(x[i]) / x.shape[1]
        >>> x = aiodev.asarray(numpy.arange(6.0).reshape(2, 3), device="cpu")
        >>> out = aiodev.empty(2, device="cpu")
        >>> means[2](x, out).synchronize_blocking()
        >>> out.numpy_blocking()
        array([1., 4.])
    """
    return numpy.sum(x, dtype=WIDE[x.dtype.kind])
