"""Arrays within what tasks are given and return."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from aiodev import Array
from aiodev._core.timeline.timeline import Timeline

__all__ = ["arrays_in", "replaced", "unfinished"]


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
