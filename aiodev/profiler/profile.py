"""Profiles: what the runtime did while a block ran."""

from __future__ import annotations

import os
import time
import weakref
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Any, NoReturn

from aiodev._core.arguments import instance, integer, refusal
from aiodev._core.streams import trace
from aiodev._core.streams.completion import Reached
from aiodev._core.streams.stream import living_streams
from aiodev._core.waiting.reactor import others_first
from aiodev._core.waiting.watcher import watcher
from aiodev._memory.events import MemoryEvent
from aiodev._memory.history import watch_allocations
from aiodev.profiler.chrome import write_chrome_trace
from aiodev.profiler.figure import draw_timeline, to_png, to_svg
from aiodev.profiler.lag import LoopLag
from aiodev.profiler.nvtx import NvtxRanges
from aiodev.profiler.operations import Operation, read_operations
from aiodev.profiler.summary import table_of
from aiodev.profiler.tuning import LAG_PERIOD

__all__ = ["Profile", "profile"]


def profile(*, most: int = 1_000_000, nvtx: bool = False) -> Profile:
    """Record what streams do with what is submitted in the block, the memory in use, and the loop's lag.

    The whole process is recorded: all tasks, threads, streams and devices. Blocks may be nested, and tasks may profile side by
    side: each sees what is submitted while its own block runs. Leaving waits for nothing; what is in flight then is in the
    profile, first as ``pending``, and with its times as soon as it is done.

    Workers note the times themselves, without the GIL. An operation takes half a microsecond longer to submit. An executor
    that cannot note times (CUDA's) stamps them before and after each, which takes longer. Nothing is recorded of waits there.

    A profile belongs to its process: in a forked child it has ended. One that is dropped without leaving its block, as with a
    loop that is closed in the midst of it, ends when it is collected.

    Args:
        most: how many operations, and how many allocations, are kept; of others :attr:`Profile.dropped` has the number. Each
            takes some 300 bytes.
        nvtx: mark each submission to a CUDA device as a range for NVIDIA's tools, named after its kernel.

    Returns:
        an async context manager, which gives a :class:`Profile`.

    Raises:
        ValueError: ``most`` is not positive.
        ModuleNotFoundError: ``nvtx`` is wanted, and the package of that name is not installed.
        RuntimeError: on entering, no loop of asyncio, uvloop or trio is running.

    Example:
        >>> from aiodev import profiler
        >>> async def main():
        ...     async with profiler.profile() as prof:
        ...         await aiodev.Stream("cpu").copy(aiodev.empty(4, device="cpu"), np.ones(4))
        ...     return [operation.name for operation in prof.operations if operation.runs]
        >>> asyncio.run(main())
        ['copy']
    """
    most = integer("profile", "most", most, least=1)
    return Profile(most, NvtxRanges() if instance("profile", "nvtx", nvtx, bool, "True or False") else None)


