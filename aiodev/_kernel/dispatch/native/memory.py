"""Allocation, of arrays and of buffers, and the end of buffers of device memory, as methods of their classes."""

from __future__ import annotations

from aiodev._array.native import UNKNOWN, known_form, new_array
from aiodev._kernel.dispatch.native.submit import allocator_of, call_attribute, known_objects
from aiodev._kernel.dispatch.states import BufferView, FormView, KnownView, StreamView
from aiodev._memory.native import allocate, release
from aiodev._native.compile import inner, method
from aiodev._native.fields import WORD, Cell
from aiodev._native.intrinsics import on_stack, product
from aiodev._native.objects import Object, Tuple, as_int, clear_error, decrement, increment, new_int

__all__ = ["allocate_array", "allocate_buffer", "release_buffer"]


@method
def allocate_buffer(own: Object, given: Cell[int], count: int, names: Tuple | None) -> int:
    """A buffer for work that a timeline is given from now on."""
    known = known_objects()
    is_usual = count == 2 and names is None and own.type == known.memory.allocator_class
    if is_usual and Object(given[1].value).type == known.int_class:
        return allocate(known.memory, own, given[1].value, given.value)
    return call_attribute(own, known.memory.allocate_slowly, given, count, names)


@method
def allocate_array(own: Object, given: Cell[int], count: int, names: Tuple | None) -> int:
    """A fresh array: of a shape, a dtype and a stream."""
    known = known_objects()
    array = UNKNOWN
    if count == 3 and names is None and Object(given.value).type == known.tuple_class:
        stream = StreamView(given[2].value)
        if stream.type == known.stream_class and stream.timeline != 0:
            form = FormView(known_form(known.arrays, stream.device, given[1].value, Tuple(given.value)))
            if form.address != 0:
                increment(form)
                array = _allocate_array(known, stream.device, stream.timeline, form)
                decrement(form)
    return array if array != UNKNOWN else call_attribute(own, known.arrays.full_call, given, count, names)


@inner
def _allocate_array(known: KnownView, device: int, timeline: int, form: FormView) -> int:
    """An array of a form; 0 with an exception."""
    overflow: Cell[int] = Cell(on_stack(WORD))
    overflow.value = 0
    size = as_int(form.size)
    if size < 0:  # it is more than a word holds
        clear_error()
        return UNKNOWN
    nbytes = new_int(product(size, as_int(form.itemsize), overflow))
    if nbytes == 0:
        return 0
    if overflow.value != 0:
        decrement(nbytes)
        return UNKNOWN
    increment(timeline)
    array = 0
    memory = allocator_of(known, device, timeline)
    if memory != 0:
        buffer = allocate(known.memory, Object(memory), timeline, nbytes)
        if buffer != 0:
            increment(form)
            start = BufferView(buffer).start
            increment(start)
            array = new_array(known.arrays, buffer, start, form.address)
        decrement(memory)
    decrement(timeline)
    decrement(nbytes)
    return array


@method
def release_buffer(own: BufferView, given: Cell[int], count: int, names: Tuple | None) -> int:
    """Cache the block, with the uses that are still running."""
    return release(known_objects().memory, own)
