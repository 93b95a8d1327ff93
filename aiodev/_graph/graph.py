"""Graphs: recordings that are replayed."""

from __future__ import annotations

import struct
import threading
import weakref
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NoReturn

import numpy as np

from aiodev._array.array import Array, allocate
from aiodev._array.dtypes import DType, parse_dtype
from aiodev._array.layout import extent
from aiodev._core import arguments, callsites
from aiodev._core.at_fork import in_child
from aiodev._core.backend.interface import FAULTS, Executor
from aiodev._core.errors import BadForkError, CaptureError
from aiodev._core.streams.completion import Completion, several
from aiodev._core.streams.current import current_stream
from aiodev._core.streams.stream import Stream
from aiodev._core.timeline import faults
from aiodev._core.timeline.gate import Gate, opened_on_error
from aiodev._core.timeline.timeline import Timeline
from aiodev._core.waiting.watcher import watcher
from aiodev._graph.export import as_dot, as_table
from aiodev._graph.recorder import Branch, Memory, Recorder
from aiodev._graph.schedule import START, CallStep, Run, Step, make_schedule
from aiodev._memory.allocator import DeviceBuffer

if TYPE_CHECKING:
    from aiodev._core.backend.device import Device
    from aiodev._generator.recording import Recording as Draws
    from aiodev._kernel.compile.service import PendingKernel
    from aiodev._memory.buffer import Buffer
    from aiodev._memory.pool import MemoryPool

__all__ = ["Graph", "Place", "span"]

#: Where an address that moves is: its run, the command in it, the byte of the arguments, and how far behind which it is.
Place = tuple["Run", int, int, int]

_address = struct.Struct("<q")
_pair = struct.Struct("<2q")
_patch = struct.Struct("<q8s")
_refilled = struct.Struct("<qQqQ")
_WORD = 8
callsites.register_library(__package__)
_graphs: weakref.WeakSet[Graph] = weakref.WeakSet()


@dataclass(slots=True)
class Input:
    """What :meth:`Graph.update` changes.

    Attributes:
        array: what is there now.
        places: of the addresses that move with it.
        is_number: it is a number in memory of the graph, whose content changes, not the address.
        written: whether the graph writes to it.
    """

    array: Array
    is_number: bool
    places: list[Place] = field(default_factory=list)
    written: bool = False


class _Resources:
    """What replays need, which may run longer than the graph lives."""

    def __init__(self, recorder: Recorder, runs: list[Run], sites: list[int]) -> None:
        self.memory, self.runs, self.call_sites = recorder.memory, runs, sites
        kernels = {node.kernel for run in runs for node in run.nodes}  # whose code they keep
        self.kept: list[object] = [*recorder.kept, *recorder.draws.values(), kernels]
        self.held = recorder.held
        self.made = [weakref.ref(buffer) for buffer in recorder.memory.made]
        self.executor: Executor | None = None
        self.begin = 0  # a command buffer without commands
        self.replays = recorder.memory.replays

    def make_buffer(self, run: Run, executor: Executor, index: int) -> int:
        """The command buffer of a run, which is made when it is first needed."""
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
            for buffer in (self.begin, *(run.buffer for run in self.runs)):
                if buffer:
                    self.executor.destroy_buffer(buffer)
        callsites.forget_nodes(self.call_sites)
        self.kept.clear()
        self.held.clear()


def _end(resources: _Resources) -> None:
    """The graph is gone: let go of what it needs once no replay runs."""
    timeline, value = resources.replays.timeline, resources.replays.value
    if timeline is None or timeline.lost is not None:
        resources.let_go()
    else:
        watcher.hand_over(timeline, value, resources.let_go)


