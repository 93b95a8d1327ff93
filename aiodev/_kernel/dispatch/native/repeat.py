"""Calls of operations that were made before with operands of the same forms."""

from __future__ import annotations

from aiodev._array.native import find_packed_form, new_array
from aiodev._array.tuning import MOST_DIMENSIONS
from aiodev._kernel.dispatch.native.numbers import put_number, put_word
from aiodev._kernel.dispatch.native.submit import (
    OBJECTS_BYTES,
    allocator_of,
    current_stream,
    find_site_above,
    is_a,
    is_refusal,
    known_objects,
    submit,
)
from aiodev._kernel.dispatch.states import (
    IS_FIXED,
    LENGTH,
    LESS,
    MOST_REGISTERS,
    QUOTIENT,
    SCRATCH,
    SUM,
    AddressPlace,
    ApartPlace,
    ArrayView,
    BufferView,
    FormView,
    KnownView,
    LengthPlace,
    NumberPlace,
    RepeatedCallView,
    RepeatedPlan,
    RepeatedStepView,
    StreamView,
)
from aiodev._kernel.tuning import MOST_STEPS
from aiodev._memory.native import allocate
from aiodev._native.compile import inner, method
from aiodev._native.fields import WORD, Cell, sizeof
from aiodev._native.intrinsics import copy_memory, on_stack, product, put, total
from aiodev._native.objects import (
    Bytes,
    Object,
    Tuple,
    as_int,
    call,
    clear_error,
    decrement,
    error_is_set,
    increment,
    is_true,
    new_bytes,
    new_int,
    new_tuple,
)

__all__ = ["repeat"]

_BLOCKS_BYTES, _REGISTERS_BYTES = WORD * MOST_STEPS, WORD * MOST_REGISTERS


@method
def repeat(own: RepeatedCallView, given: Cell[int], count: int, names: Tuple | None) -> int:
    """Submit what was submitted before: for operands, and behind them a stream and a site, where they are known.

    None where it is no such call: a number does not fit, operands share elements, or the stream is of another device, or
    bounded and not asked for room yet.
    """
    known = known_objects()
    operands = RepeatedPlan(own.plan.content.address).operands
    stream = known.none
    site = 0
    if count > operands:
        stream = given[operands].value
    if count > operands + 1:
        site = given[operands + 1].value
    if stream == known.none:
        stream = current_stream(known, own.device)
        if stream == 0:
            return 0
    else:
        increment(stream)
    result = 0
    is_other = 1
    if (
        is_a(Object(stream), known.stream_class)
        and StreamView(stream).device == own.device
        and StreamView(stream).is_admitted == known.arrays.true
    ):
        buffers: Cell[int] = Cell(on_stack(OBJECTS_BYTES))
        starts: Cell[int] = Cell(on_stack(OBJECTS_BYTES))
        registers: Cell[int] = Cell(on_stack(_REGISTERS_BYTES))
        held = _hold(own, given, buffers, starts)
        if held == own.arrays.length // WORD and _follow(own, given, registers):
            is_other = _shares_elements(own, given, buffers)
            if is_other == 0:
                result = _repeat_on(own, StreamView(stream), given, buffers, starts, registers, site)
        for number in range(held):
            decrement(buffers[own.arrays.content[number].value].value)
    if is_other > 0:
        result = known.none
        increment(result)
    decrement(stream)
    return result


