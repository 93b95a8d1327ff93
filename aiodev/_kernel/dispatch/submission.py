"""Submission of a launch whose types are known: its argument block, its gate, and the notes in the buffers.

The first launches of a kernel pass here; later ones take the generated call of :mod:`aiodev._kernel.dispatch.launch`.
"""

from __future__ import annotations

import copy
import struct
from collections.abc import Sequence
from typing import Any

from aiodev._core import callsites
from aiodev._core.errors import CompileError, LaunchError
from aiodev._core.streams import trace
from aiodev._core.streams.completion import Completion, several
from aiodev._core.streams.stream import Stream
from aiodev._core.timeline.gate import fails_on_error
from aiodev._core.timeline.noting import Noting
from aiodev._kernel.compile.service import PendingKernel
from aiodev._kernel.dispatch.signature import ARRAYS, FORMATS, READ, Signature
from aiodev._kernel.dispatch.specializations import Specialization
from aiodev._memory.buffer import record_torn

__all__ = ["pack", "submit"]


def pack(
    kernel: str, names: Sequence[str], signature: Signature, shape: tuple[int, ...], args: tuple[Any, ...]
) -> bytes:
    """The argument block of a launch.

    Raises:
        LaunchError: a number does not fit its type.
    """
    try:
        words = signature.pack(*shape, *signature.numbers(args))
    except (struct.error, OverflowError, TypeError) as error:
        raise _unpackable(kernel, names, signature, args, error) from None
    arrays = (arg._packed or arg._pack() for arg, kind in zip(args, signature.pattern, strict=True) if kind in ARRAYS)
    return b"".join((words, *arrays))


def _unpackable(
    kernel: str, names: Sequence[str], signature: Signature, args: tuple[Any, ...], error: Exception
) -> LaunchError:
    for name, code, value in zip(names, signature.descriptors, args, strict=True):
        if code in FORMATS and not _fits(code, value):
            return LaunchError(kernel, name, f"a number that fits {code}", repr(value))
    return LaunchError(kernel, None, "numbers that fit their types", str(error))


def _fits(code: str, value: Any) -> bool:
    try:
        struct.pack("<" + FORMATS[code], *((value.real, value.imag) if code[0] == "c" else (value,)))
    except (struct.error, OverflowError, TypeError):
        return False
    return True


def submit(
    specialization: Specialization, stream: Stream, size: int, block: bytes, args: tuple[Any, ...], site: int
) -> Completion[None]:
    """Submit a launch, and note the use of its arrays."""
    loading, timeline = specialization.loading, stream.timeline
    pattern = specialization.signature.pattern
    read = [arg._buffer for arg, kind in zip(args, pattern, strict=True) if kind == READ]
    written = [arg._buffer for arg, kind in zip(args, pattern, strict=True) if kind in ARRAYS and kind != READ]
    with Noting():
        try:
            if loading.ready or timeline.recording is not None:  # a graph waits for its code when it is replayed
                completion: Completion[None] = Completion(timeline, stream._launch(loading.entry, size, block, site))
            else:
                with stream.as_one():
                    completion = _submit_gated(stream, loading, size, block, site)
            for buffer in read:
                buffer._record_read(timeline, completion.value)
            for buffer in written:
                buffer._record_write(timeline, completion.value)
        except BaseException as error:
            record_torn(error, timeline, written, read)
            raise
    return completion


def _submit_gated(stream: Stream, loading: PendingKernel, size: int, block: bytes, site: int) -> Completion[None]:
    """Submit code that is still being compiled: the stream waits for it, and if it does not compile the launch fails."""
    gate, timeline = stream._gate(), stream.timeline

    def open_gate(error: BaseException | None) -> None:
        if isinstance(error, CompileError):  # one for all launches, each of which was made at a place of its own
            error = copy.copy(error)
            error.submitted_at = callsites.describe_site(site)
        gate.open(error)

    with fails_on_error(gate, lambda: timeline.submitted, loading.spec.name):
        trace.label(timeline, gate.value, "compilation", loading.spec.name)
        value = stream._launch(loading.entry, size, block, site)
        gate.guards = value
        loading.when_done(open_gate)
    first = gate.value if gate.value == value - 1 else value  # else others have submitted in between
    return several(timeline, first, value)