class Profile:
    """What was recorded; what :func:`profile` gives. In a notebook it shows itself as a timeline and a table.

    Attributes:
        names: what pictures and traces call streams, by their ids: ``prof.names[stream.stream_id] = "copies in"``.
        lag: the loop's :class:`LoopLag` while the block ran.

    Example:
        >>> from aiodev import profiler
        >>> async def main():
        ...     async with profiler.profile() as prof:
        ...         await aiodev.Stream("cpu").call(sum, [1, 2])
        ...     return [(operation.kind, operation.name, operation.outcome) for operation in prof.operations]
        >>> asyncio.run(main())
        [('call', 'sum', 'done')]
    """

    def __init__(self, most: int, ranges: trace.Ranges | None) -> None:
        self.names: dict[int, str] = {}
        self.lag = LoopLag(LAG_PERIOD)
        self._most = most
        self._ranges = ranges
        self._window: trace.Window | None = None
        self._operations: list[Operation] | None = None
        self._finalizer: Any = None

    async def __aenter__(self) -> Profile:
        await others_first
        if self._window is not None:
            raise RuntimeError("profile: a profile records one block; make another for the next")
        self.lag.start()
        self._window = window = trace.begin(self._most, _rebind, self._ranges)
        self._finalizer = weakref.finalize(self, _end_soon, window)
        self._finalizer.atexit = False
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """Record no more.

        Raises:
            RuntimeError: it was not entered.
        """
        window = self._window
        if window is None:
            raise RuntimeError("profile: it was not entered")
        self._finalizer.detach()
        self.lag.stop()
        trace.end(window, _rebind)
        for stamps, value in window.stamps():  # they follow within µs what is done
            await Reached(stamps, value)

    @property
    def operations(self) -> list[Operation]:
        """The operations that were submitted, in that order. Those that are ``pending`` are looked at again each time.

        What was recorded is put together here, which takes some 10 µs for each operation, and blocks: of many, off the loop.
        """
        window = self._window
        if window is None:
            return []
        if self._operations is None:
            operations = read_operations(window)
            if window.ended is None or any(each.outcome == "pending" for each in operations):
                return operations
            self._operations = operations
        return list(self._operations)

    @property
    def memory_events(self) -> list[MemoryEvent]:
        """The buffers that were allocated, and the end of those; in the order of time."""
        return [] if self._window is None else [MemoryEvent(*event) for event in self._window.memory()]

    @property
    def dropped(self) -> int:
        """How many operations there was no room for."""
        return 0 if self._window is None else self._window.dropped()

    @property
    def began_ns(self) -> int:
        """When the block was entered, by ``time.perf_counter_ns``; 0 before that."""
        return 0 if self._window is None else self._window.began

    @property
    def ended_ns(self) -> int:
        """When the block was left; now, while it runs; 0 before it was entered."""
        if self._window is None:
            return 0
        return time.perf_counter_ns() if self._window.ended is None else self._window.ended

    def table(self, *, rows: int = 20) -> str:
        """What took the devices' time: a row for each kernel, and for each other kind of operation, longest in all first.

        Below it, how much of the time each stream was busy, and the loop's lag.

        Args:
            rows: the most rows; 0 for all.

        Raises:
            ValueError: there are fewer than none.

        Example:
            >>> from aiodev import profiler
            >>> async def main():
            ...     async with profiler.profile() as prof:
            ...         await aiodev.Stream("cpu").copy(aiodev.empty(4, device="cpu"), np.ones(4))
            ...     return prof.table().splitlines()[0].split()
            >>> asyncio.run(main())
            ['operation', 'count', 'total', 'mean', 'longest', 'delay', 'bytes', 'not', 'done']
        """
        return table_of(self, integer("table", "rows", rows, least=0))

    def export_chrome_trace(self, path: str | Path) -> Path:
        """Write the profile in the Trace Event Format, which ``ui.perfetto.dev`` and ``chrome://tracing`` open.

        Each device is a process, each stream a thread of it, each task a thread of the host. Arrows lead from submission to
        start, and from what was waited for to the wait. Memory and the loop's lag are counters. Blocks while the file is
        written; off the loop it is ``await asyncio.to_thread(prof.export_chrome_trace, path)``.

        Returns:
            the path.
        """
        return write_chrome_trace(self, _path("export_chrome_trace", path))

    def timeline(self, path: str | Path) -> Path:
        """Draw the profile: a row for each stream with its operations, arrows for waits, the memory in use and the loop's lag.

        Operations of a stream that are too short to be told apart are drawn as one. Blocks while the file is written.

        Args:
            path: ends with ``.svg`` or ``.png``; for the latter Pillow is needed (``pip install 'aiodev[demo]'``).

        Returns:
            the path.

        Raises:
            ValueError: it ends with anything else.
            ModuleNotFoundError: a PNG is wanted, and Pillow is not installed.
        """
        path = _path("timeline", path)
        suffix = path.suffix.lower()
        if suffix == ".svg":
            path.write_text(self._repr_svg_(), encoding="utf-8")
        elif suffix == ".png":
            path.write_bytes(to_png(draw_timeline(self)))
        else:
            raise ValueError(f"timeline: {path}: expected a path that ends with .svg or .png")
        return path

    def _repr_svg_(self) -> str:
        return to_svg(draw_timeline(self))

    def _repr_html_(self) -> str:
        from html import escape  # costly to import, and hardly ever needed

        return f"{self._repr_svg_()}<pre>{escape(self.table())}</pre>"

    def __reduce__(self) -> NoReturn:
        """It is of this process."""
        raise TypeError("profiles are not pickled or copied: one belongs to its process; copy its operations")

    def __repr__(self) -> str:
        if self._window is None:
            return "<aiodev.profiler.Profile: not entered>"
        seconds, state = (self.ended_ns - self.began_ns) / 1e9, "so far" if self._window.ended is None else "in all"
        return f"<aiodev.profiler.Profile: {len(self.operations)} operations, {seconds:.3g} s {state}>"


def _path(function: str, path: object) -> Path:
    if not isinstance(path, str | os.PathLike):
        raise refusal(function, "path", "a path", path)
    return Path(path)


def _end_soon(window: trace.Window) -> None:
    """End what nobody looks at any more: by the watcher's thread, since the collector may come anywhere."""
    if window.ended is None:  # else this is a forked child, where none of the parent's goes on
        watcher.call(partial(trace.end, window, _rebind))


def _rebind() -> None:
    """Have every stream and allocator take up, or drop, the recording of what it does."""
    recorder = trace.active
    watch_allocations(None if recorder is None else recorder.note_memory)
    for stream in living_streams():
        if not stream._closed:
            stream._bind()
