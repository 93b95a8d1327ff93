"""Host values, taken into a fresh array before the call returns.

**Problem.** A program that makes an array of a host array may change that right afterwards: a receive buffer is filled again.
The memory of the array may still be in use by queued work, or be out of the host's reach, and the loop waits for neither.

**How.** Where the host reaches the memory, and nothing uses it any more, NumPy writes the values there: one pass over them,
which converts them too, and no operation at all. Else they are copied now, into page-locked memory where a device reads that by
itself, and from there to the array in stream order.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from aiodev._array.array import Array, allocate, fill_array
from aiodev._array.copy import copy_arrays
from aiodev._array.dtypes import DType
from aiodev._array.layout import Shape
from aiodev._array.protocols import host_window
from aiodev._array.tuning import TAKEN_LOCKED
from aiodev._core.errors import fresh
from aiodev._core.streams.stream import Stream
from aiodev._memory.buffer import Buffer
from aiodev._memory.pinned import pinned_cache

if TYPE_CHECKING:
    from aiodev._core.timeline.timeline import Timeline

__all__ = ["array_of", "watching", "write_fresh"]

#: What takes note of memory that the host writes to without an operation, by the id of who wants to know: mostly nobody.
watching: dict[int, set[Buffer]] = {}

HostArray = np.ndarray[Any, DType]


def array_of(host: HostArray, dtype: DType, stream: Stream, ours: bool = False) -> Array:
    """An array, for work that ``stream`` is given from now on, of the values that ``host`` has now, converted to ``dtype``.

    ``ours``: nobody else has ``host``, so that it may be read later.
    """
    timeline = stream.timeline
    if timeline.lost is not None:
        raise fresh(timeline.lost)
    array = allocate(host.shape, dtype, stream)
    buffer = array._buffer
    if write_fresh(array, timeline, host):
        return array
    if host.size == 1:
        fill_array(array, stream, 1, np.asarray(host, dtype).tobytes())
    elif host.size:
        if not (ours and host.dtype == dtype):
            host = _staged(host, dtype, stream, buffer.source.host_accessible)
        copy_arrays(stream, array, host)
    return array


def write_fresh(array: Array, timeline: Timeline, values: HostArray) -> bool:
    """Write to a fresh array here and now; False if the host does not reach it, or somebody may still use its memory."""
    buffer = array._buffer
    if timeline.recording is not None or not buffer.source.host_accessible:
        return False  # a replay writes them anew, since other arrays may get the memory meanwhile
    if timeline.lost is not None:
        return False  # which the submission tells
    if (buffer._read or buffer._written) and buffer.pending():
        return False
    host_window(array)[...] = values
    if watching:
        for seen in list(watching.values()):
            seen.add(buffer)
    return True


def _staged(host: HostArray, dtype: DType, stream: Stream, shared: bool) -> HostArray:
    """A packed copy on the host, made now."""
    timeline = stream.timeline
    nbytes = host.size * dtype.itemsize
    if nbytes <= TAKEN_LOCKED and not shared and not timeline.deferred:
        try:
            block = pinned_cache(timeline.handle).allocate(timeline.device.index, nbytes)
        except (MemoryError, NotImplementedError):  # there is no more, or it has none at all
            pass
        else:
            locked = _shaped(np.asarray(block)[:nbytes], dtype, host.shape)
            np.copyto(locked, host, casting="unsafe")
            return locked
    return np.array(host, dtype, order="C")


def _shaped(memory: HostArray, dtype: DType, shape: Shape) -> HostArray:
    shaped: HostArray = memory.view(dtype).reshape(shape)
    return shaped
