"""Forms: all that there is to know of an array but where it lies, as one object.

**Problem.** A small array is made in a fraction of a microsecond, and so is a view of it; most of that time went into finding
out, again, what follows from its layout: which variant of a kernel takes it, what a kernel is told of its lengths and strides.

**How.** Arrays of one device, dtype, shape, strides and writability share a :class:`Form`, which a table has by these. It is
told from others by identity and hashes as any plain object, so it is the key of whatever follows from layouts. What a view
leaves of lengths and strides is computed each time, as a rule in native code (:mod:`aiodev._array.native`). That hides the
forms it makes from the collector, which would walk the whole table again and again: what a form refers to has no forms.

**Invariants.**

1.  A form never changes. So any thread may look.
2.  There may be two forms of the same content, since the table is bounded: when it is full, the oldest are forgotten. Who takes
    two forms for different layouts does more work than needed, never other.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from aiodev._array.dtypes import DType, row_of
from aiodev._array.layout import Shape, packed_strides
from aiodev._array.tuning import MOST_DIMENSIONS, MOST_FORMS
from aiodev._core.bounded_table import oldest

if TYPE_CHECKING:
    from aiodev._core.backend.device import Device

__all__ = ["Form", "Key", "form_of", "has_no_gaps"]


#: Lengths and distances are words of 64 bits, also where nothing lies there, as in a view of one element many times.
GREATEST_LENGTH = (1 << 63) - 1


class Key(tuple[Any, ...]):
    """What kernels are compiled for, (device, descriptor, writable), as one object, told from others by identity."""

    __slots__ = ()
    __hash__ = object.__hash__
    __eq__ = object.__eq__


_keys: dict[tuple[Any, ...], Key] = {}
#: By device, dtype, shape, strides, None where there are no gaps, and writability.
_forms: dict[tuple[Any, ...], Form] = {}
_packers: list[Callable[..., bytes]] = [struct.Struct(f"<{words}q").pack for words in range(66)]


class Form:
    """Device, dtype, shape, strides and writability of arrays.

    Attributes:
        strides: in bytes, of what is packed, too.
        size: how many elements it has.
        packed: whether the elements lie in C order without gaps.
    """

    __slots__ = ("device", "dtype", "itemsize", "key", "packed", "shape", "size", "strides", "tail", "writable")

    device: Device
    dtype: DType
    shape: Shape
    strides: Shape
    packed: bool
    writable: bool
    itemsize: int
    size: int
    key: Key  #: what kernels are compiled for
    tail: bytes | None  #: made when a kernel first asks

    def find_tail(self) -> bytes:
        """What a kernel is given behind the address: lengths, and strides where there are gaps."""
        words = self.shape if self.packed else self.shape + self.strides
        self.tail = tail = _packers[len(words)](*words)
        return tail

    def other(self, shape: Shape, strides: Shape, writable: bool = True) -> Form:
        """The form of a view."""
        given = None if has_no_gaps(shape, strides, self.itemsize) else strides
        return form_of(self.device, self.dtype, shape, given, writable and self.writable)

    def packed_to(self, shape: Shape) -> Form:
        """The form of packed elements in another shape."""
        return form_of(self.device, self.dtype, shape, None, self.writable)


def form_of(device: Device, dtype: DType, shape: Shape, strides: Shape | None, writable: bool) -> Form:
    """The form of an array; ``strides`` None for C order without gaps.

    Raises:
        ValueError: it has more dimensions, or a greater length, than arrays of NumPy have, which it could not be read into.
    """
    what = device, dtype, shape, strides, writable
    form = _forms.get(what)
    if form is not None:
        return form
    if shape and max(shape) > GREATEST_LENGTH and (strides is not None or 0 in shape):  # else there is no room for it
        raise ValueError(f"shape {shape}: the length {max(shape)} is no 64-bit number")
    made = _new(Form)
    made.device, made.dtype, made.shape = device, dtype, shape
    made.itemsize = itemsize = dtype.itemsize
    made.strides = packed_strides(shape, itemsize) if strides is None else strides
    made.packed, made.writable, made.size = strides is None, writable, math.prod(shape)
    made.tail = None
    made.key = _keys.get((device, dtype, len(shape), strides is None, writable)) or _make_key(made)
    if len(_forms) >= MOST_FORMS:
        _forget_oldest()
    return _forms.setdefault(what, made)


def _make_key(form: Form) -> Key:
    ndim = len(form.shape)
    if ndim > MOST_DIMENSIONS:
        raise ValueError(f"shape of {ndim} dimensions: an array has at most {MOST_DIMENSIONS}, as NumPy's have")
    made = Key((form.device, f"A{ndim}{row_of(form.dtype).code}{'C' if form.packed else 'A'}", form.writable))
    return _keys.setdefault((form.device, form.dtype, ndim, form.packed, form.writable), made)


def _forget_oldest() -> None:
    for what in oldest(_forms):
        _forms.pop(what, None)


def has_no_gaps(shape: Shape, strides: Shape, itemsize: int) -> bool:
    """As :func:`aiodev._array.layout.is_contiguous`, of what was not seen before."""
    expected = itemsize
    for place in range(len(shape) - 1, -1, -1):
        length = shape[place]
        if length != 1:
            if strides[place] != expected:
                return 0 in shape
            expected *= length
    return True


_new = object.__new__
