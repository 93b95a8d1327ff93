"""Device memory: what is in use, what the allocator keeps, and admission to it.

Freed memory is kept for the arrays that come. Bytes are *allocated* while arrays use them, and *reserved* while the allocator
holds them, in use or not.
"""

from aiodev._array.pinned import empty_pinned, pin, record_stream
from aiodev._memory.history import record_memory_history
from aiodev._memory.lease import Lease, lease
from aiodev._memory.pinned import host_memory_stats
from aiodev._memory.pool import MemoryPool
from aiodev._memory.raw import allocate, free
from aiodev._memory.report import (
    empty_cache,
    max_memory_allocated,
    max_memory_reserved,
    mem_get_info,
    memory_allocated,
    memory_reserved,
    memory_snapshot,
    memory_stats,
    memory_summary,
    on_out_of_memory,
    reset_peak_memory_stats,
    set_per_process_memory_fraction,
)
from aiodev._memory.snapshot import draw_snapshot

__all__ = [
    "Lease",
    "MemoryPool",
    "allocate",
    "draw_snapshot",
    "empty_cache",
    "empty_pinned",
    "free",
    "host_memory_stats",
    "lease",
    "max_memory_allocated",
    "max_memory_reserved",
    "mem_get_info",
    "memory_allocated",
    "memory_reserved",
    "memory_snapshot",
    "memory_stats",
    "memory_summary",
    "on_out_of_memory",
    "pin",
    "record_memory_history",
    "record_stream",
    "reset_peak_memory_stats",
    "set_per_process_memory_fraction",
]


def __dir__() -> list[str]:
    return __all__
