"""Structured concurrency for device work."""

from __future__ import annotations

import logging
from types import TracebackType
from typing import NoReturn

import anyio

from aiodev._core.completion import Reached
from aiodev._core.registry import DeviceLike
from aiodev._core.stream import Stream

logger = logging.getLogger("aiodev")

__all__ = ["StreamGroup"]


class StreamGroup:
    """Streams whose work is over when the block is left.

    Leaving waits for everything that was submitted to the group's streams, also when the body raised or was cancelled:
    what runs on a device cannot be called back, and its memory must not be given up under it. Failures of several
    streams, and the body's own exception, arrive together as an ``ExceptionGroup``. Where the block is left by a cancellation,
    that goes on as it is, and failures are logged.

    Example:
        >>> import aiodev
        >>> async def main():
        ...     async with aiodev.StreamGroup("cpu") as group:
        ...         left, right = group.stream(), group.stream()
        ...         a, b = left.call(sum, [1, 2]), right.call(sum, [3, 4])
        ...     return await a + await b  # both are done
        >>> import asyncio; asyncio.run(main())
        10
    """

    def __init__(self, device: DeviceLike | None = None) -> None:
        self._device = device
        self._streams: list[Stream] = []
        self._entered = False

    def __reduce__(self) -> NoReturn:
        """A block of this process is not copied and not pickled."""
        raise TypeError("stream groups are not pickled or copied: they belong to their process; enter one there")

    def __repr__(self) -> str:
        return f"<aiodev.StreamGroup of {len(self._streams)} streams>"

    def stream(
        self, priority: int = 0, *, maxsize: int = 0, low_water: int | None = None, reserve: bool = False
    ) -> Stream:
        """A new stream of the group.

        Raises:
            RuntimeError: the group has not been entered, or was left.
        """
        if not self._entered:
            raise RuntimeError("a StreamGroup gives out streams only inside its `async with` block")
        stream = Stream(self._device, priority, maxsize=maxsize, low_water=low_water, reserve=reserve)
        self._streams.append(stream)
        return stream

    async def __aenter__(self) -> StreamGroup:
        if self._entered:
            raise RuntimeError("this StreamGroup has already been entered")
        self._entered = True
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._entered = False
        failures: list[BaseException] = []
        with anyio.CancelScope(shield=True):
            for stream in self._streams:
                timeline = stream.timeline
                await Reached(timeline, timeline.submitted)
        for stream in self._streams:
            try:
                stream.timeline.check_all(stream.timeline.submitted)
            except BaseException as failure:  # what a called function raised may be anything
                failures.append(failure)
        self._streams.clear()
        if not failures:
            return
        if error is not None:
            if not isinstance(error, Exception):
                # Cancellation must go on as itself, and whoever asked for it may drop it; what failed meanwhile is not lost.
                for unheard in failures:
                    logger.error("a StreamGroup that was left by %r: a stream failed", error, exc_info=unheard)
                return
            if error not in failures:
                failures.insert(0, error)
        raise BaseExceptionGroup(f"{len(failures)} failure(s) in a StreamGroup", failures) from None
