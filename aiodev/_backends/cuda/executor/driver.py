"""Calls of the driver from native code: by address, with the right context current."""

from __future__ import annotations

from typing import Any

from llvmlite import ir

from aiodev._backends.cuda.executor.gil import begin_waiting, end_waiting
from aiodev._backends.cuda.structs import RELAXED, Device
from aiodev._native.compile import inner, intrinsic
from aiodev._native.fields import Cell

_WORD = ir.IntType(64)


@intrinsic
def call(builder: ir.IRBuilder, function: ir.Value, *arguments: ir.Value) -> Any:
    """Call ``CUresult function(arguments…)`` by its address; each argument goes as a word, as C's ABI allows."""
    prototype = ir.FunctionType(ir.IntType(32), [_WORD] * len(arguments))
    return builder.zext(builder.call(builder.inttoptr(function, prototype.as_pointer()), arguments), _WORD)


@intrinsic
def word_here(builder: ir.IRBuilder) -> Any:
    """Address of a word on the stack of the calling function."""
    with builder.goto_entry_block():
        place = builder.alloca(_WORD)
    return builder.ptrtoint(place, _WORD)


@inner
def record_event(device: Device, event: int, stream: int) -> int:
    """Record an event on a stream, which may have no room, without the GIL; the driver's status. Needs the context."""
    begin_waiting(device)
    status = call(device.driver.cuEventRecord, event, stream)
    end_waiting(device)
    return status


@inner
def exchange_mode(device: Device, wanted: int) -> int:
    """Change what other threads' captures may keep this one from doing; gives how it was."""
    mode: Cell[int] = Cell(word_here())
    mode.value = wanted
    call(device.driver.cuThreadExchangeStreamCaptureMode, mode)
    return mode.value & 0xFFFFFFFF


@inner
def allow_captures(device: Device) -> int:
    """Let other threads capture graphs meanwhile: asking after a stream, or allocating, would invalidate them otherwise.

    Gives the mode of before.
    """
    return exchange_mode(device, RELAXED)


@inner
def enter(device: Device) -> int:
    """Make the device's context current on this thread; returns what was, for ``leave``."""
    place: Cell[int] = Cell(word_here())
    place.value = 0
    call(device.driver.cuCtxGetCurrent, place)
    before = place.value
    if before != device.context:
        call(device.driver.cuCtxSetCurrent, device.context)
    return before


@inner
def leave(device: Device, before: int) -> None:
    """Make current again what was: other libraries take their device from it."""
    if before != device.context:
        call(device.driver.cuCtxSetCurrent, before)
