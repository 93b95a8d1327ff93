"""Views, as methods of arrays: of plain indices, lengths and axes; all else is Python's."""

from __future__ import annotations

from aiodev._array.native import UNKNOWN, broadcast, exchange, index, reshape, transpose
from aiodev._kernel.dispatch.native.submit import call_attribute, known_objects
from aiodev._kernel.dispatch.states import ArrayView
from aiodev._native.compile import method
from aiodev._native.fields import Cell
from aiodev._native.objects import Object, Tuple

__all__ = ["broadcast_array", "exchange_array", "index_array", "reshape_array", "transpose_array"]


@method
def index_array(own: ArrayView, given: Cell[int], count: int, names: Tuple | None) -> int:
    """As ``Array.__getitem__``."""
    known = known_objects().arrays
    view = UNKNOWN
    if own.type == known.array_class and count == 1 and names is None:
        view = index(known, own, Object(given.value))
    return view if view != UNKNOWN else call_attribute(own, known.full_getitem, given, count, names)


@method
def reshape_array(own: ArrayView, given: Cell[int], count: int, names: Tuple | None) -> int:
    """As ``Array.reshape``."""
    known = known_objects().arrays
    view = UNKNOWN
    if own.type == known.array_class and names is None:
        view = reshape(known, own, given, count)
    return view if view != UNKNOWN else call_attribute(own, known.full_reshape, given, count, names)


@method
def transpose_array(own: ArrayView, given: Cell[int], count: int, names: Tuple | None) -> int:
    """As ``Array.transpose``."""
    known = known_objects().arrays
    view = UNKNOWN
    if own.type == known.array_class and names is None:
        view = transpose(known, own, given, count)
    return view if view != UNKNOWN else call_attribute(own, known.full_transpose, given, count, names)


@method
def exchange_array(own: ArrayView, given: Cell[int], count: int, names: Tuple | None) -> int:
    """As ``Array._exchanged``."""
    known = known_objects().arrays
    view = UNKNOWN
    if own.type == known.array_class and count == 0 and names is None:
        view = exchange(known, own)
    return view if view != UNKNOWN else call_attribute(own, known.full_exchanged, given, count, names)


@method
def broadcast_array(own: ArrayView, given: Cell[int], count: int, names: Tuple | None) -> int:
    """As ``Array._broadcast_to``."""
    known = known_objects().arrays
    view = UNKNOWN
    if own.type == known.array_class and count == 1 and names is None:
        view = broadcast(known, own, given)
    return view if view != UNKNOWN else call_attribute(own, known.full_broadcast_to, given, count, names)
