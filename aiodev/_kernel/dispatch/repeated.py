"""What a call of an operation has submitted, as one function that submits it again.

Of each launch of a call the entry, the size, the constants and the layout of every array are fixed. So a function is generated
that allocates the results and the scratch memory, puts addresses and numbers between bytes that are fixed, submits, and notes
the use of the buffers. Its arguments are the operands of the next call.

**Invariants.**

1.  An array's *form* is one object for all arrays of the same device, dtype, shape, strides and writability, told from others
    by identity. So what was submitted for operands of some forms and, of those that are numbers, some classes, is what the
    operation would submit for others like them: entry, size, constants and views.
2.  Only addresses and the values of numbers are the operands' own, so only they are put into the block anew.
3.  There may be two forms of the same content, since tables are bounded and emptied when they are full. The second is
    recorded again, and is never wrong.
4.  A function that is remembered is ready to run, and belongs to this process: a forked child starts with nothing.
5.  Scratch memory is one call's: calls of one kind may run at the same time, on several streams.
"""

from __future__ import annotations

import functools
import math
import struct
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from aiodev._array.array import Array, Key, make_array
from aiodev._array.dtypes import DType
from aiodev._array.layout import extent
from aiodev._core import context
from aiodev._core.streams.current import current_stream
from aiodev._core.streams.stream import Stream
from aiodev._core.timeline.timeline import Timeline
from aiodev._kernel.dispatch.launch import SITE_NAMES, define, record_use
from aiodev._kernel.dispatch.signature import ARRAY, ARRAYS, COMPLEX, FORMATS
from aiodev._kernel.dispatch.specializations import Specialization
from aiodev._kernel.kernel import Kernel
from aiodev._memory.allocators import allocator_of
from aiodev._memory.buffer import Buffer

__all__ = ["CONSTANT", "SCRATCH", "Step", "make_repeated"]

#: Of an argument that is no operand: it is the same in every call; it is scratch memory.
CONSTANT, SCRATCH = -2, -1
_ADDRESS_BYTES = 8
#: Alignment of scratch memory in bytes; and most bytes of scratch that lie behind a new result, which saves an allocation.
#: Larger: small results keep more memory alive.
_ALIGNMENT, _BEHIND = 64, 1 << 12
#: Of an argument block: bytes, or how a number is packed, and the expression of its value.
_BlockPart = bytes | tuple[str, str]
#: Takes the operands, and gives what the operation returns; None where a number does not fit its type.
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
) -> Repeated:
    """The launches of variants, one for each step, as a function of operands like these.

    ``results`` are arrays that the call has made; they are counted behind the operands. ``returned`` says which of all these
    the function gives back.
    """
    constants: list[Any] = []

    def constant(value: Any) -> str:
        constants.append(value)
        return f"c{len(constants) - 1}"

    count = len(operands)
    scratch = _scratch_of(steps)
    room = sum(map(_aligned, scratch.values()))
    behind = bool(results) and room <= _BEHIND
    places, end = {}, _aligned(results[0].nbytes) if behind else 0
    for buffer, nbytes in scratch.items():
        places[buffer] = end - buffer.address
        end += _aligned(nbytes)
    launches = []
    for specialization, step in zip(specializations, steps, strict=True):
        block, uses = _block(specialization, step, (*operands, *results), places, constant)
        entry, size = constant(specialization.loading.entry), constant(math.prod(step.shape))
        launches.append((entry, size, block, uses))
    forms = []
    for number, result in enumerate(results):
        nbytes = end if number == 0 and room and behind else result.nbytes
        form = result._form or result._find_form()
        forms.append((f"x{count + number}", ", ".join(map(constant, (nbytes, result._shape, result._dtype, form)))))
    own = constant(room) if room and not behind else ""
    within = f"x{count}" if behind else ""
    given = f"x{returned}" if isinstance(returned, int) else f"({', '.join(f'x{k}' for k in returned)},)"
    make = _make_maker(count, len(constants), tuple(forms), (bool(scratch), own, within), tuple(launches), given)
    return make([specialization.loading for specialization in specializations], specializations[0].device, *constants)


