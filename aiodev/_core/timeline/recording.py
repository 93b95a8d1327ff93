"""What a timeline whose operations are captured into a graph asks of the capture (:mod:`aiodev._graph`)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NoReturn, Protocol

from aiodev._core.timeline.vector_clock import Clock

__all__ = ["NOT_DONE", "NO_WAIT", "Effect", "Recording", "under_way"]

#: Why whether captured work is done is not to be asked: who asks until it is would ask for ever.
NOT_DONE = "captured work is not done before its graph is replayed"
#: Why it is not to be waited for.
NO_WAIT = "the host cannot wait for captured work, which runs when the graph is replayed"

#: Captures that are under way: mostly none, and then nobody looks further.
under_way: list[Recording] = []


class Effect(Protocol):
    """What a program has changed on the host by what it captured, and each replay changes again."""

    def check(self) -> None:
        """See, before a replay is submitted, that it can be changed as it was."""

    def apply(self) -> None:
        """Change it."""


class Recording(Protocol):
    """A capture, as the layers below it know it.

    Attributes:
        memory: what serves the arrays that captured work makes.
        held: buffers of before the capture that are known to be used, and whether they are known to be written to.
    """

    memory: Any
    held: dict[Any, bool]

    def progress(self) -> tuple[int, ...]:
        """How many operations each captured stream was given so far."""

    def launcher(self, queue: int) -> Callable[[int, int, bytes, int], int]:
        """What launches on a captured stream go through: :meth:`Executor.launch` of its queue, for less."""

    def hold(self, buffer: Any, writes: bool) -> bool:
        """Keep memory of before the capture that a captured operation uses; False for memory that the capture has made."""

    def note_use(self, buffer: Any, timeline: Any, value: int, writes: bool, is_looked_at: bool = True) -> None:
        """Note, in debug mode, that a captured operation uses memory; ``is_looked_at``: in an order that is to be found."""

    def depends_on_replay(self, buffer: Any) -> bool:
        """Whether what a buffer holds is another thing at each replay: a captured operation writes to it, or it is an input."""

    def take_in(self, timeline: Any, other: Any, value: int, clock: Clock) -> None:
        """Capture the stream of ``timeline``, too, which is to wait for operation ``value`` of a captured one."""

    def wait_for(self, done: Any) -> None:
        """Order replays after a completion of work that is not captured."""

    def call(self, timeline: Any, function: Callable[..., Any], arguments: tuple[Any, ...]) -> int:
        """Capture the call of a function of the host; returns its number."""

    def follow(self, timeline: Any, buffer: Any) -> None:
        """Order a captured stream after whatever uses memory: captured work, and at each replay what others do."""

    def made(self, buffer: Any) -> bool:
        """Whether the capture has made memory."""

    def keep_in_place(self, buffer: Any) -> None:
        """Have memory that the capture has made stay where it is, since somebody keeps an array of it."""

    def at_replays(self, make: Callable[[], Effect]) -> None:
        """Have each replay change on the host what ``make``, which is called at the end of the capture, says."""

    def refuse(self, reason: str) -> NoReturn:
        """Raise CaptureError, which names what the program called, and where."""
