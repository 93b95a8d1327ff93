"""Graphs: recordings that are replayed."""

from __future__ import annotations

import os
import threading
import weakref
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

from aiodev._array.array import Array
from aiodev._array.dtypes import parse_dtype
from aiodev._array.overlap import may_overlap, overlap
from aiodev._core import arguments, callsites
from aiodev._core.at_fork import in_child
from aiodev._core.errors import BadForkError, refused
from aiodev._core.streams import trace
from aiodev._core.streams.completion import Completion, several
from aiodev._core.streams.current import current_stream
from aiodev._core.streams.stream import Stream
from aiodev._core.timeline.noting import Noting
from aiodev._core.waiting.reactor import starting
from aiodev._graph.block import Block
from aiodev._graph.deserialize import Loaded, check_document, find_kernels
from aiodev._graph.export import as_dot, as_table
from aiodev._graph.file import read_file, write_file
from aiodev._graph.input import Input, Inputs, number_of
from aiodev._graph.memory import Memory
from aiodev._graph.recorder import Branch, Node, Recorder, Round
from aiodev._graph.resources import Recorded, Resources, end
from aiodev._graph.rows import Rows, Signal
from aiodev._graph.schedule import CallStep, Run, Step, make_schedule
from aiodev._graph.serialize import Contents, build, describe
from aiodev._graph.submitter import Submitter

if TYPE_CHECKING:
    from aiodev._core.backend.device import Device
    from aiodev._memory.pool import MemoryPool

__all__ = ["Graph"]

