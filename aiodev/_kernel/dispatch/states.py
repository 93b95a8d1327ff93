"""What calls in native code go by, and how that sees it, and all the other objects that a call looks at.

Each class of Python here or elsewhere has a view: a struct whose fields are where the class keeps its slots.
"""

from __future__ import annotations

import ctypes
import functools
import struct
import types
from collections.abc import Callable, Hashable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from aiodev._array import views as array_views
from aiodev._array.array import Array
from aiodev._array.form import Form
from aiodev._array.views import ArrayView, FormView
from aiodev._core import callsites, context
from aiodev._core.backend.kernel_arguments import parse_arguments
from aiodev._core.backend.launch_codes import launch_codes
from aiodev._core.context import Frame
from aiodev._core.streams.completion import Completion
from aiodev._core.streams.current import current_stream
from aiodev._core.streams.stream import Stream
from aiodev._core.timeline.noting import counter
from aiodev._core.timeline.timeline import Timeline
from aiodev._kernel.dispatch.family import Family
from aiodev._kernel.dispatch.parameters import MISSING
from aiodev._kernel.dispatch.signature import ARRAY, ARRAYS, READ, number_form, packer_of
from aiodev._memory import allocators, views as memory_views
from aiodev._memory.buffer import Buffer, record_torn
from aiodev._memory.views import BufferView, TimelineView
from aiodev._native.fields import WORD, Cell, Struct, words
from aiodev._native.objects import Bytes, List, Object, Tuple, slot

if TYPE_CHECKING:
    from aiodev._core.backend.device import Device
    from aiodev._kernel.compile.service import PendingKernel
    from aiodev._kernel.dispatch.specializations import Specialization

__all__ = [
    "EQUALS", "IS_FIXED", "KNOWN", "LENGTH", "LESS", "MOST_PARAMETERS", "MOST_REGISTERS", "QUOTIENT", "SCRATCH", "SUM",
    "VIEWS", "AddressPlace", "Apart", "ApartPlace", "ArrayView", "Bound", "BoundCall", "BoundCallView", "Branch",
    "BranchView", "BufferView", "CompletionView", "FamilyView", "FormView", "FrameView", "KernelCall", "KernelCallView",
    "KnownView", "LengthPlace", "NumberPlace", "OperandPlace", "OperationCall", "OperationCallView", "OperationPlan",
    "PlanView", "RecordedLaunch", "RecordedLaunchView", "RepeatedCall", "RepeatedCallView", "RepeatedPlan", "RepeatedStep",
    "RepeatedStepView", "StreamView", "TimelineView", "Uses", "UsesView", "uses_of",
]  # fmt: skip

#: Parameters that a kernel may have, and operands and results of an operation, to be launched by native code, which has them on
#: its stack.
MOST_PARAMETERS = 256
#: Who has an address that lies in scratch memory.
SCRATCH = -1
#: Values that a program computes, which native code has on its stack, too.
MOST_REGISTERS = 256
#: In place of a number's form: an array.
IS_ARRAY = -1
#: Instructions of programs: what is behind them, and what they do.
IS_FIXED = 0  #: operand, side, axis, value: it is another call where that length (side 0) or stride (1) is not the value
LENGTH = 1  #: operand, side, axis: the next register is that length or stride
SUM = 2  #: count, and of each summand its factor, how many registers are multiplied, and these: the next register is the sum
QUOTIENT = 3  #: dividend, divisor: the next register is the one divided by the other, rounded down
LESS = 4  #: register, 1 or 0: it is another call where the register is less than 0 though it is not to be, or the reverse
EQUALS = 5  #: register, 1 or 0: the same for being 0


class KernelCall:
    """What a kernel's call function goes by.

    Attributes:
        branches: what the last few launches of other types were given; any thread may change them at any time.
        defaults: of the parameters, ``MISSING`` for those that have none.
        names: of the parameters.
        slow: launches what there is no branch for, with every check.
    """

    __slots__ = ("branches", "defaults", "names", "slow")

    def __init__(self, names: Sequence[str], defaults: Sequence[Any], slow: Callable[..., Completion[None]]) -> None:
        self.branches: tuple[Branch, ...] = ()
        self.defaults, self.names, self.slow = tuple(defaults), tuple(names), slow


