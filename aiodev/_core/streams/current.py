"""The current and the default streams, and waiting for all streams of a device."""

from __future__ import annotations

import atexit
import threading
from collections.abc import Sequence

from aiodev._core import arguments, context
from aiodev._core.backend.device import Device
from aiodev._core.backend.registry import DeviceLike, registry
from aiodev._core.errors import BadForkError
from aiodev._core.streams.completion import Reached
from aiodev._core.streams.event import Event
from aiodev._core.streams.stream import Stream, forget_slots_after_fork
from aiodev._core.timeline.timeline import Timeline, living, lose_all
from aiodev._core.waiting.blocking import wait_all_blocking
from aiodev._core.waiting.reactor import others_first

__all__ = ["current_stream", "default_stream", "set_stream", "stream", "synchronize", "synchronize_blocking"]

_defaults: dict[Device, Stream] = {}
_making_default = threading.RLock()


def default_stream(device: DeviceLike | None = None) -> Stream:
    """The stream that a device's work goes to when no other is current; one for each device, made on first use.

    It is never closed: ``aclose`` raises RuntimeError.

    Example:
        >>> aiodev.default_stream("cpu") is aiodev.default_stream("cpu")
        True
    """
    _, resolved = registry.resolve(device)
    default = _defaults.get(resolved)
    if default is None:
        with _making_default:
            default = _defaults.get(resolved)
            if default is None:  # nor has a finalizer made it meanwhile
                default = _defaults.setdefault(resolved, Stream(resolved))
                default._is_default = True
    return default


def current_stream(device: DeviceLike | None = None) -> Stream:
    """The running task's stream for a device (default: its current device).

    Task-local: what another task does with ``with stream:`` is never seen here; a task inherits from its creator.

    Example:
        >>> with aiodev.Stream("cpu") as stream:
        ...     aiodev.current_stream() is stream
        True
    """
    frame = context.current()
    current: Stream | None = frame.stream
    if current is not None and (device is None or current.device is device):
        return current
    if device is None:
        device = frame.device
        if device is None:
            device = registry.settle_default()[1]
    if device.__class__ is Device:  # where it has a stream already, it is one
        stream: Stream | None = frame.streams.get(device) or _defaults.get(device)
        if stream is not None:
            return stream
    resolved = registry.resolve(device)[1]
    return frame.streams.get(resolved) or _defaults.get(resolved) or default_stream(resolved)


def set_stream(stream: Stream) -> None:
    """Make a stream current for the rest of the task, or to the end of the innermost guard; the device stays.

    Raises:
        TypeError: it is no stream.

    Example:
        >>> stream = aiodev.Stream("cpu")
        >>> aiodev.set_stream(stream)
        >>> aiodev.current_stream() is stream
        True
        >>> aiodev.set_stream(aiodev.default_stream("cpu"))
    """
    context.replace(stream=arguments.instance("set_stream", "stream", stream, Stream, "a Stream"))


class _NoStream:
    """The guard that changes nothing."""

    def __enter__(self) -> None:
        return None

    def __exit__(self, *error: object) -> None:
        return None

    async def __aenter__(self) -> None:
        await others_first

    async def __aexit__(self, *error: object) -> None:
        return None


def stream(stream: Stream | None) -> Stream | _NoStream:
    """The guard of a stream that may be None: then it does nothing.

    Raises:
        TypeError: it is neither.

    Example:
        >>> def work(own=None):
        ...     with aiodev.stream(own):  # None: whatever is current
        ...         return aiodev.current_stream("cpu")
        >>> work() is aiodev.default_stream("cpu")
        True
    """
    if stream is None:
        return _NoStream()
    return arguments.instance("stream", "stream", stream, Stream, "a Stream, or None")


def _points_of(device: DeviceLike | None) -> Sequence[tuple[Timeline, int]]:
    """The last point of each of a device's timelines, those of streams that were dropped with work in flight included.

    In a forked child the parent's are not among them: what became of their work is not known there.
    """
    _, resolved = registry.resolve(device)
    recording = current_stream(resolved).timeline.recording
    if recording is not None:
        recording.refuse("the host cannot wait for captured work, which runs when the graph is replayed")
    return [
        (timeline, timeline.submitted)
        for timeline in living.all() if timeline.device == resolved and not isinstance(timeline.lost, BadForkError)
    ]  # fmt: skip


def _check_all(points: Sequence[tuple[Timeline, int]]) -> None:
    for timeline, value in points:
        if not timeline.owned:
            timeline.check_all(value)


async def synchronize(device: DeviceLike | None = None) -> None:
    """Wait for what was submitted so far to every stream of a device (default: the current one).

    In a forked child these are the child's own.

    Raises:
        BaseException: the first failure that nobody was told of yet.

    Example:
        >>> async def main():
        ...     streams = [aiodev.Stream("cpu") for _ in range(3)]
        ...     done = [stream.call(int) for stream in streams]
        ...     await aiodev.synchronize("cpu")
        ...     return [completion.query() for completion in done]
        >>> asyncio.run(main())
        [True, True, True]
    """
    points = _points_of(device)
    for timeline, value in points:
        await Reached(timeline, value)
    _check_all(points)


def synchronize_blocking(device: DeviceLike | None = None, timeout: float | None = None) -> None:
    """Block this thread until what was submitted so far to every stream of a device is done.

    Raises:
        TimeoutError: ``timeout`` seconds have passed.
        BaseException: as ``synchronize``.

    Example:
        >>> done = aiodev.Stream("cpu").call(int)
        >>> aiodev.synchronize_blocking("cpu")
        >>> done.query()
        True
    """
    points = _points_of(device)
    wait_all_blocking(points, timeout)
    _check_all(points)


def lose_streams_after_fork(error: BaseException) -> None:
    """In a forked child: lose the parent's streams, so that waits for them raise and none hangs."""
    global _making_default
    lose_all(error)
    _making_default = threading.RLock()  # another thread of the parent may have held it
    forget_slots_after_fork()


def drop_streams_after_fork() -> None:
    """In a forked child: drop what the parent's streams keep, and the default ones."""
    living.drop_lost()
    _defaults.clear()


@atexit.register  # after the registry's, so before backends stop
def report_failures() -> None:
    """At exit: log the failures that no waiter was told of, as far as something still refers to them, such as an array."""
    for timeline in living.all():
        timeline.report()


Event.current_stream = staticmethod(current_stream)
