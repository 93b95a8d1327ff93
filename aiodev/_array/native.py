"""Forms, arrays and views made in native code, by the rules of :mod:`aiodev._array.form` and :mod:`aiodev._array.layout`.

What an index, lengths or axes leave of lengths and strides is computed in words on the stack; the form of these comes from the
table, or is made. What is no plain index, fits no word or is wrong is left to the functions of Python, which are complete.

Nothing that is called may run Python's code but where a form is looked for, since a collection may come there: an array's form
is read before that, its memory behind it.
"""

from __future__ import annotations

from aiodev._array.tuning import MOST_DIMENSIONS, MOST_FORMS
from aiodev._array.views import ArrayView, FormView, KnownView
from aiodev._memory.views import BufferView
from aiodev._native.compile import inner
from aiodev._native.fields import WORD, Cell
from aiodev._native.intrinsics import on_stack, product, total
from aiodev._native.objects import (
    Bytes,
    Object,
    Slice,
    Tuple,
    adjust_bounds,
    allocate_object,
    as_int,
    call,
    clear_error,
    decrement,
    dict_default,
    dict_item,
    dict_length,
    error_is_set,
    increment,
    new_int,
    new_tuple,
    read_bounds,
    untrack,
)

__all__ = [
    "UNKNOWN", "broadcast", "exchange", "find_form", "find_packed_form", "index", "known_form",
    "new_array", "reshape", "transpose",
]  # fmt: skip

#: What stands for a view that Python is to make, or to refuse: no address.
UNKNOWN = 1
#: What stands for a number of dimensions, of what is not known here.
_NONE = -1
#: The step of a slice that may have said a longer one.
_FARTHEST = (1 << 63) - 1


@inner
def index(known: KnownView, array: ArrayView, item: Object) -> int:
    """A view by integers, slices, ``...`` and None; 0 with an exception."""
    form = array.form
    if form.address == 0:
        return UNKNOWN
    lengths: Cell[int] = Cell(on_stack(WORD * MOST_DIMENSIONS))
    strides: Cell[int] = Cell(on_stack(WORD * MOST_DIMENSIONS))
    offset: Cell[int] = Cell(on_stack(WORD))
    ndim = _leave(known, form, item, lengths, strides, offset)
    return _view(known, array, ndim, lengths, strides, offset.value, form.writable)


@inner
def _leave(known: KnownView, form: FormView, item: Object, lengths: Cell[int], strides: Cell[int], offset: Cell[int]) -> int:
    """What an index leaves of a form, and the bytes that it skips; how many dimensions that are."""
    count = 1
    only: Cell[int] = Cell(on_stack(WORD))
    only.value = item.address
    items = only
    if item.type == known.tuple_class:
        count = Tuple(item.address).length
        items = Tuple(item.address).items
    ndim = form.shape.length
    used = count
    for place in range(count):
        if items[place].value == known.none or items[place].value == known.ellipsis:
            used -= 1
    if used > ndim or ndim + count > MOST_DIMENSIONS:
        return _NONE
    overflow: Cell[int] = Cell(on_stack(WORD))
    overflow.value = 0
    dots = 0
    skipped = 0
    axis = 0
    left = 0
    for place in range(count):
        part = Object(items[place].value)
        if part.address == known.none:
            lengths[left].value = 1
            strides[left].value = 0
            left += 1
        elif part.address == known.ellipsis:
            dots += 1
            if dots > 1:
                return _NONE
            for _ in range(ndim - used):
                lengths[left].value = _word(form.shape.items[axis].value, overflow)
                strides[left].value = _word(form.strides.items[axis].value, overflow)
                left += 1
                axis += 1
        else:
            length = _word(form.shape.items[axis].value, overflow)
            stride = _word(form.strides.items[axis].value, overflow)
            axis += 1
            if part.type == known.int_class:
                number = _word(part.address, overflow)
                if number < 0:
                    number += length
                if number < 0 or number >= length:
                    return _NONE
                skipped = total(skipped, product(number, stride, overflow), overflow)
            elif part.type == known.slice_class:
                length = _cut(known, Slice(part.address), length, stride, strides[left], offset, overflow)
                if length > 0:
                    skipped = total(skipped, offset.value, overflow)
                lengths[left].value = length
                left += 1
            else:
                return _NONE
    for rest in range(axis, ndim):
        lengths[left].value = _word(form.shape.items[rest].value, overflow)
        strides[left].value = _word(form.strides.items[rest].value, overflow)
        left += 1
    offset.value = skipped
    return left if overflow.value == 0 else _NONE


