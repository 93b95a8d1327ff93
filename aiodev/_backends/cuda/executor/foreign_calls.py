"""Calls of other libraries' native functions, which submit to the queue's stream (:meth:`aiodev.Stream.call_native`).

All are called with as many words as any may have: a C function takes those that it knows and leaves the others, which its
caller removes. That holds for x86-64 and 64-bit Arm on Linux, where every integer and address is passed in a word.
"""

from __future__ import annotations

from aiodev._backends.cuda.executor.driver import call
from aiodev._backends.cuda.structs import ForeignCall, ForeignCalls, Item, Queue
from aiodev._backends.executor.compile import inner
from aiodev._backends.executor.faults import open_fault
from aiodev._backends.executor.fields import Cell
from aiodev._backends.executor.intrinsics import get
from aiodev._backends.executor.locking import lock, unlock
from aiodev._backends.executor.structs import KIND_NATIVE

_CELL, _HANDLE, _ARGUMENTS = 2, 1, 24  # as in aiodev._core.streams.native_calls


@inner
def word(queue: Queue, item: Item) -> int:
    """The word that an item of a call stands for: itself, the stream, or the word at an address."""
    kind, content = item.kind, item.content
    if kind == _HANDLE:
        return queue.stream
    return get(content) if kind == _CELL else content


@inner
def call_functions(queue: Queue, value: int, block: ForeignCalls) -> None:
    """Make the calls of a block, in order, until one fails; then the operation fails. Needs the lock and the context."""
    held = block.lock
    if held is not None:
        lock(held)
    called = block.calls
    for number in range(block.count):
        count = called.count
        function = word(queue, called.function)
        words: Cell[int] = Cell(queue.parameters.address)
        for i in range(_ARGUMENTS):
            words[i].value = word(queue, called.arguments[i]) if i < count else 0
        called = ForeignCall(called.arguments[count].address)
        status = -1
        if function != 0:
            status = call(
                function, words[0].value, words[1].value, words[2].value, words[3].value, words[4].value,
                words[5].value, words[6].value, words[7].value, words[8].value, words[9].value, words[10].value,
                words[11].value, words[12].value, words[13].value, words[14].value, words[15].value, words[16].value,
                words[17].value, words[18].value, words[19].value, words[20].value, words[21].value, words[22].value,
                words[23].value,
            )  # fmt: skip
        if status != 0:
            if queue.failed == 0:
                open_fault(queue, value, KIND_NATIVE, status, number, 0, 0)
            break
    if held is not None:
        unlock(held)
