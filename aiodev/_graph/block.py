"""Blocks of graphs that run as a value in device memory says."""

from __future__ import annotations

import struct
from types import TracebackType

from aiodev._array.array import Array
from aiodev._core import arguments
from aiodev._core.errors import refused
from aiodev._core.streams.current import current_stream
from aiodev._graph.access import accesses, span
from aiodev._graph.recorder import Node, Recorder
from aiodev._memory.allocator import DeviceBuffer

__all__ = ["Block"]

_WORD = 8


class Block:
    """The guard of a block of a graph that runs as its condition says; see :meth:`Graph.while_`."""

    __slots__ = ("_condition", "_label", "_recorder", "_rows")

    def __init__(self, recorder: Recorder | None, label: str, condition: Array, rows: Array | None) -> None:
        self._recorder, self._label, self._condition, self._rows = recorder, label, condition, rows

    def __enter__(self) -> None:
        condition, name = self._condition, f"{self._label}_"
        if self._recorder is None:
            raise refused("blocks are captured with the graph", f"Graph.{name}")
        recorder: Recorder = self._recorder
        if not isinstance(condition, Array) or condition.dtype.kind not in "biu" or condition.device is not recorder.device:
            expected = f"an array of integers or truth values on {recorder.device}"
            raise arguments.refusal(name, "condition", expected, condition)
        if condition.size != 1:
            raise ValueError(f"{name}: condition has the shape {condition.shape}; expected one element")
        if condition._buffer in recorder.inputs:
            raise ValueError(f"{name}: condition is in an input, whose place another array may take; copy it")
        stream = current_stream(recorder.device)
        if stream.timeline.recording is not recorder:
            raise refused(f"{stream!r} is not captured", f"Graph.{name}")
        handle = stream.timeline.handle
        if not handle.started:
            raise refused(f"{recorder.device} has not started: it cannot branch", f"Graph.{name}")
        executor = handle.backend.executor
        if not (executor.has_buffers and executor.has_branches):
            raise refused(f"{recorder.device} has no command buffers that branch", f"Graph.{name}")
        rows = self._rows
        if rows is not None:
            if not isinstance(rows, Array) or rows.device is not recorder.device:
                raise arguments.refusal(name, "rows", f"an array on {recorder.device}, or None", rows)
            if rows.ndim == 0:
                raise ValueError(f"{name}: rows has no dimensions; expected an array with a row for each round")
            if not executor.has_signals:
                raise refused(f"{recorder.device} cannot signal the end of a round while a loop runs", f"Graph.{name}")
            recorder.hold(rows._buffer, True)
        recorder.open_block(stream.timeline, self._label, condition, rows)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        recorder = self._recorder
        assert recorder is not None
        endless: BaseException | None = None
        is_whole_loop = self._label == "while" and error is None and recorder.failure is None
        if is_whole_loop and not any(map(self._may_write_condition, recorder.nodes_of_block())):
            reason = "condition: no operation of the block writes it, so the loop would not end; have one write it in place"
            endless = refused(reason, "Graph.while_")
        recorder.close_block(error or endless)
        if endless is not None:
            raise endless

    def _may_write_condition(self, node: Node) -> bool:
        """Whether an operation may write to the memory that has the condition.

        Nobody knows what calls of native functions write, nor what a kernel has its own call of them do with an address that
        it was given as a number.
        """
        if node.kind == "native":
            return True
        buffer, (first, last) = self._condition._buffer, span(self._condition)
        if isinstance(buffer, DeviceBuffer):
            first, last = buffer.address, buffer.address + buffer.block.size
        uses, only_read = list(accesses(node)), set[int]()
        if node.kernel is not None:
            declared = node.kernel.spec.parse_arguments()
            only_read.update(declared[place].offset for place in node.kernel.only_reads)
        if any(use.writes and use.at not in only_read and use.first < last and first < use.last for use in uses):
            return True
        words = struct.unpack_from(f"<{len(node.block) // _WORD}q", node.block)
        arrays = {use.at // _WORD for use in uses}
        return any(first <= word < last and place not in arrays for place, word in enumerate(words))

    def __repr__(self) -> str:
        return f"<aiodev graph block: {self._label}>"
