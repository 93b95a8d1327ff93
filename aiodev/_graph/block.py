"""Blocks of graphs that run as a value in device memory says."""

from __future__ import annotations

from aiodev._array.array import Array
from aiodev._core import arguments
from aiodev._core.errors import refused
from aiodev._core.streams.current import current_stream
from aiodev._graph.recorder import Recorder

__all__ = ["Block"]


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

    def __exit__(self, *error: object) -> None:
        assert self._recorder is not None
        self._recorder.close_block()

    def __repr__(self) -> str:
        return f"<aiodev graph block: {self._label}>"