class Branch:
    """A launch of some types on a device.

    Attributes:
        entry: what is launched.
        keys: what each argument is to be: of an array the key of its form, of a number its class.
        packs: of each argument that is a number.
        plan: see :class:`PlanView`.
        uses: how each array is used.
    """

    __slots__ = ("device", "entry", "keys", "packs", "plan", "uses")

    def __init__(self, specialization: Specialization, ndim: int) -> None:
        signature = specialization.signature
        self.device, self.entry, self.keys = specialization.device, specialization.loading.entry, tuple(specialization.keys)
        self.uses = uses_of("".join(kind for kind in signature.pattern if kind in ARRAYS))
        arguments = list(zip(signature.descriptors, signature.pattern, strict=True))
        self.packs = tuple([None if kind in ARRAYS else packer_of(code) for code, kind in arguments])
        placed = parse_arguments(ndim, signature.descriptors)
        head = WORD * (ndim + sum(argument.words for argument in placed if not argument.is_array))
        bounds = [word for b in specialization.bounds for word in (b.place, b.axis, b.offset, b.dimension)]
        forms = [IS_ARRAY if kind in ARRAYS else number_form(code) for code, kind in arguments]
        self.plan = _words(head, ndim, len(specialization.bounds), *forms, *bounds)


class Uses:
    """How a launch uses its arrays, in their order; :func:`uses_of` gives one for many.

    Attributes:
        kinds: of each, ``ARRAY`` or ``READ``.
        are_written: the same in words, 1 or 0.
    """

    __slots__ = ("are_written", "kinds")

    def __init__(self, kinds: str) -> None:
        self.kinds, self.are_written = kinds, _words(*(kind == ARRAY for kind in kinds))


@functools.lru_cache(1024)
def uses_of(kinds: str) -> Uses:
    """How arrays are used."""
    return Uses(kinds)


class RepeatedStep:
    """One launch of a call that is made again.

    Attributes:
        loading: the compiled kernel; kept.
        size: of its range; None where a register has it.
        size_register: that.
        block: of its arguments, with words to be replaced.
        addresses: of each array an :class:`AddressPlace`.
        lengths: of each length that a register has a :class:`LengthPlace`.
        number_places: of each number a :class:`NumberPlace`.
        packs: of each number.
        users: whose buffers it uses, in words.
        uses: how it uses these.

    Who has something is a number: of an operand, behind these of a result, ``SCRATCH``, or below that of a constant buffer.
    """

    __slots__ = (
        "addresses", "block", "entry", "lengths", "loading", "number_places", "packs", "size", "size_register", "users", "uses",
    )  # fmt: skip

    def __init__(
        self,
        loading: PendingKernel,
        size: int | None,
        size_register: int,
        block: bytes,
        addresses: Sequence[tuple[int, int, int, int]],
        lengths: Sequence[tuple[int, int]],
        numbers: Sequence[tuple[int, int, int, str]],
        users: Sequence[tuple[int, str]],
    ) -> None:
        self.loading, self.entry, self.block = loading, loading.entry, block
        self.size, self.size_register = size, size_register
        self.addresses = _words(*[word for each in addresses for word in each])
        self.lengths = _words(*[word for each in lengths for word in each])
        self.number_places = _words(*[word for each in numbers for word in (each[0], number_form(each[3]), *each[1:3])])
        self.packs = tuple([packer_of(code) for *_, code in numbers])
        self.users = _words(*[user for user, _ in users])
        self.uses = uses_of("".join(kind for _, kind in users))

    def also_writes(self, whose: int) -> None:
        """Have it write to what it is not given as an argument."""
        self.users += _words(whose)
        self.uses = uses_of(self.uses.kinds + ARRAY)