class Graph:
    """What :func:`capture` has recorded, to be submitted again as one operation.

    It holds all memory that its operations use. What was made while it was captured comes from its :attr:`pool`, and has the
    values that the last replay has left. A graph belongs to its process; any thread may replay it, one replay after the other.

    Attributes:
        device: where it runs.

    Example:
        >>> import aiodev
        >>> @aiodev.kernel
        ... def double(i, x):
        ...     x[i] *= 2
        >>> async def main():
        ...     x = aiodev.ones(3, device="cpu")
        ...     async with aiodev.capture() as graph:
        ...         for _ in range(10):
        ...             double[3](x)
        ...     print(repr(graph))
        ...     await graph.replay()
        ...     return await x.tolist()
        >>> asyncio.run(main())
        <aiodev.Graph of 10 operations on cpu:0>
        [1024.0, 1024.0, 1024.0]
    """

    def __init__(self, device: Device) -> None:
        self.device = device
        self._memory: Memory | None = None
        self._recorder: Recorder | None = None
        self._recorded: Recorder | None = None  # from the end of the block to when the graph is first looked at
        self._resources: _Resources | None = None
        self._is_parents = False
        self._steps: list[Step] = []
        self._only: Run | None = None  # where there is no other step
        self._inputs: dict[str, Input] = {}
        # What each replay writes, by address, and as the executor has it: always all of it, since a replay may be withdrawn.
        self._words: dict[int, bytes] = {}
        self._patches = b""
        self._lanes: list[list[Stream]] = []
        self._stream_ids: list[int] = []
        _graphs.add(self)

    # While it is captured

    def _begin(self, recorder: Recorder) -> None:
        """Take what is recorded from now on."""
        self._recorder = recorder
        self._memory = recorder.memory

    def _recording(self) -> Recorder:
        assert self._recorder is not None
        return self._recorder

    @property
    def pool(self) -> MemoryPool:
        """The memory of what was made while it was captured; other captures may share it, if the graphs never run at once."""
        assert self._memory is not None
        return self._memory.pool

    def input(self, name: str, value: Any, dtype: Any = None) -> Array:
        """Name an array, or a number, that :meth:`update` can change; in the block that captures the graph.

        An array stays as it is, and is given back. A number becomes an array without dimensions, in memory of the graph, which
        kernels read: a position, a length, a factor.

        Args:
            name: by which ``update`` has it.
            value: an array that was made before the capture, or a number.
            dtype: of a number; by default what NumPy makes of it.

        Raises:
            CaptureError: the graph is not being captured.
            ValueError: the name is taken, or the array was made by the capture, or shares memory with another input.
            TypeError: it is neither.
        """
        if self._recorder is None:
            raise CaptureError("inputs are named while the graph is captured", call="Graph.input")
        recorder = self._recorder
        arguments.instance("input", "name", name, str, "a name")
        if name in self._inputs:
            raise ValueError(f"input {name!r}: the graph has one of that name")
        if isinstance(value, Array):
            if value._buffer in recorder.memory.made or value.device is not self.device:
                raise ValueError(f"input {name!r}: expected an array of {self.device} that was made before the capture")
            first, last = span(value)
            for other, known in self._inputs.items():
                begin, end = span(known.array)
                if first < end and begin < last:
                    raise ValueError(f"input {name!r}: it shares memory with input {other!r}")
            self._inputs[name] = Input(value, False)
            recorder.hold(value._buffer, False)
            recorder.inputs.add(value._buffer)
            return value
        number = _number("input", name, value, None if dtype is None else parse_dtype(dtype))
        array = allocate((), number.dtype, recorder.streams[0])
        recorder.kept.append(array)
        self._inputs[name] = Input(array, True)
        self._set_number(array, number)
        self._pack_words()
        return array

    def while_(self, condition: Array) -> Block:
        """``with graph.while_(condition):`` what is submitted in the block runs again and again, while that is not zero.

        The condition is an array of one element, an integer or a truth value, which the device looks at before each round. The
        block is captured once. It must write the condition, and what it hands from one round to the next: arrays in place.

        Raises:
            CaptureError: the graph is not being captured, or its device has no loops; in the block: another stream, a wait, a
                call of the host, a draw.
            TypeError: the condition is no array of integers or truth values.
            ValueError: it has another number of elements, or is an input that is replaced.

        Example:
            >>> import aiodev
            >>> @aiodev.kernel
            ... def halve(i, x, steps, goes_on):
            ...     x[i] = x[i] // 2 if x[i] % 2 == 0 else 3 * x[i] + 1
            ...     steps[i] += 1
            ...     goes_on[i] = x[i] != 1
            >>> async def main():
            ...     x, steps = aiodev.full(1, 27, device="cpu"), aiodev.zeros(1, "int64", "cpu")
            ...     goes_on = aiodev.ones(1, "bool", "cpu")
            ...     async with aiodev.capture() as graph:
            ...         with graph.while_(goes_on):
            ...             halve[1](x, steps, goes_on)
            ...     await graph.replay()
            ...     return await steps.item()
            >>> asyncio.run(main())
            111
        """
        return Block(self, "while", condition)

    def if_(self, condition: Array) -> Block:
        """``with graph.if_(condition):`` what is submitted in the block runs if ``condition`` is not zero; as :meth:`while_`.

        Example:
            >>> import aiodev
            >>> @aiodev.kernel
            ... def add_one(i, x):
            ...     x[i] += 1
            >>> async def main():
            ...     x = aiodev.zeros(1, device="cpu")
            ...     async with aiodev.capture() as graph:
            ...         with graph.if_(graph.input("wanted", True)):
            ...             add_one[1](x)
            ...     for wanted in (True, False, True):
            ...         graph.update(wanted=wanted)
            ...         graph.replay()
            ...     return await x.item()
            >>> asyncio.run(main())
            2.0
        """
        return Block(self, "if", condition)

    def _give_up(self) -> None:
        """The block that captures it has failed."""
        self._recorder = None

    def _seal(self) -> None:
        """The recording is whole."""
        self._recorded, self._recorder = self._recorder, None

    def _instantiate(self, recorder: Recorder) -> _Resources:
        """Make a schedule of the recording."""
        self._steps, nodes = make_schedule(recorder.items())
        self._stream_ids = recorder.stream_ids
        runs = [step for step in self._steps if isinstance(step, Run)]
        sites = [callsites.enter_node(node.site, number) for number, node in enumerate(nodes)]
        resources = _Resources(recorder, runs, sites)
        weakref.finalize(self, _end, resources).atexit = False
        self._draws = [draws for draws in recorder.draws.values() if draws.count]
        self._awaited = recorder.awaited
        self._loading = list({node.kernel for node in nodes if node.kernel is not None and not node.kernel.ready})
        if len(self._steps) == len(runs) == 1:
            self._only = runs[0]
        for one in self._inputs.values():
            if not one.is_number:
                one.places = self._find_places(*span(one.array), one.array._address)
                one.written = resources.held.get(one.array._buffer, False)
        self._sort_uses(resources)
        return resources

    def _find_places(self, first: int, last: int, base: int) -> list[Place]:
        """Where addresses from ``first`` up to ``last`` are among the arguments, and how far behind ``base`` each is."""
        return list(self._places_of(first, last, base))

    def _places_of(self, first: int, last: int, base: int) -> Iterator[Place]:
        for step in self._steps:
            if isinstance(step, Run):
                for k, node in enumerate(step.nodes):
                    for at in node.address_places():
                        (address,) = _address.unpack_from(node.block, at)
                        if first <= address < last or address == first:
                            yield step, k, at, address - base

    def _sort_uses(self, resources: _Resources) -> None:
        """List what each replay notes, and in which memory."""
        self._read = [buffer for buffer, writes in resources.held.items() if not writes]
        self._written = [buffer for buffer, writes in resources.held.items() if writes]

    def _sealed(self) -> _Resources:
        recorder, self._recorded = self._recorded, None
        if recorder is not None:
            self._resources = self._instantiate(recorder)
        if self._is_parents:
            raise BadForkError("the graph", "capture it here")
        if self._resources is None:
            raise RuntimeError("the block that captures the graph was not left, or has failed")
        return self._resources

    # Changes

    def update(self, **values: Any) -> None:
        """Change inputs, from the next replay on. Nothing waits, and replays that were submitted before see nothing of it.

        An array takes the place of the one that was there: the graph uses its memory, without a copy. A number is written to
        the memory of the graph.

        Args:
            values: by the names that :meth:`input` was given.

        Raises:
            TypeError: there is no such input, or it is a number where an array was, or the other way round.
            ValueError: an array has another shape, dtype, layout or device, is read-only where the graph writes, or is one that
                the graph uses otherwise.
            OverflowError: a number is beyond the input's dtype.

        Example:
            >>> import aiodev
            >>> @aiodev.kernel
            ... def scale(i, factor, x):
            ...     x[i] *= factor[()]
            >>> async def main():
            ...     x, y = aiodev.ones(2, device="cpu"), aiodev.ones(2, device="cpu")
            ...     async with aiodev.capture() as graph:
            ...         scale[2](graph.input("factor", 2.0), graph.input("x", x))
            ...     graph.replay()
            ...     graph.update(factor=10.0, x=y)
            ...     await graph.replay()
            ...     return await x.tolist(), await y.tolist()
            >>> asyncio.run(main())
            ([2.0, 2.0], [10.0, 10.0])
        """
        self._sealed()
        changes: list[tuple[Input, Any]] = []
        for name, value in values.items():
            known = self._inputs.get(name)
            if known is None:
                names = ", ".join(self._inputs) or "none"
                raise TypeError(f"update: {name}: the graph has no input of that name; it has {names}")
            if known.is_number:
                changes.append((known, _number("update", name, value, known.array.dtype)))
            else:
                self._check(name, known, value)
                changes.append((known, value))
        for known, value in changes:  # all of them, or none
            if known.is_number:
                self._set_number(known.array, value)
            else:
                self._move(known, value)
        self._pack_words()
        self._sort_uses(self._sealed())

    def _check(self, name: str, known: Input, value: Any) -> None:
        """Raise for what cannot take the place of an array."""
        old = known.array
        if not isinstance(value, Array):
            raise TypeError(f"update: {name}: expected an array, got {type(value).__name__}")
        if value.device is not self.device:
            raise ValueError(f"update: {name}: expected an array on {self.device}, got one on {value.device}")
        if value.shape != old.shape or value.dtype != old.dtype:
            was, found = (f"the shape {x.shape} and the dtype {x.dtype}" for x in (old, value))
            raise ValueError(f"update: {name}: expected {was}, got {found}; a graph is captured for one of them")
        if value.strides != old.strides:
            raise ValueError(f"update: {name}: expected the strides {old.strides}, got {value.strides}")
        if known.written and not value.writable:
            raise ValueError(f"update: {name}: the graph writes to it, and this one is read-only")
        if value._buffer is not old._buffer:
            writes = self._sealed().held.get(value._buffer)
            if writes or (known.written and writes is not None):
                raise ValueError(f"update: {name}: the graph uses that array otherwise, and writes to one of them")

    def _set_number(self, array: Array, number: np.ndarray[Any, DType]) -> None:
        data = number.tobytes()
        for at in range(0, len(data), _WORD):
            self._words[array._address + at] = data[at : at + _WORD].ljust(_WORD, b"\0")

    def _pack_words(self) -> None:
        self._patches = b"".join([_address.pack(address) + word for address, word in self._words.items()])

    def _move(self, known: Input, array: Array) -> None:
        """Have the graph use another array."""
        held = self._sealed().held
        before = known.array._buffer
        known.array = array
        if all(other.array._buffer is not before for other in self._inputs.values()) and not self._uses_otherwise(before):
            held.pop(before, None)
        held[array._buffer] = held.get(array._buffer, False) or known.written
        self._rebind(known.places, array._address)

    def _uses_otherwise(self, buffer: Buffer, places: Iterable[Place] = ()) -> bool:
        """Whether the graph uses a buffer but by its inputs, and by ``places``; as far as that is known."""
        if not isinstance(buffer, DeviceBuffer):
            return True
        known = {(id(run), k, at) for one in self._inputs.values() for run, k, at, _ in one.places}
        known.update((id(run), k, at) for run, k, at, _ in places)
        found = self._places_of(buffer.address, buffer.address + buffer.block.size, 0)
        return any((id(run), k, at) not in known for run, k, at, _ in found)

    def _rebind(self, places: Sequence[Place], address: int) -> None:
        """Put another address where an array's is."""
        for run, k, at, distance in places:
            word = _address.pack(address + distance)
            node = run.nodes[k]
            node.block = node.block[:at] + word + node.block[at + _WORD :]
            if run.buffer:
                self._words[run.places[k] + at] = word

    # Replays

    def replay(self, stream: Stream | None = None) -> Completion[None]:
        """Submit it to a stream of its device (default: the current one), as one operation; never blocks.

        Replays run in the order of their stream. Another stream is refused while one runs, unless that stream waits for it.
        What the graph reads and writes is ordered otherwise as for any operation: by streams and events.

        An operation that fails fails the replay, and what comes after it in the graph does not run: the error names the
        operation, and the line that captured it. Later replays run, once somebody was told. :meth:`Completion.cancel` withdraws
        a replay that has not begun.

        Raises:
            RuntimeError: the block that captures it was not left, or has failed; or it still runs on another stream.
            BadForkError: it is of the parent of this forked process.
            CaptureError: the stream is being captured.
            ValueError: the stream is on another device; or a generator has not so many words left.
            StreamFullError: ``maxsize`` operations are pending.
        """
        if stream is None:
            stream = current_stream(self.device)
        try:
            timeline, resources, device = stream.timeline, self._resources, stream.device
        except AttributeError:
            raise arguments.refusal("replay", "stream", "a Stream, or None", stream) from None
        if resources is None or timeline.recording is not None or device is not self.device:
            resources = self._admit(stream)
        if stream.maxsize or stream._closed:
            stream._check_room()
        replays = resources.replays
        if replays.timeline is not timeline:
            replays.check(stream)
        patches = self._patches
        if self._draws:
            patches = b"".join((patches, *map(_refill, self._draws)))
        operations = timeline.operations
        if self._loading or self._awaited:
            first, value = self._submit_later(stream, patches)
        elif self._only is not None and operations.has_buffers:
            buffer = self._only.buffer or resources.make_buffer(self._only, operations, self.device.index)
            first = value = operations.execute(timeline.queue, buffer, patches)
        else:
            first, value = self._submit(stream, patches)
        replays.timeline, replays.value, replays.stream = timeline, value, timeline.label
        self._note_uses(timeline, value)
        return Completion(timeline, value) if first == value else several(timeline, first, value)

    def _admit(self, stream: Stream) -> _Resources:
        """What replays need; raises if there can be none on this stream."""
        resources = self._sealed()
        if stream.timeline.recording is not None:
            stream.timeline.recording.refuse("a replay cannot be captured")
        if stream.device is not self.device:
            raise ValueError(f"replay: the graph is on {self.device}, {stream!r} is on {stream.device}")
        return resources

    def _submit_later(self, stream: Stream, patches: bytes) -> tuple[int, int]:
        """Submit behind what is not there yet: code that is being compiled, libraries that are being loaded."""
        timeline = stream.timeline
        self._awaited = [done for done in self._awaited if not done.query()]
        for done in self._awaited:
            stream.wait(done)
        self._loading = [kernel for kernel in self._loading if not kernel.ready]
        if not self._loading:
            return self._submit(stream, patches)
        gate = timeline.gate()
        with opened_on_error(gate):
            first, value = self._submit(stream, patches)
        gate.guards = first
        _open_when_done(gate, self._loading)
        return (gate.value if gate.value == first - 1 else first), value

    def _submit(self, stream: Stream, patches: bytes) -> tuple[int, int]:
        """Submit all steps; gives the first and the last operation of the stream."""
        lanes = [stream, *self._lanes_for(stream)]
        timeline = stream.timeline
        begin = start = timeline.submitted
        if patches and (self._only is None or not timeline.operations.has_buffers):
            start, patches = self._write(timeline, patches), b""  # before other streams, which wait for that
        values: list[int] = []
        for step in self._steps:
            lane = lanes[step.lane].timeline
            if isinstance(step, Run):
                value = self._run(lane, step, patches)
            elif isinstance(step, CallStep):
                value = lanes[step.lane].call(step.call.function, *step.call.arguments).value
            else:
                other = lanes[step.other].timeline
                point = start if step.step == START else values[step.step]
                lane.join(other, point, other.clock_at(point))
                value = lane.submitted
            values.append(value)
        return begin + 1, timeline.submitted

    def _lanes_for(self, stream: Stream) -> list[Stream]:
        """The streams, but for the first, of a replay on this one: idle ones, which have forgotten what failed there.

        A replay that waits in line has streams of its own. So what becomes of it, if it is withdrawn or follows a failure, is
        nothing to the next one.
        """
        count = len(self._stream_ids) - 1
        for lanes in self._lanes:
            if lanes and lanes[0].priority == stream.priority and not any(lane.qsize() for lane in lanes):
                break
        else:
            lanes = [Stream(self.device, stream.priority) for _ in range(count)]
            self._lanes += [lanes] if lanes else []
        for lane in lanes:
            timeline = lane.timeline
            timeline.owned = True
            if timeline.counters[FAULTS]:
                for fault in timeline.untold_faults():
                    faults.tell(timeline, fault)
        return lanes

    def _write(self, timeline: Timeline, patches: bytes) -> int:
        """Have the device write words, in stream order."""
        operations, value = timeline.operations, 0
        if operations.has_buffers:
            begin = self._sealed().make_begin(operations, self.device.index)
            return operations.execute(timeline.queue, begin, patches)
        for address, word in _patch.iter_unpack(patches):
            value = operations.fill(timeline.queue, address, 1, word)
        return value

    def _run(self, timeline: Timeline, run: Run, patches: bytes) -> int:
        """Submit a run, as one operation where the executor can."""
        operations, queue = timeline.operations, timeline.queue
        resources = self._sealed()
        if operations.has_buffers:
            buffer = run.buffer or resources.make_buffer(run, operations, self.device.index)
            return operations.execute(queue, buffer, patches)
        value = 0
        for node, site in zip(run.nodes, resources.call_sites[run.first :], strict=False):
            block = node.block
            if node.kind == "branch":
                raise RuntimeError(f"replay: {timeline!r} has not begun yet, and the graph has blocks: start the device first")
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
        return value

    def _note_uses(self, timeline: Timeline, value: int) -> None:
        """Note the replay in the memory that it uses (invariant 4)."""
        for buffer in self._read:
            if buffer._reader is timeline and buffer._read < value:
                buffer._read = value
            else:
                buffer._record_read(timeline, value)
        for buffer in self._written:
            buffer._record_write(timeline, value)
        made, gone = self._sealed().made, False
        for reference in made:
            found = reference()
            if found is None:
                gone = True
            else:
                found._record_write(timeline, value)
        if gone:
            made[:] = [reference for reference in made if reference() is not None]

    # What it looks like

    def __len__(self) -> int:
        """How many operations it has: launches, copies, fills and calls."""
        if self._recorded is not None:
            self._sealed()
        count = 0
        for step in self._steps:
            if isinstance(step, Run):
                count += sum(not isinstance(node, Branch) for node in step.nodes)
            elif isinstance(step, CallStep):
                count += 1
        return count

    def __bool__(self) -> bool:
        """True, also of a graph without operations."""
        return True

    def __repr__(self) -> str:
        operations = len(self)
        if self._resources is None:
            return f"<aiodev.Graph on {self.device}, not captured>"
        streams = f", {len(self._stream_ids)} streams" if len(self._stream_ids) > 1 else ""
        return f"<aiodev.Graph of {operations} operations on {self.device}{streams}>"

    def __str__(self) -> str:
        """A table of its operations: number, stream, kernel, size, what it follows on other streams, where it was captured."""
        shown = repr(self)
        return f"{shown}\n{as_table(self._steps, self._stream_ids)}" if self._steps else shown

    def to_dot(self) -> str:
        """Its operations and their order in DOT, which Graphviz draws.

        Raises:
            RuntimeError: the block that captures it was not left, or has failed.

        Example:
            >>> import aiodev
            >>> async def main():
            ...     async with aiodev.capture(aiodev.Stream("cpu")) as graph:
            ...         x = aiodev.zeros(3, device="cpu")
            ...     return graph.to_dot()
            >>> print(asyncio.run(main()))
            digraph {
              node [shape=box, fontname=monospace];
              subgraph cluster_0 {
                label="stream ...";
                n0 [label="0 fill  3"];
              }
            }
        """
        self._sealed()
        return as_dot(self._steps, self._stream_ids)

    def __reduce__(self) -> NoReturn:
        """It holds memory and code of this process."""
        raise TypeError("graphs are not pickled or copied: they belong to their process; capture one there")


