"""What a program's devices and its event loop do: profiles, the loop's lag, calls that block it, metrics, and counters."""

from __future__ import annotations

from aiodev._core.compilations import Compilation, on_compilation
from aiodev._core.timeline.vector_clock import totals
from aiodev._kernel.compile.service import totals as kernel_totals
from aiodev._memory.watching import MemoryEvent
from aiodev.profiler.blocking import BlockingCall, BlockingDetector, detect_blocking
from aiodev.profiler.lag import Beat, LoopLag, loop_lag
from aiodev.profiler.operations import Operation
from aiodev.profiler.profile import Profile, profile

__all__ = [
    "Beat",
    "BlockingCall",
    "BlockingDetector",
    "Compilation",
    "LoopLag",
    "MemoryEvent",
    "Operation",
    "Profile",
    "counters",
    "detect_blocking",
    "loop_lag",
    "on_compilation",
    "profile",
]

def __dir__() -> list[str]:
    return __all__


def counters() -> dict[str, int]:
    """Totals of this process so far.

    ``events_recorded``: calls of ``record``. ``waits_enqueued``: waits of a stream for another that the device had to
    be given. ``waits_elided``: those that were ordered already, so that nothing was enqueued. ``kernels_compiled``:
    kernels, each for one combination of types, that no process had compiled before. ``kernels_loaded``: those that were
    found in the disk cache. Subtract two readings to see what a piece of a program does.

    Example:
        >>> from aiodev import profiler
        >>> stream = aiodev.Stream("cpu")
        >>> before = profiler.counters()["waits_elided"]
        >>> stream.wait_stream(stream)  # a stream follows itself
        >>> profiler.counters()["waits_elided"] - before
        1
    """
    return {name: getattr(source, name) for source in (totals, kernel_totals) for name in sorted(source.__slots__)}
