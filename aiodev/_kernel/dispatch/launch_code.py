"""The call functions of kernels, in native code: every launch but the first ones passes here.

They do what a call needs that was made before with arguments of these types: find it among the branches, pack the arguments,
submit, note the use of the buffers, and make a completion. What they do not know, and what cannot be, goes to the slow
function, which checks everything and says what is wrong.

**Invariants.**

1.  What is not an argument, nor kept by one, is referred to while C functions are called that may run Python's code: branches,
    stream, timeline.
2.  A word of a buffer is written by the same rules as there: no call comes between the last look at it and the store.
3.  Where an exception arrives behind a submission, the buffers are noted as used before it goes on.
"""

from __future__ import annotations

from aiodev._kernel.dispatch.launch_state import (
    MOST_PARAMETERS,
    ArrayView,
    Bound,
    BoundCallView,
    BranchView,
    BufferView,
    CompletionView,
    FrameView,
    KernelCallView,
    KnownView,
    PlanView,
    StreamView,
    UsesView,
)
from aiodev._native.compile import inner, method
from aiodev._native.fields import WORD, Cell
from aiodev._native.intrinsics import copy_memory, on_stack
from aiodev._native.objects import (
    Bytes,
    Object,
    Tuple,
    allocate_object,
    as_int,
    call,
    call_method,
    clear_error,
    decrement,
    dict_item,
    fetch_error,
    frame_code,
    frame_offset,
    increment,
    is_subclass,
    new_bytes,
    new_int,
    normalize_error,
    read_context,
    restore_error,
    running_frame,
    show_error,
)

__all__ = ["launch_bound", "launch_kernel"]

#: What stands for a result where a launch is not known: no address.
_UNKNOWN = 1
_MOST_DIMENSIONS = 3
#: Bytes on the stack: for all arguments; for all arguments, and some words before them.
_ARGUMENTS, _CALL = WORD * MOST_PARAMETERS, WORD * (MOST_PARAMETERS + 4)


@method
def launch_kernel(own: KernelCallView, given: Cell[int], count: int, names: Tuple | None) -> int:
    """Launch a kernel: a configuration, and its arguments."""
    branches = own.branches
    arguments: Cell[int] = Cell(on_stack(_ARGUMENTS))
    if branches.length != 0 and _complete(own, given[1], count - 1, names, arguments):
        increment(branches)
        result = _launch(own, branches, Object(given.value), arguments)
        decrement(branches)
        if result != _UNKNOWN:
            return result
    return call(own.slow, given, count, names)


@method
def launch_bound(own: BoundCallView, given: Cell[int], count: int, names: Tuple | None) -> int:
    """Launch what is bound to its arguments."""
    if count != 0 or names is not None:
        return call(own.known.refuse_arguments, given, count, names)
    site = _find_site(own.known)
    if site == 0:
        return 0
    buffers = own.buffers
    done = _submit(own.known, own.stream, own.entry, own.size, own.block, site, own.uses, buffers.items, buffers.length)
    decrement(site)
    return done


@inner
def _complete(own: KernelCallView, given: Cell[int], count: int, names: Tuple | None, arguments: Cell[int]) -> int:
    """Put the arguments in the order of the parameters; 0 where they are not what these are called with."""
    expected = own.names.length
    if count > expected:
        return 0
    for place in range(count):
        arguments[place].value = given[place].value
    for place in range(count, expected):
        arguments[place].value = own.defaults.items[place].value
    if names is not None:
        for number in range(names.length):
            place = count
            while place < expected and own.names.items[place].value != names.items[number].value:
                place += 1
            if place == expected:
                return 0
            arguments[place].value = given[count + number].value
    for place in range(count, expected):
        if arguments[place].value == own.known.missing:
            return 0
    return 1


@inner
def _launch(own: KernelCallView, branches: Tuple, config: Object, arguments: Cell[int]) -> int:
    """Launch by a branch."""
    known = own.known
    lengths: Cell[int] = Cell(on_stack(WORD * _MOST_DIMENSIONS))
    stream, size = known.none, config.address
    if config.type == known.int_class:
        lengths.value = size
    else:
        parts = Tuple(config.address).items
        size = parts[0].value
        stream = parts[1].value
        if Tuple(config.address).length == 2:
            lengths.value = size
        else:
            several = Tuple(stream)
            for axis in range(several.length):
                lengths[axis].value = several.items[axis].value
            stream = parts[2].value
    if as_int(size) < 0:
        clear_error()
        return _UNKNOWN
    if stream != known.none:
        increment(stream)
    else:
        stream = _current_stream(known)
        if stream == 0:
            return 0
    result = _UNKNOWN
    if _is_a(Object(stream), known.stream_class):
        for number in range(branches.length):
            branch = BranchView(branches.items[number].value)
            if branch.device == StreamView(stream).device and _fits(known, branch, arguments):
                result = _launch_by(known, branch, StreamView(stream), size, lengths, arguments)
                break
    decrement(stream)
    return result


