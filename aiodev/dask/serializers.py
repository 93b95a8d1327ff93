"""How arrays travel: Dask's serializers for them.

**Problem.** What a worker sends must have been computed, and waiting for that must not hold the worker's loop, on which Dask
serializes what is small. Nobody should copy the bytes on the way: not who sends memory that the host reaches, nor who
receives into such memory. And a receiver whose device has no room must not lose what it was sent.

**How.** A header says dtype, shape and the order of the axes in memory; the frames are the bytes as they lie there, in pieces
no larger than Dask would cut them into. What has gaps is packed first.

**Invariants.**

1.  A message with an array that is still to be written counts as large, so that Dask serializes it in a thread of its own.
    What is finished is never waited for.
2.  Frames of host memory are the array's own memory, which lives as long as they do. Dask's contract holds for arrays as for
    NumPy's: nobody writes to the result of a task.
3.  A device that shares the host's memory gets the received bytes as they are, where they are one piece, aligned and may be
    written to. Any other gets each piece by one copy, straight to its place, which nothing waits for.
    Where Dask communicates by UCX, GPUs exchange what they have without the host: then a frame is an array of bytes on
    the device.
4.  What a device has no room for stays on the host; the task that needs it brings it to the device, under a lease, or raises
    ``OutOfMemoryError`` (:mod:`aiodev.dask.tasks`).
5.  What workers keep did not fail (invariant 3 there): an exception here would leave Dask's workers waiting for each other.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from dask.sizeof import sizeof
from distributed.comm import utils as comm_utils
from distributed.protocol.cuda import cuda_deserialize, cuda_serialize
from distributed.protocol.serialize import Serialize, dask_deserialize, dask_serialize
from distributed.protocol.utils import frame_split_size

import aiodev
from aiodev import Array
from aiodev._array.array import FreedArray, allocate, make_array
from aiodev._array.foreign import wrap_host
from aiodev._array.protocols import host_view
from aiodev._core.backend.device import HOST
from aiodev.dask.arrays import arrays_in, block_until_written, unfinished
from aiodev.dask.tuning import COPIED_HERE
from aiodev.dtypes import parse_dtype

__all__ = ["FORMAT", "dump", "dump_on_device", "load", "load_on_device"]

#: The form of header and frames. Another one is refused.
FORMAT = 1

HostArray = np.ndarray[Any, Any]


def dump(x: Array) -> tuple[dict[str, Any], list[memoryview]]:
    """The header and the frames of an array; blocks until its contents are there.

    Raises:
        NotImplementedError: it is of a subclass, which travels as its pickle.
        KernelError: what computed the array failed; or whatever that raised.
    """
    x, repeated = _each_once(x)
    host = _on_host(x)
    axes = _axes_in_memory(host)
    ordered = host.transpose(axes)
    if not ordered.flags.c_contiguous:
        axes, ordered = list(range(host.ndim)), np.ascontiguousarray(host)
    octets = ordered.reshape(-1).view(np.uint8)
    frames = list(frame_split_size(octets.data)) if octets.size else []
    return _header(x, ordered.shape, axes, repeated), frames


def dump_on_device(x: Array) -> tuple[dict[str, Any], list[Array]]:
    """The header and the frame of an array that stays on its device, for Dask's communication by UCX.

    Raises:
        NotImplementedError: its device is none of CUDA's, so that it goes by way of the host.
    """
    if not aiodev.capabilities(x.device).cuda_interfaces:
        raise NotImplementedError(str(x.device))
    x, repeated = _each_once(x)
    axes = _axes_in_memory(x)
    ordered = x.transpose(*axes) if axes else x
    if not ordered._form.packed:
        axes, ordered = list(range(x.ndim)), copy.copy(x)
    block_until_written(ordered)
    ordered._buffer.check()
    octets = make_array(ordered._buffer, ordered.address, (ordered.nbytes,), np.dtype(np.uint8), None, False)
    return _header(x, ordered.shape, axes, repeated), [octets] if octets.size else []


def _each_once(x: Array) -> tuple[Array, tuple[int, ...] | None]:
    """The array with each element once, and the shape to which these are repeated, if they are."""
    if x.__class__ is not Array and x.__class__ is not FreedArray:
        raise NotImplementedError(type(x).__name__)
    shape = x.shape
    repeated = {axis for axis, stride in enumerate(x.strides) if stride == 0 and shape[axis] > 1}
    if not repeated:
        return x, None
    return x[tuple(slice(1) if axis in repeated else slice(None) for axis in range(len(shape)))], shape


def _axes_in_memory(x: Array | HostArray) -> list[int]:
    """The axes, that with the largest stride first."""
    axes = list(range(x.ndim))
    return sorted(axes, key=lambda axis: -x.strides[axis]) if x.size else axes


def _header(x: Array, shape: tuple[int, ...], axes: list[int], repeated: tuple[int, ...] | None) -> dict[str, Any]:
    return {
        "format": FORMAT,
        "version": aiodev.__version__,
        "dtype": x.dtype.name,
        "shape": shape,
        "axes": tuple(axes),
        "repeated": repeated,
    }


def _on_host(x: Array) -> HostArray:
    """The contents, in the array's own memory where the host reaches that."""
    block_until_written(x)
    if not x._buffer.source.host_accessible:
        return x.numpy_blocking()
    x._buffer.check()
    return host_view(x)


