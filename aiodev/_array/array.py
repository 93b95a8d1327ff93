"""Arrays: device memory with a shape, strides and a dtype."""

from __future__ import annotations

import struct
import sys
from collections.abc import Iterator
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import numpy as np

from aiodev._array import layout, readback
from aiodev._array.computing import indexing, namespace
from aiodev._array.dtypes import DType, parse_dtype
from aiodev._array.form import Form, form_of
from aiodev._array.layout import Layout, Shape
from aiodev._array.methods import Methods
from aiodev._array.operators import Operators
from aiodev._array.protocols import Protocols
from aiodev._array.transfer import copy_into
from aiodev._core.arguments import instance
from aiodev._core.errors import BackendError, ClosedError, InvalidDeviceError
from aiodev._core.hooks import Hook
from aiodev._core.streams.current import current_stream
from aiodev._core.streams.stream import Stream
from aiodev._core.timeline.noting import Noting
from aiodev._core.waiting.reactor import others_first
from aiodev._memory.allocators import allocator_of
from aiodev._memory.buffer import Buffer, record_torn

if TYPE_CHECKING:
    from aiodev._core.backend.device import Device
    from aiodev._core.backend.registry import DeviceLike
    from aiodev._core.streams.completion import Completion

__all__ = ["Allocation", "Array", "allocate", "array_of", "assign", "fill_array", "make_array", "view_of"]


_pack_address = struct.Struct("<q").pack
#: (x, index, value): writes a value to the elements that an index chooses.
assign: Hook[[Any, Any, Any], None] = Hook("aiodev._array.assignment")
#: Of the array API standard; each has all that the ones before it have.
_VERSIONS = ("2021.12", "2022.12", "2023.12", "2024.12")


