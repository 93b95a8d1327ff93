"""A call's launches for all lengths that its body decides alike, from one run of the body with symbolic lengths.

The body has just run with real arrays, and what it launched is known. It is run again, with arrays of which those lengths and
strides are symbolic that earlier calls had others of. What it launches now is the same, in expressions; what it decided by
them are conditions. That becomes a function as :mod:`aiodev._kernel.dispatch.repeated` makes it of fixed numbers, which looks
at the conditions first.

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
import re
import struct
from collections.abc import Callable, Sequence
from typing import Any, NoReturn

from aiodev._array.array import Array
from aiodev._array.dtypes import parse_dtype
from aiodev._array.form import Form
from aiodev._kernel.dispatch.call import Call, Number
from aiodev._kernel.dispatch.repeated import ALIGNMENT, CONSTANT, SCRATCH, Repeated, Step
from aiodev._kernel.dispatch.signature import ARRAYS, COMPLEX, FORMATS
from aiodev._kernel.dispatch.specializations import Specialization
from aiodev._kernel.dispatch.states import MOST_PARAMETERS, Apart
from aiodev._kernel.kernel import Kernel
from aiodev._kernel.symbolic.array import Memory, SymbolicArray, SymbolicForm, checked
from aiodev._kernel.symbolic.generate import BlockPart, generate, joined
from aiodev._kernel.symbolic.length import Length, NotSymbolic, Trace, example, refusals

__all__ = ["make_plan"]

logger = logging.getLogger("aiodev")
_SYMBOLS = re.compile(r"\b[a-z]\d+(?:_\d+)?\b")


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
    trace, refused = Trace(), refusals()
    try:
        first, operands = _symbolic_operands(trace, call._operands, others)
        symbolic = _SymbolicCall(call, operands)
        body(symbolic, *arguments(operands))
        if refusals() != refused:
            raise NotSymbolic("something was refused, and the body went on")
        results = [(_values(result.shape), result.dtype) for result in symbolic._results]
        if len(symbolic._steps) != len(steps) or results != [(result.shape, result.dtype) for result in call._results]:
            raise NotSymbolic("other launches or results")
        bases = [one._address if isinstance(one, Array) else 0 for one in (*call._operands, *call._results)]
        scratch: dict[Memory, int] = {}
        for step, real, specialization in zip(symbolic._steps, steps, specializations, strict=True):
            if len(step.args) >= MOST_PARAMETERS:
                raise NotSymbolic("more arguments than native code has room for")
            _compare(step, real, bases, scratch)
            _stay_within(step, specialization)
        if not trace.is_general():
            raise NotSymbolic("the body takes a length as an index")
    except Exception as error:  # whatever a body makes of lengths that are no ints
        logger.debug("%s has no plan for all lengths: %r", call.name, error)
        return None
    return _generated(trace, first, symbolic, steps, returned, specializations, apart)


def _symbolic_operands(
    trace: Trace, operands: Sequence[Any], others: Sequence[Sequence[Form]]
) -> tuple[list[str], list[Any]]:
    """Lines that name the lengths, and refuse those that are fixed; and the operands with lengths of these names."""
    lines, made = [], []
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
            names = [f"{letter}{place}_{axis}" for axis in range(len(lengths))]
            if names:
                lines.append(f"{', '.join(names)}, = x{place}._form.{side}")
            fixed = []
            for axis, (name, length) in enumerate(zip(names, lengths, strict=True)):
                if all(getattr(other, side)[axis] == length for other in alike):
                    fixed.append(f"{name} != {length}")
                else:
                    lengths[axis] = trace.symbol(name, length, least)
            if fixed:
                lines += [f"if {' or '.join(fixed)}:", "    return None"]
            layouts.append(tuple(lengths))
        shape, strides = layouts[0], None if form.packed else layouts[1]
        memory = Memory(operand._buffer.source, place)
        made.append(SymbolicArray(memory, 0, SymbolicForm(form.device, form.dtype, shape, strides, form.writable)))
    return lines, made


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


def _generated(
    trace: Trace,
    first: list[str],
    call: _SymbolicCall,
    steps: Sequence[Step],
    returned: int | tuple[int, ...],
    specializations: Sequence[Specialization],
    apart: Sequence[Apart],
) -> Repeated | None:
    constants: list[Any] = []

    def constant(value: Any) -> str:
        constants.append(value)
        return f"c{len(constants) - 1}"

    places: dict[Memory, Any] = {}
    room: Any = 0
    for memory in call._scratch:
        places[memory] = room
        room = room - -memory.nbytes // ALIGNMENT * ALIGNMENT
    count, launches = len(call._operands), []
    for step, real, specialization in zip(call._steps, steps, specializations, strict=True):
        block, uses = _block(specialization, step, real, places, constant)
        size: Any = 1
        for length in step.shape:
            size = size * length
        launches.append((constant(specialization.loading.entry), _text(size), block, uses))
    forms = []
    for number, result in enumerate(call._results):
        alike = [f"x{place}._form" for place, x in enumerate(call._operands) if _is_alike(x, result)]
        shape = "".join(f"{_text(length)}, " for length in result.shape)
        form = alike[0] if alike else f"form_of(device, {constant(result.dtype)}, ({shape}), None, True)"
        forms.append((f"x{count + number}", (_text(result.nbytes), form)))
    given = f"x{returned}" if isinstance(returned, int) else f"({', '.join(f'x{k}' for k in returned)},)"
    own = _text(room) if places else ""
    lines = [*first, *_lines(trace, f"{forms} {launches} {own}")]
    conditions = [each.source() for each in apart]
    return generate(specializations, count, constants, forms, own, launches, given, lines, conditions)


def _is_alike(x: Any, result: Array) -> bool:
    """Whether an operand has the form of a result, whatever the lengths are."""
    if not isinstance(x, SymbolicArray) or not (x.is_contiguous and x.writable) or x.dtype != result.dtype:
        return False
    pairs = zip(x.shape, result.shape, strict=False)
    return x.ndim == result.ndim and all(_text(one) == _text(other) for one, other in pairs)


def _lines(trace: Trace, used: str) -> list[str]:
    """Definitions that are used, and conditions, as statements."""
    needed = set(_SYMBOLS.findall(used))
    kept: list[tuple[str, str]] = []
    for name, text in reversed(trace.lines):
        if not name or name in needed:
            needed.update(_SYMBOLS.findall(text))
            kept.append((name, text))
    lines: list[str] = []
    conditions: list[str] = []

    def close() -> None:
        if conditions:
            lines.extend([f"if not ({' and '.join(conditions)}):", "    return None"])
            conditions.clear()

    for name, text in reversed(kept):
        if name:
            close()
            lines.append(f"{name} = {text}")
        else:
            conditions.append(text)
    close()
    return lines


def _block(
    specialization: Specialization,
    step: Step,
    real: Step,
    scratch: dict[Memory, Any],
    constant: Callable[[Any], str],
) -> tuple[str, tuple[tuple[str, str], ...]]:
    """What makes the block of a launch's arguments, and the buffers that it uses."""
    signature = specialization.signature
    numbers = [_word(length) for length in step.shape]
    arrays: list[BlockPart] = []
    uses = []
    for arg, value, origin, descriptor, kind in zip(
        step.args, real.args, real.origins, signature.descriptors, signature.pattern, strict=True
    ):
        if isinstance(arg, SymbolicArray):
            memory, distance, whole = arg._buffer, arg.distance, f"x{origin}._address"
            if origin == SCRATCH:
                distance, whole = distance + scratch[memory], "scratch.address"
            else:
                uses.append((f"x{origin}._buffer", kind))
            is_there = not isinstance(distance, Length) and distance == 0
            arrays.append(("q", whole if is_there else f"{whole} + {_text(distance)}"))
            form = arg._form
            arrays += [_word(length) for length in (form.shape if form.packed else (*form.shape, *form.strides))]
        elif kind in ARRAYS:
            uses.append((constant(value._buffer), kind))
            arrays.append(value._packed or value._pack())
        elif isinstance(arg, Number):
            numbers.append((FORMATS[descriptor], f"x{origin}.real, x{origin}.imag" if kind == COMPLEX else f"x{origin}"))
        elif isinstance(arg, Length):
            numbers.append((FORMATS[descriptor], arg.text()))
        else:
            parts = (arg.real, arg.imag) if kind == COMPLEX else (arg,)
            numbers.append(struct.pack(f"<{FORMATS[descriptor]}", *parts))
    return joined((*numbers, *arrays), constant), tuple(uses)


def _word(length: Any) -> BlockPart:
    return ("q", length.text()) if isinstance(length, Length) else struct.pack("<q", length)


def _text(length: Any) -> str:
    return length.text() if isinstance(length, Length) else str(length)