def load(header: dict[str, Any], frames: list[Any]) -> Array:
    """The array of a header and frames, on the current device; waits for nothing.

    Raises:
        TypeError: another version of aiodev has made it in another form.
    """
    _check(header)
    pieces = [np.frombuffer(frame, np.uint8) for frame in frames]
    return _restored(header, _place(pieces, tuple(header["shape"]), parse_dtype(header["dtype"])))


def load_on_device(header: dict[str, Any], frames: list[Any]) -> Array:
    """The array of a header and of frames that UCX has received into a GPU's memory, which become its own.

    Raises:
        TypeError: another version of aiodev has made it in another form.
    """
    _check(header)
    shape, dtype = tuple(header["shape"]), parse_dtype(header["dtype"])
    pieces = [aiodev.asarray(frame) for frame in frames]
    if len(pieces) == 1:
        (piece,) = pieces
        return _restored(header, make_array(piece._buffer, piece.address, shape, dtype, None, True))
    stream = aiodev.current_stream(pieces[0].device if pieces else None)
    return _restored(header, _joined(pieces, allocate(shape, dtype, stream), stream))


def _check(header: dict[str, Any]) -> None:
    if header.get("format") != FORMAT:
        theirs = header.get("version", "another version")
        raise TypeError(
            f"an array that aiodev {theirs} has sent: aiodev {aiodev.__version__} does not know its form; install one "
            f"version on client and workers"
        )


def _restored(header: dict[str, Any], packed: Array) -> Array:
    """The array with its axes in their order, and its elements repeated."""
    axes = list(header["axes"])
    array = packed if axes == sorted(axes) else packed.transpose(*sorted(range(len(axes)), key=axes.__getitem__))
    return aiodev.broadcast_to(array, tuple(header["repeated"])) if header["repeated"] else array


def _place(pieces: list[HostArray], shape: tuple[int, ...], dtype: Any) -> Array:
    """The bytes as an array without gaps."""
    stream = aiodev.current_stream()
    if len(pieces) == 1 and aiodev.capabilities(stream.device).host_accessible:
        (piece,) = pieces
        if not piece.flags.writeable or piece.ctypes.data % dtype.alignment:
            piece = piece.copy() if piece.nbytes <= COPIED_HERE else piece
        if piece.flags.writeable and piece.ctypes.data % dtype.alignment == 0:
            return wrap_host(piece.view(dtype).reshape(shape), stream)
    try:
        array = allocate(shape, dtype, stream)
    except aiodev.OutOfMemoryError:
        whole = np.concatenate(pieces) if pieces else np.empty(0, np.uint8)
        return wrap_host(whole.view(dtype).reshape(shape), aiodev.current_stream(HOST))
    return _joined(pieces, array, stream)


def _joined(pieces: Sequence[HostArray | Array], array: Array, stream: aiodev.Stream) -> Array:
    """Copy pieces to an array without gaps, one behind the other."""
    at = 0
    for piece in pieces:
        part = make_array(array._buffer, array.address + at, piece.shape, piece.dtype, None, True)
        stream.copy(part, piece)
        at += piece.nbytes
    return array


def _size_of(x: Array) -> int:
    """Bytes of the elements that it has, on whatever device; what repeats elements counts them once."""
    if isinstance(x, FreedArray):
        return 0
    lengths = (length for length, stride in zip(x.shape, x.strides, strict=True) if stride)
    return math.prod(lengths) * x.itemsize if x.size else 0


def _size_of_message(part: Serialize) -> int:
    """Bytes of a part of a message; more than Dask serializes on its loop where an array is unfinished (invariant 1)."""
    nbytes: int = sizeof(part.data)
    limit = comm_utils.OFFLOAD_THRESHOLD
    if limit and nbytes <= limit and any(unfinished(array) for array in arrays_in(part.data)):
        return int(limit) + 1
    return nbytes


dask_serialize.register(Array, dump)
dask_deserialize.register(Array, load)
cuda_serialize.register(Array, dump_on_device)
cuda_deserialize.register(Array, load_on_device)
sizeof.register(Array, _size_of)
sizeof.register(Serialize, _size_of_message)