@inner
def _cut(
    known: KnownView, part: Slice, length: int, stride: int, new_stride: Cell[int], offset: Cell[int], overflow: Cell[int]
) -> int:
    """What a slice leaves of a length, the stride of that, and the bytes before; what is no plain slice overflows."""
    if not (_is_bound(known, part.start) and _is_bound(known, part.stop) and _is_bound(known, part.step)):
        overflow.value = 1
        return 0
    bounds: Cell[int] = Cell(on_stack(WORD * 3))
    if read_bounds(part, bounds, bounds[1], bounds[2]) != 0:
        clear_error()
        overflow.value = 1
        return 0
    step = bounds[2].value
    if step == _FARTHEST or step == -_FARTHEST:
        overflow.value = 1
    count = adjust_bounds(length, bounds, bounds[1], step)
    offset.value = 0
    if count > 0:
        offset.value = product(bounds.value, stride, overflow)
    new_stride.value = product(stride, step, overflow)
    return count


@inner
def _is_bound(known: KnownView, bound: int) -> int:
    """Whether this is what a plain slice has: None, or an int, which is read without Python's code."""
    return bound == known.none or Object(bound).type == known.int_class


@inner
def reshape(known: KnownView, array: ArrayView, given: Cell[int], count: int) -> int:
    """The same elements in C order in another shape; 0 with an exception. Where strides cannot express it, Python copies."""
    form = array.form
    if form.address == 0:
        return UNKNOWN
    lengths: Cell[int] = Cell(on_stack(WORD * MOST_DIMENSIONS))
    strides: Cell[int] = Cell(on_stack(WORD * MOST_DIMENSIONS))
    ndim = _read_integers(known, given, count, lengths)
    if ndim == _NONE:
        return UNKNOWN
    overflow: Cell[int] = Cell(on_stack(WORD))
    overflow.value = 0
    size = _word(form.size, overflow)
    missing = _NONE
    elements = 1
    for axis in range(ndim):
        length = lengths[axis].value
        if length >= 0:
            elements = product(elements, length, overflow)
        elif length == -1 and missing == _NONE:
            missing = axis
        else:
            return UNKNOWN
    if missing != _NONE and elements != 0:
        lengths[missing].value = size // elements
        elements = product(elements, lengths[missing].value, overflow)
        missing = _NONE
    if missing != _NONE or elements != size or overflow.value != 0:
        return UNKNOWN
    if form.packed == known.true or size == 0:
        _pack(_word(form.itemsize, overflow), ndim, lengths, strides, overflow)
    else:
        _reshape_strides(form, ndim, lengths, strides, overflow)
    if overflow.value != 0:
        return UNKNOWN
    return _view(known, array, ndim, lengths, strides, 0, form.writable)


@inner
def _pack(step: int, ndim: int, lengths: Cell[int], strides: Cell[int], overflow: Cell[int]) -> None:
    """Strides of rows after rows, whose elements are so many bytes apart."""
    for behind in range(ndim):
        axis = ndim - 1 - behind
        strides[axis].value = step
        step = product(step, max(lengths[axis].value, 1), overflow)


