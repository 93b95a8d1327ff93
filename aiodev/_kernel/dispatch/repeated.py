"""What a call of an operation has submitted, as one function that submits it again.

Of each launch of a call the entry, the size, the constants and the layout of every array are fixed. So a function is generated
that allocates the results and the scratch memory, puts addresses and numbers between bytes that are fixed, submits, and notes
the use of the buffers. Its arguments are the operands of the next call.

**Invariants.**

1.  An array's *form* is one object for all arrays of the same device, dtype, shape, strides and writability, told from others
    by identity. So what was submitted for operands of some forms and, of those that are numbers, some classes, is what the
    operation would submit for others like them: entry, size, constants and views.
2.  Only addresses and the values of numbers are the operands' own, so only they are put into the block anew. Where lengths
    are not fixed either, :mod:`aiodev._kernel.symbolic` has the expressions of what follows from them.
3.  There may be two forms of the same content, since tables are bounded and forget what is old. The second is
    recorded again, and is never wrong.
4.  A function that is remembered is ready to run, and belongs to this process: a forked child starts with nothing.
5.  Scratch memory is one call's: calls of one kind may run at the same time, on several streams.
6.  Whether what is written has elements in common with what is read does not follow from forms. So every call looks, in which
    both are in one buffer.
"""

from __future__ import annotations

import functools
import math
import struct
from collections.abc import Callable, Iterable, Sequence
from types import CodeType, FunctionType
from typing import Any, NamedTuple

from aiodev._array.array import Array
from aiodev._array.form import form_of
from aiodev._array.layout import extent
from aiodev._array.overlap import overlap, overlap_elsewhere
from aiodev._core import context
from aiodev._core.streams.current import current_stream
from aiodev._kernel.dispatch.generated import SUBMISSION_NAMES, define, submission
from aiodev._kernel.dispatch.signature import ARRAY, ARRAYS, COMPLEX, FORMATS
from aiodev._kernel.dispatch.specializations import Specialization
from aiodev._kernel.kernel import Kernel
from aiodev._memory import allocators
from aiodev._memory.buffer import Buffer

__all__ = [
    "ALIGNMENT", "CONSTANT", "SCRATCH", "BlockPart", "Repeated", "Step", "generate", "joined", "make_repeated",
]  # fmt: skip

