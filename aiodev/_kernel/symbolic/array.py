"""Arrays of symbolic lengths: what a body sees of its operands and results in a trace; there is no memory."""

from __future__ import annotations

from collections.abc import Sequence
from types import EllipsisType
from typing import Any, NoReturn

from aiodev._array import layout
from aiodev._array.array import Array
from aiodev._array.dtypes import DType, parse_dtype
from aiodev._array.form import has_no_gaps
from aiodev._array.layout import Layout
from aiodev._core.backend.device import Device
from aiodev._kernel.symbolic.length import Length, NotSymbolic

__all__ = ["Memory", "SymbolicArray", "SymbolicForm", "checked"]

#: Of lengths and bytes: known, or not.
Size = int | Length
Sizes = tuple[Any, ...]


class Memory:
    """What stands for the buffer of an array.

    Attributes:
        source: has the device.
        origin: as :class:`aiodev._kernel.dispatch.repeated.Step` counts operands, results and scratch memory.
        nbytes: of scratch memory, how much there is.
    """

    __slots__ = ("nbytes", "origin", "source")

    def __init__(self, source: Any, origin: int, nbytes: Size = 0) -> None:
        self.source, self.origin, self.nbytes = source, origin, nbytes


class SymbolicForm:
    """As :class:`aiodev._array.form.Form`, of which it has what bodies ask for."""

    __slots__ = ("device", "dtype", "itemsize", "packed", "shape", "size", "strides", "writable")

    def __init__(self, device: Device, dtype: DType, shape: Sizes, strides: Sizes | None, writable: bool) -> None:
        self.device, self.dtype, self.itemsize = device, dtype, dtype.itemsize
        self.shape, self.writable = shape, writable
        self.packed = strides is None
        self.strides = layout.packed_strides(shape, dtype.itemsize) if strides is None else strides
        self.size: Any = 1
        for length in shape:
            self.size = self.size * length


