"""Calls of kernels and of operations, in native code: all but the first ones pass here.

They do what a call needs that was made before with arguments of these types: see that it is that, pack the arguments, submit,
note the use of the buffers, and make what is returned. What they do not know, and what cannot be, goes to functions of Python,
which check everything and say what is wrong. What they go by, those have found out: :mod:`aiodev._kernel.dispatch.states`.

**Invariants.**

1.  What is not an argument, nor kept by one, is referred to while C functions are called that may run Python's code: branches,
    stream, timeline, buffers.
2.  A word of a buffer is written by the same rules as there: no call comes between the last look at it and the store.
3.  Where an exception arrives behind a submission, the buffers are noted as used before it goes on.
4.  Only an ``Exception`` means that a call is not known; Ctrl-C goes on.
"""

from aiodev._kernel.dispatch.native.launch import choose_launch, launch_bound, launch_kernel
from aiodev._kernel.dispatch.native.memory import allocate_array, allocate_buffer, release_buffer
from aiodev._kernel.dispatch.native.operation import call_operation
from aiodev._kernel.dispatch.native.record import record_launch
from aiodev._kernel.dispatch.native.repeat import repeat
from aiodev._kernel.dispatch.native.views import (
    broadcast_array,
    exchange_array,
    index_array,
    reshape_array,
    transpose_array,
)

__all__ = [
    "allocate_array", "allocate_buffer", "broadcast_array", "call_operation", "choose_launch", "exchange_array", "index_array",
    "launch_bound", "launch_kernel", "record_launch", "release_buffer", "repeat", "reshape_array", "transpose_array",
]  # fmt: skip
