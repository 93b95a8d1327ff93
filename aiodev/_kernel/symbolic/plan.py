"""A call's launches for all lengths that its body decides alike, from one run of the body with symbolic lengths.

The body has just run with real arrays, and what it launched is known. It is run again, with arrays of which those lengths and
strides are symbolic that earlier calls had others of. What it launches now is the same, in expressions; what it decided by
them are conditions. Both become a program, which the native function follows first that
:mod:`aiodev._kernel.dispatch.repeated` gives fixed numbers.

**Invariants.**

1.  A body that is remembered submits what follows from its operands' layouts and its options, and nothing but its call's
    launches. So it may be run once more without submitting, and what its launches do not show is nobody's business.
2.  Where the lengths are the example's, the expressions have the values that were launched. Every word is compared; where one
    differs, or the body does what has no symbolic counterpart, there is no plan.
3.  A launch is within the arrays that it surely touches, as where each is checked; that is a condition, too.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, NoReturn

from aiodev._array.array import Array
from aiodev._array.dtypes import parse_dtype
from aiodev._array.form import Form
from aiodev._kernel.dispatch.call import Call, Number
from aiodev._kernel.dispatch.family import Family
from aiodev._kernel.dispatch.native_functions import native_function
from aiodev._kernel.dispatch.repeated import ALIGNMENT, CONSTANT, SCRATCH, Repeated, Step, make_step
from aiodev._kernel.dispatch.specializations import Specialization
from aiodev._kernel.dispatch.states import MOST_PARAMETERS, Apart, RepeatedCall
from aiodev._kernel.kernel import Kernel
from aiodev._kernel.symbolic.array import Memory, SymbolicArray, SymbolicForm, checked
from aiodev._kernel.symbolic.length import Length, NotSymbolic, Trace, example, refusals
from aiodev._kernel.symbolic.program import Program
from aiodev._memory.buffer import Buffer

__all__ = ["Attempt", "make_plan"]

logger = logging.getLogger("aiodev")


class Attempt(NamedTuple):
    """A call of which a plan is to be made, for the lengths that it and others differ in.

    Attributes:
        family: whose plan it is.
        call: the call.
        arguments: those of the body, from the operands.
        others: the forms of the others' arrays.
    """

    family: Family
    call: Call
    arguments: Callable[[list[Any]], list[Any]]
    others: Sequence[Sequence[Form]]

    def plan(self, body: Callable[..., Any], *found: Any) -> None:
        """Make it, if the body can be run with symbolic lengths."""
        plan = make_plan(self.call, body, self.arguments, self.others, *found)
        if plan is not None:
            self.family.keep(plan)


class _SymbolicCall(Call):
    """What a body gets in place of its call."""

    __slots__ = ("_of", "_scratch", "_source")

    def __init__(self, of: Call, operands: list[Any]) -> None:
        written = of._given is not None
        super().__init__(of._operation, operands, of.device, written, of.in_place, False)
        self._of = of
        self._source = next(operand._buffer.source for operand in operands if isinstance(operand, SymbolicArray))
        self._scratch: list[Memory] = []

    @property
    def stream(self) -> NoReturn:
        raise NotSymbolic

    @property
    def dtypes(self) -> Sequence[Any]:
        """As of the call."""
        return self._of.dtypes

    def new(self, shape: Any, dtype: Any) -> Array:
        """A result, of no memory."""
        memory = Memory(self._source, len(self._operands) + len(self._results))
        made = self._made(memory, shape, dtype)
        self._results.append(made)
        return made

    def scratch(self, shape: Any, dtype: Any) -> Array:
        """Of no memory, too."""
        memory = Memory(self._source, SCRATCH)
        made = self._made(memory, shape, dtype)
        memory.nbytes = made.nbytes
        self._scratch.append(memory)
        return made

    def _made(self, memory: Memory, shape: Any, dtype: Any) -> SymbolicArray:
        lengths = checked(shape if isinstance(shape, tuple) else (shape,))
        return SymbolicArray(memory, 0, SymbolicForm(self.device, parse_dtype(dtype), lengths, None, True))

    def launch(self, kernel: Kernel, shape: Any, /, *args: Any) -> Any:
        """Note the launch."""
        lengths = shape if isinstance(shape, tuple) else (shape,)
        self._steps.append(Step(kernel, lengths, args, ()))

    def constant(self, x: Array) -> Array:
        """The same array in every call."""
        return x

    def wait(self, done: Any) -> NoReturn:
        """Others would have to wait, too."""
        raise NotSymbolic

    def once(self) -> NoReturn:
        """Such a call is not remembered."""
        raise NotSymbolic

    def refuse_in_capture(self, reason: str) -> NoReturn:
        """Nothing tells whether one goes on."""
        raise NotSymbolic


def make_plan(
    call: Call,
    body: Callable[..., Any],
    arguments: Callable[[list[Any]], list[Any]],
    others: Sequence[Sequence[Form]],
    steps: Sequence[Step],
    returned: int | tuple[int, ...],
    specializations: Sequence[Specialization],
    apart: Sequence[Apart],
) -> Repeated | None:
    """What serves operands of other lengths, too; None where the body cannot be run so.

    Args:
        call: what the body was run with.
        body: of the operation, with all of its arguments.
        arguments: those, from the operands.
        others: the forms of the arrays of other calls.
        steps: what was launched, and by ``specializations``.
        returned: which operands and results are returned.
        apart: conditions under which operands have elements in common.
    """
    trace, program, refused = Trace(), Program(), refusals()
    try:
        operands = _symbolic_operands(trace, program, call._operands, others)
        symbolic = _SymbolicCall(call, operands)
        body(symbolic, *arguments(operands))
        if refusals() != refused:
            raise NotSymbolic("something was refused, and the body went on")
        results = [(_values(result.shape), result.dtype) for result in symbolic._results]
        if len(symbolic._steps) != len(steps) or results != [(result.shape, result.dtype) for result in call._results]:
            raise NotSymbolic("other launches or results")
        bases = [one._address if isinstance(one, Array) else 0 for one in (*call._operands, *call._results)]
        scratch: dict[Memory, int] = {}
        objects = max(len(operands) + len(results), *[len(step.args) + 1 for step in steps])
        if objects > MOST_PARAMETERS:
            raise NotSymbolic("more arguments than native code has room for")
        for step, real, specialization in zip(symbolic._steps, steps, specializations, strict=True):
            _compare(step, real, bases, scratch)
            _stay_within(step, specialization)
        if not trace.is_general():
            raise NotSymbolic("the body takes a length as an index")
        plan = _planned(trace, program, symbolic, call._results, steps, returned, specializations, apart)
    except Exception as error:  # whatever a body makes of lengths that are no ints
        logger.debug("%s has no plan for all lengths: %r", call.name, error)
        return None
    return native_function("repeat", plan)


def _symbolic_operands(
    trace: Trace, program: Program, operands: Sequence[Any], others: Sequence[Sequence[Form]]
) -> list[Any]:
    """The operands with symbolic lengths, but for those that are fixed."""
    made: list[Any] = []
    count = 0
    for place, operand in enumerate(operands):
        if not isinstance(operand, Array):
            made.append(operand)
            continue
        form, alike = operand._form, [other[count] for other in others]
        count += 1
        layouts: list[Any] = []
        for side in ("shape",) if form.packed else ("shape", "strides"):
            letter, least = ("n", 0) if side == "shape" else ("s", -math.inf)
            lengths: list[Any] = list(getattr(form, side))
            for axis, length in enumerate(lengths):
                if all(getattr(other, side)[axis] == length for other in alike):
                    program.fix(place, side, axis, length)
                else:
                    symbol = f"{letter}{place}_{axis}"
                    lengths[axis] = trace.symbol(symbol, length, least)
                    program.name(symbol, place, side, axis)
            layouts.append(tuple(lengths))
        shape, strides = layouts[0], None if form.packed else layouts[1]
        memory = Memory(operand._buffer.source, place)
        made.append(SymbolicArray(memory, 0, SymbolicForm(form.device, form.dtype, shape, strides, form.writable)))
    return made


def _compare(step: Step, real: Step, bases: Sequence[int], scratch: dict[Memory, int]) -> None:
    """See that a launch in expressions is the one that was made.

    ``bases`` are the addresses of operands and results; ``scratch`` learns those of scratch memory.
    """
    are_same = step.kernel is real.kernel and _values(step.shape) == real.shape and len(step.args) == len(real.args)
    for arg, value, origin in zip(step.args, real.args, real.origins, strict=True):
        if isinstance(arg, SymbolicArray):
            memory, form = arg._buffer, value._form
            base = bases[origin] if origin >= 0 else scratch.setdefault(memory, value._buffer.address)
            is_same = (
                memory.origin == origin
                and base + example(arg.distance) == value._address
                and (_values(arg.shape), arg._form.packed, arg.dtype) == (form.shape, form.packed, form.dtype)
                and _values(arg.strides) == form.strides
            )
        elif isinstance(arg, Number):
            is_same = arg._operand == origin and arg.value.__class__ is value.__class__
        elif isinstance(arg, Array):
            is_same = origin == CONSTANT and arg._address == value._address and arg._form is value._form
        else:
            is_same = origin == CONSTANT and example(arg) == value
            is_same = is_same and (isinstance(arg, Length) or arg.__class__ is value.__class__)
        are_same = are_same and is_same
    if not are_same:
        raise NotSymbolic(f"another launch of {real.kernel.name}: {step}")


def _values(lengths: Sequence[Any]) -> tuple[Any, ...]:
    return tuple([example(length) for length in lengths])


def _stay_within(step: Step, specialization: Specialization) -> None:
    """Make it a condition that the launch is over something, and not beyond an array."""
    for length in step.shape:
        if length <= 0:
            raise NotSymbolic("launches over nothing")
    for access in specialization.bounds:
        if step.shape[access.axis] + access.offset > step.args[access.place].shape[access.dimension]:
            raise NotSymbolic("launches beyond an array")


def _planned(
    trace: Trace,
    program: Program,
    call: _SymbolicCall,
    results: Sequence[Array],
    steps: Sequence[Step],
    returned: int | tuple[int, ...],
    specializations: Sequence[Specialization],
    apart: Sequence[Apart],
) -> RepeatedCall:
    """The launches as a native function makes them again, and the program that it follows first."""
    places: dict[Memory, Any] = {}
    room: Any = 0
    for memory in call._scratch:
        places[memory] = room
        room = room - -memory.nbytes // ALIGNMENT * ALIGNMENT
    program.decide(trace)

    def distance(arg: SymbolicArray, origin: int) -> Any:
        return arg.distance + places[arg._buffer] if origin == SCRATCH else arg.distance

    constants: list[Buffer] = []
    launches = [
        make_step(specialization, step._replace(origins=real.origins), distance, constants, program.register)
        for step, real, specialization in zip(call._steps, steps, specializations, strict=True)
    ]
    if places:
        launches[-1].also_writes(SCRATCH)
    made: list[tuple[int | None, Form]] = []
    shapes: list[int] = []
    for result, real in zip(call._results, results, strict=True):
        alike = [place for place, x in enumerate(call._operands) if _is_alike(x, result)]
        made.append((None, real._form))
        lengths = [program.value(length) for length in result.shape]
        shapes += (program.value(result.nbytes), alike[0] if alike else -1, *lengths)
    own = program.register(room)
    return RepeatedCall(
        specializations[0].device, call._of._operands, apart, made, room if places and not own else None, constants, launches,
        returned, program.words, shapes, own,
    )  # fmt: skip


def _is_alike(x: Any, result: Array) -> bool:
    """Whether an operand has the form of a result, whatever the lengths are."""
    if not isinstance(x, SymbolicArray) or not (x.is_contiguous and x.writable) or x.dtype != result.dtype:
        return False
    return x.ndim == result.ndim and all(map(_are_same, x.shape, result.shape))


def _are_same(one: Any, other: Any) -> bool:
    """Whether two lengths are, whatever the operands' are."""
    if isinstance(one, Length) and isinstance(other, Length):
        return one.reduced == other.reduced
    return not isinstance(one, Length) and not isinstance(other, Length) and bool(one == other)
