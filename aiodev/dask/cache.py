"""What the allocator keeps, given back while a worker is short of memory.

**Problem.** Dask goes by the memory of a worker's process: above one part of its limit it spills results to disk, above another
one the worker is paused, and begins no task until there is less. But the memory of arrays that were spilled stays with the
allocator, for the arrays to come, and the process has as much as before. So Dask would spill all that there is; and a paused
worker makes no arrays, so that it would keep the memory, and stay paused.

**How.** Above the lowest of these parts the cache goes back to the system, as often as Dask looks at the process. A thread does
it, since the worker's loop stands still while Dask spills.
"""

from __future__ import annotations

import math
import threading
from typing import Any

from aiodev import memory
from aiodev._core.backend.device import HOST
from aiodev.dask.tuning import MEMORY_PERIOD

__all__ = ["CacheWatch"]


class CacheWatch:
    """Gives cached host memory back while a worker's process is short of memory, from now on until it is stopped."""

    def __init__(self, worker: Any) -> None:
        self._memory_of_process = worker.monitor.get_process_memory
        self._manager = worker.memory_manager
        self._stopped = threading.Event()
        threading.Thread(target=self._watch, name="aiodev-dask-memory", daemon=True).start()

    def stop(self) -> None:
        """Leave the cache alone from now on."""
        self._stopped.set()

    def _watch(self) -> None:
        manager = self._manager
        parts = (manager.memory_target_fraction, manager.memory_spill_fraction, manager.memory_pause_fraction)
        lowest = min((part for part in parts if part), default=math.inf)
        while not self._stopped.wait(MEMORY_PERIOD):
            limit = manager.memory_limit
            if limit and self._memory_of_process() > lowest * limit:
                memory.empty_cache(HOST)