class Array(Operators, Methods, Protocols):
    """Elements of one dtype on one device, to be computed with by kernels.

    Made by :func:`empty`, :func:`zeros`, :func:`ones`, :func:`full`, :func:`arange`, :func:`asarray` and
    :func:`from_dlpack`. Operators and assignments are submissions, as the functions of :mod:`aiodev.kernels` are, and wait for
    nothing; NumPy's functions refuse an array, but for those that convert (``asarray``) or ask for the shape. Comparisons are
    of elements; dictionaries and sets tell arrays apart by identity. Slices, rows, reshaped and transposed arrays are views of
    the same memory; ``copy.copy(x)`` is an array of its own. Pickles hold what the array does, and block to get it.

    Work on an array runs in the order of its stream. The array belongs to the stream that was current when it was made: have
    other streams wait for that one before they use it. It may be dropped at any time; its memory outlives the work on it.

    Raises:
        OverflowError: a Python number beside an operator is beyond the array's dtype.

    Example:
        >>> import aiodev
        >>> async def main():
        ...     x = aiodev.arange(6, device="cpu").reshape(2, 3)
        ...     x[0] += 10
        ...     print(await (2 * x[:, 1] + 1).numpy(), x.T)  # the values are at hand by now, and shown
        >>> import asyncio; asyncio.run(main())
        [23  9] <aiodev.Array (3, 2) int64 on cpu:0:
        [[10  3]
         [11  4]
         [12  5]]>
    """

    # No __getattr__ here: it would take from every load of a slot what the interpreter makes of it, three quarters of its time.
    __slots__ = ("__weakref__", "_address", "_buffer", "_form", "_packed")

    _address: int
    _buffer: Buffer
    _form: Form
    _packed: bytes | None  #: made when a kernel first asks: many arrays are views on the way to others, or only copied

    def __init__(self, *_: object, **__: object) -> None:
        raise TypeError("arrays are made by aiodev.empty, zeros, ones, full, arange, asarray and from_dlpack")

    def _pack(self) -> bytes:
        """What a kernel is given: address, lengths, and strides where there are gaps."""
        form = self._form
        self._packed = packed = _pack_address(self._address) + (form.tail or form.find_tail())
        return packed

    # Shape

    @property
    def shape(self) -> Shape:
        """Its lengths."""
        return self._form.shape

    @property
    def strides(self) -> Shape:
        """Bytes from one element to the next, along each dimension."""
        return self._form.strides

    @property
    def dtype(self) -> DType:
        """The type of its elements, as NumPy has it."""
        return self._form.dtype

    @property
    def device(self) -> Device:
        """The device that its memory is on."""
        return self._buffer.source.device

    @property
    def ndim(self) -> int:
        """How many dimensions it has."""
        return len(self._form.shape)

    @property
    def size(self) -> int:
        """How many elements it has."""
        return self._form.size

    @property
    def itemsize(self) -> int:
        """Bytes of an element."""
        return self._form.itemsize

    @property
    def nbytes(self) -> int:
        """Bytes of all elements, without gaps."""
        return self._form.size * self._form.itemsize

    @property
    def writable(self) -> bool:
        """Whether it may be written to. What repeats elements may not, nor what is another library's and read-only there."""
        return self._form.writable

    @property
    def is_contiguous(self) -> bool:
        """Whether its elements lie in C order without gaps, so that a reshape is a view, and a copy one run of bytes."""
        return self._form.packed

    @property
    def T(self) -> Array:
        """The array with its dimensions reversed; a view."""
        return self.transpose()

    @property
    def mT(self) -> Array:
        """The array with its last two dimensions exchanged; a view.

        Raises:
            ValueError: it has fewer than two.
        """
        return self._exchanged()

    @property
    def _layout(self) -> Layout:
        return Layout(self._form.shape, self.strides)

    def __len__(self) -> int:
        if not self._form.shape:
            raise TypeError("an array of no dimensions has no length")
        return self._form.shape[0]

    def __iter__(self) -> Iterator[Array]:
        """Views along the first dimension; nothing is waited for.

        Raises:
            TypeError: it has no dimensions.
        """
        if not self._form.shape:
            raise TypeError("an array of no dimensions has none to iterate along; `await array.numpy()` gives its value")
        return map(self.__getitem__, range(self._form.shape[0]))

    def __repr__(self) -> str:
        """Shape, dtype and device; and the values, if the host reaches them and nothing has still to write them."""
        values = readback.at_hand(self)
        if values is None:
            return f"<{self._describe()}>"
        text = np.array2string(values, separator=" ")
        return f"<{self._describe()}:{chr(10) if chr(10) in text else ' '}{text}>"

    def _describe(self) -> str:
        """What messages say of it: nothing that depends on what the device has done yet."""
        return f"aiodev.Array {self._form.shape} {self._form.dtype} on {self.device}"

    def copy(self) -> Array:
        """An array of its own with the same elements, without gaps; submitted to the current stream, waiting for nothing.

        Example:
            >>> import aiodev
            >>> x = aiodev.arange(4, device="cpu")
            >>> even = x[::2].copy()
            >>> x[:] = 0
            >>> even.numpy_blocking()
            array([0, 2])
        """
        return self._copied(self.device)

    def __copy__(self) -> Array:
        return self.copy()

    def __deepcopy__(self, memo: Any) -> Array:
        return self._copied(self.device)

    def __reduce__(self) -> tuple[Any, ...]:
        """By way of the host, blocking as pickling must; back to the device of the same name, or else to the current one.

        In coroutines, pickle what ``await array.numpy()`` gives.
        """
        return _restore, (self.numpy_blocking(), self.device)

    # Views: native code does what is usual, where it is there, and calls these functions else

    def __getitem__(self, index: Any) -> Array:
        """A view by integers, slices, ``...`` and None; an array of its own by arrays of integers and masks, as NumPy's.

        A mask of no dimensions, as ``True`` is one, takes none and makes one: of one element, or of none.

        How many elements a mask chooses the device alone knows: a mask that it has still to write is waited for, blocking this
        thread, where ``await aiodev.kernels.select(mask, x)`` waits in its task. Nothing else waits.

        Raises:
            IndexError: an integer, or an array of integers on the host, is out of bounds; or another kind of index. Integers on
                the device that are out of bounds fail the operation, as those of :func:`aiodev.kernels.take`.

        Example:
            >>> import aiodev
            >>> x = aiodev.arange(12, device="cpu").reshape(3, 4)
            >>> x[1:, -1].numpy_blocking(), x[:, [3, 0]].numpy_blocking()
            (array([ 7, 11]), array([[ 3,  0],
                   [ 7,  4],
                   [11,  8]]))
        """
        if index.__class__ is Array:
            gathered: Array = indexing.get(self, index)
            return gathered
        try:
            (shape, strides), offset = layout.index_layout(self._form, index)
        except layout.NoView:
            chosen: Array = indexing.get(self, index)
            return chosen
        return view_of(self, self._form.other(shape, strides), offset)

    _full_getitem = __getitem__

    def __setitem__(self, index: Any, value: Any) -> None:
        """Write to the elements that the same index reads; submits to the current stream.

        The value is a number, an array, or what NumPy makes one of. It is repeated to the shape that the index has, and
        converted to this array's dtype, as NumPy does. Where an index occurs twice, either of its values may stay.

        A mask is not waited for: the device finds which value goes where. Only beside other arrays in the index a mask that is
        still to be written is, blocking this thread; ``x[await mask.numpy(), indices] = value`` waits in its task.

        Raises:
            IndexError: as for reading.
            ValueError: the value does not fit the shape, or this array is read-only. As many values as a mask chooses are
                counted by the device if the mask has still to be written: another number then fails the operation.
            OverflowError: a number is beyond the dtype.

        Example:
            >>> import aiodev
            >>> x = aiodev.zeros(5, "int64", "cpu")
            >>> x[1:3] = 7
            >>> x[x == 0] = -1
            >>> x.numpy_blocking()
            array([-1,  7,  7, -1, -1])
        """
        assign.call(self, index, value)

    def reshape(self, *shape: Any) -> Array:
        """The same elements in C order in another shape; one length may be -1.

        A view where strides can express it, else a copy that is made on the current stream.

        Raises:
            ValueError: the shape has another number of elements.
        """
        wanted = layout.resolve_shape(shape, self.size)
        view = self._seen_as(wanted)
        if view is None:
            view = view_of(self._copied(self.device), form_of(self.device, self.dtype, wanted, None, True))
        return view

    _full_reshape = reshape

    def _seen_as(self, shape: Shape) -> Array | None:
        """A view of another shape of as many elements; None where strides cannot express it."""
        form = self._form
        if form.packed:
            return view_of(self, form.packed_to(shape))
        strides = layout.reshape_strides(Layout(form.shape, form.strides), shape, form.itemsize)
        return None if strides is None else view_of(self, form.other(shape, strides))

    def transpose(self, *axes: Any) -> Array:
        """The dimensions in another order, reversed by default; a view.

        Raises:
            ValueError: the axes are no permutation.
        """
        form = self._form
        transposed = layout.permute(form, layout.transposition(len(form.shape), axes))
        return view_of(self, form.other(transposed.shape, transposed.strides))

    _full_transpose = transpose

    def _exchanged(self) -> Array:
        """As :attr:`mT`."""
        ndim = len(self._form.shape)
        if ndim < 2:
            raise ValueError(f"mT: expected an array of at least 2 dimensions, got the shape {self._form.shape}")
        return self.transpose(*range(ndim - 2), ndim - 1, ndim - 2)

    _full_exchanged = _exchanged

    def _broadcast_to(self, shape: Any) -> Array:
        """As :func:`aiodev.broadcast_to`."""
        wanted = self._parsed(shape)
        own = self._form
        fill = len(wanted) - len(own.shape)
        lengths = (1,) * fill + own.shape
        if fill < 0 or any(old not in (1, new) for old, new in zip(lengths, wanted, strict=True)):
            raise ValueError(f"broadcast_to: the shape {own.shape} cannot be repeated to {wanted}")
        steps = zip(lengths, wanted, (0,) * fill + own.strides, strict=True)
        return self._broadcast(wanted, tuple(0 if old == 1 and new != 1 else stride for old, new, stride in steps))

    _full_broadcast_to = _broadcast_to

    def _parsed(self, shape: Any) -> Shape:
        """The lengths that a shape of a view means."""
        return layout.parse_shape(shape)

    def _broadcast(self, shape: Shape, strides: Shape) -> Array:
        return view_of(self, self._form.other(shape, strides, writable=False))

    def _seen_from(self, distance: int, shape: Shape, strides: Shape | None, dtype: DType) -> Array:
        """The memory so many bytes behind the first element, seen as an array that may be written to."""
        return make_array(self._buffer, self._address + distance, shape, dtype, strides, True)

    def _plainly(self, what: str) -> Array:
        """The array for what no operation does, such as "a copy to"; a variable refuses what is not recorded."""
        return self

    def __array_namespace__(self, /, *, api_version: str | None = None) -> Any:
        """The module :mod:`aiodev.array_api`, for libraries that speak the Python array API standard.

        Args:
            api_version: of the standard, which the caller needs: one up to 2024.12.

        Raises:
            ValueError: another one.

        Example:
            >>> import aiodev
            >>> aiodev.ones(3, device="cpu").__array_namespace__()
            <module 'aiodev.array_api' ...>
        """
        if api_version is not None and api_version not in _VERSIONS:
            raise ValueError(f"api_version={api_version!r}: expected one of {', '.join(_VERSIONS)}")
        return namespace()

    # To and from the host, and other devices

    async def numpy(self) -> np.ndarray[Any, DType]:
        """A copy on the host, of the state that the work submitted so far leaves.

        Waits for all that writes this array's memory, on whatever streams, not for other work of these. The loop stays free.

        Raises:
            KernelError: what computed the array, or a part of it, failed; each time, until something else writes it.
        """
        copy = readback.read_at_once(self)
        if copy is None:
            return await readback.read(self)
        await others_first
        return copy

    def numpy_blocking(self, timeout: float | None = None) -> np.ndarray[Any, DType]:
        """A copy on the host, as :meth:`numpy` gives it; blocks this thread until the copy is done.

        ``timeout=0`` only looks: at what is written, in memory that the host reaches; it waits for nothing and submits nothing.

        Raises:
            KernelError: what computed the array, or a part of it, failed; each time, until something else writes it.
            TimeoutError: ``timeout`` seconds have passed.
        """
        return readback.read_blocking(self, timeout)

    async def item(self, *index: int) -> Any:
        """The value of the only element, or of the one at ``index``, as a Python number.

        Raises:
            ValueError: there are more elements, or none.
            IndexError: the index is out of bounds.

        Example:
            >>> import aiodev
            >>> async def main():
            ...     x = aiodev.arange(6, device="cpu").reshape(2, 3)
            ...     return await x.item(1, 2), await aiodev.kernels.sum(x).item()
            >>> import asyncio, aiodev.kernels; asyncio.run(main())
            (5, 15)
        """
        one = self[index] if index else self
        if one._form.size != 1:
            raise ValueError(f"item: expected one element, got an array of {one.size}; `await x.tolist()` gives all")
        value = readback.item_at_once(one)
        if value is None and readback.is_soon_written(one):
            value = readback.item_at_once(one)
        if value is None:
            return (await readback.read_later(one)).item()
        await others_first
        return value

    async def tolist(self) -> Any:
        """The values as nested lists of Python's numbers; a number where there is no dimension.

        Example:
            >>> import asyncio, aiodev
            >>> asyncio.run(aiodev.arange(4, device="cpu").reshape(2, 2).tolist())
            [[0, 1], [2, 3]]
        """
        return (await self.numpy()).tolist()

    def to(self, device: DeviceLike) -> Array:
        """This array on another device, itself if it is there already. Submits a copy; waits for nothing.

        The copy is ordered after the work on this array, and the current streams of both devices after the copy.
        """
        stream = current_stream(device)
        if stream.device is self.device:
            return self
        return self._copied(stream.device)

    def to_device(self, device: DeviceLike, /, *, stream: Stream | None = None) -> Array:
        """What :meth:`to` gives, by the name and with the arguments of the array API standard.

        Args:
            device: where to.
            stream: of that device, which makes the copy; the current one by default.

        Raises:
            TypeError: ``stream`` is no stream.
            ValueError: it is one of another device.

        Example:
            >>> import aiodev
            >>> x = aiodev.ones(3, device="cpu")
            >>> x.to_device("cpu") is x
            True
        """
        if stream is None:
            return self.to(device)
        instance("to_device", "stream", stream, Stream, "a Stream of the device, or None")
        if current_stream(device).device is not stream.device:
            raise ValueError(f"to_device: argument stream: expected one of {device}, got one of {stream.device}")
        with stream:
            return self.to(device)

    def _copied(self, device: Device) -> Array:
        """A packed copy, made on the current stream of ``device``, or of this one's where only that can make it."""
        stream = current_stream(device)
        made = allocate(self._form.shape, self._form.dtype, stream)
        if self._buffer.source.device is device:
            stream.copy(made, self)
        else:
            copy_into(made, self)
        return made

    def copy_from(self, src: Any) -> Completion[None]:
        """Fill this array with ``src``: an array of any device, or of the host (NumPy), of the same shape and dtype.

        Submits to the current stream of this device, and waits for nothing: a host array is read in stream order, so it must
        not change until the completion is done (with ``AIODEV_DEBUG=1``, one that did is logged). ``await x.copy_from(host)``
        brings large arrays to a device without holding the loop. The source may be another view of the same memory, as in
        ``x.copy_from(x.T)``.

        Raises:
            ValueError: shapes or dtypes differ, or this array is read-only.
        """
        return copy_into(self, src)

    @property
    def address(self) -> int:
        """Where the first element lies in the device's memory, for native libraries; what uses it must know its streams.

        Example:
            >>> import aiodev
            >>> x = aiodev.zeros(8, dtype="int32", device="cpu")
            >>> x[2:].address - x.address
            8
        """
        return self._address

    def record_stream(self, stream: Stream, *, writes: bool = True) -> None:
        """Say that what was submitted to ``stream`` so far uses this array's memory.

        Launches and copies of aiodev say so themselves; this is for work that other libraries submit.

        Args:
            stream: the stream.
            writes: it may have written the array, whose contents fail with it. Work that only reads leaves them as they are.

        Raises:
            TypeError: ``stream`` is none, or ``writes`` is no truth value.
        """
        timeline = instance("record_stream", "stream", stream, Stream, "a Stream").timeline
        if instance("record_stream", "writes", writes, bool, "True or False"):
            self._buffer.record_foreign(timeline, timeline.submitted)
        else:
            self._buffer._record_read(timeline, timeline.submitted)

    def free(self) -> None:
        """Give the memory back now, whoever still refers to the array: a frame, a traceback, a cache.

        That is in stream order: what was submitted so far may still use the memory, and is not waited for. Any later use of the
        array is an error.

        Raises:
            ValueError: views, bound launches or other libraries share the memory.
            ClosedError: it was freed before.

        Example:
            >>> import aiodev
            >>> x = aiodev.ones(1000, device="cpu")
            >>> x.free()
            >>> try:
            ...     x.numpy_blocking()
            ... except aiodev.ClosedError as error:
            ...     print(error)
            the array of shape (1000,) and dtype float64, which was freed, is closed
        """
        others = sys.getrefcount(self._buffer) - 2  # our own, and the call's
        if others:
            raise ValueError(f"free: {others} more (views, bound launches, exports) use the memory of the {self._describe()}")
        self.__class__ = FreedArray
        for name in ("_buffer", "_address", "_packed"):
            with suppress(AttributeError):
                delattr(self, name)