@inner
def _current_stream(known: KnownView) -> int:
    """A reference to the current stream; 0 with an exception."""
    found: Cell[int] = Cell(on_stack(WORD))
    if read_context(known.frames, 0, found) != 0:
        return 0
    frame = FrameView(found.value)
    stream = frame.stream.address
    if stream != known.none:
        increment(stream)
    else:
        stream = call(known.current_stream, 0, 0, 0)
    decrement(frame)
    return stream


@inner
def _is_a(value: Object, kind: int) -> int:
    """Whether an object is of a class."""
    return value.type == kind or is_subclass(value.type, kind) != 0


@inner
def _fits(known: KnownView, branch: BranchView, arguments: Cell[int]) -> int:
    """Whether the arguments are of a branch's types."""
    are_arrays = PlanView(branch.plan.content.address).are_arrays
    for place in range(branch.keys.length):
        key = branch.keys.items[place].value
        value = Object(arguments[place].value)
        if are_arrays[place].value == 0:
            if value.type != key:
                return 0
        else:
            if not _is_a(value, known.array_class):
                return 0
            array = ArrayView(value.address)
            form = array.form
            if form.address == 0 or form.type != known.form_class or form.key != key:
                return 0
            buffer = array.buffer
            if buffer.address == 0 or array.packed.address == 0 or not _is_a(Object(buffer.address), known.buffer_class):
                return 0
    return 1


@inner
def _launch_by(
    known: KnownView, branch: BranchView, stream: StreamView, size: int, lengths: Cell[int], arguments: Cell[int]
) -> int:
    """Launch by a branch that the arguments fit, if no bound is in the way and the numbers are what their types hold."""
    plan = PlanView(branch.plan.content.address)
    count = branch.keys.length
    bounds = Bound(plan.are_arrays[count].address)
    for number in range(plan.bounds):
        bound = bounds[number]
        form = ArrayView(arguments[bound.place].value).form
        if as_int(lengths[bound.axis].value) + bound.offset > as_int(form.shape.items[bound.dimension].value):
            return _UNKNOWN
    head = known.none
    if branch.pack == known.none:
        increment(head)
    else:
        head = _pack_numbers(branch, lengths, arguments)
    if head == 0 or not _pack_arrays(known, branch, arguments):
        clear_error()
        if head != 0:
            decrement(head)
        return _UNKNOWN
    buffers: Cell[int] = Cell(on_stack(_ARGUMENTS))
    used = 0
    done = _UNKNOWN
    block = _join(known, branch, lengths, head, arguments)
    if block != 0:
        for place in range(count):
            if plan.are_arrays[place].value != 0:
                buffer = ArrayView(arguments[place].value).buffer
                increment(buffer)
                buffers[used].value = buffer.address
                used += 1
        done = 0
        site = _find_site(known)
        if site != 0:
            done = _submit(known, stream, branch.entry, size, block, site, branch.uses, buffers, used)
            decrement(site)
        for place in range(used):
            decrement(buffers[place].value)
        decrement(block)
    decrement(head)
    return done


@inner
def _pack_numbers(branch: BranchView, lengths: Cell[int], arguments: Cell[int]) -> int:
    """The bytes before those of the arrays, a new ``bytes``; 0 with an exception where a number is too large for its type."""
    plan = PlanView(branch.plan.content.address)
    words: Cell[int] = Cell(on_stack(_CALL))
    count = plan.dimensions
    for axis in range(count):
        words[axis].value = lengths[axis].value
    for place in range(branch.keys.length):
        if plan.are_arrays[place].value == 0:
            words[count].value = arguments[place].value
            count += 1
    return call(branch.pack, words, count, 0)


@inner
def _pack_arrays(known: KnownView, branch: BranchView, arguments: Cell[int]) -> int:
    """Have all arrays know their bytes; 0 with an exception."""
    plan = PlanView(branch.plan.content.address)
    words: Cell[int] = Cell(on_stack(WORD))
    for place in range(branch.keys.length):
        if plan.are_arrays[place].value != 0:
            array = ArrayView(arguments[place].value)
            if array.packed.address == known.none:
                words.value = array.address
                packed = call_method(known.pack, words, 1, 0)
                if packed == 0:
                    return 0
                decrement(packed)
    return 1


