"""What the call functions of kernels go by, and how native code sees that and all that a launch looks at.

Each class of Python here or elsewhere has a view: a struct whose fields are where the class keeps its slots.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from aiodev._array.array import Array
from aiodev._array.form import Form
from aiodev._core import callsites, context
from aiodev._core.context import Frame
from aiodev._core.streams.completion import Completion
from aiodev._core.streams.current import current_stream
from aiodev._core.streams.stream import Stream
from aiodev._core.timeline.timeline import Timeline
from aiodev._kernel.dispatch.parameters import MISSING
from aiodev._kernel.dispatch.signature import ARRAY, ARRAYS, COMPLEX, READ
from aiodev._memory.buffer import Buffer, record_torn
from aiodev._native.fields import WORD, Cell, Struct, words
from aiodev._native.objects import Bytes, Object, Tuple, slot

if TYPE_CHECKING:
    from aiodev._kernel.dispatch.specializations import Specialization

__all__ = [
    "MOST_PARAMETERS", "VIEWS", "ArrayView", "Bound", "BoundCall", "BoundCallView", "Branch",
    "BranchView", "BufferView", "CompletionView", "FormView", "FrameView", "KernelCall", "KernelCallView", "KnownView",
    "PlanView", "StreamView", "Uses", "UsesView",
]  # fmt: skip

#: Parameters that a kernel may have and be launched by native code, which has the arguments on its stack.
MOST_PARAMETERS = 64

class KernelCall:
    """What a kernel's call function goes by.

    Attributes:
        branches: what the last few launches of other types were given; any thread may change them at any time.
        defaults: of the parameters, ``MISSING`` for those that have none.
        names: of the parameters.
        slow: launches what there is no branch for, with every check.
    """

    __slots__ = ("branches", "defaults", "known", "names", "slow")

    def __init__(self, names: Sequence[str], defaults: Sequence[Any], slow: Callable[..., Completion[None]]) -> None:
        self.branches: tuple[Branch, ...] = ()
        self.defaults, self.names, self.slow, self.known = tuple(defaults), tuple(names), slow, _KNOWN


class Branch:
    """A launch of some types on a device.

    Attributes:
        entry: what is launched.
        keys: what each argument is to be: of an array the key of its form, of a number its class.
        pack: from lengths and numbers to the bytes before those of the arrays; None where there are no numbers.
        plan: see :class:`PlanView`.
        uses: how each array is used.
    """

    __slots__ = ("device", "entry", "keys", "pack", "plan", "uses")

    def __init__(self, specialization: Specialization, ndim: int) -> None:
        signature = specialization.signature
        self.device, self.entry, self.keys = specialization.device, specialization.loading.entry, tuple(specialization.keys)
        self.uses = Uses("".join(kind for kind in signature.pattern if kind in ARRAYS))
        numbers = [kind for kind in signature.pattern if kind not in ARRAYS]
        self.pack = None
        if numbers:
            self.pack = _by_parts(signature.pack, ndim, numbers) if COMPLEX in numbers else signature.pack
        head = WORD * (ndim + len(numbers) + numbers.count(COMPLEX))
        bounds = [word for b in specialization.bounds for word in (b.place, b.axis, b.offset, b.dimension)]
        kinds = [kind in ARRAYS for kind in signature.pattern]
        self.plan = _words(head, ndim, len(specialization.bounds), *kinds, *bounds)


def _by_parts(pack: Callable[..., bytes], ndim: int, numbers: Sequence[str]) -> Callable[..., bytes]:
    """As ``pack``, which takes complex numbers as two, for the numbers themselves."""

    def pack_parts(*values: Any) -> bytes:
        parts = list(values[:ndim])
        for kind, value in zip(numbers, values[ndim:], strict=True):
            parts += (value.real, value.imag) if kind == COMPLEX else (value,)
        return pack(*parts)

    return pack_parts


class Uses:
    """How a launch uses its arrays, in their order.

    Attributes:
        kinds: of each, ``ARRAY`` or ``READ``.
        are_written: the same in words, 1 or 0.
    """

    __slots__ = ("are_written", "kinds")

    def __init__(self, kinds: str) -> None:
        self.kinds, self.are_written = kinds, _words(*(kind == ARRAY for kind in kinds))


class BoundCall:
    """What a bound launch goes by.

    Attributes:
        buffers: of its arrays.
        uses: how they are used.
    """

    __slots__ = ("block", "buffers", "entry", "known", "size", "stream", "uses")

    def __init__(self, stream: Stream, entry: int, size: int, block: bytes, buffers: Sequence[Buffer], kinds: str) -> None:
        self.stream, self.entry, self.size, self.block = stream, entry, size, block
        self.buffers, self.uses, self.known = tuple(buffers), Uses(kinds), _KNOWN


def _words(*values: int) -> bytes:
    return struct.pack(f"={len(values)}q", *values)


def _note_torn(error: BaseException, timeline: Timeline, uses: Uses, *buffers: Buffer) -> None:
    """Note that an operation may use buffers though its number got lost."""
    written, read = ([b for b, kind in zip(buffers, uses.kinds, strict=True) if kind == each] for each in (ARRAY, READ))
    record_torn(error, timeline, written, read)


def _refuse_arguments(*_: Any, **__: Any) -> None:
    raise TypeError("a bound launch has its arguments; it is called with none")


# Views


class FormView(Object):
    """A form."""

    key: int = slot(Form, "key")
    shape: Tuple = slot(Form, "shape")


class ArrayView(Object):
    """An array."""

    form: FormView = slot(Array, "_form")  #: at 0, as the others, of an array that was freed
    buffer: BufferView = slot(Array, "_buffer")
    packed: Bytes = slot(Array, "_packed")  #: or Python's None


class BufferView(Object):
    """A buffer, and the last operations that use it: objects of timelines and of ints."""

    writer: int = slot(Buffer, "_writer")
    written: int = slot(Buffer, "_written")
    reader: int = slot(Buffer, "_reader")
    read: int = slot(Buffer, "_read")


class FrameView(Object):
    """What is current."""

    stream: StreamView = slot(Frame, "stream")  #: or Python's None


class StreamView(Object):
    """A stream."""

    device: int = slot(Stream, "device")
    launch: int = slot(Stream, "_launch")
    timeline: int = slot(Stream, "timeline")


class CompletionView(Object):
    """A completion."""

    timeline: int = slot(Completion, "_timeline")
    value: int = slot(Completion, "_value")
    outcome: int = slot(Completion, "_outcome")


class KnownView(Tuple):
    """Objects that are the same for all launches, as a tuple has them."""

    none: int
    int_class: int
    array_class: int
    form_class: int
    buffer_class: int
    stream_class: int
    completion_class: int
    missing: int
    sites: int
    frames: int
    current_stream: int
    outside: int
    note_torn: int
    refuse_arguments: int
    pack: int
    record_write: int
    record_read: int


class UsesView(Object):
    """How a launch uses its arrays."""

    are_written: Bytes = slot(Uses, "are_written")


class BranchView(Object):
    """A branch."""

    device: int = slot(Branch, "device")
    entry: int = slot(Branch, "entry")
    keys: Tuple = slot(Branch, "keys")
    pack: int = slot(Branch, "pack")
    plan: Bytes = slot(Branch, "plan")
    uses: UsesView = slot(Branch, "uses")


class PlanView(Struct):
    """How a launch is checked and packed."""

    head: int  #: bytes before those of the arrays
    dimensions: int
    bounds: int  #: how many bounds there are, behind the rest
    are_arrays: Cell[int] = words(0)  #: of each argument, whether it is one


class Bound(Struct):
    """A dimension of an array that a launch must not go beyond: as :class:`aiodev._kernel.analysis.bounds.Access` has it."""

    place: int
    axis: int
    offset: int
    dimension: int


class KernelCallView(Object):
    """What a kernel's call function goes by."""

    branches: Tuple = slot(KernelCall, "branches")
    defaults: Tuple = slot(KernelCall, "defaults")
    names: Tuple = slot(KernelCall, "names")
    slow: int = slot(KernelCall, "slow")
    known: KnownView = slot(KernelCall, "known")


class BoundCallView(Object):
    """What a bound launch goes by."""

    stream: StreamView = slot(BoundCall, "stream")
    entry: int = slot(BoundCall, "entry")
    size: int = slot(BoundCall, "size")
    block: int = slot(BoundCall, "block")
    buffers: Tuple = slot(BoundCall, "buffers")
    uses: UsesView = slot(BoundCall, "uses")
    known: KnownView = slot(BoundCall, "known")


#: Whose offsets are in the code.
VIEWS: tuple[type[Struct], ...] = (
    FormView, ArrayView, BufferView, FrameView, StreamView, CompletionView, UsesView, BranchView, KernelCallView, BoundCallView,
)  # fmt: skip

#: In the order of :class:`KnownView`.
_KNOWN = (
    None, int, Array, Form, Buffer, Stream, Completion, MISSING, callsites.sites, context.variable, current_stream,
    callsites.outside, _note_torn, _refuse_arguments, "_pack", "_record_write", "_record_read",
)  # fmt: skip
