"""Assignment: what ``x[index] = value`` submits.

=======================  =========================  ========================================================
the index chooses        the value                  what is submitted
=======================  =========================  ========================================================
a view without gaps      a number                   a fill
a view with gaps         a number                   a fill of one element, and a copy that repeats it
a view                   an array of its shape      a copy; of a host array, of what it has at that moment
                         and dtype, on its device
                         or the host
anything else                                       what :mod:`aiodev.kernels` makes of it: other dtypes and
                                                    shapes, indices that are arrays
=======================  =========================  ========================================================
"""

from __future__ import annotations

from typing import Any

import numpy as np

from aiodev._array import host_values
from aiodev._array.array import Array, allocate, array_of, assign as assigning, fill_array
from aiodev._array.computing import indexing
from aiodev._array.form import form_of
from aiodev._array.transfer import copy_into
from aiodev._core.streams.current import current_stream
from aiodev._memory.buffer import why_read_only

__all__ = ["assign"]

#: What an index consists of that chooses a view.
_VIEWING = frozenset((int, slice, type(None), type(...)))
_NUMBERS = frozenset((bool, int, float, complex))


@assigning.provide
def assign(x: Array, index: Any, value: Any) -> None:
    """Write ``value`` to the elements of ``x`` that ``index`` chooses; see :meth:`aiodev.Array.__setitem__`."""
    if not x._form.writable:
        raise ValueError(f"an array of the shape {x.shape} cannot be assigned to: it is read-only{why_read_only(x)}")
    items = index if index.__class__ is tuple else (index,)
    if _VIEWING.issuperset([item.__class__ for item in items]):
        if value.__class__ is Array:
            is_done = _copy_alike(x[index], value)
        elif value.__class__ is np.ndarray:
            is_done = _copy_host(x[index], value)
        else:
            is_done = value.__class__ in _NUMBERS and _fill(x[index], value)
        if is_done:
            return
    indexing.put(x, index, value)


def _copy_alike(view: Array, value: Array) -> bool:
    """Copy an array that has the shape, the dtype and the device of the view; False if it has not."""
    form, other = view._form, value._form
    if other.shape != form.shape or other.dtype is not form.dtype or other.device is not form.device:
        return False
    copy_into(view, value)
    return True


def _copy_host(view: Array, value: np.ndarray[Any, Any]) -> bool:
    """Copy a host array that has the shape and the dtype of the view; False if it has not."""
    form = view._form
    if value.shape != form.shape or value.dtype != form.dtype:
        return False
    host_values.assign(view, value, current_stream(form.device))
    return True


def _fill(view: Array, value: Any) -> bool:
    """Write a number to each element; False if it is none that the dtype has, which is said by ``put``."""
    form = view._form
    try:
        number = np.array(value, form.dtype)
    except (OverflowError, TypeError, ValueError):
        return False
    stream = current_stream(form.device)
    if form.packed and form.size:
        fill_array(view, stream, form.size, number.tobytes())
    elif form.size:
        one = allocate((), form.dtype, stream)
        repeated = form_of(form.device, form.dtype, form.shape, (0,) * len(form.shape), False)
        with stream.as_one():
            fill_array(one, stream, 1, number.tobytes())
            stream.copy(view, array_of(one._buffer, one._address, repeated))
    return True