@inner
def _join(known: KnownView, branch: BranchView, lengths: Cell[int], head: int, arguments: Cell[int]) -> int:
    """The argument block, a new ``bytes``; 0 where an array has been freed by now. Runs no code of Python's."""
    plan = PlanView(branch.plan.content.address)
    count = branch.keys.length
    nbytes = plan.head
    for place in range(count):
        if plan.are_arrays[place].value != 0:
            array = ArrayView(arguments[place].value)
            if array.packed.address == 0 or array.packed.address == known.none or array.buffer.address == 0:
                return 0
            nbytes += array.packed.length
    block = new_bytes(0, nbytes)
    if block == 0:
        clear_error()
        return 0
    to = Bytes(block).content.address
    if head != known.none:
        copy_memory(to, Bytes(head).content, plan.head)
    else:
        for axis in range(plan.dimensions):
            Bytes(block).content[axis].value = as_int(lengths[axis].value)
    to += plan.head
    for place in range(count):
        if plan.are_arrays[place].value != 0:
            packed = ArrayView(arguments[place].value).packed
            copy_memory(to, packed.content, packed.length)
            to += packed.length
    return block


@inner
def _find_site(known: KnownView) -> int:
    """The site of the program's line, a new int, as ``callsites.here`` has it; 0 with an exception."""
    frame = running_frame()
    if frame == 0:
        frame = known.none
    else:
        code = frame_code(frame)
        key = new_int(code)
        decrement(code)
        if key == 0:
            return 0
        first = dict_item(known.sites, key)
        decrement(key)
        if first != 0 and as_int(first) != 0:
            return new_int(as_int(first) + frame_offset(frame))
    words: Cell[int] = Cell(on_stack(WORD))
    words.value = frame
    return call(known.outside, words, 1, 0)


@inner
def _submit(
    known: KnownView,
    stream: StreamView,
    entry: int,
    size: int,
    block: int,
    site: int,
    uses: UsesView,
    buffers: Cell[int],
    count: int,
) -> int:
    """Submit a launch, and note that it uses buffers; gives its completion, or 0 with an exception."""
    timeline = stream.timeline
    increment(timeline)
    words: Cell[int] = Cell(on_stack(_CALL))
    words[0].value = entry
    words[1].value = size
    words[2].value = block
    words[3].value = site
    value = call(stream.launch, words, 4, 0)
    noted = 0
    if value != 0:
        number = as_int(value)
        are_written = uses.are_written.content
        while noted < count and _note(
            known, BufferView(buffers[noted].value), timeline, value, number, are_written[noted].value
        ):
            noted += 1
    if value != 0 and noted == count:
        done = CompletionView(allocate_object(known.completion_class, 0))
        if done.address != 0:
            increment(known.none)
            done.timeline = timeline
            done.value = value
            done.outcome = known.none
            return done.address
    if value != 0:
        decrement(value)
    _note_torn(known, timeline, uses, buffers, count)
    decrement(timeline)
    return 0


@inner
def _note(known: KnownView, buffer: BufferView, timeline: int, value: int, number: int, is_written: int) -> int:
    """Note that an operation uses a buffer, as :class:`Buffer` notes it; 0 with an exception."""
    if is_written != 0:
        if buffer.writer == timeline:
            last = buffer.written
            if number > as_int(last):  # another thread's later launch may have been faster here
                increment(value)
                buffer.written = value
                decrement(last)
            return 1
        method_name = known.record_write
    else:
        if buffer.reader == timeline:
            last = buffer.read
            if number > as_int(last):
                increment(value)
                buffer.read = value
                decrement(last)
            return 1
        method_name = known.record_read
    words: Cell[int] = Cell(on_stack(WORD * 3))
    words[0].value = buffer.address
    words[1].value = timeline
    words[2].value = value
    result = call_method(method_name, words, 3, 0)
    if result == 0:
        return 0
    decrement(result)
    return 1


@inner
def _note_torn(known: KnownView, timeline: int, uses: UsesView, buffers: Cell[int], count: int) -> None:
    """Behind an exception, which stays set: its operation may have been submitted, and may use the buffers."""
    error: Cell[int] = Cell(on_stack(WORD * 3))
    fetch_error(error, error[1], error[2])
    normalize_error(error, error[1], error[2])
    words: Cell[int] = Cell(on_stack(_CALL))
    words[0].value = error[1].value
    words[1].value = timeline
    words[2].value = uses.address
    for place in range(count):
        words[3 + place].value = buffers[place].value
    result = call(known.note_torn, words, 3 + count, 0)
    if result != 0:
        decrement(result)
    else:
        show_error(known.note_torn)
    restore_error(error.value, error[1].value, error[2].value)
