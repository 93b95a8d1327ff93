"""Discrete Fourier transforms along one axis and along several."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

import aiodev
from aiodev import dtypes
from aiodev.kernels.arguments import (
    checked_axis,
    delivered,
    packed_out,
    whole_number,
    whole_numbers,
)
from aiodev.kernels.cuda_libraries import library_of
from aiodev.kernels.elementwise.conversion import convert
from aiodev.kernels.elementwise.table import conj
from aiodev.kernels.fft import cufft, host_calls, loops

__all__ = ["fft", "fftn", "hfft", "ifft", "ifftn", "ihfft", "irfft", "irfftn", "lines_of", "rfft", "rfftn"]

DType = np.dtype[Any]
#: The way that the other transform's factors go.
_SWAPPED = {"backward": "forward", "ortho": "ortho", "forward": "backward"}


class _Pass(NamedTuple):
    """A transform along one axis: how long that is afterwards, and what elements are multiplied with."""

    kind: int
    axis: int
    length: int
    factor: float


@aiodev.operation(reads=["x"], writes="out")
def fft(
    call: aiodev.Call, x: aiodev.Array, /, *, n: int | None = None, axis: int = -1, norm: str = "backward",
    out: aiodev.Array | None = None,
) -> aiodev.Array:  # fmt: skip
    """The discrete Fourier transform along an axis; complex.

    Args:
        n: how many elements are transformed: of those that are there the first, with zeros behind them; all by default.
        axis: along which.
        norm: ``"backward"``: no factor; ``"ortho"``: 1/√n; ``"forward"``: 1/n.

    Raises:
        ValueError: the axis is not there, ``n`` is less than 1, or there is no such norm.
        TypeError: ``n`` or ``axis`` is no integer, or ``out`` has another dtype than the result.
        NotImplementedError: there are no transforms for the device, or no cuFFT is installed for it.

    Example:
        >>> import aiodev, aiodev.kernels
        >>> x = aiodev.asarray([1.0, 0.0, 0.0, 0.0], device="cpu")
        >>> aiodev.kernels.fft.fft(x).numpy_blocking()
        array([1.+0.j, 1.+0.j, 1.+0.j, 1.+0.j])
    """
    return _complex_one(call, x, n, axis, norm, loops.FORWARD)


@aiodev.operation(reads=["x"], writes="out")
def ifft(
    call: aiodev.Call, x: aiodev.Array, /, *, n: int | None = None, axis: int = -1, norm: str = "backward",
    out: aiodev.Array | None = None,
) -> aiodev.Array:  # fmt: skip
    """The inverse of :func:`fft`.

    Args:
        n: how many elements are transformed: of those that are there the first, with zeros behind them; all by default.
        axis: along which.
        norm: ``"backward"``: the factor 1/n; ``"ortho"``: 1/√n; ``"forward"``: none.

    Raises:
        ValueError: the axis is not there, ``n`` is less than 1, or there is no such norm.
        TypeError: ``n`` or ``axis`` is no integer, or ``out`` has another dtype than the result.
        NotImplementedError: there are no transforms for the device, or no cuFFT is installed for it.

    Example:
        >>> import aiodev, aiodev.kernels
        >>> x = aiodev.asarray([1.0, 1.0, 1.0, 1.0], device="cpu")
        >>> aiodev.kernels.fft.ifft(x).numpy_blocking()
        array([1.+0.j, 0.+0.j, 0.+0.j, 0.+0.j])
    """
    return _complex_one(call, x, n, axis, norm, loops.INVERSE)


@aiodev.operation(reads=["x"], writes="out")
def rfft(
    call: aiodev.Call, x: aiodev.Array, /, *, n: int | None = None, axis: int = -1, norm: str = "backward",
    out: aiodev.Array | None = None,
) -> aiodev.Array:  # fmt: skip
    """The first half of :func:`fft` of real numbers, ``n // 2 + 1`` elements; the others are conjugates of these.

    Args:
        n: how many elements are transformed: of those that are there the first, with zeros behind them; all by default.
        axis: along which.
        norm: ``"backward"``: no factor; ``"ortho"``: 1/√n; ``"forward"``: 1/n.

    Raises:
        ValueError: the axis is not there, ``n`` is less than 1, or there is no such norm.
        TypeError: ``x`` is complex, ``n`` or ``axis`` is no integer, or ``out`` has another dtype than the result.
        NotImplementedError: there are no transforms for the device, or no cuFFT is installed for it.

    Example:
        >>> import aiodev, aiodev.kernels
        >>> x = aiodev.asarray([1.0, 0.0, 0.0, 0.0], device="cpu")
        >>> aiodev.kernels.fft.rfft(x).numpy_blocking()
        array([1.+0.j, 1.+0.j, 1.+0.j])
    """
    place, length = _line(call.name, x, n, axis)
    return _run(call, x, _of_real(call, x), [_real_pass(place, length, _factor(call, norm, length))])


@aiodev.operation(reads=["x"], writes="out")
def irfft(
    call: aiodev.Call, x: aiodev.Array, /, *, n: int | None = None, axis: int = -1, norm: str = "backward",
    out: aiodev.Array | None = None,
) -> aiodev.Array:  # fmt: skip
    """The inverse of :func:`rfft`; real.

    Args:
        n: how many elements the result has, which is asked for if it is odd; ``2 * (x.shape[axis] - 1)`` by default.
        axis: along which.
        norm: ``"backward"``: the factor 1/n; ``"ortho"``: 1/√n; ``"forward"``: none.

    Raises:
        ValueError: the axis is not there, ``n`` is less than 1, or there is no such norm.
        TypeError: ``n`` or ``axis`` is no integer, or ``out`` has another dtype than the result.
        NotImplementedError: there are no transforms for the device, or no cuFFT is installed for it.

    Example:
        >>> import aiodev, aiodev.kernels
        >>> x = aiodev.asarray([1.0, 1.0, 1.0], device="cpu")
        >>> aiodev.kernels.fft.irfft(x).numpy_blocking()
        array([1., 0., 0., 0.])
    """
    place, length = _line(call.name, x, n, axis, doubled=True)
    last = _Pass(loops.HERMITIAN, place, length, _factor(call, _swapped(call, norm), length))
    return _run(call, x, _complex_of(x), [last])


@aiodev.operation(reads=["x"], writes="out")
def hfft(
    call: aiodev.Call, x: aiodev.Array, /, *, n: int | None = None, axis: int = -1, norm: str = "backward",
    out: aiodev.Array | None = None,
) -> aiodev.Array:  # fmt: skip
    """The transform of a signal whose second half is the conjugate of its first, which is given; real.

    Args:
        n: how many elements the result has, which is asked for if it is odd; ``2 * (x.shape[axis] - 1)`` by default.
        axis: along which.
        norm: ``"backward"``: no factor; ``"ortho"``: 1/√n; ``"forward"``: 1/n.

    Raises:
        ValueError: the axis is not there, ``n`` is less than 1, or there is no such norm.
        TypeError: ``n`` or ``axis`` is no integer, or ``out`` has another dtype than the result.
        NotImplementedError: there are no transforms for the device, or no cuFFT is installed for it.

    Example:
        >>> import aiodev, aiodev.kernels
        >>> x = aiodev.asarray([1.0, 1.0, 1.0], device="cpu")
        >>> aiodev.kernels.fft.hfft(x).numpy_blocking()
        array([4., 0., 0., 0.])
    """
    place, length = _line(call.name, x, n, axis, doubled=True)
    last = _Pass(loops.HERMITIAN, place, length, _factor(call, norm, length))
    return _run(call, conj(x) if x.dtype.kind == "c" else x, _complex_of(x), [last])


@aiodev.operation(reads=["x"], writes="out")
def ihfft(
    call: aiodev.Call, x: aiodev.Array, /, *, n: int | None = None, axis: int = -1, norm: str = "backward",
    out: aiodev.Array | None = None,
) -> aiodev.Array:  # fmt: skip
    """The inverse of :func:`hfft`: of real numbers the first ``n // 2 + 1`` elements.

    Args:
        n: how many elements are transformed: of those that are there the first, with zeros behind them; all by default.
        axis: along which.
        norm: ``"backward"``: the factor 1/n; ``"ortho"``: 1/√n; ``"forward"``: none.

    Raises:
        ValueError: the axis is not there, ``n`` is less than 1, or there is no such norm.
        TypeError: ``x`` is complex, ``n`` or ``axis`` is no integer, or ``out`` has another dtype than the result.
        NotImplementedError: there are no transforms for the device, or no cuFFT is installed for it.

    Example:
        >>> import aiodev, aiodev.kernels
        >>> x = aiodev.asarray([4.0, 0.0, 0.0, 0.0], device="cpu")
        >>> aiodev.kernels.fft.ihfft(x).numpy_blocking().real
        array([1., 1., 1.])
    """
    place, length = _line(call.name, x, n, axis)
    only = _real_pass(place, length, _factor(call, _swapped(call, norm), length))
    result = _run(call, x, _of_real(call, x), [only])
    return conj(result, out=result)


@aiodev.operation(reads=["x"], writes="out")
def fftn(
    call: aiodev.Call, x: aiodev.Array, /, *, s: Sequence[int] | None = None, axes: Sequence[int] | None = None,
    norm: str = "backward", out: aiodev.Array | None = None,
) -> aiodev.Array:  # fmt: skip
    """The transforms of :func:`fft` along several axes.

    Args:
        s: how many elements are transformed along each of the axes; all by default.
        axes: along which; by default the last ones, as many as ``s`` has, or all.
        norm: ``"backward"``: no factor; ``"ortho"``: 1/√n; ``"forward"``: 1/n, with the product of all lengths.

    Raises:
        ValueError: an axis is not there or is named twice, a length is less than 1, there are not as many of them as axes, or
            there is no such norm.
        TypeError: something that is no integer is among ``s`` or ``axes``, or ``out`` has another dtype than the result.
        NotImplementedError: there are no transforms for the device, or no cuFFT is installed for it.

    Example:
        >>> import aiodev, aiodev.kernels
        >>> aiodev.kernels.fft.fftn(aiodev.ones((2, 2), device="cpu")).numpy_blocking()
        array([[4.+0.j, 0.+0.j],
               [0.+0.j, 0.+0.j]])
    """
    return _complex_all(call, x, s, axes, norm, loops.FORWARD)


@aiodev.operation(reads=["x"], writes="out")
def ifftn(
    call: aiodev.Call, x: aiodev.Array, /, *, s: Sequence[int] | None = None, axes: Sequence[int] | None = None,
    norm: str = "backward", out: aiodev.Array | None = None,
) -> aiodev.Array:  # fmt: skip
    """The inverse of :func:`fftn`.

    Args:
        s: how many elements are transformed along each of the axes; all by default.
        axes: along which; by default the last ones, as many as ``s`` has, or all.
        norm: ``"backward"``: the factor 1/n, with the product of all lengths; ``"ortho"``: 1/√n; ``"forward"``: none.

    Raises:
        ValueError: an axis is not there or is named twice, a length is less than 1, there are not as many of them as axes, or
            there is no such norm.
        TypeError: something that is no integer is among ``s`` or ``axes``, or ``out`` has another dtype than the result.
        NotImplementedError: there are no transforms for the device, or no cuFFT is installed for it.

    Example:
        >>> import aiodev, aiodev.kernels
        >>> aiodev.kernels.fft.ifftn(aiodev.ones((2, 2), device="cpu")).numpy_blocking()
        array([[1.+0.j, 0.+0.j],
               [0.+0.j, 0.+0.j]])
    """
    return _complex_all(call, x, s, axes, norm, loops.INVERSE)


@aiodev.operation(reads=["x"], writes="out")
def rfftn(
    call: aiodev.Call, x: aiodev.Array, /, *, s: Sequence[int] | None = None, axes: Sequence[int] | None = None,
    norm: str = "backward", out: aiodev.Array | None = None,
) -> aiodev.Array:  # fmt: skip
    """The first half, along the last of the axes, of :func:`fftn` of real numbers.

    Args:
        s: how many elements are transformed along each of the axes; all by default.
        axes: along which; by default the last ones, as many as ``s`` has, or all.
        norm: ``"backward"``: no factor; ``"ortho"``: 1/√n; ``"forward"``: 1/n, with the product of all lengths.

    Raises:
        ValueError: an axis is not there or is named twice, there is none, a length is less than 1, there are not as many of
            them as axes, or there is no such norm.
        TypeError: ``x`` is complex, something that is no integer is among ``s`` or ``axes``, or ``out`` has another dtype.
        NotImplementedError: there are no transforms for the device, or no cuFFT is installed for it.

    Example:
        >>> import aiodev, aiodev.kernels
        >>> aiodev.kernels.fft.rfftn(aiodev.ones((2, 2), device="cpu")).numpy_blocking()
        array([[4.+0.j, 0.+0.j],
               [0.+0.j, 0.+0.j]])
    """
    *others, (place, length) = lines_of(call.name, x, s, axes, least=1)
    passes = [_real_pass(place, length, _factor(call, norm, length))]
    passes += [_Pass(loops.FORWARD, axis, n, _factor(call, norm, n)) for axis, n in reversed(others)]
    return _run(call, x, _of_real(call, x), passes)


@aiodev.operation(reads=["x"], writes="out")
def irfftn(
    call: aiodev.Call, x: aiodev.Array, /, *, s: Sequence[int] | None = None, axes: Sequence[int] | None = None,
    norm: str = "backward", out: aiodev.Array | None = None,
) -> aiodev.Array:  # fmt: skip
    """The inverse of :func:`rfftn`; real.

    Args:
        s: how many elements the result has along each of the axes; by default those of ``x``, and along the last of the axes
            twice as many less 2.
        axes: along which; by default the last ones, as many as ``s`` has, or all.
        norm: ``"backward"``: the factor 1/n, with the product of all lengths; ``"ortho"``: 1/√n; ``"forward"``: none.

    Raises:
        ValueError: an axis is not there or is named twice, there is none, a length is less than 1, there are not as many of
            them as axes, or there is no such norm.
        TypeError: something that is no integer is among ``s`` or ``axes``, or ``out`` has another dtype than the result.
        NotImplementedError: there are no transforms for the device, or no cuFFT is installed for it.

    Example:
        >>> import aiodev, aiodev.kernels
        >>> x = aiodev.asarray([[4.0, 0.0], [0.0, 0.0]], device="cpu")
        >>> aiodev.kernels.fft.irfftn(x).numpy_blocking()
        array([[1., 1.],
               [1., 1.]])
    """
    *others, (place, length) = lines_of(call.name, x, s, axes, least=1, doubled=True)
    swapped = _swapped(call, norm)
    passes = [_Pass(loops.INVERSE, axis, n, _factor(call, swapped, n)) for axis, n in others]
    passes.append(_Pass(loops.HERMITIAN, place, length, _factor(call, swapped, length)))
    return _run(call, x, _complex_of(x), passes)


# Arguments


def _line(name: str, x: aiodev.Array, n: Any, axis: Any, doubled: bool = False) -> tuple[int, int]:
    """The axis, and how many elements are transformed; if ``doubled``, of real ones that become those of ``x``."""
    place = checked_axis(name, axis, x.ndim)
    own = 2 * (x.shape[place] - 1) if doubled else x.shape[place]
    length = own if n is None else whole_number(name, "n", n)
    if length < 1:
        raise ValueError(f"{name}: n: expected 1 or more, got {length}; the shape of x is {x.shape}")
    return place, length


def lines_of(
    name: str, x: aiodev.Array, s: Any, axes: Any, least: int = 0, doubled: bool = False
) -> list[tuple[int, int]]:
    """The axes, and how many elements are transformed along each; if ``doubled``, of real ones along the last."""
    wanted = None if s is None else whole_numbers(f"{name}: s", s)
    if axes is None:
        given: Sequence[int] = range(x.ndim) if wanted is None else range(-len(wanted), 0)
    else:
        given = whole_numbers(f"{name}: axes", axes)
    places = [checked_axis(name, axis, x.ndim) for axis in given]
    if len(set(places)) != len(places):
        raise ValueError(f"{name}: axes {axes!r} name one axis twice")
    if len(places) < least:
        raise ValueError(f"{name}: axes: expected {least} or more, got none")
    lengths = [x.shape[place] for place in places] if wanted is None else list(wanted)
    if doubled and wanted is None:
        lengths[-1] = 2 * (lengths[-1] - 1)
    if len(lengths) != len(places):
        raise ValueError(f"{name}: s: expected as many lengths as axes, {len(places)}, got {len(lengths)}")
    if any(n < 1 for n in lengths):
        raise ValueError(f"{name}: s: expected lengths of 1 or more, got {lengths}; the shape of x is {x.shape}")
    return list(zip(places, lengths, strict=True))


def _swapped(call: aiodev.Call, norm: Any) -> str:
    other = _SWAPPED.get(norm) if isinstance(norm, str) else None
    if other is None:
        raise ValueError(f"{call.name}: norm {norm!r}: expected 'backward', 'ortho' or 'forward'")
    return other


def _factor(call: aiodev.Call, norm: Any, n: int) -> float:
    """Of a forward transform."""
    _swapped(call, norm)
    return {"backward": 1.0, "ortho": 1 / math.sqrt(n), "forward": 1 / n}[norm]


def _real_of(dtype: DType) -> DType:
    """The precision of a transform."""
    kind = dtypes.kind(dtype)
    double = kind in "biu" or dtype.itemsize == (16 if kind == "c" else 8)
    return np.dtype(np.float64 if double else np.float32)


def _complex_of(x: aiodev.Array) -> DType:
    return np.dtype(np.complex128 if _real_of(x.dtype).itemsize == 8 else np.complex64)


def _of_real(call: aiodev.Call, x: aiodev.Array) -> DType:
    if x.dtype.kind == "c":
        raise TypeError(f"{call.name}: argument x: expected real numbers, got {x.dtype}")
    return _real_of(x.dtype)


def _real_pass(place: int, length: int, factor: float) -> _Pass:
    """A transform of ``length`` real numbers."""
    return _Pass(loops.REAL_ODD if length % 2 else loops.REAL_EVEN, place, length // 2 + 1, factor)


# Submission


def _complex_one(call: aiodev.Call, x: aiodev.Array, n: Any, axis: Any, norm: Any, kind: int) -> aiodev.Array:
    place, length = _line(call.name, x, n, axis)
    way = norm if kind == loops.FORWARD else _swapped(call, norm)
    return _run(call, x, _complex_of(x), [_Pass(kind, place, length, _factor(call, way, length))])


def _complex_all(call: aiodev.Call, x: aiodev.Array, s: Any, axes: Any, norm: Any, kind: int) -> aiodev.Array:
    lines = lines_of(call.name, x, s, axes)
    way = norm if kind == loops.FORWARD else _swapped(call, norm)
    _swapped(call, norm)
    return _run(call, x, _complex_of(x), [_Pass(kind, place, n, _factor(call, way, n)) for place, n in reversed(lines)])


def _run(call: aiodev.Call, x: aiodev.Array, dtype: DType, passes: list[_Pass]) -> aiodev.Array:
    """Transform along one axis after the other, where the elements lie if their number stays the same."""
    on_host = loops if loops.are_callable() else host_calls
    library = library_of(call, on_host, cufft, "cuFFT", "transforms")
    shape = list(x.shape)
    for step in passes:
        shape[step.axis] = step.length
    real, is_real = _real_of(dtype), bool(passes) and passes[-1].kind == loops.HERMITIAN
    complex_ = np.dtype(np.complex128 if real.itemsize == 8 else np.complex64)
    result, target = packed_out(call, tuple(shape), real if is_real else complex_)
    if not result.size:
        return result
    if not x.size:  # nothing but zeros behind it
        result.copy_from(aiodev.zeros(result.shape, result.dtype, result.device))
        return result
    if not passes:
        call.copy(result, convert(call, x, dtype))
        return result
    current = convert(call, x, dtype)
    for number, step in enumerate(passes):
        lengths = (*current.shape[: step.axis], step.length, *current.shape[step.axis + 1 :])
        made = real if step.kind == loops.HERMITIAN else complex_
        if number == len(passes) - 1 or (lengths == target.shape and made == target.dtype):
            into = target
        elif number and lengths == current.shape:
            into = current
        else:
            into = call.scratch(lengths, made)
        library.transform(call, step.kind, *_rows(call, current, into, step.axis), step.factor)
        current = into
    return delivered(call, result, target)


def _rows(call: aiodev.Call, x: aiodev.Array, out: aiodev.Array, axis: int) -> tuple[aiodev.Array, aiodev.Array]:
    """Both as three dimensions, of which the last is the axis; ``out`` has no gaps."""
    if x.ndim > 3:
        x = call.packed(x)
    if x.is_contiguous:
        outer, inner = math.prod(x.shape[:axis]), math.prod(x.shape[axis + 1 :])
        if inner == 1:  # all are of one outer index, and so of one call
            return tuple(a.reshape(1, outer, a.shape[axis]) for a in (x, out))  # type: ignore[return-value]
        return tuple(a.reshape(outer, a.shape[axis], inner).transpose(0, 2, 1) for a in (x, out))  # type: ignore[return-value]
    order = [a for a in range(x.ndim) if a != axis]
    first = (None,) * (3 - x.ndim)
    return tuple(a.transpose(*order, axis)[first] for a in (x, out))  # type: ignore[return-value]
