"""Calls of other libraries' native functions, which submit to the queue's stream (:meth:`aiodev.Stream.call_native`).

All are called with as many words as any may have: a C function takes those that it knows and leaves the others, which its
caller removes. That holds for x86-64 and 64-bit Arm on Linux, where every integer and address is passed in a word.
"""

from __future__ import annotations

from aiodev._backends.cpu.executor.faults import open_fault
from aiodev._backends.cpu.layout import Q_FAILED
from aiodev._backends.cuda.executor.driver import call
from aiodev._backends.cuda.layout import KIND_NATIVE, Q_PARAMETERS, Q_STREAM
from aiodev._backends.executor.compile import inner
from aiodev._backends.executor.intrinsics import get, put
from aiodev._backends.executor.locking import lock, unlock

_CELL, _HANDLE, _ARGUMENTS = 2, 1, 24  # as in aiodev._core.streams.native_calls


@inner
def word(queue, item):
    """What an item of a call means: itself, the stream, or the word at an address."""
    kind, found = get(item), get(item + 8)
    if kind == _HANDLE:
        return get(queue + Q_STREAM)
    return get(found) if kind == _CELL else found


@inner
def call_functions(queue, value, block):
    """Make the calls of a block, in order, until one fails; then the operation fails. Needs the lock and the context."""
    held = get(block)
    if held != 0:
        lock(held)
    item = block + 16
    for number in range(get(block + 8)):
        count = get(item)
        function = word(queue, item + 8)
        item += 24
        words = get(queue + Q_PARAMETERS)
        for i in range(_ARGUMENTS):
            put(words + 8 * i, word(queue, item + 16 * i) if i < count else 0)
        item += 16 * count
        status = -1
        if function != 0:
            status = call(
                function, get(words), get(words + 8), get(words + 16), get(words + 24), get(words + 32), get(words + 40),
                get(words + 48), get(words + 56), get(words + 64), get(words + 72), get(words + 80), get(words + 88),
                get(words + 96), get(words + 104), get(words + 112), get(words + 120), get(words + 128), get(words + 136),
                get(words + 144), get(words + 152), get(words + 160), get(words + 168), get(words + 176), get(words + 184),
            )  # fmt: skip
        if status != 0:
            if get(queue + Q_FAILED) == 0:
                open_fault(queue, value, KIND_NATIVE, status, number, 0, 0)
            break
    if held != 0:
        unlock(held)
