"""Conditions of blocks in graphs: the kernel that sets them, by a function of the device's that only the driver has.

It is given to the driver as PTX, which any driver that has conditional nodes compiles for any device:
``cudaGraphSetConditional`` is one of the functions that device code has without a library. What it computes, in Python::

    value = (record == 0 or word_at(record) == 0) and (word == 0 or word_at(word) & mask != 0)

``record`` is a queue's fault record; ``word`` has an element whose bits are ``mask``, and is 0 where only failures count.
"""

from __future__ import annotations

import ctypes

from aiodev._backends.cuda.driver import Driver, DriverError

__all__ = ["SOURCE", "load"]

_NAME = b"set_condition"
SOURCE = """
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
"""


def load(driver: Driver, doing: str) -> int:
    """The kernel's CUfunction in the current context; 0 where the driver does not compile it: then there are no blocks."""
    try:
        module = driver.number("cuModuleLoadData", ctypes.c_char_p(SOURCE.encode()), doing=doing)
        return driver.number("cuModuleGetFunction", module, ctypes.c_char_p(_NAME), doing=doing)
    except DriverError:
        return 0
