"""What native calls have in common: the current stream, the site of the program's line, submission and its notes."""

from __future__ import annotations

from aiodev._core.callsites import RECENT_SITES
from aiodev._kernel.dispatch.states import (
    MOST_PARAMETERS,
    BufferView,
    FrameView,
    KnownView,
    StreamView,
    TimelineView,
    UsesView,
)
from aiodev._memory.native import is_seen_done
from aiodev._native.compile import inner
from aiodev._native.fields import WORD, Cell
from aiodev._native.intrinsics import call_entry, given_object, on_stack
from aiodev._native.objects import (
    Object,
    Partial,
    Tuple,
    as_int,
    call,
    call_method,
    clear_error,
    decrement,
    dict_item,
    error_matches,
    fetch_error,
    frame_back,
    frame_code,
    frame_offset,
    get_attribute,
    increment,
    is_subclass,
    new_int,
    normalize_error,
    read_context,
    restore_error,
    running_frame,
    show_error,
)

__all__ = [
    "CALL_BYTES", "OBJECTS_BYTES", "allocator_of", "call_attribute", "current_stream", "find_site", "find_site_above", "is_a",
    "is_refusal", "known_objects", "submit",
]  # fmt: skip

#: Bytes on the stack: for as many objects as a call may have to do with, and for a call with these and a few more.
OBJECTS_BYTES, CALL_BYTES = WORD * MOST_PARAMETERS, WORD * (MOST_PARAMETERS + 4)
_FAILED = -2
#: Of a code object's address, in which those of two that are made one behind the other do not differ.
_CODE_BITS = 6


@inner
def known_objects() -> KnownView:
    """The objects that are the same for all calls."""
    return KnownView(given_object())


@inner
def call_attribute(owner: Object, name: int, given: Cell[int], count: int, names: Tuple | None) -> int:
    """Call what an object has by a name, as the native function was called; 0 with an exception."""
    function = get_attribute(owner, name)
    if function == 0:
        return 0
    result = call(function, given, count, names)
    decrement(function)
    return result


@inner
def allocator_of(known: KnownView, device: int, timeline: int) -> int:
    """A reference to what the task allocates from; 0 with an exception."""
    if as_int(dict_item(known.allocators, known.pool_count)) == 0:
        pool = dict_item(known.pools, device)
        if pool != 0:
            increment(pool)
            return pool
    words: Cell[int] = Cell(on_stack(WORD))
    words.value = timeline
    return call(known.allocator_of, words, 1, 0)


@inner
def current_stream(known: KnownView, device: int) -> int:
    """A reference to the current stream, that of a device unless it is 0; 0 with an exception."""
    found: Cell[int] = Cell(on_stack(WORD))
    if read_context(known.frames, 0, found) != 0:
        return 0
    frame = FrameView(found.value)
    stream = frame.stream
    if stream.address != known.none and (device == 0 or stream.device == device):
        increment(stream)
        decrement(frame)
        return stream.address
    decrement(frame)
    words: Cell[int] = Cell(on_stack(WORD))
    words.value = device
    return call(known.current_stream, words, device != 0, 0)


@inner
def is_a(value: Object, kind: int) -> int:
    """Whether an object is of a class."""
    return value.type == kind or is_subclass(value.type, kind) != 0


@inner
def find_site(known: KnownView, site: Cell[int]) -> int:
    """Write the site of the program's line that has called, as ``callsites.here`` has it; 0 with an exception."""
    frame = running_frame()
    if frame == 0:
        return _look_for_site(known, known.none, site)
    first = _first_site(known, frame)
    if first > 0:
        site.value = first + frame_offset(frame)
        return 1
    return _look_for_site(known, frame, site) if first > _FAILED else 0


@inner
def find_site_above(known: KnownView, site: Cell[int]) -> int:
    """The same for who was called by what has called: if that is a library's code, as a rule who has called that."""
    frame = running_frame()
    above = frame_back(frame) if frame != 0 else 0
    if above == 0:
        return _look_for_site(known, known.none, site)
    first = _first_site(known, above)
    if first == 0:
        higher = frame_back(above)
        if higher != 0:
            decrement(above)
            above = higher
            first = _first_site(known, above)
    done = 0
    if first > 0:
        site.value = first + frame_offset(above)
        done = 1
    elif first > _FAILED:
        done = _look_for_site(known, above, site)
    decrement(above)
    return done


