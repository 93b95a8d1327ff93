"""What a copy becomes: the routing table of ``Stream.copy``.

====================  =====================================================================================
both without gaps     one copy operation, whatever the sides are
few pieces            one copy operation for each piece without gaps; where layouts recur, as what follows
gaps, shared memory   one strided kernel over both, host arrays too
gaps, on the device   a strided kernel to or from a packed array on the device, and one copy operation
gaps, on a peer       the same, by a stream of the peer: kernels reach the memory of their own device
gaps, on the host     a thread packs or unpacks a host array in stream order, and one copy operation
memory in common      by way of a packed copy of the source: no operation reads what it has written
====================  =====================================================================================

What becomes of a copy between arrays in different memory of ours, on one device, follows from their forms and is remembered.

Host arrays are held until the copy is done, and read or written in stream order: until then a source must not change, which
debug mode notices (:mod:`aiodev._array.host_changes`). Constructors copy values first (:mod:`aiodev._array.host_values`).
Page-locked memory goes straight to a device; how ordinary memory does, without the caller or the GIL, is the backend's part
(CUDA's: in pieces, by way of page-locked memory, in a thread of native code).
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, TypeGuard

import numpy as np

from aiodev._array import layout
from aiodev._array.array import Array, allocate, make_array
from aiodev._array.dtypes import DType
from aiodev._array.form import Form
from aiodev._array.layout import Layout
from aiodev._array.protocols import address_of, host_view
from aiodev._array.tuning import MOST_KNOWN, PIECES
from aiodev._core.arguments import UNCONVERTED, named, refusal
from aiodev._core.backend.device import Device
from aiodev._core.bounded_table import enter
from aiodev._core.config import settings
from aiodev._core.hooks import Hook
from aiodev._core.streams.completion import Completion, several
from aiodev._core.streams.stream import Stream, copy_arrays as copying
from aiodev._core.timeline.noting import Noting
from aiodev._core.timeline.timeline import Timeline
from aiodev._memory.buffer import Foreign, ForeignBuffer, record_torn, why_read_only

__all__ = ["boxes", "copy_arrays", "copy_packed", "known_copy", "strided_kernel"]

HostArray = np.ndarray[Any, DType]
Side = Array | HostArray

#: Launches the kernels that copy (stream, dst, src).
strided_kernel: Hook[[Stream, Array, Array], Completion[None]] = Hook("aiodev._kernel.dispatch.strided")


#: Gives for two forms, of the source and the target, what copies such arrays by a kernel as they were copied before, or None: a
#: function of both arrays, in memory of ours, and a stream; it gives None where it cannot, as where they have elements in
#: common. For the ways that recur; a dictionary's own method, since it is asked for every copy.
known_copy: Hook[[tuple[Form, Form]], Callable[[Array, Array, Stream], Any] | None] = Hook(
    "aiodev._kernel.dispatch.strided"
)
#: Bytes of what was copied as one piece, by the device and the forms of both; and forms of what was copied by several.
_whole: dict[tuple[Device, Form, Form], int] = {}
_by_pieces: dict[tuple[Form, Form], None] = {}


def copy_arrays(stream: Stream, dst: Any, src: Any) -> Completion[None]:
    """Copy ``src`` to ``dst`` on a stream; see :meth:`aiodev.Stream.copy`."""
    if dst.__class__ is Array and src.__class__ is Array:
        to, fro = dst._buffer, src._buffer
        if to.is_own and fro.is_own:
            nbytes = _whole.get((stream.device, dst._form, src._form))
            if nbytes is not None and (to is not fro or abs(dst._address - src._address) >= nbytes):
                timeline = stream.timeline
                with Noting():
                    try:
                        value = stream._copy(dst._address, src._address, nbytes)
                        to._record_write(timeline, value)
                        fro._record_read(timeline, value)
                    except BaseException as error:
                        record_torn(error, timeline, (to,), (fro,))
                        raise
                return Completion(timeline, value)
            known = known_copy.call((src._form, dst._form))
            if known is not None and known(src, dst, stream) is not None:
                timeline = stream.timeline
                written = to._written if to._writer is timeline else to.written_by(timeline)
                return Completion(timeline, written or timeline.submitted)  # a capture notes nothing in memory of before it
    return _copy_anew(stream, dst, src)


def _copy_anew(stream: Stream, dst: Any, src: Any) -> Completion[None]:
    """Copy, and find out how."""
    if dst.__class__ is not Array and isinstance(dst, Array):
        dst = dst._plainly("a copy with a variable as its dst")
    try:
        source = src._plainly("a copy with a variable as its src") if isinstance(src, Array) else np.asarray(src)
    except UNCONVERTED as error:
        raise named("copy", "src", error) from error
    _check(stream, dst, source)
    if _is_contiguous(dst) and _is_contiguous(source) and dst.size:
        to, fro = _address(dst), _address(source)
        if not 0 < abs(to - fro) < dst.nbytes:
            value = _submit(stream.timeline, dst, source, stream._copy, to, fro, dst.nbytes)
            if isinstance(dst, Array) and isinstance(source, Array):
                enter(_whole, (stream.device, dst._form, source._form), dst.nbytes, MOST_KNOWN)
            return Completion(stream.timeline, value)
    if _overlap(dst, source):
        with stream.as_one():
            apart = allocate(source.shape, source.dtype, stream)
            copy_arrays(stream, apart, source)
            return copy_arrays(stream, dst, apart)
    return _copy_pieces(stream, dst, source)


def copy_packed(stream: Stream, dst: Array, host: HostArray) -> None:
    """Copy a host array, which nobody changes any more, to an array of its shape and dtype; neither has gaps."""
    _submit(stream.timeline, dst, host, stream._copy, dst._address, _address(host), host.nbytes)


def _overlap(dst: Side, src: Side) -> bool:
    """Whether both have bytes in common; not of an array and itself."""
    to, fro = _address(dst), _address(src)
    if (to, dst.strides) == (fro, src.strides):
        return False
    here, there = (Layout(side.shape, side.strides) for side in (dst, src))
    return layout.overlaps(here, dst.itemsize, there, src.itemsize, fro - to)


def _is_contiguous(side: Side) -> bool:
    return side.is_contiguous if isinstance(side, Array) else side.flags.c_contiguous


def _copy_pieces(stream: Stream, dst: Side, source: Side) -> Completion[None]:
    timeline = stream.timeline
    if 0 in dst.shape:  # nothing to do, but in its turn: not behind what was withdrawn, or has failed, and is over by now
        return stream.record_event().wait(stream)
    most = 1 if stream.maxsize or _recurs(dst, source) else PIECES
    pieces = _pieces(dst.shape, dst.strides, source.strides, dst.dtype.itemsize, most)
    if pieces is None:
        with Noting(), stream.as_one():
            done = _copy_strided(stream, dst, source)
            _note_use(timeline, done.value, dst, source)
        return done
    nbytes, offsets = pieces
    to, fro = _address(dst), _address(source)
    value = first = 0

    def submit_pieces() -> int:
        nonlocal value, first
        for there, here in offsets:
            value = stream._copy(to + there, fro + here, nbytes)
            first = first or value
        return value

    try:
        _submit(timeline, dst, source, submit_pieces)
    except Exception:  # one was refused; those before it are under way
        _note_use(timeline, value, dst, source)
        raise
    whole = value - first == len(offsets) - 1  # else others have submitted in between
    return several(timeline, first, value) if whole else Completion(timeline, value)


def _recurs(dst: Side, src: Side) -> bool:
    """Whether arrays of these forms were copied by pieces before: to launch what is known costs less than the pieces do."""
    if not (isinstance(dst, Array) and isinstance(src, Array) and src._buffer.is_own and dst._buffer.is_own):
        return False
    key = src._form, dst._form
    if key in _by_pieces:
        return True
    enter(_by_pieces, key, None, MOST_KNOWN)
    return False


@functools.lru_cache(4096)
def _pieces(
    shape: tuple[int, ...], to: tuple[int, ...], fro: tuple[int, ...], itemsize: int, most: int
) -> tuple[int, tuple[tuple[int, int], ...]] | None:
    """The bytes of each piece, and where they begin on both sides; None where there are more."""
    count, nbytes, offsets = layout.runs(shape, to, fro, itemsize)
    return None if count > most else (nbytes, tuple(offsets))


def _submit(timeline: Timeline, dst: Side, src: Side, submit: Callable[..., int], *args: Any) -> int:
    """Submit what uses the memory of both sides, and keep that until it is done."""
    written, read = ([side._buffer] if isinstance(side, Array) else [] for side in (dst, src))
    with Noting():
        try:
            if written and read:
                value = submit(*args)
            else:
                host = src if written else dst
                value = timeline.submit_with(host, host.nbytes, submit, *args)
            _note_arrays(timeline, value, dst, src)
        except BaseException as error:
            record_torn(error, timeline, written, read)
            raise
    return value


def _note_arrays(timeline: Timeline, value: int, dst: Side, src: Side) -> None:
    if isinstance(dst, Array):
        dst._buffer._record_write(timeline, value)
    if isinstance(src, Array):
        src._buffer._record_read(timeline, value)


def _note_use(timeline: Timeline, value: int, dst: Side, src: Side) -> None:
    """Keep the memory that operation ``value`` uses until it is done; 0, no operation, keeps nothing."""
    if not value:
        return
    _note_arrays(timeline, value, dst, src)
    for side in (dst, src):
        if not isinstance(side, Array):
            timeline.keep(value, side, side.nbytes)


def _address(side: Side) -> int:
    if isinstance(side, Array):
        return side._address
    try:
        return address_of(side)
    except (BufferError, TypeError, ValueError):  # it is read-only, has gaps, or no elements
        return side.ctypes.data


def _check(stream: Stream, dst: Any, src: Side) -> None:
    """Raise for a copy that cannot be made."""
    if not isinstance(dst, Array | np.ndarray):
        raise refusal("copy", "dst", "an aiodev.Array or a NumPy array", dst)
    if not isinstance(dst, Array) and not isinstance(src, Array):
        raise TypeError("copy from host to host: one side must be an aiodev.Array")
    if dst.shape != src.shape:
        raise ValueError(f"copy to dst of shape {dst.shape}: src has the shape {src.shape}")
    if dst.dtype != src.dtype:
        raise ValueError(f"copy to dst of {dst.dtype}: src is {src.dtype}; aiodev.kernels.astype converts")
    if not (dst._form.writable if isinstance(dst, Array) else dst.flags.writeable):
        raise ValueError(f"copy to dst, which copy_from and copy write to, and which is read-only{why_read_only(dst)}")
    for side in (dst, src):
        if isinstance(side, Array):
            held = side._buffer.source
            if held.device.type != stream.device.type and not held.host_accessible:
                raise ValueError(
                    f"a stream of {stream.device} cannot reach memory of {held.device}; use one of that device"
                )


def _copy_strided(stream: Stream, dst: Side, src: Side) -> Completion[None]:
    shared = stream.timeline.handle.backend.capabilities.host_accessible
    if shared or (_on_device(stream, dst) and _on_device(stream, src)):
        return _launch(stream, _seen_from(stream, dst), _seen_from(stream, src))
    packed_src = src if _is_contiguous(src) else _pack(stream, src)
    if _is_contiguous(dst):
        return copy_arrays(stream, dst, packed_src)
    if not _is_remote(dst):
        host = np.empty(dst.shape, dst.dtype)
        copy_arrays(stream, host, packed_src)
        return _unpack(stream, dst, host)
    there = stream if dst.device is stream.device else Stream(dst.device)
    packed = allocate(dst.shape, dst.dtype, there)
    stream.wait_stream(there)
    copy_arrays(stream, packed, packed_src)
    there.wait_stream(stream)
    _launch(there, dst, packed)
    stream.wait_stream(there)
    return Completion(stream.timeline, stream.timeline.submitted)


def _on_device(stream: Stream, side: Side) -> bool:
    return isinstance(side, Array) and side.device is stream.device


def _is_remote(side: Side) -> TypeGuard[Array]:
    """Whether a side is in memory that the host does not reach."""
    return isinstance(side, Array) and not side._buffer.source.host_accessible


def _pack(stream: Stream, src: Side) -> Side:
    """A packed copy on the same side."""
    if _is_remote(src):
        there = stream if src.device is stream.device else Stream(src.device)
        there.wait_stream(stream)
        packed = allocate(src.shape, src.dtype, there)
        _launch(there, packed, src)
        stream.wait_stream(there)
        return packed
    host = np.empty(src.shape, src.dtype)
    view = _host_view(src)
    stream.call(np.copyto, host, view)
    return host


def _unpack(stream: Stream, dst: Side, packed: HostArray) -> Completion[None]:
    done = stream.call(np.copyto, _host_view(dst), packed)
    return Completion(done.timeline, done.value)


def _host_view(side: Side) -> HostArray:
    """Memory that the host reaches, as NumPy sees it, without waiting for the work on it: the stream does that."""
    if not isinstance(side, Array):
        return side
    return host_view(side)


def _seen_from(stream: Stream, side: Side) -> Array:
    """A side as an array of the stream's device, which reaches it: the host's memory, or a peer's."""
    if isinstance(side, Array) and side.device is stream.device:
        return side
    address = _address(side)
    buffer = ForeignBuffer(address, Foreign(stream.device, side), None, stream.timeline, 0)
    return make_array(buffer, address, side.shape, side.dtype, side.strides, True)