class FreedArray(Array):
    """What :meth:`Array.free` leaves: nothing but a shape and a dtype."""

    __slots__ = ()

    def __getattr__(self, name: str) -> Any:
        if name in Array.__slots__:  # but its form
            raise ClosedError(f"the array of shape {self._form.shape} and dtype {self._form.dtype}, which was freed,")
        raise AttributeError(f"'Array' object has no attribute {name!r}")

    def __repr__(self) -> str:
        return f"<{self._describe()}>"

    def _describe(self) -> str:
        return f"aiodev.Array {self._form.shape} {self._form.dtype}, freed"


def _restore(host: np.ndarray[Any, DType], device: Device) -> Array:
    """The array of a pickle. Of memory that is not the host array's own, which others may write to, there is a copy."""
    try:
        stream = current_stream(device)
    except (BackendError, InvalidDeviceError):  # it was pickled on a machine with other devices
        stream = current_stream()
    array = allocate(host.shape, parse_dtype(host.dtype), stream)
    stream.copy(array, host.astype(array.dtype, copy=not host.flags.owndata))
    return array


_new = object.__new__


def view_of(array: Array, form: Form, offset: int = 0) -> Array:
    """A view of an array's memory, from ``offset`` bytes behind its first element."""
    view = _new(Array)
    view._buffer = array._buffer
    view._address = array._address + offset
    view._form = form
    view._packed = None
    return view