def _block(
    specialization: Specialization,
    step: Step,
    operands: Sequence[Any],
    scratch: dict[Buffer, int],
    constant: Callable[[Any], str],
) -> tuple[str, tuple[tuple[str, str], ...]]:
    """What makes the block of a launch's arguments, and the buffers that it uses; ``scratch``: how far each of it moves.

    All but addresses and numbers follow from the forms, and is packed as the bytes that it is.
    """
    numbers: list[_BlockPart] = [struct.pack(f"<{len(step.shape)}q", *step.shape)]
    arrays: list[_BlockPart] = []
    uses = []
    signature = specialization.signature
    for arg, origin, descriptor, kind in zip(
        step.args, step.origins, signature.descriptors, signature.pattern, strict=True
    ):
        if kind in ARRAYS:
            packed = arg._packed or arg._pack()
            if origin == SCRATCH:
                place = constant(arg._address + scratch[arg._buffer])
                arrays += [("q", f"scratch.address + {place}"), packed[_ADDRESS_BYTES:]]
            elif origin == CONSTANT:
                uses.append((constant(arg._buffer), kind))
                arrays.append(packed)
            else:
                uses.append((f"x{origin}._buffer", kind))
                distance = arg._address - operands[origin]._address
                moved = f" + {constant(distance)}" if distance else ""
                arrays += [("q", f"x{origin}._address{moved}"), packed[_ADDRESS_BYTES:]]
        elif origin == CONSTANT:
            numbers.append(struct.pack(f"<{FORMATS[descriptor]}", *((arg.real, arg.imag) if kind == COMPLEX else (arg,))))
        else:
            value = f"x{origin}.real, x{origin}.imag" if kind == COMPLEX else f"x{origin}"
            numbers.append((FORMATS[descriptor], value))
    pieces: list[_BlockPart] = []
    for piece in (*numbers, *arrays):
        if isinstance(piece, bytes) and pieces and isinstance(pieces[-1], bytes):
            pieces[-1] += piece
        elif piece:  # of an array without dimensions there is nothing but its address
            pieces.append(piece)
    layout = "".join(f"{len(piece)}s" if isinstance(piece, bytes) else piece[0] for piece in pieces)
    values = ", ".join(constant(piece) if isinstance(piece, bytes) else piece[1] for piece in pieces)
    return f"{constant(struct.Struct(f'<{layout}').pack)}({values})", tuple(uses)


@functools.lru_cache(4096)
def _make_maker(
    count: int,
    constants: int,
    forms: tuple[tuple[str, str], ...],
    scratch: tuple[bool, str, str],
    launches: tuple[tuple[str, str, str, tuple[tuple[str, str], ...]], ...],
    given: str,
) -> Callable[..., Repeated]:
    """Makes functions whose results, scratch, blocks and notes in buffers are made alike; ``loading`` is kept.

    ``forms`` says which results are new, and what of. ``scratch`` is whether there is any, of how many bytes if it has a buffer
    of its own, and the result behind which it lies if not. Of each launch: entry, size, block, and the buffers that it uses.
    """
    has_scratch, own, within = scratch
    room = f"allocate_scratch({own}, stream.timeline)" if own else f"{within}._buffer"
    parameters = ", ".join(("loading", "device", *(f"c{k}" for k in range(constants))))
    body = [
        "stream = context().stream",
        "try:",
        "    if stream is None or stream.device is not device:",
        "        stream = current(device)",
        *(f"    {name} = allocate({form}, stream)" for name, form in forms),
        *([f"    scratch = {room}"] if has_scratch else ()),
        *(f"    block{k} = {block}" for k, (_, _, block, _) in enumerate(launches)),
        "except Errors:",  # a number does not fit its type: the body may know what to do, or will complain
        "    return None",
        # Who has called the operation, which has called this; if that is a library, as a rule who has called that.
        "_from = _getframe(2)",
        "_site = _index_of(id(_from.f_code))",
        "if _site == 0 and (_back := _from.f_back) is not None:",
        "    _from, _site = _back, _index_of(id(_back.f_code))",
        "_site = _site << 32 | _from.f_lasti if _site else _outside(_from)",
    ]
    for k, (entry, size, _, uses) in enumerate(launches):
        body.append(f"_value = stream._launch({entry}, {size}, block{k}, _site)")
        if k == 0:
            body.append("_timeline = stream.timeline")
        for buffer, kind in uses:
            body.append(f"_buffer = {buffer}")
            body += record_use("_buffer", kind)
    if own:
        body += record_use("scratch", ARRAY)
    lines = [f"def make({parameters}):", f"    def launch({', '.join(f'x{k}' for k in range(count))}):"]
    lines += [f"        {line}" for line in (*body, f"return {given}")]
    lines += ["    launch.loading = loading", "    return launch"]
    names = {
        **SITE_NAMES, "context": context.current, "current": current_stream, "allocate": _allocate,
        "allocate_scratch": _allocate_scratch, "Errors": (struct.error, OverflowError, TypeError),
    }  # fmt: skip
    make: Callable[..., Repeated] = define(f"<aiodev repeated call, {count} operands>", lines, names)["make"]
    return make


def _aligned(nbytes: int) -> int:
    return -(-nbytes // _ALIGNMENT) * _ALIGNMENT


def _scratch_of(steps: Sequence[Step]) -> dict[Buffer, int]:
    """What is scratch, each once, and the bytes up to where it is used."""
    ends: dict[Buffer, int] = {}
    for step in steps:
        for arg, origin in zip(step.args, step.origins, strict=True):
            if origin == SCRATCH:
                end = arg._address - arg._buffer.address + extent(arg._layout, arg.itemsize)[1]
                ends[arg._buffer] = max(end, ends.get(arg._buffer, 0))
    return ends


def _allocate(nbytes: int, shape: tuple[int, ...], dtype: DType, form: Key, stream: Stream) -> Array:
    timeline = stream.timeline
    buffer = allocator_of(timeline).allocate(nbytes, timeline)
    array = make_array(buffer, buffer.address, shape, dtype, None, True)
    array._form = form
    return array


def _allocate_scratch(nbytes: int, timeline: Timeline) -> Buffer:
    return allocator_of(timeline).allocate(nbytes, timeline)