class RepeatedCall:
    """What a call of an operation goes by that was made before with operands of the same forms, or of such as a program takes.

    Attributes:
        program: what is computed of lengths and strides first, in words; none where all follows from the forms.
        arrays: which operands are arrays, in words.
        shares: tells whether an operand shares elements with the last one, where both are not in own memory of theirs.
        apart: of operands of which that is asked an :class:`ApartPlace` each.
        results: of each its bytes and its form, in turns; where a register has the bytes, None, and a form with other lengths.
        shapes: of each of those in words: the register of its bytes, the operand that has the same form or -1, and the
            registers of its lengths; none where there are no registers.
        room: bytes of scratch memory; None where there is none, a register has it, or it lies behind the first result.
        constants: buffers.
        plan: see :class:`RepeatedPlan`.
    """

    __slots__ = (
        "apart", "arrays", "constants", "device", "plan", "program", "results", "room", "shapes", "shares", "steps",
    )  # fmt: skip

    def __init__(
        self,
        device: Device,
        operands: Sequence[Any],
        apart: Sequence[Apart],
        results: Sequence[tuple[int | None, Form]],
        room: int | None,
        constants: Sequence[Buffer],
        steps: Sequence[RepeatedStep],
        returned: int | tuple[int, ...],
        program: Sequence[int] = (),
        shapes: Sequence[int] = (),
        room_register: int = 0,
    ) -> None:
        self.device, self.room = device, room
        self.arrays = _words(*[place for place, x in enumerate(operands) if x.__class__ is Array])
        self.shares = apart[0].shares if apart else None
        self.apart = _words(*[word for each in apart for word in (each.place, each.may_be_it)])
        self.results = tuple([part for result in results for part in result])
        self.constants, self.steps = tuple(constants), tuple(steps)
        self.program, self.shapes = _words(*program), _words(*shapes)
        places = returned if isinstance(returned, tuple) else (returned,)
        self.plan = _words(len(operands), room_register, len(places) if isinstance(returned, tuple) else -1, *places)


class OperationCall:
    """What an operation's function goes by.

    Attributes:
        classes: of each option that whose values are in a key as they are, beside None and strings.
        families: by what calls of other lengths have in common.
        freeze: from any other option's value to what of it is in a key.
        known: what submits a call again, by its key.
        plan: see :class:`OperationPlan`.
        slow: calls what is not known, with the key, or None, before all of the arguments.
    """

    __slots__ = ("classes", "families", "freeze", "known", "plan", "slow")

    def __init__(
        self,
        parameters: int,
        options: Sequence[tuple[int, type]],
        operands: Sequence[tuple[int, bool]],
        in_place: tuple[int, int] | None,
        known: dict[Hashable, Callable[..., Any]],
        families: dict[Hashable, Family],
        slow: Callable[..., Any],
        freeze: Callable[[Any], Hashable],
    ) -> None:
        self.classes = tuple([kind for _, kind in options])
        self.known, self.families, self.slow, self.freeze = known, families, slow, freeze
        sequences = sum(is_sequence for _, is_sequence in operands)
        self.plan = _words(
            parameters, *(in_place or (-1, -1)), sequences if sequences > 1 else 0, len(operands), len(options),
            *[place for place, _ in options], *[word for each in operands for word in each],
        )  # fmt: skip


class RecordedLaunch:
    """What launches on a stream that is captured go by.

    Attributes:
        blocks: those that are open, in which launches are other ones.
        counters: of the stream's timeline.
        kernels: by the entries of those that were launched before.
        lane: the stream's number.
        slow: takes any launch, and learns kernels.
        submitted: the list of launches, of each the lane and what it is given.
    """

    __slots__ = ("blocks", "counters", "kernels", "lane", "slow", "submitted")

    def __init__(
        self,
        lane: int,
        counters: list[int],
        submitted: list[Any],
        kernels: dict[int, PendingKernel],
        blocks: list[Any],
        slow: Callable[[int, int, bytes, int], int],
    ) -> None:
        self.lane, self.counters, self.submitted, self.kernels = lane, counters, submitted, kernels
        self.blocks, self.slow = blocks, slow


