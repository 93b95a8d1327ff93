"""Whether arrays have elements in common: what is to be written, and what is read."""

from __future__ import annotations

from aiodev._array.array import Array
from aiodev._array.layout import Layout, overlaps

__all__ = ["may_overlap", "overlap", "overlap_elsewhere"]


def may_overlap(x: Array, out: Array) -> bool:
    """Whether arrays of one device are in one buffer, or in memory that others have, too, over which there may be several."""
    one, other = x._buffer, out._buffer
    return one is other or not (one.is_own and other.is_own)


def overlap(x: Array, out: Array) -> bool:
    """Whether two arrays of one device have a byte in common."""
    distance, form, other = out._address - x._address, x._form, out._form
    if form.packed and other.packed:
        if not form.size or not other.size:
            return False
        return -other.size * other.itemsize < distance < form.size * form.itemsize
    here, there = Layout(form.shape, form.strides), Layout(other.shape, other.strides)
    return overlaps(here, form.itemsize, there, other.itemsize, distance)


def overlap_elsewhere(x: Array, out: Array) -> bool:
    """Whether they have one, and are not the same elements at the same places."""
    return not (x._address == out._address and x._form is out._form) and overlap(x, out)
