"""Stream groups: structured concurrency for device work."""

from __future__ import annotations

import importlib
import logging
import sys
from collections.abc import Iterable
from contextlib import suppress
from types import TracebackType
from typing import NoReturn

import anyio

from aiodev._core import callsites
from aiodev._core.backend.background import in_background
from aiodev._core.backend.interface import COMPLETED, FAULTS, SUBMITTED
from aiodev._core.backend.registry import DeviceLike
from aiodev._core.streams.completion import Reached
from aiodev._core.streams.stream import Stream
from aiodev._core.timeline.timeline import Timeline
from aiodev._core.waiting.reactor import at_hand, others_first

logger = logging.getLogger("aiodev")

__all__ = ["StreamGroup"]


@in_background
def _import_for_scopes() -> None:
    """Import what anyio has for the loops of this process.

    It does so when a scope or an event is first made in a loop, here or in a lease: 20 to 60 ms, on the loop's thread. Where it
    has these modules in another place one day, it does so then.
    """
    for library in ("asyncio", "trio"):
        if library in sys.modules:
            with suppress(ImportError):
                importlib.import_module(f"anyio._backends._{library}")


class StreamGroup:
    """Streams whose work is over when the block is left.

    Leaving waits for everything that was submitted to the group's streams, also by the functions that they call, and also when
    the body raised or was cancelled, or a cancellation comes meanwhile: what runs on a device cannot be called back, and its
    memory must not be given up under it. Failures of several streams, and the body's own exception, arrive together as an
    ``ExceptionGroup``. A cancellation goes on as it is when the wait is over, and failures are logged.

    With ``cancel=True`` nothing is computed for whoever has gone: where the block is left by an exception, a cancellation or a
    deadline (``asyncio.timeout`` around it), or one of these comes while leaving waits, all that has not begun is withdrawn
    (:meth:`Stream.cancel`), and leaving waits for what has begun alone.

    Args:
        device: where its streams run; the current device by default.
        cancel: withdraw what nobody waits for any more.

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

    def __init__(self, device: DeviceLike | None = None, *, cancel: bool = False) -> None:
        self._device = device
        self._cancel = cancel
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

    def _ends(self) -> list[tuple[Timeline, int]]:
        """The last operation of each stream."""
        return [(stream.timeline, stream.timeline.submitted) for stream in self._streams]

    async def __aenter__(self) -> StreamGroup:
        # No await: leaving is one, and a request that begins with a group would stand in line twice.
        if self._entered:
            raise RuntimeError("this StreamGroup has already been entered")
        self._entered = True
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._entered = False
        if error is None:
            if not self._streams:
                await others_first
                return
            if len(self._streams) == 1 and _is_over(self._streams[0]):  # as it is of many a request
                self._streams.clear()
                return
        cancellation: BaseException | None = None
        ends: list[tuple[Timeline, int]] = []
        waited_for = None
        while (submitted := self._ends()) != waited_for:  # functions that were waited for may have submitted more
            ends = waited_for = submitted
            if self._cancel and error is None:
                try:
                    await _reach(ends)
                    continue
                except anyio.get_cancelled_exc_class() as cancelled:
                    error = cancellation = cancelled
            if self._cancel:
                site = callsites.here()
                ends = [(timeline, _withdraw(timeline, site)) for timeline, _ in ends]
            cancellation = await _reach_anyhow(ends) or cancellation
        self._streams.clear()
        failures = _failures(ends)
        if cancellation is not None:
            _log(cancellation, failures)
            raise cancellation
        if not failures:
            return
        if error is not None:
            if not isinstance(error, Exception):
                _log(error, failures)
                return
            if error not in failures:
                failures.insert(0, error)
        raise BaseExceptionGroup(f"{len(failures)} failure(s) in a StreamGroup", failures) from None


def _is_over(stream: Stream) -> bool:
    """Whether all of a stream is done by now, and nothing has ever failed there. Of several one may give another work."""
    timeline = stream.timeline
    counters = timeline.counters
    return at_hand(timeline, counters[SUBMITTED]) and counters[COMPLETED] >= counters[SUBMITTED] and not counters[FAULTS]


async def _reach(ends: Iterable[tuple[Timeline, int]]) -> None:
    for timeline, value in ends:
        if not at_hand(timeline, value):
            await Reached(timeline, value, spun=True)


async def _reach_anyhow(ends: Iterable[tuple[Timeline, int]]) -> BaseException | None:
    """Wait, cancelled or not; returns the last cancellation that came meanwhile. A shield keeps out anyio's scopes alone."""
    if all(at_hand(timeline, value) for timeline, value in ends):  # a scope takes longer than many a request does
        return None
    cancellation = None
    with anyio.CancelScope(shield=True):
        for timeline, value in ends:
            while True:
                try:
                    await Reached(timeline, value)
                    break
                except anyio.get_cancelled_exc_class() as cancelled:
                    cancellation = cancelled
    return cancellation


def _withdraw(timeline: Timeline, site: int) -> int:
    """Withdraw what has not begun; returns the last operation that had."""
    end = timeline.submitted
    start, _ = timeline.withdraw_all(site)
    return start - 1 if start else end


def _failures(ends: Iterable[tuple[Timeline, int]]) -> list[BaseException]:
    """The failures of operations that nobody was told of yet. None is raised here: its traceback would have the list of it."""
    failures = [timeline.first_failure(value) for timeline, value in ends]
    return [failure for failure in failures if failure is not None]


def _log(left_by: BaseException, failures: Iterable[BaseException]) -> None:
    """Log failures that a cancellation would otherwise drop: it goes on as itself, and who asked for it may ignore it."""
    for failure in failures:
        logger.error("a StreamGroup that was left by %r: a stream failed", left_by, exc_info=failure)
