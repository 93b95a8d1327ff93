"""Allocation in native code: where a bin has a block whose work is done, or the timeline's own, and where one goes back.

The rules are those of :meth:`CachingAllocator.allocate` and of a buffer's finalizer, which do the rest. From the look at the
bin, and from that at the uses, up to where a block has changed hands nothing is called that may run Python's code, so neither
another thread nor a finalizer comes between.
"""

from __future__ import annotations

from aiodev._core.backend.interface import COMPLETED
from aiodev._memory.tuning import GRANULE
from aiodev._memory.views import AllocatorView, BinView, BlockView, BufferView, CountsView, KnownView, TimelineView
from aiodev._native.compile import inner
from aiodev._native.fields import WORD, Cell
from aiodev._native.intrinsics import bit_length, on_stack
from aiodev._native.objects import (
    Object,
    Tuple,
    allocate_object,
    append,
    as_int,
    call_method,
    clear_error,
    decrement,
    dict_item,
    get_attribute,
    get_place,
    increment,
    new_int,
)

__all__ = ["allocate", "is_seen_done", "release"]

_FAILED = -1


@inner
def allocate(known: KnownView, memory: Object, timeline: int, nbytes: int) -> int:
    """A new buffer of an allocator for work that a timeline is given from now on; 0 with an exception."""
    method = known.allocate
    if memory.type == known.allocator_class:
        method = known.allocate_slowly
        made = allocate_object(known.buffer_class, 0)
        if made == 0:
            return 0
        buffer = BufferView(made)
        block = _take_block(known, AllocatorView(memory.address), timeline, nbytes)
        if block.address != 0:
            _fill(known, buffer, block, memory.address, timeline)
            return made
        decrement(made)
    words: Cell[int] = Cell(on_stack(WORD * 3))
    words[0].value = memory.address
    words[1].value = nbytes
    words[2].value = timeline
    return call_method(method, words, 3, 0)


@inner
def _take_block(known: KnownView, memory: AllocatorView, timeline: int, nbytes: int) -> BlockView:
    """The last block of the bin, no longer there, if the timeline may have it; else 0."""
    wanted = as_int(nbytes)
    size = new_int(_size_class(wanted)) if wanted >= 0 else 0
    if size == 0:  # it is more than a word holds, or there is no memory for an int
        clear_error()
        return BlockView(0)
    home = BinView(dict_item(memory.bins, size))
    decrement(size)
    if home.address == 0 or home.free.length == 0:
        return BlockView(0)
    last = home.free.length - 1
    items: Cell[int] = Cell(home.free.items)
    block = BlockView(items[last].value)
    used_by = block.timeline
    is_free = used_by == known.none or used_by == timeline or is_seen_done(known, used_by, block.value)
    if not is_free or block.uses != known.none:
        return BlockView(0)
    home.free.length = last
    return block


@inner
def is_seen_done(known: KnownView, timeline: int, value: int) -> int:
    """Whether a timeline has reached a value, as far as that is seen without a call; not of one that is lost."""
    if Object(timeline).type != known.timeline_class:
        return 0
    counters = TimelineView(timeline).counters
    if counters.address == 0 or counters.type != known.memoryview_class:
        return 0
    return Cell(counters.content)[COMPLETED].value >= as_int(value)