def _launch(stream: Stream, dst: Array, src: Array) -> Completion[None]:
    return strided_kernel.call(stream, dst, src)


def boxes(
    shape: tuple[int, ...], to: tuple[int, ...], fro: tuple[int, ...]
) -> tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...], tuple[tuple[int, int], ...]]:
    """The shape and strides of three dimensions, and where those begin on both sides, once for each index of the others.

    The last dimension stays, which most often has no gaps on one side; before it is the one that has the least on the other
    side, if that is another. Of the others the longest stay: so there are few launches.
    """
    shape, (to, fro) = layout.collapse(shape, to, fro)
    places: tuple[tuple[int, int], ...] = ((0, 0),)
    last = len(shape) - 1
    nearer = [axis for axis in range(last) if 0 < to[axis] < to[last] or 0 < fro[axis] < fro[last]]
    if nearer or last > 2:
        near = min(nearer, key=lambda axis: min(to[axis], fro[axis]), default=None)
        order = [*sorted(range(last), key=lambda axis: (axis == near, shape[axis])), last]
        shape, to, fro = (tuple(own[axis] for axis in order) for own in (shape, to, fro))
    if last > 2:
        places = tuple(
            (sum(i * s for i, s in zip(index, to, strict=False)), sum(i * s for i, s in zip(index, fro, strict=False)))
            for index in np.ndindex(*shape[:-3])
        )
    fill = (0,) * (3 - len(shape))
    return (1,) * len(fill) + shape[-3:], fill + to[-3:], fill + fro[-3:], places


if settings.debug:
    from aiodev._array.host_changes import copy_checked

    copying.provide(functools.partial(copy_checked, copy_arrays))
else:
    copying.provide(copy_arrays)
