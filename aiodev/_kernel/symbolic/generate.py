"""Plans as functions of Python: generated source that computes lengths, allocates, packs and submits."""

from __future__ import annotations

import functools
import struct
from collections.abc import Callable, Iterable, Sequence
from types import CodeType, FunctionType
from typing import Any

from aiodev._array.array import Array
from aiodev._array.form import form_of
from aiodev._array.overlap import overlap, overlap_elsewhere
from aiodev._core import context
from aiodev._core.streams.current import current_stream
from aiodev._kernel.dispatch.generated import SITE_NAMES, define
from aiodev._kernel.dispatch.repeated import Repeated
from aiodev._kernel.dispatch.signature import ARRAY, READ
from aiodev._kernel.dispatch.specializations import Specialization
from aiodev._memory import allocators
from aiodev._memory.buffer import record_torn

__all__ = ["BlockPart", "generate", "joined"]

#: Of an argument block: bytes, or how a number is packed, and the expression of its value.
BlockPart = bytes | tuple[str, str]


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
    body += _submission(submitted)
    kept = ("device", "loading", *(f"c{k}" for k in range(constants)))
    parameters = ", ".join((*(f"x{k}" for k in range(count)), "stream=None", "_site=0", *(f"{own}=None" for own in kept)))
    lines = [f"def launch({parameters}):", *(f"    {line}" for line in (*body, f"return {given}"))]
    names = {
        **SITE_NAMES, "_record_torn": record_torn,
        "context": context.current, "current": current_stream, "allocators": allocators,
        "new": object.__new__, "pools": allocators.pools, "allocator_of": allocators.allocator_of, "Array": Array,
        "form_of": form_of, "Errors": (struct.error, OverflowError, TypeError), "overlap": overlap,
        "overlap_elsewhere": overlap_elsewhere,
    }  # fmt: skip
    define(f"<aiodev repeated call, {count} operands>", lines, names)
    return names["launch"].__code__, names


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


def _submission(launches: Iterable[tuple[str, Sequence[tuple[str, str]]]]) -> list[str]:
    """Source lines that launch on ``_timeline``, and note which buffers each launch uses: expressions, ``ARRAY`` or ``READ``.

    ``_value`` is the number of the last launch then.
    """
    lines, every = ["try:"], list[tuple[str, str]]()
    for launch, buffers in launches:
        every += buffers
        lines.append(f"    _value = {launch}")
        for buffer, kind in buffers:
            lines.append(f"    _buffer = {buffer}")
            lines += [f"    {line}" for line in _record_use(kind)]
    written, read = ("".join(f"{buffer}, " for buffer, use in every if use == kind) for kind in (ARRAY, READ))
    return [
        *lines,
        "except BaseException as _error:",
        f"    _record_torn(_error, _timeline, ({written}), ({read}))",
        "    raise",
    ]


def _record_use(kind: str) -> list[str]:
    """Note that operation ``_value`` of ``_timeline`` uses ``_buffer``, as :class:`Buffer` notes it."""
    timeline, value, method = (
        ("_writer", "_written", "_record_write") if kind == ARRAY else ("_reader", "_read", "_record_read")
    )
    return [
        f"if _buffer.{timeline} is _timeline:",
        f"    if _value > _buffer.{value}:",  # another thread's later launch may have been faster here
        f"        _buffer.{value} = _value",
        "else:",
        f"    _buffer.{method}(_timeline, _value)",
    ]