def make_array(
    buffer: Buffer, address: int, shape: Shape, dtype: DType, strides: Shape | None, writable: bool
) -> Array:
    """An array over a buffer; ``strides`` None for C order without gaps."""
    return array_of(buffer, address, form_of(buffer.source.device, dtype, shape, strides, writable))


def array_of(buffer: Buffer, address: int, form: Form) -> Array:
    """An array of a form over a buffer."""
    array = _new(Array)
    array._buffer = buffer
    array._address = address
    array._form = form
    array._packed = None
    return array


def fill_array(array: Array, stream: Stream, count: int, pattern: bytes) -> None:
    """Submit the repetition of a pattern, ``count`` times from the array's first byte on."""
    buffer, timeline = array._buffer, stream.timeline
    with Noting():
        try:
            buffer._record_write(timeline, stream._fill(array._address, count, pattern))
        except BaseException as error:
            record_torn(error, timeline, (buffer,))
            raise


class Allocation:
    """What ``allocate`` is: an object, so that native code can take the place of its method."""

    __slots__ = ()

    def __call__(self, shape: Shape, dtype: DType, stream: Stream) -> Array:
        """A fresh array, its elements not defined, for work that ``stream`` is given from now on.

        Raises:
            OutOfMemoryError: there is no room for it.
        """
        timeline, form = stream.timeline, form_of(stream.device, dtype, shape, None, True)
        buffer = allocator_of(timeline).allocate(form.size * form.itemsize, timeline)
        return array_of(buffer, buffer.address, form)

    _full_call = __call__


allocate = Allocation()
