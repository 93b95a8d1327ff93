"""Transfers: copies that choose their own stream, into an array, from another device or the host."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from aiodev._core.backend.device import HOST
from aiodev._core.streams.current import current_stream
from aiodev._core.streams.stream import Stream

if TYPE_CHECKING:
    from aiodev._array.protocols import Protocols
    from aiodev._core.streams.completion import Completion
    from aiodev._core.timeline.timeline import Timeline

__all__ = ["copy_into"]


def copy_into(dst: Protocols, src: Any) -> Completion[None]:
    """Copy ``src`` to ``dst`` on the current stream of the device that must do it.

    Between devices the copy waits for all that writes the source and all that uses the destination, on whatever stream, and the
    current streams of both devices wait for the copy.
    Between two kinds of device that the host does not reach it goes by way of the host.
    """
    source = getattr(src, "_buffer", None)
    if source is None or source.source.device is dst.device:
        return current_stream(dst.device).copy(dst, src)
    here, there = dst._buffer.source, source.source
    if here.device.type != there.device.type and not (here.host_accessible or there.host_accessible):
        return copy_into(dst, src.to(HOST))
    streams = [current_stream(dst.device), current_stream(src.device)]
    # A device that the host cannot reach must do the copy itself; the host's own could not.
    if dst._buffer.source.host_accessible and not source.source.host_accessible:
        streams.reverse()
    stream = streams[0]
    _follow(stream, source.contents())
    _follow(stream, dst._buffer.contents())
    _follow(stream, dst._buffer.pending())
    completion = stream.copy(dst, src)
    streams[1].wait(completion)
    return completion


def _follow(stream: Stream, points: list[tuple[Timeline, int]]) -> None:
    """Order the stream after operations; it fails with those that have failed, though they be done, unless that was told."""
    for timeline, value in points:
        stream.timeline.join(timeline, value, timeline.clock_at(value))