#: Of an argument that is no operand: it is the same in every call; it is scratch memory.
CONSTANT, SCRATCH = -2, -1
_ADDRESS_BYTES = 8
#: How scratch is aligned, and up to how many bytes of it lie behind a new result: an allocation takes as long as the rest.
ALIGNMENT, _BEHIND = 64, 1 << 12
#: Of an argument block: bytes, or how a number is packed, and the expression of its value.
BlockPart = bytes | tuple[str, str]
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
    apart: Sequence[str] = (),
) -> Repeated:
    """The launches of variants, one for each step, as a function of operands like these.

    ``apart``: of operands, conditions under which it is no such call.

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
        entry = constant(specialization.loading.entry)
        launches.append((entry, constant(math.prod(step.shape)), block, uses))
    forms = []
    for number, result in enumerate(results):
        nbytes = end if number == 0 and room and behind else result.nbytes
        forms.append((f"x{count + number}", (constant(nbytes), constant(result._form))))
    own = constant(room) if room and not behind else ""
    within = f"x{count}" if behind else ""
    given = f"x{returned}" if isinstance(returned, int) else f"({', '.join(f'x{k}' for k in returned)},)"
    memory = bool(scratch), own, within
    return generate(specializations, count, constants, forms, memory, launches, given, (), apart)


def generate(
    specializations: Sequence[Specialization],
    count: int,
    constants: Sequence[Any],
    forms: Sequence[tuple[str, tuple[str, str]]],
    scratch: tuple[bool, str, str],
    launches: Sequence[tuple[str, str, str, tuple[tuple[str, str], ...]]],
    given: str,
    first: Sequence[str],
    apart: Sequence[str],
) -> Repeated:
    """A function of ``count`` operands that submits the launches.

    ``constants`` are what the sources name ``c0`` and so on. ``forms`` says which results are new: their names, bytes and
    forms. ``scratch`` is whether there is any, of how many bytes if it has a buffer of its own, and the result behind which it
    lies if not. Of each launch: entry, size, block, and the buffers that it uses. ``given`` is what is returned. ``first``:
    lines that define what the rest names, and return None where it is no such call. ``apart``: conditions of that.
    """
    parts = tuple(forms), scratch, tuple(launches), given, tuple(first), tuple(apart)
    code, names = _generated(count, len(constants), *parts)
    loading = tuple([specialization.loading for specialization in specializations])
    return FunctionType(code, names, "launch", (None, 0, specializations[0].device, loading, *constants))


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
    numbers: list[BlockPart] = [struct.pack(f"<{len(step.shape)}q", *step.shape)]
    arrays: list[BlockPart] = []
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
    return joined((*numbers, *arrays), constant), tuple(uses)


def joined(parts: Iterable[BlockPart], constant: Callable[[Any], str]) -> str:
    """The expression of the bytes that all parts come to."""
    pieces: list[BlockPart] = []
    for piece in parts:
        if isinstance(piece, bytes) and pieces and isinstance(pieces[-1], bytes):
            pieces[-1] += piece
        elif piece:  # of an array without dimensions there is nothing but its address
            pieces.append(piece)
    layout = "".join(f"{len(piece)}s" if isinstance(piece, bytes) else piece[0] for piece in pieces)
    values = ", ".join(constant(piece) if isinstance(piece, bytes) else piece[1] for piece in pieces)
    return f"{constant(_packer(layout))}({values})"


@functools.lru_cache(4096)
def _packer(layout: str) -> Callable[..., bytes]:
    """Packs words and bytes that are laid out so; calls of many lengths have one."""
    return struct.Struct(f"<{layout}").pack


@functools.lru_cache(4096)
def _generated(
    count: int,
    constants: int,
    forms: tuple[tuple[str, tuple[str, str]], ...],
    scratch: tuple[bool, str, str],
    launches: tuple[tuple[str, str, str, tuple[tuple[str, str], ...]], ...],
    given: str,
    first: tuple[str, ...],
    apart: tuple[str, ...],
) -> tuple[CodeType, dict[str, Any]]:
    """The code of functions that :func:`generate` makes of the same sources, and what it names.

    What differs between them are defaults of parameters that no caller gives: the device, what holds the entries, constants. So
    a call that is remembered is a function and a tuple: with a cell for each constant the collector would have three times as
    many objects to walk.
    """
    has_scratch, own, within = scratch
    room = f"memory.allocate({own}, _timeline)" if own else f"{within}._buffer"
    body = [
        "if stream is None:",
        "    stream = context().stream",
        "    if stream is None or stream.device is not device:",
        "        stream = current(device)",
        "elif stream.device is not device:",
        "    return None",
        *(line for condition in apart for line in (f"if {condition}:", "    return None")),
        "try:",
        "    _timeline = stream.timeline",
        *(f"    {line}" for line in first),
        *(["    memory = pools[device] if not allocators.pool_count else allocator_of(_timeline)"] if forms or own else ()),
        *(f"    {line}" for name, (nbytes, form) in forms for line in _fresh(name, nbytes, form)),
        *([f"    scratch = {room}"] if has_scratch else ()),
        *(f"    block{k} = {block}" for k, (_, _, block, _) in enumerate(launches)),
        "except Errors:",  # a number does not fit its type: the body may know what to do, or will complain
        "    return None",
        # Who has called the operation, which has called this; if that is a library, as a rule who has called that.
        "if not _site:",
        "    _from = _getframe(2)",
        "    _site = _site_of(id(_from.f_code))",
        "    if _site == 0 and (_back := _from.f_back) is not None:",
        "        _from, _site = _back, _site_of(id(_back.f_code))",
        "    _site = _site + _from.f_lasti if _site else _outside(_from)",
    ]
    submitted = [
        (f"stream._launch({entry}, {size}, block{k}, _site)", uses) for k, (entry, size, _, uses) in enumerate(launches)
    ]
    if own:
        launch, uses = submitted[-1]
        submitted[-1] = launch, (*uses, ("scratch", ARRAY))
    body += submission(submitted)
    kept = ("device", "loading", *(f"c{k}" for k in range(constants)))
    parameters = ", ".join((*(f"x{k}" for k in range(count)), "stream=None", "_site=0", *(f"{own}=None" for own in kept)))
    lines = [f"def launch({parameters}):", *(f"    {line}" for line in (*body, f"return {given}"))]
    names = {
        **SUBMISSION_NAMES, "context": context.current, "current": current_stream, "allocators": allocators,
        "new": object.__new__, "pools": allocators.pools, "allocator_of": allocators.allocator_of, "Array": Array,
        "form_of": form_of, "Errors": (struct.error, OverflowError, TypeError), "overlap": overlap,
        "overlap_elsewhere": overlap_elsewhere,
    }  # fmt: skip
    define(f"<aiodev repeated call, {count} operands>", lines, names)
    return names["launch"].__code__, names


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


def _fresh(name: str, nbytes: str, form: str) -> list[str]:
    """Make a result: what :func:`aiodev._array.array.allocate` does, without the cost of the calls."""
    return [
        f"_buffer = memory.allocate({nbytes}, _timeline)",
        f"{name} = new(Array)",
        f"{name}._buffer = _buffer",
        f"{name}._address = _buffer.address",
        f"{name}._form = {form}",
        f"{name}._packed = None",
    ]
