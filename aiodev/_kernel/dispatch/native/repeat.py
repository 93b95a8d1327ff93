"""Calls of operations that were made before with operands of the same forms."""

from __future__ import annotations

from aiodev._array.native import new_array
from aiodev._kernel.dispatch.native.submit import (
    OBJECTS_BYTES,
    current_stream,
    find_site_above,
    is_a,
    is_refusal,
    known_objects,
    submit,
)
from aiodev._kernel.dispatch.states import (
    SCRATCH,
    AddressPlace,
    ApartPlace,
    ArrayView,
    BufferView,
    KnownView,
    NumberPlace,
    RepeatedCallView,
    RepeatedPlan,
    RepeatedStepView,
    StreamView,
    UsesView,
)
from aiodev._kernel.tuning import MOST_STEPS
from aiodev._memory.native import allocate
from aiodev._native.compile import inner, method
from aiodev._native.fields import WORD, Cell, sizeof
from aiodev._native.intrinsics import copy_memory, on_stack, put
from aiodev._native.objects import (
    Bytes,
    Object,
    Tuple,
    as_int,
    call,
    decrement,
    dict_item,
    get_item,
    increment,
    is_true,
    new_bytes,
    new_tuple,
)

__all__ = ["make_array", "repeat", "submit_noted"]

_BLOCKS_BYTES = WORD * MOST_STEPS


@method
def repeat(own: RepeatedCallView, given: Cell[int], count: int, names: Tuple | None) -> int:
    """Submit what was submitted before: for operands, and behind them a stream and a site, where they are known.

    None where it is no such call: a number does not fit, operands share elements, or the stream is of another device.
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
    if not is_a(Object(stream), known.stream_class) or StreamView(stream).device != own.device:
        result = known.none
        increment(result)
    else:
        buffers: Cell[int] = Cell(on_stack(OBJECTS_BYTES))
        held = _hold(own, given, buffers)
        is_other = 1
        if held == operands:
            is_other = _shares_elements(own, given)
        if is_other == 0:
            result = _repeat_on(own, StreamView(stream), given, site)
        elif is_other > 0:
            result = known.none
            increment(result)
        for place in range(held):
            if buffers[place].value != 0:
                decrement(buffers[place].value)
    decrement(stream)
    return result


@method
def make_array(own: Object, given: Cell[int], count: int, names: Tuple | None) -> int:
    """A new array over new memory: of an allocator, of so many bytes, for a timeline, of a form."""
    return _make_array(known_objects(), given.value, given[2].value, given[1].value, given[3].value)


@method
def submit_noted(own: UsesView, given: Cell[int], count: int, names: Tuple | None) -> int:
    """Submit a launch to a stream, and note its uses: stream, entry, size, block and site, and the buffers behind these."""
    stream = StreamView(given.value)
    timeline = stream.timeline
    increment(timeline)
    value = submit(
        known_objects(),
        stream,
        timeline,
        given[1].value,
        given[2].value,
        given[3].value,
        given[4].value,
        own,
        given[5],
    )
    decrement(timeline)
    return value


@inner
def _hold(own: RepeatedCallView, given: Cell[int], buffers: Cell[int]) -> int:
    """Refer to the operands' buffers, so that nobody frees an array; how many operands come before one that was freed."""
    operands = RepeatedPlan(own.plan.content.address).operands
    for place in range(operands):
        value = Object(given[place].value)
        buffers[place].value = 0
        if value.type == known_objects().array_class:
            buffer = ArrayView(value.address).buffer
            if buffer.address == 0:
                return place
            increment(buffer)
            buffers[place].value = buffer.address
    return operands


