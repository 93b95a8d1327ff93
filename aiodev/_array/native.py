"""Forms and arrays made in native code, by the rules of :mod:`aiodev._array.form`."""

from __future__ import annotations

from aiodev._array.tuning import MOST_FORMS
from aiodev._array.views import ArrayView, FormView, KnownView
from aiodev._memory.views import BufferView
from aiodev._native.compile import inner
from aiodev._native.fields import WORD, Cell
from aiodev._native.intrinsics import on_stack, product
from aiodev._native.objects import (
    Bytes,
    Tuple,
    allocate_object,
    as_int,
    call,
    clear_error,
    decrement,
    dict_default,
    dict_item,
    dict_length,
    increment,
    new_int,
    new_tuple,
)

__all__ = ["MOST_DIMENSIONS", "find_form", "find_packed_form", "new_array"]

#: Of arrays that native code makes; as many as NumPy's have.
MOST_DIMENSIONS = 64


@inner
def new_array(known: KnownView, buffer: int, start: int, form: int) -> int:
    """An array; takes the references to what it is made of, an int the address. 0 with an exception."""
    array = ArrayView(allocate_object(known.array_class, 0))
    if array.address == 0:
        decrement(buffer)
        decrement(start)
        decrement(form)
        return 0
    increment(known.none)
    array.buffer = BufferView(buffer)
    array.start = start
    array.form = FormView(form)
    array.packed = Bytes(known.none)
    return array.address


@inner
def find_form(known: KnownView, like: FormView, ndim: int, lengths: Cell[int], strides: Cell[int], writable: int) -> int:
    """The form of these lengths and strides, with the device and dtype of another one; a new reference, 0 with an exception.

    ``writable`` is a truth value. As of any array, strides of what is empty, or of a single element, need not be as they say.
    """
    increment(like)
    form = 0
    shape = _tuple_of(lengths, ndim)
    if shape != 0:
        packed = _has_no_gaps(as_int(like.itemsize), ndim, lengths, strides)
        steps = known.none
        if packed:
            increment(steps)
        else:
            steps = _tuple_of(strides, ndim)
        if steps != 0:
            form = _find(known, like, shape, steps, writable)
            decrement(steps)
        decrement(shape)
    decrement(like)
    return form


@inner
def find_packed_form(known: KnownView, like: FormView, ndim: int, lengths: Cell[int]) -> int:
    """The form of packed elements that has these lengths, all else as another one; a new reference, 0 with an exception."""
    increment(like)
    form = 0
    shape = _tuple_of(lengths, ndim)
    if shape != 0:
        form = _find(known, like, shape, known.none, like.writable)
        decrement(shape)
    decrement(like)
    return form


@inner
def _has_no_gaps(itemsize: int, ndim: int, lengths: Cell[int], strides: Cell[int]) -> int:
    """As of :mod:`aiodev._array.form`; what is empty has none."""
    for axis in range(ndim):
        if lengths[axis].value == 0:
            return 1
    expected = itemsize
    for behind in range(ndim):
        axis = ndim - 1 - behind
        length = lengths[axis].value
        if length != 1:
            if strides[axis].value != expected:
                return 0
            expected *= length
    return 1


@inner
def _tuple_of(values: Cell[int], count: int) -> int:
    """A new tuple of ints; 0 with an exception."""
    made = new_tuple(count)
    if made == 0:
        return 0
    for number in range(count):
        value = new_int(values[number].value)
        if value == 0:
            decrement(made)
            return 0
        Tuple(made).items[number].value = value
    return made