@inner
def _first_site(known: KnownView, frame: int) -> int:
    """The site of a code's first byte; 0 for a library's, -1 for one that is not known, ``_FAILED`` with an exception."""
    code = frame_code(frame)
    decrement(code)  # the frame has it
    recent: Cell[int] = Cell(as_int(known.recent_sites))
    place = 2 * ((code >> _CODE_BITS) & (RECENT_SITES - 1))
    if recent[place].value == code:
        return recent[place + 1].value
    key = new_int(code)
    if key == 0:
        return _FAILED
    found = dict_item(known.sites, key)
    decrement(key)
    if found == 0:
        return -1
    first = as_int(found)
    recent[place].value = code
    recent[place + 1].value = first
    return first


@inner
def _look_for_site(known: KnownView, frame: int, site: Cell[int]) -> int:
    """As ``callsites.outside``."""
    words: Cell[int] = Cell(on_stack(WORD))
    words.value = frame
    found = call(known.outside, words, 1, 0)
    if found == 0:
        return 0
    site.value = as_int(found)
    decrement(found)
    return 1


@inner
def is_refusal(known: KnownView) -> int:
    """Whether an ``Exception`` is set, which is cleared: what was to be done cannot be."""
    if not error_matches(known.exception_class):
        return 0
    clear_error()
    return 1


@inner
def submit(
    known: KnownView,
    stream: StreamView,
    timeline: int,
    entry: int,
    size: int,
    block: int,
    site: int,
    uses: UsesView,
    buffers: Cell[int],
) -> int:
    """Submit a launch, and note that it uses buffers; gives its number, a new int, or 0 with an exception. ``site`` is a word.

    What is called here may let another thread have a turn, which learns that there is something to be noted
    (:mod:`aiodev._core.timeline.noting`).
    """
    unnoted: Cell[int] = Cell(as_int(known.unnoted))
    unnoted.value += 1
    value = _launch(known, stream.launch, entry, size, block, site)
    count = uses.are_written.length // WORD
    if value != 0:
        number = as_int(value)
        are_written = uses.are_written.content
        noted = 0
        while noted < count and _note(
            known, BufferView(buffers[noted].value), timeline, value, number, are_written[noted].value
        ):
            noted += 1
        if noted < count:
            decrement(value)
            value = 0
    if value == 0:
        _note_torn(known, timeline, uses, buffers, count)
    unnoted.value -= 1
    return value


@inner
def _launch(known: KnownView, launch: Object, entry: int, size: int, block: int, site: int) -> int:
    """Submit by what a stream launches with: at once, if that is an executor's function for a queue, and has an address."""
    if launch.type == known.partial_class:
        bound = Partial(launch.address)
        code = dict_item(known.launch_codes, bound.function)
        if code != 0:
            done: Cell[int] = Cell(on_stack(WORD * 2))
            queue = as_int(bound.arguments.items.value)
            if call_entry(as_int(code), done, queue, as_int(entry), as_int(size), block, site) == 0:
                return new_int(done.value)
        clear_error()  # what has no hash
    words: Cell[int] = Cell(on_stack(WORD * 4))
    number = new_int(site)
    if number == 0:
        return 0
    words[0].value = entry
    words[1].value = size
    words[2].value = block
    words[3].value = number
    value = call(launch.address, words, 4, 0)
    decrement(number)
    return value


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
        if _replace_reader(known, buffer, timeline, value):
            return 1
        method_name = known.record_read
    noted = TimelineView(timeline).noted
    if noted != known.none:
        use = dict_item(noted, buffer)
        if use == known.arrays.true or (use != 0 and is_written == 0):
            return 1
        clear_error()
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
def _replace_reader(known: KnownView, buffer: BufferView, timeline: int, value: int) -> int:
    """Note a read in place of another timeline's, if that is done and there is nothing else to look at; whether it was."""
    memory = known.memory
    reader, last = buffer.reader, buffer.read
    if buffer.type != memory.buffer_class or TimelineView(timeline).recording != known.none:
        return 0  # others look at reads themselves, as where races are looked for
    if buffer.readers != known.none:
        if dict_item(buffer.readers, timeline) != 0:
            return 0
        clear_error()
    is_here = is_seen_done(memory, buffer.writer, memory.zero)
    if not is_here or not is_seen_done(memory, reader, last):
        return 0
    increment(timeline)
    increment(value)
    buffer.reader = timeline
    buffer.read = value
    decrement(last)
    decrement(reader)  # the last: it may be that of a stream that is gone, whose finalizer runs
    return 1


@inner
def _note_torn(known: KnownView, timeline: int, uses: UsesView, buffers: Cell[int], count: int) -> None:
    """Behind an exception, which stays set: its operation may have been submitted, and may use the buffers."""
    error: Cell[int] = Cell(on_stack(WORD * 3))
    fetch_error(error, error[1], error[2])
    normalize_error(error, error[1], error[2])
    words: Cell[int] = Cell(on_stack(CALL_BYTES))
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
