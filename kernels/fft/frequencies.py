"""The frequencies of transforms' elements, and their order."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

import aiodev
from aiodev import dtypes
from aiodev.kernels.arguments import array_of, as_float, checked_axis, dtype_of, whole_number, whole_numbers
from aiodev.kernels.manipulation.joining import roll

__all__ = ["fftfreq", "fftshift", "ifftshift", "rfftfreq"]


@aiodev.kernel
def fill_frequencies(i: int, positive: int, n: int, width: Any, out: Any) -> None:
    """The frequency of one element; those behind the ``positive`` ones are negative."""
    out[i] = (i if i < positive else i - n) / width


@aiodev.operation(numbers=["width"], writes="out", name="fftfreq")
def _fill(call: aiodev.Call, positive: int, n: int, width: float, out: aiodev.Array) -> aiodev.Array:
    call.launch(fill_frequencies, out.size, positive, n, width, out)
    return out


def fftfreq(
    n: int, /, *, d: float = 1.0, dtype: Any = None, device: aiodev.DeviceLike | None = None
) -> aiodev.Array:
    """The frequencies of what :func:`fft` gives: of ``n`` samples, ``d`` apart, in cycles per unit of that.

    Args:
        dtype: of real floating-point numbers; ``float64`` by default.

    Raises:
        ValueError: ``n`` is less than 1, or ``d`` is 0.
        TypeError: ``n`` is no integer, ``d`` no real number, or ``dtype`` no real floating-point type.

    Example:
        >>> import aiodev, aiodev.kernels
        >>> aiodev.kernels.fft.fftfreq(4, d=0.5, device="cpu").numpy_blocking()
        array([ 0. ,  0.5, -1. , -0.5])
    """
    return _frequencies("fftfreq", n, d, dtype, device)


def rfftfreq(
    n: int, /, *, d: float = 1.0, dtype: Any = None, device: aiodev.DeviceLike | None = None
) -> aiodev.Array:
    """The frequencies of what :func:`rfft` gives, none of which is negative; otherwise as :func:`fftfreq`.

    Raises:
        ValueError: ``n`` is less than 1, or ``d`` is 0.
        TypeError: ``n`` is no integer, ``d`` no real number, or ``dtype`` no real floating-point type.

    Example:
        >>> import aiodev, aiodev.kernels
        >>> aiodev.kernels.fft.rfftfreq(4, d=0.5, device="cpu").numpy_blocking()
        array([0. , 0.5, 1. ])
    """
    return _frequencies("rfftfreq", n, d, dtype, device)


def _frequencies(function: str, n: Any, d: Any, dtype: Any, device: aiodev.DeviceLike | None) -> aiodev.Array:
    n = whole_number(function, "n", n, 1)
    distance = as_float(function, "d", d)
    wanted = dtype_of(function, np.float64 if dtype is None else dtype)
    if wanted is None or dtypes.kind(wanted) != "f":
        raise TypeError(f"{function}: dtype: expected a real floating-point type, got {wanted}")
    if distance == 0:
        raise ValueError(f"{function}: d: expected another number than 0")
    half = function == "rfftfreq"
    out = aiodev.empty(n // 2 + 1 if half else n, wanted, device)
    return _fill(n if half else (n + 1) // 2, n, n * distance, out)


def fftshift(x: aiodev.Array, /, *, axes: int | Sequence[int] | None = None) -> aiodev.Array:
    """The element of frequency 0 moved from the front to the middle, along the axes, all by default.

    Raises:
        ValueError: an axis is not there, or named twice.
        TypeError: an axis is no integer.

    Example:
        >>> import aiodev, aiodev.kernels
        >>> aiodev.kernels.fft.fftshift(aiodev.arange(5, device="cpu")).numpy_blocking()
        array([3, 4, 0, 1, 2])
    """
    return _shifted("fftshift", x, axes, 1)


def ifftshift(x: aiodev.Array, /, *, axes: int | Sequence[int] | None = None) -> aiodev.Array:
    """What :func:`fftshift` has moved, moved back.

    Raises:
        ValueError: an axis is not there, or named twice.
        TypeError: an axis is no integer.

    Example:
        >>> import aiodev, aiodev.kernels
        >>> aiodev.kernels.fft.ifftshift(aiodev.arange(5, device="cpu")).numpy_blocking()
        array([2, 3, 4, 0, 1])
    """
    return _shifted("ifftshift", x, axes, -1)


def _shifted(function: str, x: aiodev.Array, axes: int | Sequence[int] | None, sign: int) -> aiodev.Array:
    array_of(function, x)
    given = range(x.ndim) if axes is None else whole_numbers(f"{function}: axes", axes)
    places = tuple(checked_axis(function, axis, x.ndim) for axis in given)
    if len(set(places)) != len(places):
        raise ValueError(f"{function}: axes {axes!r} name one axis twice")
    distances = [sign * (x.shape[place] // 2) for place in places]
    return roll(x, distances, axis=places)