@inner
def _find(known: KnownView, like: FormView, shape: int, steps: int, writable: int) -> int:
    """A form from the table, or one that is made and entered there; strides None for no gaps."""
    what = new_tuple(5)
    if what == 0:
        return 0
    items = Tuple(what).items
    device = new_int(like.device)
    dtype = new_int(like.dtype)
    if device == 0 or dtype == 0:  # small memory: those that are there go, with nothing entered
        if device != 0:
            decrement(device)
        decrement(what)
        return 0
    increment(shape)
    increment(steps)
    increment(writable)
    items.value = device
    items[1].value = dtype
    items[2].value = shape
    items[3].value = steps
    items[4].value = writable
    form = dict_item(known.forms, what)
    if form != 0:
        increment(form)
    else:
        key = _key_of(known, like, Tuple(shape).length, steps, writable)
        if key != 0 and dict_length(known.forms) < MOST_FORMS:
            made = _make_form(known, like, Tuple(shape), steps, writable, key)
            if made != 0:
                form = dict_default(known.forms, what, made)
                if form != 0:
                    increment(form)
                decrement(made)
        else:
            form = _ask_python(known, like, shape, steps, writable)
    decrement(what)
    return form


@inner
def _key_of(known: KnownView, like: FormView, ndim: int, steps: int, writable: int) -> int:
    """The key of a form, borrowed; 0 where there is none yet."""
    packed = known.true if steps == known.none else known.false
    if like.shape.length == ndim and like.packed == packed and like.writable == writable:
        return like.key
    what = new_tuple(5)
    if what == 0:
        clear_error()
        return 0
    items = Tuple(what).items
    increment(like.device)
    increment(like.dtype)
    increment(packed)
    increment(writable)
    items.value = like.device
    items[1].value = like.dtype
    items[2].value = new_int(ndim)  # small ones are always there
    items[3].value = packed
    items[4].value = writable
    key = dict_item(known.keys, what)
    decrement(what)
    return key


@inner
def _ask_python(known: KnownView, like: FormView, shape: int, steps: int, writable: int) -> int:
    """As ``form_of``."""
    words: Cell[int] = Cell(on_stack(WORD * 5))
    words.value = like.device
    words[1].value = like.dtype
    words[2].value = shape
    words[3].value = steps
    words[4].value = writable
    return call(known.form_of, words, 5, 0)


@inner
def _make_form(known: KnownView, like: FormView, shape: Tuple, steps: int, writable: int, key: int) -> int:
    """A new form, which is in no table; 0 with an exception."""
    ndim = shape.length
    overflow: Cell[int] = Cell(on_stack(WORD))
    overflow.value = 0
    strides: Cell[int] = Cell(on_stack(WORD * MOST_DIMENSIONS))
    size = 1
    stride = as_int(like.itemsize)
    for behind in range(ndim):
        axis = ndim - 1 - behind
        length = as_int(shape.items[axis].value)
        strides[axis].value = stride
        size = product(size, length, overflow)
        stride = product(stride, length if length != 0 else 1, overflow)
    if overflow.value != 0:  # nothing, or one element that is seen very often
        return _ask_python(known, like, shape.address, steps, writable)
    packed = known.false
    if steps == known.none:
        packed = known.true
        steps = _tuple_of(strides, ndim)
    else:
        increment(steps)
    number = new_int(size)
    form = FormView(0)
    if steps != 0 and number != 0:
        form = FormView(allocate_object(known.form_class, 0))
    if form.address == 0:
        if steps != 0:
            decrement(steps)
        if number != 0:
            decrement(number)
        return 0
    form.strides = Tuple(steps)
    form.size = number
    form.packed = packed
    form.device = like.device
    form.dtype = like.dtype
    form.shape = shape
    form.writable = writable
    form.itemsize = like.itemsize
    form.is_known = known.true
    form.key = key
    form.tail = known.none
    form.views = known.nothing
    form.shapes = known.nothing
    form.orders = known.nothing
    increment(packed)
    increment(like.device)
    increment(like.dtype)
    increment(shape)
    increment(writable)
    increment(like.itemsize)
    increment(known.true)
    increment(key)
    increment(known.none)
    increment(known.nothing)
    increment(known.nothing)
    increment(known.nothing)
    return form.address
