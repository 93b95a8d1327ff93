"""What a call of an operation has submitted, as one function that submits it again.

Of each launch of a call the entry, the size, the constants and the layout of every array are fixed; or where lengths are not,
:mod:`aiodev._kernel.symbolic` has the expressions of what follows from them, which are computed first. So a native function
(:mod:`aiodev._kernel.dispatch.native.repeat`) is given them, which allocates the results and the scratch memory, puts addresses
and numbers between bytes that are fixed, submits, and notes the use of the buffers. Its arguments are the operands of the next
call.

**Invariants.**

1.  An array's *form* is one object for all arrays of the same device, dtype, shape, strides and writability, told from others
    by identity. So what was submitted for operands of some forms and, of those that are numbers, some classes, is what the
    operation would submit for others like them: entry, size, constants and views.
2.  Only addresses, the values of numbers and what is computed of lengths are the operands' own, so only they are put into the
    block anew.
3.  There may be two forms of the same content, since tables are bounded and forget what is old. The second is
    recorded again, and is never wrong.
4.  A function that is remembered is ready to run, and belongs to this process: a forked child starts with nothing.
5.  Scratch memory is one call's: calls of one kind may run at the same time, on several streams.
6.  Whether what is written has elements in common with what is read does not follow from forms. So every call looks, in which
    both are in one buffer, or one of them is in memory that is not of our allocators only: several buffers may be over that.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from aiodev._array.array import Array
from aiodev._array.layout import extent
from aiodev._kernel.dispatch.native_functions import native_function
from aiodev._kernel.dispatch.signature import ARRAYS, packer_of
from aiodev._kernel.dispatch.specializations import Specialization
from aiodev._kernel.dispatch.states import MOST_PARAMETERS, SCRATCH, Apart, RepeatedCall, RepeatedStep
from aiodev._kernel.kernel import Kernel
from aiodev._memory.buffer import Buffer

__all__ = ["ALIGNMENT", "CONSTANT", "SCRATCH", "Repeated", "Step", "make_repeated", "make_step"]

#: Of an argument that is neither an operand nor scratch memory: it is the same in every call.
CONSTANT = -2
#: How scratch is aligned, and up to how many bytes of it lie behind a new result: an allocation takes as long as the rest.
ALIGNMENT, _BEHIND = 64, 1 << 12
_WORD = struct.Struct("<q")
#: Takes the operands, and gives what the operation returns; None where a number does not fit its type. Behind the operands it
#: may be given a stream, other than the current one; it gives None where that is of another device. And a site, that of the
#: program's line, where that is known.
Repeated = Callable[..., Any]


class Step(NamedTuple):
    """One launch of a call."""

    kernel: Kernel
    shape: tuple[int, ...]
    args: tuple[Any, ...]
    origins: tuple[int, ...]  #: of each argument: the operand that it is or is a view of, or ``CONSTANT`` or ``SCRATCH``


def make_repeated(
    specializations: Sequence[Specialization],
    steps: Sequence[Step],
    operands: Sequence[Any],
    results: Sequence[Array],
    returned: int | tuple[int, ...],
    apart: Sequence[Apart] = (),
) -> Repeated | None:
    """The launches of variants, one for each step, as a function of operands like these; None as long as there can be none.

    ``apart``: conditions under which it is no such call.

    ``results`` are arrays that the call has made; they are counted behind the operands. ``returned`` says which of all these
    the function gives back.
    """
    if len(operands) + len(results) > MOST_PARAMETERS or any(len(step.args) >= MOST_PARAMETERS for step in steps):
        return None
    scratch = _scratch_of(steps)
    room = sum(map(_aligned, scratch.values()))
    behind = bool(results) and room <= _BEHIND
    places, end = {}, _aligned(results[0].nbytes) if behind else 0
    for buffer, nbytes in scratch.items():
        places[buffer] = end - buffer.address
        end += _aligned(nbytes)
    constants: list[Buffer] = []
    arrays = (*operands, *results)

    def distance(arg: Array, origin: int) -> int:
        return arg._address + places[arg._buffer] if origin == SCRATCH else arg._address - arrays[origin]._address

    launches = [
        make_step(specialization, step, distance, constants)
        for specialization, step in zip(specializations, steps, strict=True)
    ]
    own = room if room and not behind else None
    if own is not None:
        launches[-1].also_writes(SCRATCH)
    made = []
    for number, result in enumerate(results):
        nbytes = end if number == 0 and room and behind else result.nbytes
        made.append((nbytes, result._form))
    device = specializations[0].device
    return native_function("repeat", RepeatedCall(device, operands, apart, made, own, constants, launches, returned))


def make_step(
    specialization: Specialization,
    step: Step,
    distance: Callable[[Any, int], Any],
    constants: list[Buffer],
    register: Callable[[Any], int] = lambda _: 0,
) -> RepeatedStep:
    """A launch as native code makes it again.

    All but addresses and numbers follow from the forms, and is packed as the bytes that it is. ``distance``: from an array and
    its origin, how many bytes it lies behind that. ``constants`` learns buffers. ``register``: of a length that is not fixed
    what has it, of a number 0.
    """
    signature = specialization.signature
    block = bytearray()
    lengths, addresses, numbers, users = [], [], [], []

    def write(length: Any) -> None:
        number = register(length)
        if number:
            lengths.append((len(block), number))
        block.extend(_WORD.pack(0 if number else length))

    for length in step.shape:
        write(length)
    places = list(zip(step.args, step.origins, signature.descriptors, signature.pattern, strict=True))
    for arg, origin, descriptor, kind in places:
        if kind not in ARRAYS:
            number = register(arg)
            if origin != CONSTANT or number:
                numbers.append((len(block), -1 if number else origin, number, descriptor))
            block.extend(packer_of(descriptor)(0 if origin != CONSTANT or number else arg))
    for arg, origin, _, kind in places:
        if kind not in ARRAYS:
            continue
        if origin == CONSTANT:
            constants.append(arg._buffer)
            users.append((SCRATCH - len(constants), kind))
            block.extend(arg._packed or arg._pack())
            continue
        if origin != SCRATCH:
            users.append((origin, kind))
        behind = distance(arg, origin)
        number, form = register(behind), arg._form
        addresses.append((len(block), origin, 0 if number else behind, number))
        block.extend(_WORD.pack(0))
        for length in form.shape if form.packed else (*form.shape, *form.strides):
            write(length)
    size = math.prod(step.shape)
    number = register(size)
    return RepeatedStep(
        specialization.loading, None if number else size, number, bytes(block), addresses, lengths, numbers, users
    )


def _aligned(nbytes: int) -> int:
    return -(-nbytes // ALIGNMENT) * ALIGNMENT


def _scratch_of(steps: Sequence[Step]) -> dict[Buffer, int]:
    """What is scratch, each once, and the bytes up to where it is used."""
    ends: dict[Buffer, int] = {}
    for step in steps:
        for arg, origin in zip(step.args, step.origins, strict=True):
            if origin == SCRATCH:
                end = arg._address - arg._buffer.address + extent(arg._layout, arg.itemsize)[1]
                ends[arg._buffer] = max(end, ends.get(arg._buffer, 0))
    return ends
