"""The end of buffers of device memory."""

from __future__ import annotations

from aiodev._kernel.dispatch.states import BufferView, KnownView
from aiodev._memory.native import release
from aiodev._native.compile import method
from aiodev._native.fields import Cell
from aiodev._native.intrinsics import given_object
from aiodev._native.objects import Tuple

__all__ = ["release_buffer"]


@method
def release_buffer(own: BufferView, given: Cell[int], count: int, names: Tuple | None) -> int:
    """Cache the block, with the uses that are still running."""
    return release(KnownView(given_object()).memory, own)
