"""What a program's devices and its event loop do: profiles, the loop's lag, calls that block it, metrics, and counters."""

from __future__ import annotations

from aiodev._core.compilations import Compilation, on_compilation
from aiodev._memory.events import MemoryEvent
from aiodev.profiler.blocking import BlockingCall, BlockingDetector, detect_blocking
from aiodev.profiler.lag import Beat, LoopLag, loop_lag
from aiodev.profiler.metrics import Metric, Sample, counters, metrics
from aiodev.profiler.operations import Operation
from aiodev.profiler.profile import Profile, profile
from aiodev.profiler.top import TopServer, serve_top

__all__ = [
    "Beat",
    "BlockingCall",
    "BlockingDetector",
    "Compilation",
    "LoopLag",
    "MemoryEvent",
    "Metric",
    "Operation",
    "Profile",
    "Sample",
    "TopServer",
    "counters",
    "detect_blocking",
    "loop_lag",
    "metrics",
    "on_compilation",
    "profile",
    "serve_top",
]


def __dir__() -> list[str]:
    return __all__
