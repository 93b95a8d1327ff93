"""Kernels that copy arrays with gaps. The array layer asks for them by a hook, since kernels stand above arrays.

On the CPU, elements that lie side by side are copied as rows of memory that is seen as flat: where the compiler does not know
that a step is 1, it copies elements one by one.

A copy between two arrays of one device, on its current stream, is remembered for arrays of these layouts. Both must be memory
of ours, and not the same: whether other arrays overlap does not follow from their layouts.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from aiodev._array.array import Array, make_array
from aiodev._array.copy import boxes_of, strided_kernel
from aiodev._array.transfer import repeat_copy
from aiodev._core.backend.device import Device
from aiodev._core.backend.device_info import capabilities
from aiodev._core.streams.completion import Completion
from aiodev._core.streams.current import current_stream
from aiodev._core.streams.stream import Stream
from aiodev._kernel.dispatch.call import Call
from aiodev._kernel.kernel import Kernel, kernel
from aiodev._kernel.operation import operation
from aiodev._memory.buffer import Alias, ForeignBuffer

__all__ = ["copy_apart", "copy_rows", "copy_strided"]

#: Least elements of a row, for copying by rows; and about how many elements one index copies. Larger: fewer copies take rows,
#: and fewer workers share one; smaller: more overhead an element.
_ROW, _CHUNK = 4, 1 << 12


@kernel(ndim=3, reads=["src"])
def copy_strided(i: int, j: int, k: int, dst: Any, src: Any) -> None:
    """Copy one element."""
    dst[i, j, k] = src[i, j, k]


@kernel(uniform=True, reads=["src"])
def copy_rows(
    i: int, group: int, outer: int, rows: int, width: int, to: int, step: int, fro: int, pace: int, dst: Any, src: Any
) -> None:
    """``group`` rows of ``width`` elements, ``rows`` of which are in each of ``outer`` planes.

    Planes of the flat ``dst`` are ``to`` elements apart, rows ``step``; of ``src`` it is ``fro`` and ``pace``.
    """
    first = i * group
    plane, row = first // rows, first % rows
    for _ in range(first, min(first + group, outer * rows)):
        there, here = np.uint64(plane * to + row * step), np.uint64(plane * fro + row * pace)
        for k in range(np.uint64(width)):
            dst[there + k] = src[here + k]
        row += 1
        if row == rows:
            plane, row = plane + 1, 0


@operation(reads=["x"], writes="out")
def copy_apart(call: Call, x: Array, /, *, out: Array) -> Array:
    """Copy to an array in other memory, of any strides."""
    for box in boxes_of(out, x):
        kernel, lengths, args = _plan(call.device, *box)
        call.launch(kernel, lengths, *args)
    return out


#: What was copied before, by the forms of both arrays.
_known = copy_apart.operation.known.get


def _plan(device: Device, dst: Array, src: Array) -> tuple[Kernel, tuple[int, ...], tuple[Any, ...]]:
    """The launch that copies one box: a kernel, its shape and its arguments."""
    if capabilities(device).simt or dst.shape[2] < _ROW or not (_has_rows(dst) and _has_rows(src)):
        return copy_strided, dst.shape, (dst, src)
    outer, rows, width = dst.shape
    group = max(1, _CHUNK // width)
    size = dst.itemsize
    steps = (n // size for n in (*dst.strides[:2], *src.strides[:2]))
    return copy_rows, (-(-outer * rows // group),), (group, outer, rows, width, *steps, _flat(dst), _flat(src))


def _launch(stream: Stream, dst: Array, src: Array) -> Completion[None]:
    if _are_apart(dst, src) and stream is current_stream(stream.device):
        copy_apart(src, out=dst)
        return Completion(stream.timeline, dst._buffer.written_by(stream.timeline))
    done: Completion[None] | None = None
    for box in boxes_of(dst, src):
        kernel, lengths, args = _plan(stream.device, *box)
        done = kernel[(*lengths, stream)](*args)
    assert done is not None
    return done


def _has_rows(x: Array) -> bool:
    """Whether the last of three dimensions has no gaps, and the others go upwards, by whole elements."""
    size = x.itemsize
    return x.strides[2] == size and all(step >= 0 and step % size == 0 for step in x.strides[:2])


def _flat(x: Array) -> Array:
    """The memory from the first to the last element."""
    size = x.itemsize
    last = sum((n - 1) * step for n, step in zip(x.shape, x.strides, strict=True)) // size
    return make_array(x._buffer, x._address, (last + 1,), x.dtype, None, True)


def _repeat(dst: Array, src: Array) -> Completion[None] | None:
    if not _are_apart(dst, src):
        return None
    copy = _known((src._form or src._find_form(), dst._form or dst._find_form()))
    if copy is None or copy(src, dst) is None:
        return None
    timeline = current_stream(dst.device).timeline
    return Completion(timeline, dst._buffer.written_by(timeline))


def _are_apart(dst: Array, src: Array) -> bool:
    """Whether both are memory of ours, which is not the same, on one device."""
    to, fro = dst._buffer, src._buffer
    if to is fro or isinstance(to, ForeignBuffer | Alias) or isinstance(fro, ForeignBuffer | Alias):
        return False
    return to.source.device is fro.source.device


strided_kernel.provide(_launch)
repeat_copy.provide(_repeat)
