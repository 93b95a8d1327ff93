"""Calls of the driver from nopython code: by address, with the right context current."""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from aiodev._backends.cpu.native.intrinsics import get, put
from aiodev._backends.cuda.layout import D_CONTEXT, F_CAPTURE_MODE, F_CTX_GET, F_CTX_SET, RELAXED
from aiodev._backends.cuda.native.compile import inner

_WORD = ir.IntType(64)


@intrinsic
def call(typing_context, function, *arguments):
    """Call ``CUresult function(arguments…)`` by its address; each argument goes as a word, as C's ABI allows."""
    given = tuple(arguments[0].types) if isinstance(arguments[0], types.BaseTuple) else arguments

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        words = [
            context.cast(builder, builder.extract_value(args[1], position), kind, types.int64)
            for position, kind in enumerate(given)
        ]
        prototype = ir.FunctionType(ir.IntType(32), [_WORD] * len(words))
        return builder.zext(builder.call(builder.inttoptr(args[0], prototype.as_pointer()), words), _WORD)

    return types.int64(types.int64, types.StarArgTuple(given)), generate


@intrinsic
def word_here(typing_context):
    """Address of a word on the stack of the calling function."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        with builder.goto_entry_block():
            place = builder.alloca(_WORD)
        return builder.ptrtoint(place, _WORD)

    return types.int64(), generate


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
