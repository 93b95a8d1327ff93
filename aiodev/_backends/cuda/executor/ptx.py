"""Kernels of command buffers that are no program's: given to the driver as PTX, which it compiles for any device.

:data:`CONDITION` sets the condition of a block, by ``cudaGraphSetConditional``, one of the functions that device code has
without a library, where the driver has conditional nodes. What it computes, in Python::

    value = (record == 0 or word_at(record) == 0) and (word == 0 or word_at(word) & mask != 0)

``record`` is a queue's fault record; ``word`` has an element whose bits are ``mask``, and is 0 where only failures count.

:data:`SIGNAL` completes the next position of a queue, up to ``bound``, when all that was written before is there for whoever
learns of it, and unless something has failed::

    counter = word_at(cell)
    if (record == 0 or word_at(record) == 0) and word_at(counter) < bound:
        word_at(counter) += 1

``cell`` is in the memory of the device and has the address of the queue, whose first word is its counter, on the host.
"""

from __future__ import annotations

import ctypes
from typing import NamedTuple

from aiodev._backends.cuda.driver import Driver, DriverError

__all__ = ["CONDITION", "SIGNAL", "Source", "load"]


class Source(NamedTuple):
    """A kernel in PTX."""

    name: str
    text: str


CONDITION = Source(
    "set_condition",
    """
.version 6.0
.target sm_50
.address_size 64

.extern .func cudaGraphSetConditional (.param .b64 handle, .param .b32 value);

.visible .entry set_condition (.param .u64 record, .param .u64 word, .param .u64 mask, .param .u64 handle)
{
    .reg .pred %is_zero;
    .reg .b32 %value;
    .reg .b64 %address, %content, %bits;
    .param .b64 first;
    .param .b32 second;

    mov.u32 %value, 1;
    ld.param.u64 %address, [word];
    setp.eq.u64 %is_zero, %address, 0;
    @%is_zero bra FAILURES;
    ld.global.u64 %content, [%address];
    ld.param.u64 %bits, [mask];
    and.b64 %content, %content, %bits;
    setp.eq.u64 %is_zero, %content, 0;
    selp.u32 %value, 0, 1, %is_zero;
FAILURES:
    ld.param.u64 %address, [record];
    setp.eq.u64 %is_zero, %address, 0;
    @%is_zero bra SET;
    ld.global.u64 %content, [%address];
    setp.eq.u64 %is_zero, %content, 0;
    selp.u32 %value, %value, 0, %is_zero;
SET:
    ld.param.u64 %bits, [handle];
    st.param.b64 [first], %bits;
    st.param.b32 [second], %value;
    call.uni cudaGraphSetConditional, (first, second);
    ret;
}
""",
)

SIGNAL = Source(
    "signal",
    """
.version 6.0
.target sm_50
.address_size 64

.visible .entry signal (.param .u64 record, .param .u64 cell, .param .u64 bound)
{
    .reg .pred %is_over;
    .reg .b64 %address, %content, %last;

    ld.param.u64 %address, [record];
    setp.eq.u64 %is_over, %address, 0;
    @%is_over bra COUNT;
    ld.global.u64 %content, [%address];
    setp.ne.u64 %is_over, %content, 0;
    @%is_over bra END;
COUNT:
    ld.param.u64 %address, [cell];
    ld.global.u64 %address, [%address];
    ld.volatile.global.u64 %content, [%address];
    ld.param.u64 %last, [bound];
    setp.ge.u64 %is_over, %content, %last;
    @%is_over bra END;
    add.u64 %content, %content, 1;
    membar.sys;
    st.volatile.global.u64 [%address], %content;
END:
    ret;
}
""",
)


def load(driver: Driver, source: Source, doing: str) -> int:
    """A kernel's CUfunction in the current context; 0 where the driver does not compile it."""
    try:
        module = driver.number("cuModuleLoadData", ctypes.c_char_p(source.text.encode()), doing=doing)
        return driver.number("cuModuleGetFunction", module, ctypes.c_char_p(source.name.encode()), doing=doing)
    except DriverError:
        return 0
