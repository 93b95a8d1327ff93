"""Forms: all that there is to know of an array but where it lies, as one object.

**Problem.** A small array is made in a fraction of a microsecond, and so is a view of it; most of that time went into finding
out, again, what follows from its layout: what an index leaves of it, which variant of a kernel takes it, what a kernel is told
of its lengths and strides.

**How.** Arrays of one device, dtype, shape, strides and writability share a :class:`Form`. It is told from others by identity
and hashes as any plain object, so it is the key of whatever follows from layouts. It remembers the forms of its views, by what
the index, the lengths or the axes say: to index an array in a way that was seen before is one look into a dictionary.

**Invariants.**

1.  A form never changes but by what it remembers, and that follows from the form and the key. So any thread may look, and
    two that find out the same at once enter the same.
2.  There may be two forms of the same content, since the table is bounded: when it is full, or when forms remember too much
    together, the oldest are forgotten, and forget. Who takes two forms for different layouts does more work than needed, never
    other.
3.  A form that was forgotten remembers nothing any more; an array that has one gets the new one when it is asked for what is
    not remembered. So what is remembered is bounded, however many arrays live how long.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from aiodev._array.dtypes import DType, row_of
from aiodev._array.layout import Shape, packed_strides
from aiodev._array.tuning import MOST_FORMS, MOST_VIEWS
from aiodev._core.bounded_table import oldest

if TYPE_CHECKING:
    from aiodev._core.backend.device import Device

__all__ = ["Form", "Key", "form_of", "has_no_gaps"]


class Key(tuple[Any, ...]):
    """What kernels are compiled for, (device, descriptor, writable), as one object, told from others by identity."""

    __slots__ = ()
    __hash__ = object.__hash__
    __eq__ = object.__eq__


_keys: dict[tuple[Any, ...], Key] = {}
#: By device and dtype, shape, strides and writability. Of the first two, which the form keeps, it is the identities: the
#: collector does not walk tuples of numbers.
_forms: dict[tuple[Any, ...], Form] = {}
#: Views that all forms remember together.
_remembered = 0
#: What a form remembers before there is anything: never written to.
_NOTHING: dict[Any, Any] = {}
_packers: list[Callable[..., bytes]] = [struct.Struct(f"<{words}q").pack for words in range(66)]


class Form:
    """Device, dtype, shape, strides and writability of arrays.

    Attributes:
        strides: in bytes, of what is packed, too.
        size: how many elements it has.
        packed: whether the elements lie in C order without gaps.
        views: by what :meth:`read_index` makes of an index, the form of the view and the bytes before it.
        shapes: by lengths, the form of the array that is reshaped to these: of a view, or where no strides show that of a copy,
            which is packed where this form is not.
        orders: by axes, the form of the array that is transposed so.
    """

    __slots__ = (
        "device", "dtype", "is_known", "itemsize", "key", "orders", "packed", "shape", "shapes", "size", "strides",
        "tail", "views", "writable",
    )  # fmt: skip

    device: Device
    dtype: DType
    shape: Shape
    strides: Shape
    packed: bool
    writable: bool
    itemsize: int
    size: int
    is_known: bool  #: in the table
    key: Key  #: what kernels are compiled for
    tail: bytes | None  #: made when a kernel first asks
    views: dict[Any, tuple[Form, int]]
    shapes: dict[Any, Form]
    orders: dict[Any, Form]

    def find_tail(self) -> bytes:
        """What a kernel is given behind the address: lengths, and strides where there are gaps."""
        words = self.shape if self.packed else self.shape + self.strides
        self.tail = tail = _packers[len(words)](*words)
        return tail

    def read_index(self, index: tuple[Any, ...]) -> tuple[tuple[Any, ...], int] | None:
        """The key of a view, and the bytes that integers skip; None for what is no plain index.

        The key is what an index says of each dimension: the bounds of a slice as that length has them, 0 for an integer, None
        and ``...`` as they are. So all rows of an array have one key, and what only equals an index, such as 1.0 and True, is
        not taken for it.

        Raises:
            IndexError, TypeError, ValueError: it is none, which the parser says better.
        """
        shape, parts, axis, distance = self.shape, [], 0, 0
        for item in index:
            kind = item.__class__
            if kind is slice:
                parts.append(item.indices(shape[axis]))
                axis += 1
            elif kind is int:
                length = shape[axis]
                if not -length <= item < length:
                    return None
                distance += (item if item >= 0 else item + length) * self.strides[axis]
                parts.append(0)
                axis += 1
            elif item is None:
                parts.append(None)
            elif item is Ellipsis:
                later = index[len(parts) + 1 :]
                axis = sum([other is None for other in later]) - len(later)  # from the end
                parts.append(item)
            else:
                return None
        return tuple(parts), distance

    def other(self, shape: Shape, strides: Shape, writable: bool = True) -> Form:
        """The form of a view."""
        given = None if has_no_gaps(shape, strides, self.itemsize) else strides
        return form_of(self.device, self.dtype, shape, given, writable and self.writable)

    def packed_to(self, shape: Shape) -> Form:
        """The form of packed elements in another shape."""
        return form_of(self.device, self.dtype, shape, None, self.writable)

    def again(self) -> Form:
        """This form, or if it was forgotten the one that has its place."""
        if self.is_known:
            return self
        return form_of(self.device, self.dtype, self.shape, None if self.packed else self.strides, self.writable)

    def keep_view(self, key: Any, form: Form, offset: int) -> None:
        """Remember what an index leaves."""
        if self._has_room():
            if self.views is _NOTHING:
                self.views = {}
            self.views[key] = form, offset

    def keep_shape(self, key: Any, form: Form) -> None:
        """Remember the form of what is reshaped."""
        if self._has_room():
            if self.shapes is _NOTHING:
                self.shapes = {}
            self.shapes[key] = form

    def keep_order(self, key: Any, form: Form) -> None:
        """Remember the form of what is transposed."""
        if self._has_room():
            if self.orders is _NOTHING:
                self.orders = {}
            self.orders[key] = form

    def _has_room(self) -> bool:
        global _remembered
        while self.is_known and _remembered >= MOST_VIEWS:
            _forget_oldest()
        _remembered += self.is_known
        return self.is_known


def form_of(device: Device, dtype: DType, shape: Shape, strides: Shape | None, writable: bool) -> Form:
    """The form of an array; ``strides`` None for C order without gaps."""
    what = id(device), id(dtype), shape, strides, writable
    form = _forms.get(what)
    if form is not None:
        return form
    made = _new(Form)
    made.device, made.dtype, made.shape = device, dtype, shape
    made.itemsize = itemsize = dtype.itemsize
    made.strides = packed_strides(shape, itemsize) if strides is None else strides
    made.packed, made.writable, made.size = strides is None, writable, math.prod(shape)
    made.tail = None
    made.key = _keys.get((device, dtype, len(shape), strides is None, writable)) or _make_key(made)
    made.views = made.shapes = made.orders = _NOTHING
    made.is_known = True
    if len(_forms) >= MOST_FORMS:
        _forget_oldest()
    return _forms.setdefault(what, made)


def _make_key(form: Form) -> Key:
    ndim = len(form.shape)
    made = Key((form.device, f"A{ndim}{row_of(form.dtype).code}{'C' if form.packed else 'A'}", form.writable))
    return _keys.setdefault((form.device, form.dtype, ndim, form.packed, form.writable), made)


def _forget_oldest() -> None:
    """Forget some forms; they must not remember anything more, since nobody would have them forget that."""
    global _remembered
    for what in oldest(_forms):
        form = _forms.pop(what, None)
        if form is not None:
            form.is_known = False
            _remembered -= len(form.views) + len(form.shapes) + len(form.orders)
            form.views = form.shapes = form.orders = _NOTHING
    if not _forms:
        _remembered = 0  # what threads have found out at once was counted twice


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
