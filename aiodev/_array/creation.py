"""Functions that make arrays. They submit to the current stream and wait for nothing."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from aiodev._array.array import Array, allocate, make_array
from aiodev._array.dtypes import DType, parse_dtype
from aiodev._array.layout import parse_shape
from aiodev._core import context
from aiodev._core.current import current_stream
from aiodev._core.registry import DeviceLike
from aiodev._core.stream import Stream
from aiodev._memory.buffer import Buffer, Foreign
from aiodev._memory.pools import pool_of

__all__ = ["arange", "asarray", "empty", "empty_like", "from_dlpack", "full", "ones", "wrap_host", "zeros"]

#: Bytes of a range that is computed here and now; a larger one is computed in a thread, in stream order.
_HERE = 64 << 10


def empty(shape: Any, dtype: Any = None, device: DeviceLike | None = None) -> Array:
    """An array whose elements are not defined.

    Args:
        shape: a length, or a tuple of lengths.
        dtype: what NumPy takes for one: booleans, integers, floats and complex numbers; float64 by default.
        device: where; the current device by default.

    Raises:
        OutOfMemoryError: there is no room for it, even after all cached memory that can be was given back.
        TypeError: no device has that dtype.

    Example:
        >>> import aiodev
        >>> aiodev.empty((2, 3), dtype="float32", device="cpu").nbytes
        24
    """
    stream = (context.current().stream or current_stream()) if device is None else current_stream(device)
    found = parse_dtype(dtype)
    lengths = (shape,) if type(shape) is int and shape >= 0 else parse_shape(shape)
    timeline = stream.timeline
    buffer = pool_of(timeline).allocate(math.prod(lengths) * found.itemsize, timeline)
    return make_array(buffer, buffer.address, lengths, found, None, True)


def empty_like(x: Array, dtype: Any = None, device: DeviceLike | None = None) -> Array:
    """An array of the same shape, and of the same dtype and device unless given, whose elements are not defined."""
    return empty(x.shape, x.dtype if dtype is None else dtype, x.device if device is None else device)


def zeros(shape: Any, dtype: Any = None, device: DeviceLike | None = None) -> Array:
    """An array of zeros; arguments as for :func:`empty`."""
    return full(shape, 0, parse_dtype(dtype), device)


def ones(shape: Any, dtype: Any = None, device: DeviceLike | None = None) -> Array:
    """An array of ones; arguments as for :func:`empty`."""
    return full(shape, 1, parse_dtype(dtype), device)


def full(shape: Any, fill_value: complex, dtype: Any = None, device: DeviceLike | None = None) -> Array:
    """An array filled with one value; its dtype is that of the value unless given.

    Example:
        >>> import aiodev
        >>> aiodev.full(3, 1.5, device="cpu").numpy_blocking()
        array([1.5, 1.5, 1.5])
    """
    pattern = np.asarray(fill_value, None if dtype is None else parse_dtype(dtype))
    if pattern.ndim:
        raise ValueError(f"fill_value has the shape {pattern.shape}; expected one number")
    array = empty(shape, pattern.dtype, device)
    count = array.size
    if count:
        stream = current_stream(array.device)
        array._buffer._stamp(stream.timeline, stream._fill(array._address, count, pattern.tobytes()))
    return array


def arange(
    start: float, stop: float | None = None, step: float = 1, dtype: Any = None, device: DeviceLike | None = None
) -> Array:
    """Evenly spaced values from ``start`` (0 if only one number is given) up to ``stop``, without it, as NumPy's.

    Example:
        >>> import aiodev
        >>> aiodev.arange(2, 10, 3, device="cpu").numpy_blocking()
        array([2, 5, 8])
    """
    if stop is None:
        start, stop = 0, start
    found = parse_dtype(np.result_type(start, stop, step) if dtype is None else dtype)
    length = max(0, math.ceil((stop - start) / step))
    stream = current_stream(device)
    array = allocate((length,), found, stream)
    if array.nbytes <= _HERE:
        stream.copy(array, _values(start, stop, step, found)[:length])
    else:
        values = np.empty(length, found)
        stream.call(lambda: np.copyto(values, _values(start, stop, step, found)[:length]))
        stream.copy(array, values)
    return array


def _values(start: Any, stop: Any, step: Any, dtype: Any) -> np.ndarray[Any, DType]:
    spaced: Any = np.arange
    values: np.ndarray[Any, DType] = spaced(start, stop, step, dtype)
    return values


def asarray(obj: Any, dtype: Any = None, device: DeviceLike | None = None) -> Array:
    """An array of what NumPy can make one of, copied to the device; an array of aiodev as it is, or moved.

    A NumPy array must not change until the copy is done: it is read in stream order, not now.

    Raises:
        TypeError: no device has its dtype, or an array of aiodev would have to be converted.

    Example:
        >>> import aiodev
        >>> aiodev.asarray([[1, 2], [3, 4]], device="cpu").T.numpy_blocking()
        array([[1, 3],
               [2, 4]])
    """
    if isinstance(obj, Array):
        if dtype is not None and parse_dtype(dtype) != obj.dtype:
            raise TypeError(f"dtype={parse_dtype(dtype)}, but the array is {obj.dtype}; aiodev.kernels.astype converts")
        return obj if device is None else obj.to(device)
    host = np.asarray(obj, None if dtype is None else parse_dtype(dtype))
    found = parse_dtype(host.dtype)
    if host.dtype != found:  # the other byte order
        host = host.astype(found)
    stream = current_stream(device)
    array = allocate(host.shape, found, stream)
    stream.copy(array, host)
    return array


def from_dlpack(x: Any, /, *, device: DeviceLike | None = None) -> Array:
    """An array over the memory of another library's array, not copied; read-only if that is. ``device`` moves it.

    Host memory becomes an array on the CPU device. Work that the other library has in flight on it must be done.

    Raises:
        BufferError: the memory is not the host's.

    Example:
        >>> import aiodev, numpy
        >>> host = numpy.zeros(3)
        >>> shared = aiodev.from_dlpack(host)
        >>> host[1] = 7
        >>> shared.numpy_blocking()
        array([0., 7., 0.])
    """
    if isinstance(x, Array):
        return x[...] if device is None else x.to(device)
    kind, _ = x.__dlpack_device__()
    if kind != 1:
        raise BufferError(f"DLPack device type {kind}: only host memory (type 1) can be shared so far")
    shared = wrap_host(np.from_dlpack(x), current_stream("cpu"))
    return shared if device is None else shared.to(device)


def wrap_host(host: np.ndarray[Any, DType], stream: Stream) -> Array:
    """An array over a host array's memory, as a device sees it that shares the host's."""
    interface = host.__array_interface__
    address, read_only = interface["data"]
    buffer = Buffer(address, Foreign(stream.device, host), None, stream.timeline, 0)
    return make_array(buffer, address, host.shape, parse_dtype(host.dtype), interface["strides"], not read_only)