callsites.register_library(__package__)
_graphs: weakref.WeakSet[Graph] = weakref.WeakSet()


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
        self._recorded: Recorder | None = None  # from the end of the block until a schedule is made of it
        self._sealing = threading.Lock()
        self._resources: Resources | None = None
        self._is_parents = False
        self._steps: list[Step] = []
        self._inputs = Inputs()
        self._last_rows: list[Rows] = []  # of the last replay, from the first one on
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

        An array stays as it is, and is given back. Another one takes its place, and that of its parts, by whatever name the
        capture uses them. A number becomes an array without dimensions, in memory of the graph, which kernels read: a position,
        a length, a factor.

        Args:
            name: by which ``update`` has it.
            value: an array that was made before the capture, or a number.
            dtype: of a number; by default what NumPy makes of it.

        Raises:
            CaptureError: the graph is not being captured.
            ValueError: the name is taken, or the array was made by the capture, or shares elements with another input; or a
                number with a fraction, or NaN, for a dtype of integers.
            TypeError: it is neither, or a complex number for a dtype of real ones.
            OverflowError: a number is beyond ``dtype``.
        """
        if self._recorder is None:
            raise refused("inputs are named while the graph is captured")
        recorder = self._recorder
        arguments.instance("input", "name", name, str, "a name")
        if name in self._inputs:
            raise ValueError(f"input {name!r}: the graph has one of that name")
        if isinstance(value, Array):
            if value._buffer in recorder.memory.made or value.device is not self.device:
                raise ValueError(f"input {name!r}: expected an array of {self.device} that was made before the capture")
            for other, known in self._inputs.items():
                if may_overlap(value, known.array) and overlap(value, known.array):
                    raise ValueError(f"input {name!r}: it shares memory with input {other!r}")
            self._inputs[name] = Input(value, False)
            recorder.hold(value._buffer, False)
            recorder.inputs.add(value._buffer)
            return value
        number = number_of("input", name, value, None if dtype is None else parse_dtype(dtype), "an array or a number")
        array = recorder.make_fresh((), number.dtype)
        self._inputs[name] = Input(array, True)
        self._inputs.set_number(array, number.tobytes())
        self._inputs.pack_words()
        return array

    def while_(self, condition: Array, rows: Array | None = None) -> Block:
        """``with graph.while_(condition):`` what is submitted in the block runs again and again, while that is not zero.

        The condition is an array of one element, an integer or a truth value, which the device looks at before each round. The
        block is captured once. It must write the condition, and what it hands from one round to the next: arrays in place.
        An exception that leaves the block fails the capture, which raises CaptureError at its end if that is caught before;
        to go on without a call that is refused, catch its error in the block.

        Args:
            condition: the array.
            rows: an array of which each round of the loop writes the next row, from the first one on; :meth:`rows` hands them
                to the event loop while later rounds run. Rounds beyond its length hand on nothing.

        Raises:
            CaptureError: the graph is not being captured, or its device has no loops, or none that hand on rows; in the block:
                another stream, a wait, a call of the host; at its end: no operation of the block writes the condition.
            TypeError: the condition is no array of integers or truth values, or ``rows`` is no array.
            ValueError: it has another number of elements, or is an input that is replaced; ``rows`` has no dimensions.

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
        return Block(self._recorder, "while", condition, rows)

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
        return Block(self._recorder, "if", condition, None)

    def _give_up(self) -> None:
        """The block that captures it has failed."""
        self._recorder = None

    def _seal(self) -> None:
        """The recording is whole."""
        recorder = self._recording()
        recorder.seal()
        if recorder.uses and len(recorder.stream_ids) > 1:
            from aiodev._graph.races import tell_races  # for debugging alone

            streams = [f"<aiodev.Stream {number} on {self.device}>" for number in recorder.stream_ids]
            tell_races(recorder.uses, recorder.items(), streams)
        recorder.uses.clear()
        self._recorded, self._recorder = self._recorder, None

    def _instantiate(self, recorder: Recorder) -> Resources:
        """Make a schedule of the recording."""
        self._steps, nodes = make_schedule(recorder.items())
        sites = [callsites.enter_node(node.site, number) for number, node in enumerate(nodes)]
        resources = self._take(recorder, nodes, sites)
        self._inputs.find(resources.held)
        return resources

    def _take(self, recorded: Recorded, nodes: Sequence[Node], sites: list[int]) -> Resources:
        """Take what the schedule's replays need."""
        self._stream_ids = recorded.stream_ids
        runs = [step for step in self._steps if isinstance(step, Run)]
        resources = Resources(recorded, runs, sites)
        weakref.finalize(self, end, resources).atexit = False
        self._submitter = Submitter(self.device, self._steps, nodes, recorded, resources)
        self._inputs.take(runs)
        return resources

    def _sealed(self) -> Resources:
        if self._is_parents:
            raise BadForkError("the graph", "capture it here")
        if self._recorded is not None:
            with self._sealing:
                recorder = self._recorded
                if recorder is not None:
                    self._resources = self._instantiate(recorder)
                    self._recorded = None
        if self._resources is None:
            if self._recorder is not None:
                raise RuntimeError("the graph is being captured: leave the block that captures it first")
            raise RuntimeError(f"the graph was not captured{'' if self._memory is None else ': the block has failed'}")
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
            ValueError: an array has another shape, dtype, layout or device, is read-only where the graph writes, or shares
                elements with what the graph uses otherwise, and one of them is written to; or the graph uses an array that has
                only some of the elements of the one that was there.
            ValueError: a number with a fraction, or NaN, for an input of integers.
            OverflowError: a number is beyond the input's dtype, which is not to make it infinite.

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
        resources = self._sealed()
        changes: list[tuple[Input, Any]] = []
        placed: dict[str, Array] = {}
        for name, value in values.items():
            known = self._inputs.get(name)
            if known is None:
                names = ", ".join(self._inputs) or "none"
                raise TypeError(f"update: {name}: the graph has no input of that name; it has {names}")
            if known.is_number:
                changes.append((known, known.pack(value) or number_of("update", name, value, known.array.dtype).tobytes()))
            else:
                self._check(name, known, value)
                placed[name] = value
                changes.append((known, value))
        if placed:
            self._inputs.check_placed(placed)
        for known, value in changes:  # all of them, or none
            if known.is_number:
                self._inputs.set_number(known.array, value)
            else:
                self._inputs.move(known, value, resources)
        if placed:
            resources.sort_uses()
        self._inputs.pack_words()

    def _check(self, name: str, known: Input, value: Any) -> None:
        """Raise for what cannot take the place of an array."""
        old = known.array
        if not isinstance(value, Array):
            raise arguments.refusal("update", name, "an array", value)
        if value.device is not self.device:
            raise ValueError(f"update: {name}: expected an array on {self.device}, got one on {value.device}")
        if value.shape != old.shape or value.dtype != old.dtype:
            was, own = (f"the shape {x.shape} and the dtype {x.dtype}" for x in (old, value))
            raise ValueError(f"update: {name}: expected {was}, got {own}; a graph is captured for one of them")
        if value.strides != old.strides:
            raise ValueError(f"update: {name}: expected the strides {old.strides}, got {value.strides}")
        if known.written and not value.writable:
            raise ValueError(f"update: {name}: the graph writes to it, and this one is read-only")
        if value._buffer is not old._buffer:
            writes = self._sealed().held.get(value._buffer)
            if writes or (known.written and writes is not None):
                raise ValueError(f"update: {name}: the graph uses that array otherwise, and writes to one of them")

    # Replays

    def replay(self, stream: Stream | None = None) -> Completion[None]:
        """Submit it to a stream of its device (default: the current one), as one operation; never blocks.

        Replays run in the order of their stream. Another stream is refused while one runs, unless that stream waits for it.
        What the graph reads and writes is ordered otherwise as for any operation: by streams and events.

        An operation that fails fails the replay, and what comes after it in the graph does not run: the error names the
        operation, and the line that captured it. Later replays run, once somebody was told. :meth:`Completion.cancel` withdraws
        a replay that has not begun.

        Raises:
            RuntimeError: the block that captures it was not left, or has failed, which the message says; it still runs on
                another stream; or it has blocks with what the device cannot run there.
            BadForkError: it is of the parent of this forked process.
            CaptureError: the stream is being captured.
            ValueError: the stream is on another device; or a generator has not so many words left, of which 2**40 must be
                there for draws in loops and branches.
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
        if not stream._is_admitted or stream._closed:
            stream._check_room()
        replays = resources.replays
        if replays.timeline is not timeline:
            replays.check(stream)
        for effect in resources.effects:
            effect.check()
        for followed in resources.followed:
            followed.join_uses(timeline)
        operations, submitter, buffer = timeline.operations, self._submitter, 0
        signals: Sequence[Signal] = ()
        if submitter.is_plain and operations.has_buffers:
            only = submitter.only
            assert only is not None
            buffer = only.buffer or submitter.buffer_of(timeline, only)
        with Noting():
            try:
                if buffer:
                    first = value = operations.execute(timeline.queue, buffer, self._inputs.patches)
                    recorder = trace.active
                    if recorder is not None:
                        recorder.note_replay(stream.stream_id, value)
                        if resources.noted != recorder.serial:
                            resources.noted = recorder.serial
                            recorder.note_nodes(resources.call_sites, submitter.notes)
                else:
                    first, value, signals = submitter.submit(stream, self._inputs.patches)
                    if stream._room is not None and not stream._is_admitted:
                        stream._room.count_once(first, value)
                resources.note_replay(timeline, value)
                for effect in resources.effects:
                    effect.apply()
            except BaseException as error:
                if not isinstance(error, Exception):  # as Ctrl-C's, which arrives when it has been submitted, perhaps
                    resources.note_replay(timeline, timeline.submitted)
                raise
        done: Completion[None] = Completion(timeline, value) if first == value else several(timeline, first, value)
        if signals:
            written = ((node.rows, signal) for (_, _, node), signal in zip(submitter.rounds, signals, strict=True))
            self._last_rows = [Rows(rows, signal, rows._buffer.contents(), done) for rows, signal in written]
        return done

    def rows(self, output: Array) -> Rows:
        """The rows that the rounds of a loop write in the replay submitted last, each as soon as it is written.

        ``output`` is the array that :meth:`while_` was given as ``rows``, or what has taken its place by :meth:`update`.
        A row is a copy on the host: an array of NumPy's, or a number where ``output`` has one dimension. The device waits for
        nobody: rows that nobody has read yet stay in ``output``, and none is left out. They end with the loop.

        A round that fails raises at its row what ``await`` of the replay raises, and so does what fails behind the loop, after
        the last row. Whoever stops reading, or is cancelled, leaves the replay running. Any number of readers may read.

        Raises:
            RuntimeError: the graph was not replayed; at a row: something that writes to ``output`` was submitted after the
                replay, which was over before that row was read. Have the next replay write to another array then, by
                :meth:`update`.
            ValueError: no loop of the graph has written rows to ``output``.

        Example:
            >>> import aiodev
            >>> @aiodev.kernel
            ... def square_next(i, count, out, goes_on):
            ...     out[count[0]] = count[0] ** 2
            ...     count[0] += 1
            ...     goes_on[0] = count[0] < 4
            >>> async def main():
            ...     count, out = aiodev.zeros(1, "int64", "cpu"), aiodev.zeros(10, "int64", "cpu")
            ...     goes_on = aiodev.ones(1, "bool", "cpu")
            ...     async with aiodev.capture() as graph:
            ...         with graph.while_(goes_on, rows=out):
            ...             square_next[1](count, out, goes_on)
            ...     graph.replay()
            ...     return [int(row) async for row in graph.rows(out)]
            >>> asyncio.run(main())
            [0, 1, 4, 9]
        """
        arguments.instance("rows", "output", output, Array, "an array")
        self._sealed()
        if not self._submitter.rounds:
            raise ValueError("rows: no loop of the graph writes rows; give it the array: graph.while_(condition, rows=output)")
        if not self._last_rows:
            raise RuntimeError("rows: the graph was not replayed yet")
        for rows in self._last_rows:
            if rows.is_of(output):
                return rows.anew()
        raise ValueError("rows: the last replay has written its rows to another array than this one")

    def _admit(self, stream: Stream) -> Resources:
        """What replays need; raises if there can be none on this stream."""
        resources = self._sealed()
        if stream.timeline.recording is not None:
            stream.timeline.recording.refuse("a replay cannot be captured")
        if stream.device is not self.device:
            raise ValueError(f"replay: the graph is on {self.device}, {stream!r} is on {stream.device}")
        return resources

    # What it looks like

    @property
    def obstacles(self) -> list[str]:
        """Why operations are submitted one by one, as far as replays have shown. Each has the number of one, and the reason.

        Where there are none, each run of operations on a stream, without a wait between them, is one submission.

        Example:
            >>> import aiodev
            >>> async def main():
            ...     async with aiodev.capture(aiodev.Stream("cpu")) as graph:
            ...         aiodev.zeros(3, device="cpu")
            ...     await graph.replay()
            ...     return graph.obstacles
            >>> asyncio.run(main())
            []
        """
        resources, obstacles = self._sealed(), []
        for run in resources.runs:
            obstacle = run.obstacle
            if run.buffer and resources.executor is not None:
                obstacle = resources.executor.buffer_obstacle(run.buffer)
            if obstacle is not None:
                obstacles.append(obstacle)
        return obstacles

    def __len__(self) -> int:
        """How many operations it has: launches, copies, fills and calls."""
        if self._recorded is not None:
            self._sealed()
        count = 0
        for step in self._steps:
            if isinstance(step, Run):
                count += sum(not isinstance(node, Branch | Round) for node in step.nodes)
            elif isinstance(step, CallStep):
                count += 1
        return count

    def __bool__(self) -> bool:
        """True, also of a graph without operations."""
        return True

    def __repr__(self) -> str:
        operations = len(self)
        if self._resources is None:
            return f"<aiodev.Graph on {self.device}, {'not' if self._recorder is None else 'being'} captured>"
        streams = f", {len(self._stream_ids)} streams" if len(self._stream_ids) > 1 else ""
        return f"<aiodev.Graph of {operations} operations on {self.device}{streams}>"

    def __str__(self) -> str:
        """A table of its operations: number, stream, kernel, size, what it follows on other streams, where it was captured.

        Streams have the ids that they had then, in the process that captured it.
        """
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

    # In a file

    async def save(self, path: str | os.PathLike[str]) -> None:
        """Write it to a file, for :meth:`load` in another process with the same version of aiodev.

        Kernels are saved by name, with the digest of their source and types. Arrays of before the capture that are no inputs
        are constants, saved with what they hold now. So what a loaded graph is to be given, or to give, is to be an input.
        Waits until what was submitted has written the constants, and writes off the loop.

        Args:
            path: of the file, which is replaced as a whole.

        Raises:
            GraphFileError: it calls functions of the host, copies to memory of the host, draws from several generators, or has
                a kernel that no digest is of; or the file cannot be written.
            RuntimeError: the block that captures it was not left, or has failed.
            TypeError: ``path`` is none.

        Example:
            >>> import aiodev, tempfile
            >>> async def main(path):
            ...     x, out = aiodev.ones(3, device="cpu"), aiodev.zeros(3, device="cpu")
            ...     async with aiodev.capture() as graph:
            ...         x, out = graph.input("x", x), graph.input("out", out)
            ...         out[:] = x * 2 + 1
            ...     await graph.save(path)
            ...     again = await aiodev.Graph.load(path, x=aiodev.full(3, 5.0, device="cpu"), out=out)
            ...     await again.replay()
            ...     return await out.tolist()
            >>> with tempfile.TemporaryDirectory() as folder:
            ...     asyncio.run(main(folder + "/step.graph"))
            [11.0, 11.0, 11.0]
        """
        path = _path("save", path)
        resources = self._sealed()
        contents = Contents(
            self.device, self._steps, self._stream_ids, self._inputs, self._inputs.words(), self._submitter.draws,
            resources.memory, resources.held,
        )
        document, constants = await describe(contents, str(path))
        await Stream(self.device).call(write_file, path, document, constants)

    @classmethod
    async def load(cls, path: str | os.PathLike[str], /, **arrays: Array) -> Graph:
        """A graph that was saved, with arrays for those of its inputs that are arrays; its numbers are what they were.

        It draws from the default generator of the device. Reads off the loop. The file is data, but names modules, which are
        imported: load what you trust.

        Args:
            path: of the file.
            arrays: by the names that :meth:`input` was given; of the same shapes, strides and dtypes. They say which device it
                is on, by default the current one.

        Raises:
            GraphFileError: the file cannot be read, is none of a graph, was cut short, is of another version, or for another
                type of device; or a kernel is not there any more, or not what it was.
            TypeError: an array is missing, or not wanted, or none; or ``path`` is none.
            ValueError: one has another shape, strides, dtype or device, is read-only where the graph writes, or shares elements
                with another, and one of them is written to.
        """
        path = _path("load", path)
        for name, array in arrays.items():
            arguments.instance("load", name, array, Array, "an array; numbers are given by update() once it is loaded")
        stream = Stream(next((array.device for array in arrays.values()), None))
        if stream.timeline.deferred:
            await starting(stream.timeline.handle)
        document, constants = await stream.call(read_file, path)
        await stream.call(build)  # reads sources, the first time
        check_document(str(path), document, stream.device, arrays)
        kernels = await stream.call(find_kernels, str(path), document, stream.device)
        return cls._of(Loaded(str(path), document, constants, stream.device, arrays, kernels), stream.device)

    @classmethod
    def _of(cls, loaded: Loaded, device: Device) -> Graph:
        """The graph of what was read from a file."""
        graph = cls(device)
        graph._memory = loaded.memory
        graph._steps = loaded.steps
        for name, form in loaded.inputs.items():
            if form["number"] is None:
                array = loaded.arrays[name]
                graph._inputs[name] = Input(array, False, loaded.places[name], form["written"])
                loaded.held[array._buffer] = loaded.held.get(array._buffer, False) or form["written"]
            else:
                array, number = loaded.numbers[name]
                graph._inputs[name] = Input(array, True)
                graph._inputs.set_number(array, number.tobytes())
        graph._resources = graph._take(loaded, loaded.nodes, loaded.call_sites)
        graph._inputs.pack_words()
        return graph

    def __reduce__(self) -> NoReturn:
        """It holds memory and code of this process."""
        raise TypeError("graphs are not pickled or copied: they belong to their process; save one, and load it there")


def _path(function: str, path: object) -> Path:
    if not isinstance(path, str | os.PathLike):
        raise arguments.refusal(function, "path", "a path", path)
    return Path(path)


def _forget_after_fork() -> None:
    for graph in list(_graphs):
        graph._resources = graph._recorder = graph._recorded = None
        graph._is_parents = True


in_child(_forget_after_fork)
