"""Calls of the driver from native code: by address, with the right context current."""

from __future__ import annotations

from llvmlite import ir

from aiodev._backends.cuda.layout import D_CONTEXT, F_CAPTURE_MODE, F_CTX_GET, F_CTX_SET, RELAXED
from aiodev._backends.executor.compile import inner, intrinsic
from aiodev._backends.executor.intrinsics import get, put

_WORD = ir.IntType(64)


@intrinsic
def call(builder, function, *arguments):
    """Call ``CUresult function(arguments…)`` by its address; each argument goes as a word, as C's ABI allows."""
    prototype = ir.FunctionType(ir.IntType(32), [_WORD] * len(arguments))
    return builder.zext(builder.call(builder.inttoptr(function, prototype.as_pointer()), arguments), _WORD)


@intrinsic
def word_here(builder):
    """Address of a word on the stack of the calling function."""
    with builder.goto_entry_block():
        place = builder.alloca(_WORD)
    return builder.ptrtoint(place, _WORD)


@inner
def allow_captures(device):
    """Let other threads capture graphs meanwhile: asking after a stream on this one would invalidate them otherwise."""
    mode = word_here()
    put(mode, RELAXED)
    call(get(device + F_CAPTURE_MODE), mode)


@inner
def enter(device):
    """Make the device's context current on this thread; returns what was, for ``leave``."""
    place = word_here()
    put(place, 0)
    call(get(device + F_CTX_GET), place)
    before = get(place)
    if before != get(device + D_CONTEXT):
        call(get(device + F_CTX_SET), get(device + D_CONTEXT))
    return before


@inner
def leave(device, before):
    """Make current again what was: other libraries take their device from it."""
    if before != get(device + D_CONTEXT):
        call(get(device + F_CTX_SET), before)
