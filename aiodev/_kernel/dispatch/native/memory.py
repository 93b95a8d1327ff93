"""Allocation, and the end of buffers of device memory, as methods of their classes."""

from __future__ import annotations

from aiodev._kernel.dispatch.native.submit import call_attribute, known_objects
from aiodev._kernel.dispatch.states import BufferView
from aiodev._memory.native import allocate, release
from aiodev._native.compile import method
from aiodev._native.fields import Cell
from aiodev._native.objects import Object, Tuple

__all__ = ["allocate_buffer", "release_buffer"]


@method
def allocate_buffer(own: Object, given: Cell[int], count: int, names: Tuple | None) -> int:
    """A buffer for work that a timeline is given from now on."""
    known = known_objects().memory
    if count == 2 and names is None and own.type == known.allocator_class:
        return allocate(known, own, given[1].value, given.value)
    return call_attribute(own, known.allocate_slowly, given, count, names)


@method
def release_buffer(own: BufferView, given: Cell[int], count: int, names: Tuple | None) -> int:
    """Cache the block, with the uses that are still running."""
    return release(known_objects().memory, own)
