"""Arrays and forms as native code sees them (:mod:`aiodev._native.objects`)."""

from __future__ import annotations

from aiodev._array import form
from aiodev._array.array import Array
from aiodev._array.form import Form
from aiodev._memory.views import BufferView
from aiodev._native.fields import Struct
from aiodev._native.objects import Bytes, Object, Tuple, slot

__all__ = ["KNOWN", "VIEWS", "ArrayView", "FormView", "KnownView"]


class FormView(Object):
    """A form."""

    device: int = slot(Form, "device")
    dtype: int = slot(Form, "dtype")
    shape: Tuple = slot(Form, "shape")
    strides: Tuple = slot(Form, "strides")
    packed: int = slot(Form, "packed")
    writable: int = slot(Form, "writable")
    itemsize: int = slot(Form, "itemsize")
    size: int = slot(Form, "size")
    key: int = slot(Form, "key")
    tail: int = slot(Form, "tail")


class ArrayView(Object):
    """An array."""

    form: FormView = slot(Array, "_form")
    start: int = slot(Array, "_address")  #: 0, as those that follow, of an array that was freed
    buffer: BufferView = slot(Array, "_buffer")
    packed: Bytes = slot(Array, "_packed")  #: or Python's None


class KnownView(Tuple):
    """Objects that are the same for all arrays, as a tuple has them."""

    none: int
    true: int
    false: int
    array_class: int
    form_class: int
    forms: int
    keys: int
    form_of: int
    int_class: int
    slice_class: int
    tuple_class: int
    ellipsis: int
    full_getitem: int
    full_reshape: int
    full_transpose: int
    full_exchanged: int
    full_broadcast_to: int
    full_call: int


#: In the order of :class:`KnownView`.
KNOWN = (
    None, True, False, Array, Form, form._forms, form._keys, form.form_of, int, slice, tuple, Ellipsis,
    "_full_getitem", "_full_reshape", "_full_transpose", "_full_exchanged", "_full_broadcast_to", "_full_call",
)  # fmt: skip
#: Whose offsets are in the code.
VIEWS: tuple[type[Struct], ...] = (FormView, ArrayView)