@inner
def _hold(own: RepeatedCallView, given: Cell[int], buffers: Cell[int], starts: Cell[int]) -> int:
    """Take the arrays' buffers, with references, and addresses; how many arrays come before one that was freed.

    Another thread may free one at any time from then on, so nothing else of them is looked at but their forms.
    """
    places = own.arrays.content
    for number in range(own.arrays.length // WORD):
        place = places[number].value
        array = ArrayView(given[place].value)
        if array.type != known_objects().array_class or array.buffer.address == 0 or array.start == 0:
            return number
        increment(array.buffer)
        buffers[place].value = array.buffer.address
        starts[place].value = as_int(array.start)
    return own.arrays.length // WORD


@inner
def _follow(own: RepeatedCallView, given: Cell[int], registers: Cell[int]) -> int:
    """Compute what the program says; 0 where it is another call. Runs no code of Python's."""
    registers.value = 0
    made = 1
    overflow: Cell[int] = Cell(on_stack(WORD))
    overflow.value = 0
    words = own.program.content
    end = own.program.length // WORD
    at = 0
    while at < end:
        code = words[at].value
        if code == SUM:
            count = words[at + 1].value
            at += 2
            value = 0
            for _ in range(count):
                summand = words[at].value
                factors = words[at + 1].value
                at += 2
                for _ in range(factors):
                    summand = product(summand, registers[words[at].value].value, overflow)
                    at += 1
                value = total(value, summand, overflow)
            registers[made].value = value
            made += 1
        elif code <= LENGTH:
            form = ArrayView(given[words[at + 1].value].value).form
            side = form.shape
            if words[at + 2].value != 0:
                side = form.strides
            value = as_int(side.items[words[at + 3].value].value)
            if value == -1 and error_is_set() != 0:
                clear_error()
                return 0
            at += 4
            if code == IS_FIXED:
                if value != words[at].value:
                    return 0
                at += 1
            else:
                registers[made].value = value
                made += 1
        elif code == QUOTIENT:
            registers[made].value = registers[words[at + 1].value].value // registers[words[at + 2].value].value
            made += 1
            at += 3
        else:
            value = registers[words[at + 1].value].value
            holds = value == 0
            if code == LESS:
                holds = value < 0
            if holds != words[at + 2].value:
                return 0
            at += 3
    return overflow.value == 0


@inner
def _shares_elements(own: RepeatedCallView, given: Cell[int], buffers: Cell[int]) -> int:
    """Whether an operand is to be read as it was; -1 with an exception."""
    buffer_class = known_objects().memory.buffer_class  # of memory that no other buffer has
    operands = RepeatedPlan(own.plan.content.address).operands
    last = ArrayView(given[operands - 1].value)
    words: Cell[int] = Cell(on_stack(WORD * 2))
    places = ApartPlace(own.apart.content.address)
    for number in range(own.apart.length // sizeof(ApartPlace)):
        place = places[number].place
        array = ArrayView(given[place].value)
        buffer = Object(buffers[place].value)
        written = Object(buffers[operands - 1].value)
        is_apart = buffer.address != written.address and buffer.type == buffer_class and written.type == buffer_class
        if not is_apart and not (places[number].may_be_it and array.address == last.address):
            words[0].value = array.address
            words[1].value = last.address
            answer = call(own.shares, words, 2, 0)
            if answer == 0:
                return -1
            shares = is_true(answer)
            decrement(answer)
            if shares != 0:
                return shares
    return 0


@inner
def _repeat_on(
    own: RepeatedCallView,
    stream: StreamView,
    given: Cell[int],
    buffers: Cell[int],
    starts: Cell[int],
    registers: Cell[int],
    site: int,
) -> int:
    """Allocate, pack and submit, on a stream of the device; ``buffers`` and ``starts`` are of operands, then of results."""
    known = known_objects()
    plan = RepeatedPlan(own.plan.content.address)
    timeline = stream.timeline
    increment(timeline)
    values: Cell[int] = Cell(on_stack(OBJECTS_BYTES))
    for place in range(plan.operands):
        values[place].value = given[place].value
    results = values[plan.operands]
    made = 0
    scratch = 0
    state = 1
    has_room = own.room != known.none or plan.room != 0
    if own.results.length != 0 or has_room:
        memory = allocator_of(known, own.device, timeline)
        if memory == 0:
            state = 0
        else:
            made = _make_results(own, memory, timeline, values, registers)
            if made != own.results.length // 2:
                state = 0
            for number in range(made):
                buffer = ArrayView(results[number].value).buffer
                buffers[plan.operands + number].value = buffer.address
                starts[plan.operands + number].value = as_int(buffer.start)
            if state != 0 and has_room:
                scratch = _allocate(known, memory, timeline, own.room, registers[plan.room].value)
                if scratch == 0:
                    state = 0
            decrement(memory)
    result = 0
    if state != 0:
        room = scratch
        if room == 0 and made != 0:
            room = buffers[plan.operands].value
        blocks: Cell[int] = Cell(on_stack(_BLOCKS_BYTES))
        packed = 0
        while state != 0 and packed < own.steps.length:
            block = _pack(RepeatedStepView(own.steps.items[packed].value), values, starts, BufferView(room), registers)
            blocks[packed].value = block
            if block == 0:
                state = 0
            else:
                packed += 1
        if state == 0:
            if is_refusal(known):
                result = known.none
                increment(result)
        elif _submit(own, stream, timeline, buffers, room, blocks, registers, site):
            result = _returned(plan, values)
        for number in range(packed):
            decrement(blocks[number].value)
    for number in range(made):
        decrement(results[number].value)
    if scratch != 0:
        decrement(scratch)
    decrement(timeline)
    return result


@inner
def _make_results(own: RepeatedCallView, memory: int, timeline: int, values: Cell[int], registers: Cell[int]) -> int:
    """Make the results, behind the operands; how many there are, fewer with an exception."""
    known = known_objects()
    count = own.results.length // 2
    results = values[RepeatedPlan(own.plan.content.address).operands]
    at = 0
    for number in range(count):
        nbytes = own.results.items[2 * number].value
        form = FormView(own.results.items[2 * number + 1].value)
        made = form.address
        room = 0
        if own.shapes.length == 0:
            increment(form)
        else:
            words = own.shapes.content[at]
            room = registers[words.value].value
            made = _result_form(known, form, words, values, registers)
            at += 2 + form.shape.length
        if made == 0:
            return number
        buffer = _allocate(known, memory, timeline, nbytes, room)
        if buffer == 0:
            decrement(made)
            return number
        start = BufferView(buffer).start
        increment(start)
        array = new_array(known.arrays, buffer, start, made)
        if array == 0:
            return number
        results[number].value = array
    return count


@inner
def _result_form(known: KnownView, like: FormView, words: Cell[int], values: Cell[int], registers: Cell[int]) -> int:
    """The form of a result whose lengths are in registers; a new reference, 0 with an exception."""
    if words[1].value >= 0:
        form = ArrayView(values[words[1].value].value).form
        increment(form)
        return form.address
    lengths: Cell[int] = Cell(on_stack(WORD * MOST_DIMENSIONS))
    for axis in range(like.shape.length):
        lengths[axis].value = registers[words[2 + axis].value].value
    return find_packed_form(known.arrays, like, like.shape.length, lengths)


@inner
def _allocate(known: KnownView, memory: int, timeline: int, nbytes: int, otherwise: int) -> int:
    """A new buffer, of as many bytes as an int says, or if that is None, a word; 0 with an exception."""
    if nbytes != known.none:
        return allocate(known.memory, Object(memory), timeline, nbytes)
    number = new_int(otherwise)
    if number == 0:
        return 0
    buffer = allocate(known.memory, Object(memory), timeline, number)
    decrement(number)
    return buffer


@inner
def _pack(
    step: RepeatedStepView, values: Cell[int], starts: Cell[int], room: BufferView, registers: Cell[int]
) -> int:
    """The argument block of a step, a new ``bytes``; 0 with an exception where a number does not fit its type."""
    block = new_bytes(0, step.block.length)
    if block == 0:
        return 0
    content = Bytes(block).content.address
    copy_memory(content, step.block.content, step.block.length)
    addresses = AddressPlace(step.addresses.content.address)
    for number in range(step.addresses.length // sizeof(AddressPlace)):
        place = addresses[number]
        start = as_int(room.start) if place.whose == SCRATCH else starts[place.whose].value
        put(content + place.offset, start + place.distance + registers[place.register].value)
    lengths = LengthPlace(step.lengths.content.address)
    for number in range(step.lengths.length // sizeof(LengthPlace)):
        put(content + lengths[number].offset, registers[lengths[number].register].value)
    numbers = NumberPlace(step.number_places.content.address)
    for number in range(step.packs.length):
        its, pack = numbers[number], step.packs.items[number].value
        to = content + its.offset
        nbytes = 0
        if its.operand >= 0:
            nbytes = put_number(known_objects(), its.form, pack, Object(values[its.operand].value), to)
        else:
            nbytes = put_word(its.form, pack, registers[its.register].value, to)
        if nbytes == 0:
            decrement(block)
            return 0
    return block


@inner
def _submit(
    own: RepeatedCallView,
    stream: StreamView,
    timeline: int,
    buffers: Cell[int],
    room: int,
    blocks: Cell[int],
    registers: Cell[int],
    site: int,
) -> int:
    """Submit all steps; 0 with an exception."""
    known = known_objects()
    here: Cell[int] = Cell(on_stack(WORD))
    here.value = as_int(site) if site != 0 else 0
    if here.value == 0 and find_site_above(known, here) == 0:
        return 0
    used: Cell[int] = Cell(on_stack(OBJECTS_BYTES))
    number = 0
    state = 1
    while state != 0 and number < own.steps.length:
        step = RepeatedStepView(own.steps.items[number].value)
        users = step.users.content
        count = step.users.length // WORD
        for place in range(count):
            whose = users[place].value
            buffer = room
            if whose >= 0:
                buffer = buffers[whose].value
            elif whose != SCRATCH:
                buffer = own.constants.items[SCRATCH - 1 - whose].value
            used[place].value = buffer
        size = step.size
        if size != known.none:
            increment(size)
        else:
            size = new_int(registers[as_int(step.size_register)].value)
        value = 0
        if size != 0:
            value = submit(known, stream, timeline, step.entry, size, blocks[number].value, here.value, step.uses, used)
            decrement(size)
        if value == 0:
            state = 0
        else:
            decrement(value)
        number += 1
    return state


@inner
def _returned(plan: RepeatedPlan, values: Cell[int]) -> int:
    """What the call gives: one object, or a tuple."""
    if plan.returned < 0:
        result = values[plan.places.value].value
        increment(result)
        return result
    result = new_tuple(plan.returned)
    if result != 0:
        for number in range(plan.returned):
            value = values[plan.places[number].value].value
            increment(value)
            Tuple(result).items[number].value = value
    return result
