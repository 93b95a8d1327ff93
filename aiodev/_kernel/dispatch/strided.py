"""The kernels that copy arrays with gaps; the array layer asks for them by a hook, since kernels stand above arrays.

On the CPU elements that lie side by side are copied as rows, of memory that is seen as flat: where the compiler does not know
that a step is 1, it copies one by one.

A copy between two arrays of one device, on its current stream, is remembered for arrays of these layouts. They must be of
different memory of ours: whether other arrays overlap does not follow from their layouts.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from aiodev._array.array import Array, make_array
from aiodev._array.copy import strided_kernel
from aiodev._array.transfer import repeat_copy
from aiodev._core.backend.device_info import capabilities
from aiodev._core.streams.completion import Completion
from aiodev._core.streams.current import current_stream
from aiodev._core.streams.stream import Stream
from aiodev._kernel.dispatch.launch_cache import LaunchCache
from aiodev._kernel.kernel import kernel
from aiodev._memory.buffer import ForeignBuffer

__all__ = ["copy_rows", "copy_strided"]

_launches = LaunchCache(operands=1)
#: Elements of a row, at least, and of the rows that are copied by one index, about.
_ROW, _PIECE = 4, 1 << 12


@kernel(ndim=3, reads=["src"])
def copy_strided(i: int, j: int, k: int, dst: Any, src: Any) -> None:
    """One element."""
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


def _launch(
    stream: Stream, shape: tuple[int, ...], dst: Array, src: Array, whole: tuple[Array, Array] | None
) -> Completion[None]:
    chosen, lengths = copy_strided, shape
    numbers: tuple[int, ...] = ()
    if not capabilities(stream.device).simt and shape[2] >= _ROW and _has_rows(dst) and _has_rows(src):
        outer, rows, width = shape
        group = max(1, _PIECE // width)
        chosen, lengths = copy_rows, (-(-outer * rows // group),)
        size = dst.itemsize
        numbers = group, outer, rows, width, *(n // size for n in (*dst.strides[:2], *src.strides[:2]))
        dst, src = _flat(dst), _flat(src)
    if whole is not None and _are_apart(*whole) and stream is current_stream(stream.device):
        out, x = whole
        takes = *(None for _ in numbers), 1, 0
        return _launches.launch(None, (x,), out, chosen, lengths, (*numbers, dst, src), takes, made=False)
    return chosen[(*lengths, stream)](*numbers, dst, src)


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
    if not _are_apart(dst, src) or _launches.repeat(None, src, dst) is None:
        return None
    timeline = current_stream(dst.device).timeline
    return Completion(timeline, dst._buffer.written_by(timeline))


def _are_apart(dst: Array, src: Array) -> bool:
    """Whether both are memory of ours, which is not the same, on one device."""
    to, fro = dst._buffer, src._buffer
    apart = to is not fro and not isinstance(to, ForeignBuffer) and not isinstance(fro, ForeignBuffer)
    return apart and to.source.device is fro.source.device


strided_kernel.provide(_launch)
repeat_copy.provide(_repeat)