class Block:
    """The guard of a block of a graph that runs as its condition says; see :meth:`Graph.while_`."""

    __slots__ = ("_condition", "_graph", "_label")

    def __init__(self, graph: Graph, label: str, condition: Array) -> None:
        self._graph, self._label, self._condition = graph, label, condition

    def __enter__(self) -> None:
        condition, name = self._condition, f"{self._label}_"
        if self._graph._recorder is None:
            raise CaptureError("blocks are captured with the graph", call=f"Graph.{name}")
        recorder: Recorder = self._graph._recorder
        if not isinstance(condition, Array) or condition.dtype.kind not in "biu" or condition.device is not recorder.device:
            expected = f"an array of integers or truth values on {recorder.device}"
            raise arguments.refusal(name, "condition", expected, condition)
        if condition.size != 1:
            raise ValueError(f"{name}: condition has the shape {condition.shape}; expected one element")
        if condition._buffer in recorder.inputs:
            raise ValueError(f"{name}: condition is in an input, whose place another array may take; copy it")
        stream = current_stream(recorder.device)
        if stream.timeline.recording is not recorder:
            recorder.refuse(f"{stream!r} is not captured")
        handle = stream.timeline.handle
        if not (handle.started and handle.backend.executor.has_buffers):
            recorder.refuse(f"{recorder.device} has no command buffers, or has not started: it cannot branch")
        recorder.open_block(stream.timeline, self._label, condition)

    def __exit__(self, *error: object) -> None:
        recorder = self._graph._recorder
        assert recorder is not None
        recorder.close_block()

    def __repr__(self) -> str:
        return f"<aiodev graph block: {self._label}>"


