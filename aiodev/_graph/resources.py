"""What replays of a graph need, for as long as one runs."""

from __future__ import annotations

import weakref
from typing import TYPE_CHECKING, Any, Protocol

from aiodev._core import callsites
from aiodev._core.backend.interface import Executor
from aiodev._core.streams.completion import Completion
from aiodev._core.waiting.watcher import watcher
from aiodev._graph.memory import Memory
from aiodev._graph.schedule import Run

if TYPE_CHECKING:
    from aiodev._core.timeline.recording import Effect
    from aiodev._core.timeline.timeline import Timeline
    from aiodev._generator.generator import Generator
    from aiodev._generator.recording import Recording as Draws
    from aiodev._memory.buffer import Buffer

__all__ = ["Recorded", "Resources", "end"]


class Recorded(Protocol):
    """What a graph is made of beside its schedule: a recorder has it, or what was read from a file.

    Attributes:
        memory: of what the capture has made.
        held: other memory, and whether it is written to.
        followed: memory of before the capture whose uses, by whomever, each replay is ordered after.
        kept: whatever else operations need.
        draws: of each generator, what is drawn.
        awaited: what replays are ordered after.
        effects: what they change on the host.
        stream_ids: of the streams that were captured.
    """

    memory: Memory
    held: dict[Buffer, bool]
    followed: set[Buffer]
    kept: list[object]
    draws: dict[Generator, Draws]
    awaited: list[Completion[Any]]
    effects: list[Effect]
    stream_ids: list[int]


class Resources:
    """What replays need, which may run longer than the graph lives."""

    def __init__(self, recorded: Recorded, runs: list[Run], sites: list[int]) -> None:
        self.memory, self.runs, self.call_sites = recorded.memory, runs, sites
        kernels = {node.kernel for run in runs for node in run.nodes}  # whose code they keep
        self.kept: list[object] = [*recorded.kept, *recorded.draws.values(), kernels]
        self.held, self.followed = recorded.held, recorded.followed
        self.effects = recorded.effects
        self.made = [weakref.ref(buffer) for buffer in recorded.memory.made]
        self.executor: Executor | None = None
        self.begin = 0  # a command buffer without commands
        self.schedule = 0  # of all runs, where there are several
        self.noted = 0  # by which recorder of a profile, the last one
        self.replays = recorded.memory.replays
        self.sort_uses()

    def sort_uses(self) -> None:
        """List the memory in which each replay is noted; to be called when ``held`` has changed."""
        self._read = [buffer for buffer, writes in self.held.items() if not writes]
        self._written = [buffer for buffer, writes in self.held.items() if writes]

    def note_replay(self, timeline: Timeline, value: int) -> None:
        """Note a replay, and in the memory that it uses, too (invariant 4)."""
        replays = self.replays
        replays.timeline, replays.value, replays.stream = timeline, value, timeline.label
        for buffer in self._read:
            if buffer._reader is timeline and buffer._read < value:
                buffer._read = value
            else:
                buffer._record_read(timeline, value)
        for buffer in self._written:
            if buffer._writer is timeline and buffer._written < value:
                buffer._written = value
            else:
                buffer._record_write(timeline, value)
        made, gone = self.made, False
        for reference in made:
            memory = reference()
            if memory is None:
                gone = True
            else:
                memory._record_write(timeline, value)
        if gone:
            made[:] = [reference for reference in made if reference() is not None]

    def make_buffer(self, run: Run, executor: Executor, index: int) -> int:
        """The command buffer of a run, which is made when it is first needed; 0 where it can have none."""
        self.executor = executor
        return run.make_buffer(executor, index, self.call_sites)

    def make_begin(self, executor: Executor, index: int) -> int:
        """A command buffer without commands, for patches."""
        if not self.begin:
            self.executor = executor
            self.begin, _ = executor.create_buffer(index, ())
        return self.begin

    def let_go(self) -> None:
        """Give native memory back, and all that was held: ahead of the pool, which then gives back what it has."""
        if self.executor is not None:
            if self.schedule:
                self.executor.destroy_schedule(self.schedule)
            for buffer in (self.begin, *(run.buffer for run in self.runs)):
                if buffer:
                    self.executor.destroy_buffer(buffer)
        callsites.forget_nodes(self.call_sites)
        self.kept.clear()
        self.held.clear()
        self.sort_uses()
        self.followed.clear()
        self.effects.clear()


def end(resources: Resources) -> None:
    """The graph is gone: let go of what it needs once no replay runs."""
    timeline, value = resources.replays.timeline, resources.replays.value
    if timeline is None or timeline.lost is not None:
        resources.let_go()
    else:
        watcher.hand_over(timeline, value, resources.let_go)