class SymbolicArray(Array):
    """An array of symbolic lengths.

    Attributes:
        distance: how many bytes it lies behind the first element of what it is a view of. It has no address, so nothing that
            wants memory gets any.
    """

    __slots__ = ("distance",)

    distance: Any
    _buffer: Any
    _form: Any

    def __new__(cls, memory: Memory, distance: Size, form: SymbolicForm) -> SymbolicArray:
        array = object.__new__(cls)
        array._buffer, array.distance, array._form = memory, distance, form
        return array

    def __init__(self, *_: object) -> None:
        pass

    def __repr__(self) -> str:
        where = "scratch" if self._buffer.origin < 0 else f"operand {self._buffer.origin}"
        return f"<aiodev.SymbolicArray {self._form.shape} {self._form.dtype}, {self.distance} bytes behind {where}>"

    def _seen(self, shape: Sizes, strides: Sizes | None, behind: Any = 0, writable: bool = True) -> SymbolicArray:
        own = self._form
        if strides is not None and has_no_gaps(shape, strides, own.itemsize):
            strides = None
        form = SymbolicForm(own.device, own.dtype, shape, strides, writable and own.writable)
        return SymbolicArray(self._buffer, self.distance + behind, form)

    @property
    def address(self) -> NoReturn:
        raise NotSymbolic

    _address = address

    @property
    def mT(self) -> Array:
        """As of any array."""
        ndim = self.ndim
        return self.transpose(*range(ndim - 2), ndim - 1, ndim - 2)

    def _seen_from(self, distance: Size, shape: Sizes, strides: Sizes | None, dtype: DType) -> Array:
        form = SymbolicForm(self._form.device, dtype, shape, strides, True)
        return SymbolicArray(self._buffer, self.distance + distance, form)

    def _pack(self) -> NoReturn:
        raise NotSymbolic

    def astype(self, dtype: Any, *, copy: bool = True) -> SymbolicArray:
        """Itself, where it has that dtype."""
        if parse_dtype(dtype) != self.dtype:
            raise NotSymbolic
        return self

    def _plainly(self, what: str) -> NoReturn:
        raise NotSymbolic

    def _copied(self, device: Device) -> NoReturn:
        raise NotSymbolic

    def copy_from(self, src: Any) -> NoReturn:
        """There is nothing to copy to."""
        raise NotSymbolic

    def __aiodev_operation__(self, operation: Any, given: Sequence[Any]) -> NoReturn:
        """Another operation is none of the call's launches."""
        raise NotSymbolic

    def __reduce__(self) -> NoReturn:
        raise TypeError("a symbolic array belongs to its trace, and is not pickled or copied")

    # Views

    def __getitem__(self, index: Any) -> Array:
        items = index if isinstance(index, tuple) else (index,)
        used = sum([item is not None and item is not Ellipsis for item in items])
        parts: list[Any] = []
        offset: Any = 0
        axis = 0
        for item in items:
            if isinstance(item, slice):
                parts.append(_bounds(item, self._form.shape[axis]))
                axis += 1
            elif item is None or isinstance(item, EllipsisType):
                parts.append(item)
                axis += 0 if item is None else self.ndim - used
            elif isinstance(item, int | Length) and not isinstance(item, bool):
                offset = offset + _place(item, self._form.shape[axis]) * self._form.strides[axis]
                parts.append(0)
                axis += 1
            else:
                raise NotSymbolic
        shape, strides, skipped = layout.leave(self._form.shape, self._form.strides, parts)
        return self._seen(shape, strides, offset + skipped)

    def reshape(self, *shape: Any) -> Array:
        """As of any array."""
        given = shape[0] if len(shape) == 1 and isinstance(shape[0], tuple | list) else shape
        known: Any = 1
        for length in given:
            known = known if length == -1 else known * length
        lengths = tuple([self.size // known if length == -1 else length for length in given])
        return self._reshape(lengths)

    def _reshape(self, shape: tuple[Any, ...]) -> Array:
        seen = self._seen_as(shape)
        if seen is None:
            raise NotSymbolic
        return seen

    def _seen_as(self, shape: Sizes) -> Array | None:
        size: Any = 1
        for length in checked(shape):
            size = size * length
        if size != self.size:
            raise NotSymbolic
        form = self._form
        if form.packed:
            return self._seen(shape, None)
        strides = layout.reshape_strides.__wrapped__(Layout(form.shape, form.strides), shape, form.itemsize)
        return None if strides is None else self._seen(shape, strides)

    def transpose(self, *axes: Any) -> Array:
        """As of any array."""
        return self._transpose(axes)

    def _transpose(self, axes: tuple[Any, ...]) -> Array:
        form = self._form
        order = layout.transposition(len(form.shape), axes)
        return self._seen(*layout.permute(Layout(form.shape, form.strides), order))

    def _parsed(self, shape: Any) -> Sizes:
        return checked(tuple(shape))

    def _broadcast(self, shape: Sizes, strides: Sizes) -> Array:
        return self._seen(shape, strides, writable=False)


def checked(lengths: Sizes) -> Sizes:
    """Lengths that are 0 or more, for whatever meets the conditions; others are refused, which no plan does."""
    for length in lengths:
        if length < 0:
            raise NotSymbolic("a length cannot be negative")
    return lengths


def _bounds(item: slice, length: Size) -> tuple[Size, Size, int]:
    """As ``slice.indices``, of steps of 1."""
    if item.step is not None and item.step != 1:
        raise NotSymbolic
    start = 0 if item.start is None else _clipped(item.start, length)
    return start, length if item.stop is None else _clipped(item.stop, length), 1


def _clipped(place: Any, length: Any) -> Any:
    if place < 0:
        place = place + length
        return place if place > 0 else 0
    return place if place < length else length


def _place(place: Any, length: Any) -> Any:
    if not -length <= place < length:
        raise NotSymbolic
    return place + length if place < 0 else place
