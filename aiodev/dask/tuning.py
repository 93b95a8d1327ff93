"""Tuning of the integration with Dask: the constants that trade one cost for another.

Each says its unit, and what a larger and a smaller value costs.
"""

from __future__ import annotations

from typing import Final

#: Bytes that are copied at once where they cannot be shared. Larger: holds the receiver's loop for longer, 10 µs at this size;
#: smaller: more copies by the device, which has to be woken for each.
COPIED_HERE: Final = 64 << 10
#: Seconds between two measurements of the worker's loop. Larger: the dashboard's figure is older; smaller: more of the loop's
#: time, 10 µs each.
LAG_PERIOD: Final = 0.02
#: Seconds between two looks at the memory of the worker's process; as Dask's own monitor has it by default. Larger: cached
#: memory goes back later, when Dask may have spilled for want of it; smaller: more time, 30 µs each.
MEMORY_PERIOD: Final = 0.1
#: How many results a task combines. Larger: fewer tasks, and more bytes that one worker receives; smaller: more steps.
ARITY: Final = 8
#: Kernels that are kept for when they are sent again. Larger: more memory for code that nobody runs any more; smaller:
#: some are made anew.
KERNELS_KEPT: Final = 256
#: Seconds that pickling waits for an array in a thread whose event loop runs; Dask tries three times. Larger: the loop is held
#: for longer; smaller: what a crowded machine would have computed soon is refused.
PATIENCE: Final = 0.1
