"""Sums of what one thread reads, of squares, and what follows from both."""

from __future__ import annotations

from typing import Any, SupportsIndex

import numpy

__all__ = ["moments", "sum", "sum_squares"]

#: In what numbers of each kind are summed.
WIDE = {"b": "i8", "i": "i8", "u": "u8", "f": "f8", "c": "c16"}


def sum(x: Any, ahead: SupportsIndex | None = None, wide: bool = False) -> Any:
    """The sum of a one-dimensional array of numbers, usually a slice of a larger one, such as a row.

    On the CPU a slice without gaps is read in vectors, as fast as the caches give it; :func:`aiodev.kernels.sum` is for arrays,
    and reads them by this.

    Args:
        x: integers, floats, complex numbers or booleans.
        ahead: for each cache line ask for the one that is so many elements later, as :func:`prefetch` does: for rows that lie
            one after the other, each of which would otherwise begin with waiting, and for what is near. 3,000 is a good number
            where it is in a cache, 4,500 where it is not. Slices of 64 KiB and more from farther away are read faster without;
            those of less than 64 bytes ask for nothing.
        wide: whether each ``float32`` becomes ``float64`` before it is added. From memory, with ``ahead``, that takes as long;
            from a cache up to twice as long.

    Returns:
        ``float64`` of floats, ``complex128`` of complex numbers, ``uint64`` of unsigned integers, ``int64`` of others. Unless
        ``wide``, up to 32 ``float32`` are added as such, two by two, before they become ``float64``: the error is at most
        3 · 10⁻⁷ times the sum of the absolute values (5 · 2⁻²⁴), and equal numbers are added exactly; but those above 10³⁷ may
        overflow. The order follows from the number of elements, and may be another on another device.

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


def sum_squares(x: Any, center: complex = 0.0, ahead: SupportsIndex | None = None) -> Any:
    """The sum of the squares of how far the elements of a one-dimensional array are from ``center``.

    From 0 its root is their norm; from their mean it is their variance, which :func:`moments` finds, times their number. On the
    CPU a slice without gaps is read in vectors; :func:`aiodev.kernels.linalg.vector_norm` is for arrays.

    Args:
        x: integers, floats, complex numbers or booleans.
        center: a real number; of complex numbers it may be complex.
        ahead: for each cache line ask for the one that is so many elements later, as :func:`sum` does: 4,500 is a good number
            where one slice after the other is read.

    Returns:
        ``float64``, as all on the way there is; a square may be added without having been rounded. The order follows from the
        number of elements, and may be another on another device.

    Example:
        >>> import aiodev, numpy
        >>> from aiodev import lang
        >>> @aiodev.kernel
        ... def lengths(i, x, out):
        ...     out[i] = lang.sqrt(lang.sum_squares(x[i]))
        >>> x = aiodev.asarray([[3.0, 4.0], [5.0, 12.0]], device="cpu")
        >>> out = aiodev.empty(2, device="cpu")
        >>> lengths[2](x, out).synchronize_blocking()
        >>> out.numpy_blocking()
        array([ 5., 13.])
    """
    number: Any = numpy.complex128 if x.dtype.kind == "c" else numpy.float64
    distances = numpy.abs(x.astype(number) - number(center))
    return numpy.sum(distances * distances)


def moments(x: Any, ahead: SupportsIndex | None = None, origin: complex = 0.0) -> tuple[Any, Any]:
    """The mean of a one-dimensional array, usually a slice of a larger one, and its variance, which is over its size.

    On the CPU a slice without gaps is read in vectors, and once: distances are taken from the mean of its first sixteenth, and
    what that is off is taken from their squares at the end (Chan, Golub and LeVeque, Algorithms for Computing the Sample
    Variance, 1983). So it does not matter how far the mean is from 0. How far the first sixteenth is from it does: rounding
    errors may grow some thirtyfold, no more, since those elements are a part of what spreads.

    Args:
        x: integers, floats, complex numbers or booleans.
        ahead: for each cache line ask for the one that is so many elements later, as :func:`sum` does: 4,500 is a good number
            where one slice after the other is read.
        origin: a real number, or of complex numbers a complex one, from which the mean is measured. The difference of two means
            is more exact if both are measured from a point that is near to them.

    Returns:
        The mean, ``float64``, or ``complex128`` of complex numbers, and the variance, ``float64`` and not negative. Both are
        computed in double precision, and NaN if there are no elements. What overflows is infinite; of infinite elements the
        variance is NaN.

    Example:
        >>> import aiodev, numpy
        >>> from aiodev import lang
        >>> @aiodev.kernel
        ... def standardize(i, x, out):
        ...     mean, variance = lang.moments(x[i])
        ...     scale = lang.rsqrt(variance)
        ...     for k in range(x.shape[1]):
        ...         out[i, k] = (x[i, k] - mean) * scale
        >>> x = aiodev.asarray([[1.0, 3.0], [2.0, 6.0]], device="cpu")
        >>> out = aiodev.empty((2, 2), device="cpu")
        >>> standardize[2](x, out).synchronize_blocking()
        >>> out.numpy_blocking()
        array([[-1.,  1.],
               [-1.,  1.]])
    """
    number: Any = numpy.complex128 if x.dtype.kind == "c" else numpy.float64
    return numpy.mean(x, dtype=number) - number(origin), numpy.var(x.astype(number))
