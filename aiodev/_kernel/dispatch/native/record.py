"""Launches on streams that are captured: they are noted, and numbered."""

from __future__ import annotations

from aiodev._core.backend.interface import SUBMITTED
from aiodev._kernel.dispatch.states import RecordedLaunchView
from aiodev._native.compile import method
from aiodev._native.fields import Cell
from aiodev._native.objects import (
    Tuple,
    append,
    as_int,
    call,
    clear_error,
    decrement,
    dict_item,
    increment,
    new_int,
    new_tuple,
    untrack,
)

__all__ = ["record_launch"]

_ARGUMENTS = 4


@method
def record_launch(own: RecordedLaunchView, given: Cell[int], count: int, names: Tuple | None) -> int:
    """Note a launch: an entry, a size, an argument block and a site; gives its number on the stream."""
    if count != _ARGUMENTS or names is not None or own.blocks.length != 0:
        return call(own.slow, given, count, names)
    if dict_item(own.kernels, given.value) == 0:
        clear_error()
        return call(own.slow, given, count, names)
    one = new_tuple(1 + _ARGUMENTS)
    if one == 0:
        return 0
    increment(own.lane)
    Tuple(one).items.value = own.lane
    for place in range(_ARGUMENTS):
        increment(given[place].value)
        Tuple(one).items[1 + place].value = given[place].value
    untrack(one)
    counters: Cell[int] = Cell(own.counters.items)
    last = counters[SUBMITTED].value
    value = new_int(as_int(last) + 1)
    if value == 0 or append(own.submitted, one) != 0:
        if value != 0:
            decrement(value)
        decrement(one)
        return 0
    increment(value)
    counters[SUBMITTED].value = value
    decrement(last)
    decrement(one)
    return value
