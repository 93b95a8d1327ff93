"""What is current for the running task: its device, and its stream on each device.

One context variable holds an immutable linked frame. A guard pushes a frame and pops it again, so the previous state
lives in the frame, not in the guard: the same stream may be entered by any number of tasks, nested, at once. Tasks copy
the context when they are created, which is how they inherit, and nothing that they do is seen outside.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from aiodev._core.backend.device import Device


class Frame:
    """A device, the streams that are current on each device, and what was before.

    Attributes:
        device: the current device; None for the default one.
        streams: the current stream of each device that has one other than its default stream.
        stream: that of ``device``, at hand for submissions that name none; None for the default one.
        parent: the frame to go back to; None for the outermost.
        owner: the guard that pushed it.
    """

    __slots__ = ("device", "owner", "parent", "stream", "streams")

    def __init__(
        self, device: Device | None, streams: Mapping[Device, Any], parent: Frame | None, owner: object
    ) -> None:
        self.device = device
        self.streams = streams
        self.stream = None if device is None else streams.get(device)
        self.parent = parent
        self.owner = owner


_outermost = Frame(None, {}, None, None)
_frame: ContextVar[Frame] = ContextVar("aiodev.frame", default=_outermost)

#: The running task's frame. A bound method of C: every submission without a stream of its own comes through here.
current = _frame.get


def push(owner: object, device: Device | None = None, stream: Any = None) -> None:
    """Enter a guard: from now on ``device`` and ``stream`` are current; None leaves what is."""
    frame = _frame.get()
    _frame.set(_changed(frame, device, stream, frame, owner))


def pop(owner: object) -> None:
    """Leave a guard.

    Raises:
        RuntimeError: the innermost guard of this task is another one.
    """
    frame = _frame.get()
    if frame.owner is not owner or frame.parent is None:
        innermost = "none" if frame.parent is None else repr(frame.owner)
        raise RuntimeError(
            f"{owner!r} is left, but the innermost guard of this task is {innermost}; guards must be left in the "
            f"task that entered them, in reverse order"
        )
    _frame.set(frame.parent)


def replace(device: Device | None = None, stream: Any = None) -> None:
    """Change what is current, until the innermost guard is left."""
    frame = _frame.get()
    _frame.set(_changed(frame, device, stream, frame.parent, frame.owner))


def _changed(frame: Frame, device: Device | None, stream: Any, parent: Frame | None, owner: object) -> Frame:
    streams = frame.streams if stream is None else {**frame.streams, stream.device: stream}
    return Frame(frame.device if device is None else device, streams, parent, owner)