def _refill(draws: Draws) -> bytes:
    """Take the words of one replay; gives what has the device find them."""
    seed, offset, _ = draws.generator.reserve(draws.count)
    at = draws.words._address
    return _refilled.pack(at, seed, at + _WORD, offset)


def _open_when_done(gate: Gate, loading: Sequence[PendingKernel]) -> None:
    """Open a gate when all kernels are loaded, or one is known never to be."""
    left = threading.Semaphore(len(loading) - 1)

    def done(error: BaseException | None) -> None:
        if error is not None:
            gate.open(error)
        elif not left.acquire(blocking=False):
            gate.open()

    with opened_on_error(gate):
        for kernel in loading:
            kernel.when_done(done)


def span(array: Array) -> tuple[int, int]:
    """The addresses of an array's elements, from the first to behind the last."""
    first, last = extent(array._layout, array.itemsize)
    return array._address + first, array._address + last


def _number(function: str, name: str, value: Any, dtype: DType | None) -> np.ndarray[Any, DType]:
    """A number as its bytes are on the device."""
    if isinstance(value, bool | int | float | complex | np.generic):
        try:
            found = np.asarray(value, dtype)
        except OverflowError:
            raise OverflowError(f"{function}: {name}: {value} is out of bounds for {dtype}") from None
        if dtype is not None or found.dtype.kind in "biufc":
            parse_dtype(found.dtype)
            return found
    raise TypeError(f"{function}: {name}: expected an array or a number, got {type(value).__name__}")


def _forget_after_fork() -> None:
    for graph in list(_graphs):
        graph._resources = graph._recorder = graph._recorded = None
        graph._is_parents = True


in_child(_forget_after_fork)