@inner
def _reshape_strides(form: FormView, ndim: int, lengths: Cell[int], strides: Cell[int], overflow: Cell[int]) -> None:
    """As ``reshape_strides``, for as many elements; where no strides show them, that overflows."""
    old_lengths: Cell[int] = Cell(on_stack(WORD * MOST_DIMENSIONS))
    old_strides: Cell[int] = Cell(on_stack(WORD * MOST_DIMENSIONS))
    if form.shape.length > MOST_DIMENSIONS:
        overflow.value = 1
        return
    count = 0
    for axis in range(form.shape.length):
        length = _word(form.shape.items[axis].value, overflow)
        if length != 1:
            old_lengths[count].value = length
            old_strides[count].value = _word(form.strides.items[axis].value, overflow)
            count += 1
    last = _word(form.itemsize, overflow)
    old = 0
    new = 0
    while old < count and new < ndim and overflow.value == 0:
        begin = new
        have = old_lengths[old].value
        want = lengths[new].value
        while have != want:
            if have < want:
                old += 1
                have *= old_lengths[old].value
                if old_strides[old - 1].value != product(old_lengths[old].value, old_strides[old].value, overflow):
                    overflow.value = 1
            else:
                new += 1
                want *= lengths[new].value
        new += 1
        _pack(old_strides[old].value, new - begin, lengths[begin], strides[begin], overflow)
        last = strides[new - 1].value
        old += 1
    while new < ndim:
        strides[new].value = last
        new += 1


@inner
def transpose(known: KnownView, array: ArrayView, given: Cell[int], count: int) -> int:
    """The dimensions in another order, reversed by default; 0 with an exception."""
    form = array.form
    if form.address == 0 or form.shape.length > MOST_DIMENSIONS:
        return UNKNOWN
    ndim = form.shape.length
    axes: Cell[int] = Cell(on_stack(WORD * MOST_DIMENSIONS))
    lengths: Cell[int] = Cell(on_stack(WORD * MOST_DIMENSIONS))
    strides: Cell[int] = Cell(on_stack(WORD * MOST_DIMENSIONS))
    overflow: Cell[int] = Cell(on_stack(WORD))
    overflow.value = 0
    if count != 0 and _read_integers(known, given, count, axes) != ndim:
        return UNKNOWN
    seen = 0
    for place in range(ndim):
        axis = ndim - 1 - place
        if count != 0:
            axis = axes[place].value
            if axis < 0:
                axis += ndim
        if axis < 0 or axis >= ndim or (seen >> axis) & 1 != 0:
            return UNKNOWN
        seen |= 1 << axis
        lengths[place].value = _word(form.shape.items[axis].value, overflow)
        strides[place].value = _word(form.strides.items[axis].value, overflow)
    if overflow.value != 0:
        return UNKNOWN
    return _view(known, array, ndim, lengths, strides, 0, form.writable)


@inner
def exchange(known: KnownView, array: ArrayView) -> int:
    """The last two dimensions exchanged; 0 with an exception."""
    form = array.form
    if form.address == 0 or form.shape.length < 2 or form.shape.length > MOST_DIMENSIONS:
        return UNKNOWN
    ndim = form.shape.length
    lengths: Cell[int] = Cell(on_stack(WORD * MOST_DIMENSIONS))
    strides: Cell[int] = Cell(on_stack(WORD * MOST_DIMENSIONS))
    overflow: Cell[int] = Cell(on_stack(WORD))
    overflow.value = 0
    for axis in range(ndim):
        place = axis
        if axis >= ndim - 2:
            place = 2 * ndim - 3 - axis
        lengths[place].value = _word(form.shape.items[axis].value, overflow)
        strides[place].value = _word(form.strides.items[axis].value, overflow)
    if overflow.value != 0:
        return UNKNOWN
    return _view(known, array, ndim, lengths, strides, 0, form.writable)


@inner
def broadcast(known: KnownView, array: ArrayView, given: Cell[int]) -> int:
    """A read-only view in which dimensions of length 1, and new ones, are repeated to a shape; 0 with an exception."""
    form = array.form
    if form.address == 0 or Object(given.value).type != known.tuple_class:
        return UNKNOWN
    lengths: Cell[int] = Cell(on_stack(WORD * MOST_DIMENSIONS))
    strides: Cell[int] = Cell(on_stack(WORD * MOST_DIMENSIONS))
    ndim = _read_integers(known, given, 1, lengths)
    fill = ndim - form.shape.length
    if ndim == _NONE or fill < 0:
        return UNKNOWN
    overflow: Cell[int] = Cell(on_stack(WORD))
    overflow.value = 0
    for axis in range(ndim):
        length = 1
        stride = 0
        if axis >= fill:
            length = _word(form.shape.items[axis - fill].value, overflow)
            stride = _word(form.strides.items[axis - fill].value, overflow)
        if length != lengths[axis].value:
            if length != 1 or lengths[axis].value < 0:
                return UNKNOWN
            stride = 0
        strides[axis].value = stride
    if overflow.value != 0:
        return UNKNOWN
    return _view(known, array, ndim, lengths, strides, 0, known.false)


