"""What is current for the running task: its device, and its stream on each device.

That is a scope (:mod:`aiodev._core.scopes`): a guard pushes a frame and pops it again.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from aiodev._core.scopes import Scoped

if TYPE_CHECKING:
    from aiodev._core.backend.device import Device


class Frame:
    """A device, the streams that are current on each device, and what was before.

    Attributes:
        device: the current device; None for the default one.
        streams: the current stream of each device that has one other than its default stream.
        stream: that of ``device``, at hand for submissions that name none; None for the default one.
        outer: the frame to go back to; None for the outermost.
        owner: the guard that pushed it.
    """

    __slots__ = ("device", "outer", "owner", "stream", "streams")

    def __init__(
        self, device: Device | None, streams: Mapping[Device, Any], outer: Frame | None, owner: object
    ) -> None:
        self.device = device
        self.streams = streams
        self.stream = None if device is None else streams.get(device)
        self.outer = outer
        self.owner = owner


_frames = Scoped("aiodev.frame", Frame(None, {}, None, None))

#: The running task's frame. A bound method of C: every submission without a stream of its own comes through here.
current = _frames.get
#: What holds it, for native code.
variable = _frames.variable


def push(owner: object, device: Device | None = None, stream: Any = None) -> None:
    """Enter a guard: from now on ``device`` and ``stream`` are current; None leaves what is."""
    frame = current()
    _frames.set(_changed(frame, device, stream, frame, owner))


def pop(owner: object) -> None:
    """Leave a guard.

    Raises:
        RuntimeError: the innermost guard of this task is another one.
    """
    _frames.leave(owner)


def replace(device: Device | None = None, stream: Any = None) -> None:
    """Change what is current, until the innermost guard is left."""
    frame = current()
    _frames.set(_changed(frame, device, stream, frame.outer, frame.owner))


def _changed(frame: Frame, device: Device | None, stream: Any, outer: Frame | None, owner: object) -> Frame:
    streams = frame.streams if stream is None else {**frame.streams, stream.device: stream}
    return Frame(frame.device if device is None else device, streams, outer, owner)
