"""Submitting replays: the steps of a schedule, each to a stream of the device."""

from __future__ import annotations

import struct
import threading
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from aiodev._core.backend.interface import FAULTS, ScheduleStep
from aiodev._core.streams import trace
from aiodev._core.streams.stream import Stream
from aiodev._core.streams.trace import NodeNote
from aiodev._core.timeline import faults
from aiodev._core.timeline.gate import Gate, fails_on_error
from aiodev._core.timeline.timeline import Timeline
from aiodev._core.timeline.vector_clock import totals
from aiodev._generator.state import guard
from aiodev._graph.recorder import Branch, Node, Round
from aiodev._graph.resources import Recorded, Resources
from aiodev._graph.rows import Signal
from aiodev._graph.schedule import START, CallStep, Run, Step, WaitStep

if TYPE_CHECKING:
    from aiodev._core.backend.device import Device
    from aiodev._generator.recording import Recording as Draws
    from aiodev._kernel.compile.service import PendingKernel

__all__ = ["Submitter"]

_address = struct.Struct("<q")
_pair = struct.Struct("<2q")
_patch = struct.Struct("<q8s")
_refilled = struct.Struct("<q8sq8s")
_WORD = 8


class Submitter:
    """Submits the replays of one graph.

    Attributes:
        only: the run that is the whole schedule, if it is one.
        is_plain: a replay is the execution of that run's command buffer, and no more.
        draws: what replays take from generators.
        rounds: ends of rounds that have written a row, each with its run and its number there.
    """

    def __init__(
        self, device: Device, steps: Sequence[Step], nodes: Sequence[Node], recorded: Recorded, resources: Resources
    ) -> None:
        self._device, self._steps, self._resources = device, steps, resources
        runs = resources.runs
        self.only = runs[0] if len(steps) == len(runs) == 1 else None
        self.draws = [draws for draws in recorded.draws.values() if draws.count or not draws.is_fixed]
        self.rounds = [(run, k, node) for run in runs for k, node in enumerate(run.nodes) if isinstance(node, Round)]
        self._with_blocks = [run for run in runs if any(isinstance(node, Branch) for node in run.nodes)]
        self._awaited = list(recorded.awaited)
        self._loading = list({node.kernel for node in nodes if node.kernel is not None and not node.kernel.ready})
        self._other_streams = len(recorded.stream_ids) - 1
        self._lanes: list[list[Stream]] = []
        self._can_schedule = len(steps) > 1 and not any(isinstance(step, CallStep) for step in steps)
        self._starts_others = any(isinstance(step, WaitStep) and step.step == START for step in steps)
        waits = [(step.lane, step.other) for step in steps if isinstance(step, WaitStep)]
        self._waits, self._wait_count = set(waits), len(waits)
        self._counts = Counter(step.lane for step in steps)
        self.is_plain = self._finds_plain()

    def submit(self, stream: Stream, patches: bytes) -> tuple[int, int, list[Signal]]:
        """Submit a replay that has more to it than one command buffer.

        Gives its first and last operation, and what it signals the ends of rounds to.
        """
        timeline, signals = stream.timeline, list[Signal]()
        if trace.active is not None:
            trace.active.note_nodes(self._resources.call_sites, self.notes)
        for run in self._with_blocks:
            self._check_blocks(timeline, run)
        if not self.rounds:
            return *self._submit_all(stream, patches), signals
        signals, patches = self._signals(timeline, patches)
        first = 0

        def submit() -> int:
            nonlocal first
            first, value = self._submit_all(stream, patches)
            return value

        value = timeline.submit_with(signals, 0, submit)  # the device knows of them until then
        return first, value, signals

    def _submit_all(self, stream: Stream, patches: bytes) -> tuple[int, int]:
        """Submit all commands, and what they draw; gives the first and the last operation of the stream."""
        if all(draws.is_fixed for draws in self.draws):
            patches = b"".join((patches, *[_refill(draws, draws.refill(stream)) for draws in self.draws]))
            return self._submit_whole(stream, patches)
        with guard():  # until the generators stand where the replay ends
            return self._submit_drawing(stream, patches)

    def _submit_drawing(self, stream: Stream, patches: bytes) -> tuple[int, int]:
        """Submit a replay that draws as often as the device decides, and what tells the host how far it has come."""
        tellings = []
        for draws in self.draws:
            if draws.is_fixed:
                words = draws.refill(stream)
            else:
                words, telling = draws.begin(stream, draws.generator._state)
                tellings.append(telling)
            patches += _refill(draws, words)
        first, _ = self._submit_whole(stream, patches)
        for telling in tellings:
            telling.submit()
        return first, stream.timeline.submitted

    def _submit_whole(self, stream: Stream, patches: bytes) -> tuple[int, int]:
        """Submit all commands; gives the first and the last operation of the stream."""
        if self._loading or self._awaited:
            first, value = self._submit_later(stream, patches)
            self.is_plain = self._finds_plain()
            return first, value
        only = self.only
        if only is not None and self.buffer_of(stream.timeline, only):
            value = self._run(stream, only, patches)
            return value, value
        return self._submit_steps(stream, patches)

    def _check_blocks(self, timeline: Timeline, run: Run) -> None:
        """Raise, ahead of all submissions, if a run has blocks and no command buffer: nobody else can branch."""
        if not self.buffer_of(timeline, run):
            not_begun = f"{timeline!r} has not begun yet: start the device first"
            reason = run.obstacle if timeline.operations.has_buffers else not_begun
            raise RuntimeError(f"replay: the graph has blocks, which only the device can run, and not these: {reason}")

    def _finds_plain(self) -> bool:
        """Whether a replay is the execution of one command buffer, and no more."""
        return self.only is not None and not (self.draws or self.rounds or self._loading or self._awaited)

    def _signals(self, timeline: Timeline, patches: bytes) -> tuple[list[Signal], bytes]:
        """What a replay signals the ends of rounds to; and the patches, with those that have the device know."""
        signals = []
        for run, k, _ in self.rounds:
            self.buffer_of(timeline, run)
            signal = Signal(timeline.handle, self._device.index)
            patches += _pair.pack(run.places[k], signal.queue)
            signals.append(signal)
        return signals, patches

    def _submit_later(self, stream: Stream, patches: bytes) -> tuple[int, int]:
        """Submit behind what is not there yet: code that is being compiled, libraries that are being loaded."""
        timeline = stream.timeline
        self._awaited = [done for done in self._awaited if not done.query()]
        for done in self._awaited:
            stream.wait(done)
        self._loading = [kernel for kernel in self._loading if not kernel.ready]
        if not self._loading:
            return self._submit_steps(stream, patches)
        gate = timeline.gate()
        with fails_on_error(gate, lambda: timeline.submitted, "graph"):
            first, value = self._submit_steps(stream, patches)
            gate.guards = first
            _open_when_done(gate, self._loading)
        return (gate.value if gate.value == first - 1 else first), value

    def _submit_steps(self, stream: Stream, patches: bytes) -> tuple[int, int]:
        """Submit all steps; gives the first and the last operation of the stream."""
        lanes = [stream, *self._lanes_for(stream)]
        timeline = stream.timeline
        schedule = self._schedule_of(timeline) if self._can_schedule else 0
        if schedule:
            return self._submit_schedule(lanes, schedule, patches)
        begin = timeline.submitted
        start = 0
        if self._starts_others or (patches and not (self.only is not None and self.buffer_of(timeline, self.only))):
            # Other streams wait for that, which is the replay's: they are withdrawn with it, and with nothing ahead of it.
            start, patches = self._write(timeline, patches), b""
        values: list[int] = []
        for step in self._steps:
            lane = lanes[step.lane].timeline
            if isinstance(step, Run):
                value = self._run(lanes[step.lane], step, patches)
            elif isinstance(step, CallStep):
                value = lanes[step.lane].call(step.call.noting(), *step.call.arguments).value
            else:
                other = lanes[step.other].timeline
                point = start if step.step == START else values[step.step]
                lane.join(other, point, other.clock_at(point))
                value = lane.submitted
            values.append(value)
        if timeline.submitted == begin:  # what was submitted before is not the replay, and may have failed
            timeline.operations.fill(timeline.queue, 0, 0, bytes(1))
        return begin + 1, timeline.submitted

    def _schedule_of(self, timeline: Timeline) -> int:
        """The executor's schedule of all steps, made when it is first needed; 0 where it has none, or a run no buffer."""
        operations, resources = timeline.operations, self._resources
        if operations.has_schedules and not resources.schedule and all(self.buffer_of(timeline, run) for run in resources.runs):
            resources.schedule = operations.create_schedule(
                [
                    ScheduleStep(step.lane, step.buffer)
                    if isinstance(step, Run)
                    else ScheduleStep(step.lane, 0, step.other, step.step)
                    for step in self._steps if isinstance(step, Run | WaitStep)
                ]
            )  # fmt: skip
        return resources.schedule

    def _submit_schedule(self, lanes: Sequence[Stream], schedule: int, patches: bytes) -> tuple[int, int]:
        """Submit all steps by one call, behind what writes the patches.

        Only this replay submits to the lanes but the first, so nobody asks what their operations are known to follow.
        """
        timelines = [lane.timeline for lane in lanes]
        own = timelines[0]
        values = [timeline.submitted for timeline in timelines]
        queues = struct.pack(f"<{len(timelines)}q", *[timeline.queue for timeline in timelines])
        start = values[0] = self._write(own, patches)
        for lane, other in self._waits:
            timelines[lane].keep_awaited(values[lane] + self._counts[lane], timelines[other])
        own.operations.execute_schedule(schedule, queues, start)
        totals.waits_enqueued += self._wait_count
        if trace.active is not None:
            for step in self._steps:
                values[step.lane] += 1
                if isinstance(step, Run):
                    trace.active.note_replay(lanes[step.lane].stream_id, values[step.lane])
        return start, own.submitted

    def _lanes_for(self, stream: Stream) -> list[Stream]:
        """The streams, but for the first, of a replay on this one: idle ones, which have forgotten what failed there.

        A replay that waits in line has streams of its own. So what becomes of it, if it is withdrawn or follows a failure, is
        nothing to the next one.
        """
        for lanes in self._lanes:
            if lanes and lanes[0].priority == stream.priority and not any(lane.qsize() for lane in lanes):
                break
        else:
            lanes = [Stream(self._device, stream.priority) for _ in range(self._other_streams)]
            self._lanes += [lanes] if lanes else []
        for lane in lanes:
            timeline = lane.timeline
            timeline.owned = True
            if timeline.counters[FAULTS]:
                for fault in timeline.untold_faults():
                    faults.tell(timeline, fault)
        return lanes

    def _write(self, timeline: Timeline, patches: bytes) -> int:
        """Have the device write words, in stream order; an operation, even if there are none."""
        operations, value = timeline.operations, 0
        if operations.has_buffers:
            begin = self._resources.make_begin(operations, self._device.index)
            return operations.execute(timeline.queue, begin, patches)
        for address, word in _patch.iter_unpack(patches):
            value = operations.fill(timeline.queue, address, 1, word)
        return value or operations.fill(timeline.queue, 0, 0, bytes(1))

    def buffer_of(self, timeline: Timeline, run: Run) -> int:
        """The command buffer of a run; 0 where its operations are submitted one by one."""
        operations = timeline.operations
        if not operations.has_buffers:
            return 0
        return run.buffer or self._resources.make_buffer(run, operations, self._device.index)

    def _run(self, stream: Stream, run: Run, patches: bytes) -> int:
        """Submit a run, as one operation where the executor can."""
        timeline = stream.timeline
        operations, queue = timeline.operations, timeline.queue
        resources = self._resources
        buffer = self.buffer_of(timeline, run)
        if buffer:
            value = operations.execute(queue, buffer, patches)
            if trace.active is not None:
                trace.active.note_replay(stream.stream_id, value)
            return value
        value = 0
        for node, site in zip(run.nodes, resources.call_sites[run.first :], strict=False):
            block = node.block
            if node.kind == "launch":
                value = operations.launch(queue, node.entry, node.size, block, site)
            elif node.kind == "copy":
                dst, src = _pair.unpack(block)
                value = operations.copy(queue, dst, src, node.size)
            elif node.kind == "native":
                value = operations.call_native(queue, block)
            else:
                (address,) = _address.unpack_from(block)
                value = operations.fill(queue, address, node.size, block[_WORD:])
            if trace.active is not None:
                trace.active.note_node(stream.stream_id, value, site)
        return value

    def notes(self) -> Iterator[NodeNote]:
        """What a profile says of each node."""
        number = 0
        for step in self._steps:
            for node in step.nodes if isinstance(step, Run) else ():
                what: tuple[str, Any, Any] = ("native", node.name, None)
                if node.kind == "launch":
                    what = ("kernel", node.entry, node.block)
                elif node.kind in ("copy", "fill"):
                    what = (node.kind, 0, node.size * (1 if node.kind == "copy" else len(node.block) - _WORD))
                yield NodeNote(number, *what, node.site)
                number += 1


def _refill(draws: Draws, words: bytes) -> bytes:
    """What has the device find the words of one replay, if it does not by itself."""
    at = draws.words._address
    return _refilled.pack(at, words[:_WORD], at + _WORD, words[_WORD:]) if words else b""


def _open_when_done(gate: Gate, loading: Sequence[PendingKernel]) -> None:
    """Open a gate when all kernels are loaded, or one is known never to be."""
    left = threading.Semaphore(len(loading) - 1)

    def done(error: BaseException | None) -> None:
        if error is not None:
            gate.open(error)
        elif not left.acquire(blocking=False):
            gate.open()

    for kernel in loading:
        kernel.when_done(done)
