"""Host arrays in page-locked memory."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from aiodev._array.dtypes import parse_dtype
from aiodev._array.layout import parse_shape
from aiodev._core import arguments
from aiodev._core.backend.registry import DeviceLike, registry
from aiodev._core.streams.stream import Stream
from aiodev._memory.pinned import pinned_cache

__all__ = ["empty_pinned", "pin", "record_stream"]

HostArray = np.ndarray[Any, np.dtype[Any]]


def empty_pinned(shape: Any, dtype: Any = None, device: DeviceLike | None = None) -> HostArray:
    """A NumPy array in page-locked memory, its elements not defined: for copies to and from a device that overlap with work.

    On the CPU, whose memory is the host's, it is ordinary memory. The first arrays of a size take long; dropped ones are kept.

    Args:
        shape: a length, or a tuple of lengths.
        dtype: float64 by default.
        device: whose backend the memory is for; the current device by default. That is started if need be, which blocks.

    Raises:
        TypeError, ValueError: a shape or a dtype that NumPy's arrays do not have.
        MemoryError: the system has no more that it can lock.
        NotImplementedError: the backend has none.

    Example:
        >>> import aiodev
        >>> staging = aiodev.memory.empty_pinned((2, 3), "float32", "cpu")
        >>> staging.shape, staging.dtype
        ((2, 3), dtype('float32'))
    """
    kind, lengths = parse_dtype(dtype), parse_shape(shape)
    handle, resolved = registry.resolve(device)
    nbytes = math.prod(lengths) * kind.itemsize
    packed = np.asarray(pinned_cache(handle).allocate(resolved.index, nbytes))[:nbytes].view(kind)
    try:
        made: HostArray = packed.reshape(lengths)
    except ValueError as error:  # NumPy has fewer dimensions
        raise arguments.named("empty_pinned", "shape", error) from error
    return made


def pin(array: Any, device: DeviceLike | None = None) -> HostArray:
    """A copy of a host array in page-locked memory; arguments and errors as for :func:`empty_pinned`. Copies here and now.

    Example:
        >>> import aiodev
        >>> aiodev.memory.pin([1, 2, 3], "cpu")
        array([1, 2, 3])
    """
    host = np.asarray(array)
    made = empty_pinned(host.shape, host.dtype, device)
    made[...] = host
    return made


def record_stream(array: HostArray, stream: Stream) -> None:
    """Keep a host array for what ``stream`` was given so far: for copies that other libraries submit.

    Copies of aiodev keep theirs by themselves.

    Raises:
        TypeError: it is no array of the host, or ``stream`` no stream.

    Example:
        >>> import aiodev
        >>> staging = aiodev.memory.empty_pinned(8, device="cpu")
        >>> aiodev.memory.record_stream(staging, aiodev.default_stream("cpu"))
    """
    arguments.instance("record_stream", "array", array, np.ndarray, "a NumPy array")
    timeline = arguments.instance("record_stream", "stream", stream, Stream, "a Stream").timeline
    timeline.keep(timeline.submitted, array, array.nbytes)
