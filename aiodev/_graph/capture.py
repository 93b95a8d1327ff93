"""Capture: the block in which streams are recorded."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from types import TracebackType
from typing import TYPE_CHECKING, Any

from aiodev._core import arguments, context
from aiodev._core.errors import refused
from aiodev._core.streams.stream import Stream
from aiodev._core.timeline.recording import under_way
from aiodev._core.waiting.reactor import others_first, starting
from aiodev._generator.generator import Generator, Reserving, recordings
from aiodev._graph.graph import Graph
from aiodev._graph.recorder import Recorder
from aiodev._memory import allocators
from aiodev._memory.pool import MemoryPool

if TYPE_CHECKING:
    from contextvars import Token

__all__ = ["capture"]


class _Draws(Mapping[Generator, Reserving]):
    """What takes the draws from generators while a capture is under way: the recorder, for those of its device."""

    def __init__(self, recorder: Recorder, outer: Mapping[Generator, Reserving]) -> None:
        self._recorder, self._outer = recorder, outer

    def __getitem__(self, generator: Generator) -> Reserving:
        draws: Reserving | None = self.get(generator)
        if draws is None:
            raise KeyError(generator)
        return draws

    def get(self, generator: Generator, default: Any = None) -> Any:
        """As of any mapping; by itself, so that what is captured here has the place of the program's call."""
        draws = self._recorder.draws_of(generator) if generator.device is self._recorder.device else None
        return self._outer.get(generator, default) if draws is None else draws

    def __contains__(self, generator: object) -> bool:
        return isinstance(generator, Generator) and (generator.device is self._recorder.device or generator in self._outer)

    def __iter__(self) -> Iterator[Generator]:
        return iter(self._recorder.draws)

    def __len__(self) -> int:
        return len(self._recorder.draws)


class capture:
    """``async with aiodev.capture() as graph:`` records what is submitted, and runs nothing of it; see :class:`Graph`.

    Recorded is all that ``stream`` is given until the block is left: launches, operations of the library, copies, fills, calls,
    draws from generators; and what streams are given that wait for it, by an event or directly, up to where it waits for
    them. The stream is current in the block. What others submit to it meanwhile is recorded, too.

    Nothing in the block can wait for captured work, nor can what is captured wait for anything else.

    Args:
        stream: what is recorded; by default a new stream of the current device.
        pool: the memory for arrays that are made in the block; by default the graph gets one of its own. Graphs that share
            one must not run at once: each is ordered after the others, or refused. What one has made, the replay of another
            may overwrite.

    Raises:
        CaptureError: in the block, by what cannot be captured. If it is caught there, the capture goes on without that. At its
            end: a stream was captured that nothing waits for; or an exception, this one or another, has left a block of
            :meth:`Graph.while_` or :meth:`Graph.if_` within, which is then captured in part.
        ValueError: the pool is on another device.
        RuntimeError: it is entered a second time; or left, and something else was entered last, in this task.

    Example:
        >>> import aiodev
        >>> from aiodev import kernels
        >>> async def main():
        ...     x = aiodev.arange(4, device="cpu")
        ...     async with aiodev.capture() as graph:
        ...         y = kernels.square(x) + 1
        ...     await graph.replay()
        ...     print(await y.numpy())
        >>> asyncio.run(main())
        [ 1  2  5 10]
    """

    def __init__(self, stream: Stream | None = None, pool: MemoryPool | None = None) -> None:
        if stream is not None:
            arguments.instance("capture", "stream", stream, Stream, "a Stream, or None")
        if pool is not None:
            arguments.instance("capture", "pool", pool, MemoryPool, "a MemoryPool, or None")
        self._stream = stream
        self._pool = pool
        self._recorder: Recorder | None = None
        self._graph: Graph | None = None
        self._token: Token[Mapping[Generator, Reserving]] | None = None

    async def __aenter__(self) -> Graph:
        stream = Stream() if self._stream is None else self._stream
        await (starting(stream.timeline.handle) if stream.timeline.deferred else others_first)
        return self._enter(stream)

    def _enter(self, stream: Stream) -> Graph:
        """Enter the block, without a wait for the device's start."""
        if self._token is not None:
            raise RuntimeError("a capture is entered once; make another one")
        if stream.timeline.recording is not None:
            raise refused(f"{stream!r} is being captured already")
        if self._pool is not None and self._pool.device is not stream.device:
            raise ValueError(f"capture: pool: expected one of {stream.device}, got one of {self._pool.device}")
        graph = self._graph = Graph(stream.device)
        recorder = self._recorder = Recorder(stream, self._pool)
        allocators.pool_count += 1
        under_way.append(recorder)
        graph._begin(recorder)
        self._token = recordings.set(_Draws(recorder, recordings.get()))
        context.push(self, stream.device, stream)
        return graph

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._leave(kind is None)

    def _leave(self, is_whole: bool) -> None:
        """Leave the block."""
        recorder, graph = self._recorder, self._graph
        if recorder is None:
            context.pop(self)  # which says that it was not entered
        assert recorder is not None and graph is not None and self._token is not None
        self._recorder = self._graph = None
        try:
            context.pop(self)
            recordings.reset(self._token)
        finally:
            allocators.pool_count -= 1
            under_way.remove(recorder)
            broken = recorder.broken_block() if is_whole else None
            loose = recorder.loose_ends() if is_whole and broken is None else []
            recorder.release("captured work runs when its graph is replayed; wait for the replay")
            if broken or loose or not is_whole:
                graph._give_up()
        if broken is not None:
            reason, error = broken
            raise refused(reason) from error
        if loose:
            names = ", ".join(map(repr, loose))
            raise refused(f"{names}: captured, and nothing waits for it; have the captured stream wait")
        if is_whole:
            graph._seal()

    def __reduce__(self) -> Any:
        raise TypeError("a capture is a block of one task: it is not pickled or copied")

    def __repr__(self) -> str:
        return f"aiodev.capture({'' if self._stream is None else repr(self._stream)})"