@inner
def _size_class(nbytes: int) -> int:
    """As of :mod:`aiodev._memory.allocator`."""
    last = nbytes - 1
    if last < 16 * GRANULE:
        return GRANULE if last < GRANULE else (last // GRANULE + 1) * GRANULE
    shift: int = bit_length(last) - 5
    return ((last >> shift) + 1) << shift


@inner
def _fill(known: KnownView, buffer: BufferView, block: BlockView, memory: int, timeline: int) -> None:
    """Make a buffer of a block."""
    used_by = block.timeline
    read = block.value if used_by == timeline else known.zero
    increment(known.none)
    block.timeline = known.none  # a live block would keep it, and whatever it knows of failures, for as long as it lives
    increment(read)
    state = block.state
    increment(known.live)
    block.state = known.live
    decrement(state)
    size = as_int(block.size)
    counts = CountsView(as_int(AllocatorView(memory).totals.start))
    counts.allocations = counts.allocations + 1
    counts.allocated_ever = counts.allocated_ever + size
    counts.allocated = counts.allocated + size
    counts.peak_allocated = max(counts.peak_allocated, counts.allocated)
    increment(block.start)
    increment(memory)
    increment(timeline)
    increment(timeline)
    increment(known.zero)
    increment(known.none)
    buffer.start = block.start
    buffer.source = memory
    buffer.block = block
    buffer.writer = timeline
    buffer.reader = timeline
    buffer.written = known.zero
    buffer.read = read
    buffer.readers = known.none
    decrement(used_by)  # the last: it may be that of a stream that is gone, whose finalizer runs


@inner
def release(known: KnownView, buffer: BufferView) -> int:
    """Cache the block of a buffer that nobody has any more; gives None, or 0 with an exception."""
    block = buffer.block
    if block.address == 0:  # Ctrl-C came before it was made
        increment(known.none)
        return known.none
    timeline = buffer.writer
    is_usual = buffer.readers == known.none
    if buffer.reader != timeline:
        is_usual = is_usual and buffer.read == known.zero and Object(timeline).type != known.uses_class
    if not is_usual:
        return _call(known.release, buffer.address, 0)
    value = buffer.read if as_int(buffer.read) > as_int(buffer.written) else buffer.written
    is_done = _is_done(known, timeline, value)
    if is_done == _FAILED:
        return 0
    memory = AllocatorView(buffer.source)
    pending = memory.pending.address
    increment(pending)
    counts = CountsView(as_int(memory.totals.start))
    counts.allocated = counts.allocated - as_int(block.size)
    counts.frees = counts.frees + 1
    left = known.none if is_done else timeline
    increment(left)
    increment(value)
    increment(known.cached)
    dropped = block.timeline
    dropped_value = block.value
    dropped_state = block.state
    block.timeline = left
    block.value = value
    block.state = known.cached
    decrement(dropped)
    decrement(dropped_value)
    decrement(dropped_state)
    state: int = append(block.bin.free, block) == 0
    if state and not is_done and block.listed != known.true:
        before = block.listed
        increment(known.true)
        block.listed = known.true
        decrement(before)
        state = _done_with(_call(known.append, pending, block.address))
    if state and Tuple(pending).length != 0:
        state = _tend(known, memory.address, pending)
    decrement(pending)
    if not state:
        return 0
    increment(known.none)
    return known.none


@inner
def _tend(known: KnownView, memory: int, pending: int) -> int:
    """Have the allocator forget what is done with, or look at another block at the next release; 0 with an exception."""
    first = BlockView(get_place(pending, 0))
    if first.address == 0:
        return 0
    is_done = 1
    if first.timeline != known.none and first.uses == known.none:
        is_done = _is_done(known, first.timeline, first.value)
    decrement(first)
    if is_done == _FAILED:
        return 0
    if is_done:
        return _done_with(_call(known.forget_done, memory, 0))
    return _done_with(_call(known.rotate, pending, known.minus_one))


@inner
def _is_done(known: KnownView, timeline: int, value: int) -> int:
    """Whether a timeline has reached a value; -1 with an exception."""
    if Object(timeline).type == known.timeline_class:
        view = TimelineView(timeline).counters
        if view.address != 0 and view.type == known.memoryview_class:
            return Cell(view.content)[COMPLETED].value >= as_int(value)
    counters = get_attribute(timeline, known.counters)
    if counters == 0:
        return _FAILED
    completed = get_place(counters, COMPLETED)
    decrement(counters)
    if completed == 0:
        return _FAILED
    is_done = as_int(completed) >= as_int(value)
    decrement(completed)
    return is_done


@inner
def _call(method: int, owner: int, argument: int) -> int:
    """Call a method, with an argument unless it is 0; 0 with an exception."""
    words: Cell[int] = Cell(on_stack(WORD * 2))
    words[0].value = owner
    words[1].value = argument
    return call_method(method, words, 1 + (argument != 0), 0)


@inner
def _done_with(result: int) -> int:
    """Whether there is a result, which nobody wants."""
    if result == 0:
        return 0
    decrement(result)
    return 1