class Apart(NamedTuple):
    """A condition under which an operand is to be read as it was before the call.

    It shares elements with the last operand, which is written: in one buffer with it, or in memory that others have, too.

    Attributes:
        place: of the operand.
        last: that of the last.
        may_be_it: whether it may be the last one itself.
        shares: of both, whether they share elements.
    """

    place: int
    last: int
    may_be_it: bool
    shares: Callable[[Array, Array], bool]


class BoundCall:
    """What a bound launch goes by.

    Attributes:
        buffers: of its arrays.
        uses: how they are used.
    """

    __slots__ = ("block", "buffers", "entry", "size", "stream", "uses")

    def __init__(self, stream: Stream, entry: int, size: int, block: bytes, buffers: Sequence[Buffer], kinds: str) -> None:
        self.stream, self.entry, self.size, self.block = stream, entry, size, block
        self.buffers, self.uses = tuple(buffers), uses_of(kinds)


def _words(*values: int) -> bytes:
    return struct.pack(f"={len(values)}q", *values)


def _note_torn(error: BaseException, timeline: Timeline, uses: Uses, *buffers: Buffer) -> None:
    """Note that an operation may use buffers though its number got lost."""
    written, read = ([b for b, kind in zip(buffers, uses.kinds, strict=True) if kind == each] for each in (ARRAY, READ))
    record_torn(error, timeline, written, read)


def _refuse_arguments(*_: Any, **__: Any) -> None:
    raise TypeError("a bound launch has its arguments; it is called with none")


# Views


class FrameView(Object):
    """What is current."""

    stream: StreamView = slot(Frame, "stream")  #: or Python's None


class StreamView(Object):
    """A stream."""

    device: int = slot(Stream, "device")
    is_admitted: int = slot(Stream, "_is_admitted")
    launch: Object = slot(Stream, "_launch")
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
    tuple_class: int
    exception_class: int
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
    pools: int
    allocators: int
    allocator_of: int
    memory: memory_views.KnownView
    arrays: array_views.KnownView
    choose: int
    line_call: int
    pack: int
    pool_count: int
    record_write: int
    record_read: int
    str_class: int
    float_class: int
    list_class: int
    type_error_class: int
    unnoted: int  #: the address of a word
    recent_sites: int  #: the address of pairs of words
    launch_codes: int
    partial_class: int
    native_class: int


class UsesView(Object):
    """How a launch uses its arrays."""

    are_written: Bytes = slot(Uses, "are_written")


class BranchView(Object):
    """A branch."""

    device: int = slot(Branch, "device")
    entry: int = slot(Branch, "entry")
    keys: Tuple = slot(Branch, "keys")
    packs: Tuple = slot(Branch, "packs")
    plan: Bytes = slot(Branch, "plan")
    uses: UsesView = slot(Branch, "uses")


class PlanView(Struct):
    """How a launch is checked and packed."""

    head: int  #: bytes before those of the arrays
    dimensions: int
    bounds: int  #: how many bounds there are, behind the rest
    forms: Cell[int] = words(0)  #: of each argument ``IS_ARRAY``, or of a number its form


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


class RepeatedStepView(Object):
    """One launch of a call that is made again."""

    entry: int = slot(RepeatedStep, "entry")
    size: int = slot(RepeatedStep, "size")
    size_register: int = slot(RepeatedStep, "size_register")
    block: Bytes = slot(RepeatedStep, "block")
    addresses: Bytes = slot(RepeatedStep, "addresses")
    lengths: Bytes = slot(RepeatedStep, "lengths")
    number_places: Bytes = slot(RepeatedStep, "number_places")
    packs: Tuple = slot(RepeatedStep, "packs")
    users: Bytes = slot(RepeatedStep, "users")
    uses: UsesView = slot(RepeatedStep, "uses")


class AddressPlace(Struct):
    """Where the address of an array goes in a block."""

    offset: int
    whose: int
    distance: int  #: how many bytes it lies behind the first one of what it is a view of
    register: int  #: and as many more as this has


class LengthPlace(Struct):
    """Where a length goes."""

    offset: int
    register: int


class NumberPlace(Struct):
    """Where a number goes."""

    offset: int
    form: int  #: see :func:`number_form`
    operand: int  #: that it is; -1 where a register has it
    register: int