@inner
def _shares_elements(own: RepeatedCallView, given: Cell[int]) -> int:
    """Whether an operand is to be read as it was; -1 with an exception."""
    operands = RepeatedPlan(own.plan.content.address).operands
    last = ArrayView(given[operands - 1].value)
    words: Cell[int] = Cell(on_stack(WORD * 2))
    places = ApartPlace(own.apart.content.address)
    for number in range(own.apart.length // sizeof(ApartPlace)):
        array = ArrayView(given[places[number].place].value)
        if array.buffer.address == last.buffer.address and not (places[number].may_be_it and array.address == last.address):
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
def _repeat_on(own: RepeatedCallView, stream: StreamView, given: Cell[int], site: int) -> int:
    """Allocate, pack and submit, on a stream of the device."""
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
    if own.results.length != 0 or own.room != known.none:
        memory = _allocator(own, timeline)
        if memory == 0:
            state = 0
        else:
            while state != 0 and made < own.results.length // 2:
                result_parts = own.results.items[2 * made]
                array = _make_array(known, memory, timeline, result_parts.value, result_parts[1].value)
                results[made].value = array
                if array == 0:
                    state = 0
                else:
                    made += 1
            if state != 0 and own.room != known.none:
                scratch = allocate(known.memory, Object(memory), timeline, own.room)
                if scratch == 0:
                    state = 0
            decrement(memory)
    result = 0
    if state != 0:
        room = scratch
        if room == 0 and made != 0:
            room = ArrayView(results.value).buffer.address
        blocks: Cell[int] = Cell(on_stack(_BLOCKS_BYTES))
        packed = 0
        while state != 0 and packed < own.steps.length:
            block = _pack(RepeatedStepView(own.steps.items[packed].value), values, BufferView(room))
            blocks[packed].value = block
            if block == 0:
                state = 0
            else:
                packed += 1
        if state == 0:
            if is_refusal(known):
                result = known.none
                increment(result)
        elif _submit(own, stream, timeline, values, room, blocks, site):
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
def _allocator(own: RepeatedCallView, timeline: int) -> int:
    """A reference to what the task allocates from; 0 with an exception."""
    known = known_objects()
    if as_int(dict_item(known.allocators, known.pool_count)) == 0:
        return get_item(known.pools, own.device)
    words: Cell[int] = Cell(on_stack(WORD))
    words.value = timeline
    return call(known.allocator_of, words, 1, 0)


@inner
def _make_array(known: KnownView, memory: int, timeline: int, nbytes: int, form: int) -> int:
    """A new array over a new buffer; 0 with an exception."""
    buffer = allocate(known.memory, Object(memory), timeline, nbytes)
    if buffer == 0:
        return 0
    start = BufferView(buffer).start
    increment(start)
    increment(form)
    return new_array(known.arrays, buffer, start, form)


@inner
def _pack(step: RepeatedStepView, values: Cell[int], room: BufferView) -> int:
    """The argument block of a step, a new ``bytes``; 0 with an exception where a number does not fit its type."""
    block = new_bytes(0, step.block.length)
    if block == 0:
        return 0
    content = Bytes(block).content.address
    copy_memory(content, step.block.content, step.block.length)
    addresses = AddressPlace(step.addresses.content.address)
    for number in range(step.addresses.length // sizeof(AddressPlace)):
        place = addresses[number]
        start = room.start if place.whose == SCRATCH else ArrayView(values[place.whose].value).start
        put(content + place.offset, as_int(start) + place.distance)
    numbers = NumberPlace(step.number_places.content.address)
    for number in range(step.packs.length):
        packed = call(step.packs.items[number].value, values[numbers[number].operand], 1, 0)
        if packed == 0:
            decrement(block)
            return 0
        copy_memory(content + numbers[number].offset, Bytes(packed).content, numbers[number].nbytes)
        decrement(packed)
    return block


@inner
def _submit(
    own: RepeatedCallView, stream: StreamView, timeline: int, values: Cell[int], room: int, blocks: Cell[int], site: int
) -> int:
    """Submit all steps; 0 with an exception."""
    known = known_objects()
    if site != 0 and as_int(site) != 0:
        increment(site)
    else:
        site = find_site_above(known)
        if site == 0:
            return 0
    buffers: Cell[int] = Cell(on_stack(OBJECTS_BYTES))
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
                buffer = ArrayView(values[whose].value).buffer.address
            elif whose != SCRATCH:
                buffer = own.constants.items[SCRATCH - 1 - whose].value
            buffers[place].value = buffer
        value = submit(known, stream, timeline, step.entry, step.size, blocks[number].value, site, step.uses, buffers)
        if value == 0:
            state = 0
        else:
            decrement(value)
        number += 1
    decrement(site)
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
