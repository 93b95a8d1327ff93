"""What Dask calls arrays: the keys of what is scattered, and of tasks that are given arrays.

Dask makes a key of an object's pickle, or of its contents. To ask for those would block the client's loop until the array is
computed, and copy it. So the key follows from the memory and from the last writes of it, which are known when they are
submitted: the same array has the same key until something writes it, whatever else it shares memory with, and has another one
afterwards. Two arrays of equal values have two keys. Memory of others, who need not tell when they write, has a new key
each time.
"""

from __future__ import annotations

from typing import Any
from uuid import uuid4
from weakref import WeakKeyDictionary

from dask.base import normalize_token

from aiodev import Array
from aiodev._memory.buffer import ForeignBuffer
from aiodev.autograd import Variable

__all__ = ["rename"]

#: What buffers and timelines are called, in any process.
_names: WeakKeyDictionary[Any, str] = WeakKeyDictionary()


def rename(x: Array) -> None:
    """Have an array's memory be called otherwise from now on, and so the tasks that are given it."""
    _names.pop(x._buffer, None)


def _name(known: Any) -> str:
    return _names.setdefault(known, uuid4().hex)


def _token(x: Array) -> tuple[Any, ...]:
    buffer = x._buffer
    if isinstance(buffer, ForeignBuffer):
        return "aiodev", uuid4().hex
    writes = sorted((_name(timeline), value) for timeline, value in buffer.contents())
    return "aiodev", _name(buffer), x.address - buffer.address, x.shape, x.strides, x.dtype.name, writes


def _token_of_variable(x: Variable) -> tuple[Any, ...]:
    return "variable", x.requires_grad, _token(x)


normalize_token.register(Array, _token)
normalize_token.register(Variable, _token_of_variable)