@inner
def _read_integers(known: KnownView, given: Cell[int], count: int, integers: Cell[int]) -> int:
    """Plain ints, as they are or as one tuple; how many they are, unless there are others."""
    items = given
    if count == 1 and Object(given.value).type == known.tuple_class:
        count = Tuple(given.value).length
        items = Tuple(given.value).items
    if count > MOST_DIMENSIONS:
        return _NONE
    overflow: Cell[int] = Cell(on_stack(WORD))
    overflow.value = 0
    for place in range(count):
        if Object(items[place].value).type != known.int_class:
            return _NONE
        integers[place].value = _word(items[place].value, overflow)
    return count if overflow.value == 0 else _NONE


@inner
def _word(value: int, overflow: Cell[int]) -> int:
    """An int as a word; if it is none, the word ``overflow`` is no longer 0."""
    word = as_int(value)
    if word == -1 and error_is_set() != 0:
        clear_error()
        overflow.value = 1
    return word


@inner
def _view(
    known: KnownView, array: ArrayView, ndim: int, lengths: Cell[int], strides: Cell[int], offset: int, writable: int
) -> int:
    """A view of these lengths and strides, so many bytes behind the array's first element; 0 with an exception."""
    if ndim == _NONE:
        return UNKNOWN
    form = find_form(known, array.form, ndim, lengths, strides, writable)
    if form == 0:
        return 0
    buffer = array.buffer.address
    overflow: Cell[int] = Cell(on_stack(WORD))
    overflow.value = 0
    start = array.start
    place = 0
    if start != 0:
        place = total(_word(start, overflow), offset, overflow)
    if buffer == 0 or start == 0 or overflow.value != 0:  # it was freed
        decrement(form)
        return UNKNOWN
    if offset == 0:
        increment(start)
    else:
        start = new_int(place)
        if start == 0:
            decrement(form)
            return 0
    increment(buffer)
    return new_array(known, buffer, start, form)


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
def known_form(known: KnownView, device: int, dtype: int, shape: Tuple) -> int:
    """The form of a fresh array, borrowed; 0 where there is none yet."""
    what = _what(device, dtype, shape.address, known.none, known.true)
    if what == 0:
        clear_error()
        return 0
    form = dict_item(known.forms, what)
    decrement(what)
    if form == 0:
        clear_error()  # what is no tuple of ints may be no key
    return form


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
    untrack(made)
    return made


@inner
def _find(known: KnownView, like: FormView, shape: int, steps: int, writable: int) -> int:
    """A form from the table, or one that is made and entered there; strides None for no gaps."""
    what = _what(like.device, like.dtype, shape, steps, writable)
    if what == 0:
        return 0
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
def _what(device: int, dtype: int, shape: int, steps: int, writable: int) -> int:
    """What a form is found by in the table, a new tuple; 0 with an exception."""
    what = new_tuple(5)
    if what == 0:
        return 0
    items = Tuple(what).items
    increment(device)
    increment(dtype)
    increment(shape)
    increment(steps)
    increment(writable)
    items.value = device
    items[1].value = dtype
    items[2].value = shape
    items[3].value = steps
    items[4].value = writable
    untrack(what)
    return what


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
    form.key = key
    form.tail = known.none
    increment(packed)
    increment(like.device)
    increment(like.dtype)
    increment(shape)
    increment(writable)
    increment(like.itemsize)
    increment(key)
    increment(known.none)
    untrack(form)  # what it refers to knows no forms; the collector would walk all that there are, again and again
    return form.address
