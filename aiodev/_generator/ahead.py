"""Where a generator stands behind a replay that draws as often as the device decides.

How far such a replay moves the generator, the host finds out when it is over, and nobody waits for that. The replay ends by
writing seed and offset to device memory. Draws that are submitted meanwhile count from there, as they do in a graph, on
streams that are ordered after it. A copy on the host is there by the time that the replay is done; from then on draws take
numbers again.

Until then the host cannot tell whether what is drawn lies before the end of the seed's words. So a replay counts as ``SKIPPED``
words until it has told, and where these might be too many it is refused, as are draws behind it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from aiodev._core.streams.current import current_stream
from aiodev._core.waiting.blocking import wait_blocking

if TYPE_CHECKING:
    import numpy as np

    from aiodev._array.array import Array
    from aiodev._core.streams.completion import Completion
    from aiodev._core.streams.stream import Stream

__all__ = ["SKIPPED", "UNTOLD", "Ahead", "Told"]

#: Words that a replay may draw in loops and branches. By as many it moves a generator if it has failed, or was withdrawn.
SKIPPED = 1 << 40
#: In place of an offset that was not told: no multiple of 4.
UNTOLD = 1
#: The device counts modulo this.
_WRAP = 1 << 64


@dataclass(slots=True, eq=False)
class Told:
    """What a replay tells at its end.

    Attributes:
        words: seed and offset, two ``uint64`` on the device.
        host: the same on the host, ``UNTOLD`` before.
        done: the copy, which comes last.
        began: where the replay began.
        count: how many words it has drawn behind that offset.
    """

    words: Array
    host: np.ndarray[Any, Any]
    done: Completion[None]
    began: int | Ahead
    count: int


class Ahead(NamedTuple):
    """A place in a generator's sequence.

    Attributes:
        told: what is drawn before.
        distance: how many words lie between the end of that and the place.
    """

    told: Told
    distance: int

    @property
    def offset(self) -> int:
        """How far it is behind what the device is told."""
        return self.told.count + self.distance

    def bounds(self) -> tuple[int, int]:
        """Between which offsets it is, each of the replays before it drawing ``SKIPPED`` words at most."""
        told, most = self.told, self.offset + SKIPPED
        while isinstance(told.began, Ahead):
            most += told.began.offset + SKIPPED
            told = told.began.told
        return told.began, told.began + most

    def look(self) -> int | Ahead:
        """The offset, if the host knows it by now; else from where to count, which is never a replay that was withdrawn.

        It may be beyond the end of the seed's words, if a replay has drawn more than ``SKIPPED``.
        """
        told, distance = self
        while True:
            done = told.done
            is_done = done.query()
            if is_done and int(told.host[1]) != UNTOLD:
                least = self.bounds()[0]
                return least + (int(told.host[1]) - least) % _WRAP + told.count + distance
            if not (is_done or done.cancelled()):
                return Ahead(told, distance)
            began = told.began
            if isinstance(began, int):
                return began + distance + SKIPPED
            told, distance = began.told, began.distance + distance + SKIPPED

    def forget_past(self) -> None:
        """Let go of replays that are over: where they ended is a number by now."""
        told = self.told
        while isinstance(told.began, Ahead):
            told.began = told.began.look()
            if isinstance(told.began, Ahead):
                told = told.began.told

    def wait_blocking(self) -> None:
        """Block until the offset can be known. Nobody is told here of what has failed.

        Raises:
            SyncError: it has to wait, and an event loop runs here whose task does not want that.
        """
        wait_blocking(self.told.done.timeline, self.told.done.value, None)

    def order(self, stream: Stream | None) -> None:
        """Order a stream after what is drawn before; the current one of its device if it is None."""
        (stream or current_stream(self.told.words.device)).wait(self.told.done)
