"""PyTorch's CUDACachingAllocator as a policy alone: what it would reserve, to compare with.

Sizes are multiples of 512 bytes. Requests up to 1 MiB come from segments of 2 MiB, larger ones below 10 MiB from those of
20 MiB, the rest from segments of their own, in multiples of 2 MiB. Each stream has free blocks of its own, small and large
ones; the best fit is taken, and split where 512 bytes, or more than 1 MiB of a large one, are left. Freed blocks are joined
with free neighbours. Memory never goes back.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from dataclasses import dataclass
from typing import Any

__all__ = ["ReferencePolicy"]

_GRANULE, _SMALL, _MIDDLE = 512, 1 << 20, 10 << 20
_SMALL_SEGMENT, _LARGE_SEGMENT = 2 << 20, 20 << 20


@dataclass(eq=False)
class _Block:
    """A piece of a segment."""

    address: int
    size: int
    pool: tuple[Any, bool]
    prev: _Block | None = None
    next: _Block | None = None
    free: bool = False


class ReferencePolicy:
    """Counts what is reserved; ``reserved`` and ``peak_reserved`` in bytes."""

    def __init__(self) -> None:
        self.reserved = self.peak_reserved = 0
        self._free: dict[tuple[Any, bool], list[tuple[int, int]]] = {}
        self._at: dict[int, _Block] = {}
        self._next_address = 0

    def allocate(self, nbytes: int, stream: Any) -> _Block:
        """Memory for a stream."""
        size = max(_GRANULE, -(-nbytes // _GRANULE) * _GRANULE)
        pool = stream, size <= _SMALL
        free = self._free.setdefault(pool, [])
        place = bisect_left(free, (size, 0))
        block = self._at[free.pop(place)[1]] if place < len(free) else self._new_segment(size, pool)
        block.free = False
        rest = block.size - size
        if rest >= _GRANULE if pool[1] else rest > _SMALL:
            other = _Block(block.address + size, rest, pool, block, block.next)
            if block.next is not None:
                block.next.prev = other
            block.next, block.size = other, size
            self._put(other)
        return block

    def release(self, block: _Block) -> None:
        """Take memory back."""
        for other in (block.prev, block.next):
            if other is not None and other.free:
                free = self._free[other.pool]
                del free[bisect_left(free, (other.size, other.address))]
                first, second = (other, block) if other is block.prev else (block, other)
                first.size += second.size
                first.next = second.next
                if second.next is not None:
                    second.next.prev = first
                block = first
        self._put(block)

    def _put(self, block: _Block) -> None:
        block.free = True
        insort(self._free[block.pool], (block.size, block.address))
        self._at[block.address] = block

    def _new_segment(self, size: int, pool: tuple[Any, bool]) -> _Block:
        if size <= _SMALL:
            nbytes = _SMALL_SEGMENT
        elif size < _MIDDLE:
            nbytes = _LARGE_SEGMENT
        else:
            nbytes = -(-size // _SMALL_SEGMENT) * _SMALL_SEGMENT
        block = _Block(self._next_address, nbytes, pool)
        self._next_address += 2 * nbytes
        self.reserved += nbytes
        self.peak_reserved = max(self.peak_reserved, self.reserved)
        return block
