"""Plans as functions of Python: generated source that computes lengths and packs, and has native code allocate and submit."""

from __future__ import annotations

import functools
import struct
from collections.abc import Callable, Iterable, Sequence
from types import CodeType, FunctionType
from typing import Any

from aiodev._array.form import form_of
from aiodev._array.overlap import overlap, overlap_elsewhere
from aiodev._core import context
from aiodev._core.streams.current import current_stream
from aiodev._kernel.dispatch.generated import SITE_NAMES, define
from aiodev._kernel.dispatch.native_functions import native_function
from aiodev._kernel.dispatch.repeated import Repeated
from aiodev._kernel.dispatch.signature import ARRAY
from aiodev._kernel.dispatch.specializations import Specialization
from aiodev._kernel.dispatch.states import KNOWN, uses_of
from aiodev._memory import allocators

__all__ = ["BlockPart", "generate", "joined"]

#: Of an argument block: bytes, or how a number is packed, and the expression of its value.
BlockPart = bytes | tuple[str, str]


def generate(
    specializations: Sequence[Specialization],
    count: int,
    constants: Sequence[Any],
    forms: Sequence[tuple[str, tuple[str, str]]],
    scratch: str,
    launches: Sequence[tuple[str, str, str, tuple[tuple[str, str], ...]]],
    given: str,
    first: Sequence[str],
    apart: Sequence[str],
) -> Repeated | None:
    """A function of ``count`` operands that submits the launches; None as long as there is no native code.

    ``constants`` are what the sources name ``c0`` and so on. ``forms`` says which results are new: their names, bytes and
    forms. ``scratch`` is how many bytes of scratch memory there are, or empty. Of each launch: entry, size, block, and the
    buffers that it uses. ``given`` is what is returned. ``first``: lines that define what the rest names, and return None where
    it is no such call. ``apart``: conditions of that.
    """
    if native_function("make_array", KNOWN) is None:
        return None
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
    scratch: str,
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
        *(["    memory = pools[device] if not allocators.pool_count else allocator_of(_timeline)"] if forms or scratch else ()),
        *(f"    {name} = _make_array(memory, {nbytes}, _timeline, {form})" for name, (nbytes, form) in forms),
        *([f"    scratch = memory.allocate({scratch}, _timeline)"] if scratch else ()),
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
    submitted = [list(uses) for *_, uses in launches]
    if scratch:
        submitted[-1].append(("scratch", ARRAY))
    used = {"".join(kind for _, kind in uses) for uses in submitted}
    for k, ((entry, size, *_), uses) in enumerate(zip(launches, submitted, strict=True)):
        buffers = "".join(f", {buffer}" for buffer, _ in uses)
        kinds = "".join(kind for _, kind in uses)
        body.append(f"_submit_{kinds}(stream, {entry}, {size}, block{k}, _site{buffers})")
    kept = ("device", "loading", *(f"c{k}" for k in range(constants)))
    parameters = ", ".join((*(f"x{k}" for k in range(count)), "stream=None", "_site=0", *(f"{own}=None" for own in kept)))
    lines = [f"def launch({parameters}):", *(f"    {line}" for line in (*body, f"return {given}"))]
    names = {
        **SITE_NAMES, **{f"_submit_{kinds}": native_function("submit_noted", uses_of(kinds)) for kinds in used},
        "_make_array": native_function("make_array", KNOWN), "context": context.current, "current": current_stream,
        "allocators": allocators, "pools": allocators.pools, "allocator_of": allocators.allocator_of, "form_of": form_of,
        "Errors": (struct.error, OverflowError, TypeError), "overlap": overlap, "overlap_elsewhere": overlap_elsewhere,
    }  # fmt: skip
    define(f"<aiodev repeated call, {count} operands>", lines, names)
    return names["launch"].__code__, names
