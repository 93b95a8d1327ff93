"""Launches of kernels, plain and bound."""

from __future__ import annotations

from aiodev._kernel.dispatch.native.numbers import put_number
from aiodev._kernel.dispatch.native.submit import (
    OBJECTS_BYTES,
    call_attribute,
    current_stream,
    find_site,
    is_a,
    is_refusal,
    known_objects,
    submit,
)
from aiodev._kernel.dispatch.states import (
    IS_ARRAY,
    MOST_PARAMETERS,
    ArrayView,
    Bound,
    BoundCallView,
    BranchView,
    CompletionView,
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
    Partial,
    Tuple,
    allocate_object,
    as_int,
    call,
    call_method,
    clear_error,
    decrement,
    get_attribute,
    increment,
    new_bytes,
    new_method,
)

__all__ = ["choose_launch", "launch_bound", "launch_kernel"]

#: What stands for a result where a launch is not known: no address.
_UNKNOWN = 1
_MOST_DIMENSIONS = 3
#: Of lengths and numbers, which may be complex.
_HEAD_BYTES = WORD * (_MOST_DIMENSIONS + 2 * MOST_PARAMETERS)


@method
def choose_launch(own: Object, given: Cell[int], count: int, names: Tuple | None) -> int:
    """``kernel[n]`` or ``kernel[n, stream]``, of a kernel with one index; all else is Python's."""
    known = known_objects()
    if count == 1 and names is None and _is_line(known, Object(given.value)):
        launch = get_attribute(own, known.line_call)
        if launch == 0:
            return 0
        chosen = 0
        if launch != known.none:
            function = Partial(launch).function
            is_native = Object(function).type == known.native_class  # else that is replaced, and a launcher is kept, perhaps
            chosen = new_method(function if is_native else launch, given.value)
        decrement(launch)
        if launch != known.none:
            return chosen
    return call_attribute(own, known.choose, given, count, names)


@inner
def _is_line(known: KnownView, config: Object) -> int:
    """Whether this is a length, or a length and a stream."""
    if config.type == known.int_class:
        return 1
    parts = Tuple(config.address)
    return (
        config.type == known.tuple_class
        and parts.length == 2
        and Object(parts.items.value).type == known.int_class
        and Object(parts.items[1].value).type == known.stream_class
    )


@method
def launch_kernel(own: KernelCallView, given: Cell[int], count: int, names: Tuple | None) -> int:
    """Launch a kernel: a configuration, and its arguments."""
    branches = own.branches
    arguments: Cell[int] = Cell(on_stack(OBJECTS_BYTES))
    if count > 0 and branches.length != 0 and _complete(own, given[1], count - 1, names, arguments):
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
        return call(known_objects().refuse_arguments, given, count, names)
    return _submit(known_objects(), own.stream, own.entry, own.size, own.block, own.uses, own.buffers.items)


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
        if arguments[place].value == known_objects().missing:
            return 0
    return 1


@inner
def _launch(own: KernelCallView, branches: Tuple, config: Object, arguments: Cell[int]) -> int:
    """Launch by a branch."""
    known = known_objects()
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
        stream = current_stream(known, 0)
        if stream == 0:
            return 0
    result = _UNKNOWN
    if is_a(Object(stream), known.stream_class):
        for number in range(branches.length):
            branch = BranchView(branches.items[number].value)
            if branch.device == StreamView(stream).device and _fits(known, branch, arguments):
                result = _launch_by(known, branch, StreamView(stream), size, lengths, arguments)
                break
    decrement(stream)
    return result


@inner
def _fits(known: KnownView, branch: BranchView, arguments: Cell[int]) -> int:
    """Whether the arguments are of a branch's types."""
    forms = PlanView(branch.plan.content.address).forms
    for place in range(branch.keys.length):
        key = branch.keys.items[place].value
        value = Object(arguments[place].value)
        if forms[place].value != IS_ARRAY:
            if value.type != key:
                return 0
        else:
            if not is_a(value, known.array_class):
                return 0
            array = ArrayView(value.address)
            form = array.form
            if form.address == 0 or form.type != known.form_class or form.key != key:
                return 0
            buffer = array.buffer
            if buffer.address == 0 or array.packed.address == 0 or not is_a(Object(buffer.address), known.buffer_class):
                return 0
    return 1


