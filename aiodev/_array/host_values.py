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
from aiodev._array.copy import copy_packed
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

__all__ = ["array_of", "assign", "watching", "write_fresh"]

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
    if not write_fresh(array, timeline, host):
        _write(array, host, stream, ours)
    return array


def assign(array: Array, host: HostArray, stream: Stream) -> None:
    """Have a stream write the values that ``host`` has now to an array of that shape, converted to its dtype."""
    if array._form.packed:
        _write(array, host, stream)
    else:
        stream.copy(array, array_of(host, array._form.dtype, stream))


def _write(array: Array, host: HostArray, stream: Stream, ours: bool = False) -> None:
    """The same, of an array without gaps."""
    dtype = array._form.dtype
    if host.size == 1:
        fill_array(array, stream, 1, np.asarray(host, dtype).tobytes())
    elif host.size:
        if not (ours and host.dtype == dtype and host.flags.c_contiguous):
            host = _staged(host, dtype, stream, array._buffer.source.host_accessible)
        copy_packed(stream, array, host)


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
