"""What is recorded, as tables, pictures and traces need it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from aiodev._memory.events import MemoryEvent
from aiodev.profiler.lag import LoopLag
from aiodev.profiler.operations import Operation

__all__ = ["Recorded"]


class Recorded(Protocol):
    """A :class:`~aiodev.profiler.Profile`, to what shows it."""

    @property
    def names(self) -> Mapping[int, str]: ...
    @property
    def lag(self) -> LoopLag: ...
    @property
    def operations(self) -> list[Operation]: ...
    @property
    def memory_events(self) -> list[MemoryEvent]: ...
    @property
    def dropped(self) -> int: ...
    @property
    def began_ns(self) -> int: ...
    @property
    def ended_ns(self) -> int: ...