@inner
def _launch_by(
    known: KnownView, branch: BranchView, stream: StreamView, size: int, lengths: Cell[int], arguments: Cell[int]
) -> int:
    """Launch by a branch that the arguments fit, if no bound is in the way and the numbers are what their types hold."""
    plan = PlanView(branch.plan.content.address)
    count = branch.keys.length
    bounds = Bound(plan.forms[count].address)
    for number in range(plan.bounds):
        bound = bounds[number]
        form = ArrayView(arguments[bound.place].value).form
        if as_int(lengths[bound.axis].value) + bound.offset > as_int(form.shape.items[bound.dimension].value):
            return _UNKNOWN
    head: Cell[int] = Cell(on_stack(_HEAD_BYTES))
    for axis in range(plan.dimensions):
        head[axis].value = as_int(lengths[axis].value)
    if not _pack_numbers(known, branch, arguments, head[plan.dimensions].address):
        return _UNKNOWN if is_refusal(known) else 0
    done = _UNKNOWN
    if not _pack_arrays(known, branch, arguments):
        if not is_refusal(known):
            done = 0
    else:
        block = _join(known, branch, head, arguments)
        if block != 0:
            buffers: Cell[int] = Cell(on_stack(OBJECTS_BYTES))
            used = 0
            for place in range(count):
                if plan.forms[place].value == IS_ARRAY:
                    buffer = ArrayView(arguments[place].value).buffer
                    increment(buffer)
                    buffers[used].value = buffer.address
                    used += 1
            done = _submit(known, stream, branch.entry, size, block, branch.uses, buffers)
            for place in range(used):
                decrement(buffers[place].value)
            decrement(block)
    return done


@inner
def _submit(
    known: KnownView, stream: StreamView, entry: int, size: int, block: int, uses: UsesView, buffers: Cell[int]
) -> int:
    """Submit a launch, and note that it uses buffers; gives its completion, or 0 with an exception."""
    site: Cell[int] = Cell(on_stack(WORD))
    if find_site(known, site) == 0:
        return 0
    timeline = stream.timeline
    increment(timeline)
    value = submit(known, stream, timeline, entry, size, block, site.value, uses, buffers)
    if value != 0:
        done = CompletionView(allocate_object(known.completion_class, 0))
        if done.address != 0:
            increment(known.none)
            done.timeline = timeline
            done.value = value
            done.outcome = known.none
            return done.address
        decrement(value)
    decrement(timeline)
    return 0


@inner
def _pack_numbers(known: KnownView, branch: BranchView, arguments: Cell[int], to: int) -> int:
    """Write the numbers one behind the other; 0 with an exception where one is too large for its type."""
    forms = PlanView(branch.plan.content.address).forms
    for place in range(branch.keys.length):
        form = forms[place].value
        if form != IS_ARRAY:
            nbytes = put_number(known, form, branch.packs.items[place].value, Object(arguments[place].value), to)
            if nbytes == 0:
                return 0
            to += nbytes
    return 1


@inner
def _pack_arrays(known: KnownView, branch: BranchView, arguments: Cell[int]) -> int:
    """Have all arrays know their bytes; 0 with an exception."""
    plan = PlanView(branch.plan.content.address)
    words: Cell[int] = Cell(on_stack(WORD))
    for place in range(branch.keys.length):
        if plan.forms[place].value == IS_ARRAY:
            array = ArrayView(arguments[place].value)
            if array.packed.address == known.none:
                words.value = array.address
                packed = call_method(known.pack, words, 1, 0)
                if packed == 0:
                    return 0
                decrement(packed)
    return 1


@inner
def _join(known: KnownView, branch: BranchView, head: Cell[int], arguments: Cell[int]) -> int:
    """The argument block, a new ``bytes``; 0 where an array has been freed by now. Runs no code of Python's."""
    plan = PlanView(branch.plan.content.address)
    count = branch.keys.length
    nbytes = plan.head
    for place in range(count):
        if plan.forms[place].value == IS_ARRAY:
            array = ArrayView(arguments[place].value)
            if array.packed.address == 0 or array.packed.address == known.none or array.buffer.address == 0:
                return 0
            nbytes += array.packed.length
    block = new_bytes(0, nbytes)
    if block == 0:
        clear_error()
        return 0
    to = Bytes(block).content.address
    copy_memory(to, head, plan.head)
    to += plan.head
    for place in range(count):
        if plan.forms[place].value == IS_ARRAY:
            packed = ArrayView(arguments[place].value).packed
            copy_memory(to, packed.content, packed.length)
            to += packed.length
    return block
