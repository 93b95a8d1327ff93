"""Arrays within what tasks are given and return."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from aiodev import Array, SyncError
from aiodev._core.streams.completion import Reached
from aiodev._core.timeline.timeline import Timeline
from aiodev._core.waiting.blocking import wait_all_blocking
from aiodev._core.waiting.loops import loop_runs_here
from aiodev.dask.tuning import PATIENCE

__all__ = ["arrays_in", "block_until_written", "replaced", "unfinished", "until_written"]


def arrays_in(value: Any) -> Iterator[Array]:
    """The arrays in a value, and in its lists, tuples, sets and dictionaries."""
    if isinstance(value, Array):
        yield value
    elif isinstance(value, dict):
        for item in value.values():
            yield from arrays_in(item)
    elif isinstance(value, list | tuple | set | frozenset):
        for item in value:
            yield from arrays_in(item)


def replaced(value: Any, others: dict[int, Array]) -> Any:
    """A copy of a value in which some arrays, by their identities, are replaced by others."""
    if isinstance(value, Array):
        return others.get(id(value), value)
    if type(value) is dict:
        return {key: replaced(item, others) for key, item in value.items()}
    if type(value) in (list, tuple):
        return type(value)(replaced(item, others) for item in value)
    return value


def unfinished(array: Array) -> list[tuple[Timeline, int]]:
    """The writes of an array's contents that have still to come."""
    buffer = array._buffer
    if buffer.is_written():
        return []
    return [(timeline, value) for timeline, value in buffer.contents() if not timeline.reached(value)]


async def until_written(value: Any) -> None:
    """Wait until the arrays in a value are written, as they are or failed."""
    for array in arrays_in(value):
        for timeline, number in unfinished(array):
            await Reached(timeline, number)


def block_until_written(array: Array) -> None:
    """Block this thread until an array is written; a thread whose event loop runs for a moment only.

    Raises:
        SyncError: an event loop runs here, and the array, which may wait for that very loop, is not written soon.
    """
    points = unfinished(array)
    if not points:
        return
    try:
        wait_all_blocking(points, PATIENCE if loop_runs_here() else None)
    except TimeoutError:
        call = "pickling an array that is still being computed"
        raise SyncError(call, None, "await client.scatter(array)") from None