class ApartPlace(Struct):
    """Which operand is to be apart from the last one."""

    place: int
    may_be_it: int


class RepeatedPlan(Struct):
    """What a call takes and gives."""

    operands: int
    room: int  #: the register that has the bytes of scratch memory, or 0
    returned: int  #: how many objects it gives, as a tuple; -1 where it is one, and no tuple
    places: Cell[int] = words(0)  #: of these


class RepeatedCallView(Object):
    """What a call goes by that was made before."""

    apart: Bytes = slot(RepeatedCall, "apart")
    arrays: Bytes = slot(RepeatedCall, "arrays")
    constants: Tuple = slot(RepeatedCall, "constants")
    device: int = slot(RepeatedCall, "device")
    plan: Bytes = slot(RepeatedCall, "plan")
    program: Bytes = slot(RepeatedCall, "program")
    results: Tuple = slot(RepeatedCall, "results")
    room: int = slot(RepeatedCall, "room")
    shapes: Bytes = slot(RepeatedCall, "shapes")
    shares: int = slot(RepeatedCall, "shares")
    steps: Tuple = slot(RepeatedCall, "steps")


class RecordedLaunchView(Object):
    """What launches on a stream that is captured go by."""

    blocks: List = slot(RecordedLaunch, "blocks")
    counters: List = slot(RecordedLaunch, "counters")
    kernels: int = slot(RecordedLaunch, "kernels")
    lane: int = slot(RecordedLaunch, "lane")
    slow: int = slot(RecordedLaunch, "slow")
    submitted: int = slot(RecordedLaunch, "submitted")


class FamilyView(Object):
    """A family."""

    plan: int = slot(Family, "plan")
    served: int = slot(Family, "served")


class OperationCallView(Object):
    """What an operation's function goes by."""

    classes: Tuple = slot(OperationCall, "classes")
    families: int = slot(OperationCall, "families")
    freeze: int = slot(OperationCall, "freeze")
    known: int = slot(OperationCall, "known")
    plan: Bytes = slot(OperationCall, "plan")
    slow: int = slot(OperationCall, "slow")


class OperationPlan(Struct):
    """Where an operation has what among its arguments."""

    parameters: int  #: how many there are
    in_place: int  #: of the operand that may be the one that is written, or -1
    written: int  #: of that
    length_count: int  #: how many lengths of sequences are in a key: that of a single one follows from the number of operands
    operand_count: int
    option_count: int
    options: Cell[int] = words(0)  #: places of these; behind them an :class:`OperandPlace` for each operand


class OperandPlace(Struct):
    """Where an operand is."""

    place: int
    is_sequence: int


class BoundCallView(Object):
    """What a bound launch goes by."""

    stream: StreamView = slot(BoundCall, "stream")
    entry: int = slot(BoundCall, "entry")
    size: int = slot(BoundCall, "size")
    block: int = slot(BoundCall, "block")
    buffers: Tuple = slot(BoundCall, "buffers")
    uses: UsesView = slot(BoundCall, "uses")


#: Whose offsets are in the code.
VIEWS: tuple[type[Struct], ...] = (
    *memory_views.VIEWS, *array_views.VIEWS, FrameView, StreamView, CompletionView, UsesView, BranchView, KernelCallView,
    BoundCallView, RepeatedStepView, RepeatedCallView, FamilyView, OperationCallView,
    RecordedLaunchView,
)  # fmt: skip

#: In the order of :class:`KnownView`.
KNOWN = (
    None, int, tuple, Exception, Array, Form, Buffer, Stream, Completion, MISSING, callsites.sites, context.variable,
    current_stream, callsites.outside, _note_torn, _refuse_arguments, allocators.pools, vars(allocators),
    allocators.allocator_of, memory_views.KNOWN, array_views.KNOWN, "_choose", "_line_call", "_pack", "pool_count",
    "_record_write", "_record_read", str, float, list, TypeError, ctypes.addressof(counter),
    ctypes.addressof(callsites.recent_sites), launch_codes, functools.partial, types.BuiltinFunctionType,
)  # fmt: skip
