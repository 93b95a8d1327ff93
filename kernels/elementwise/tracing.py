"""Tracing: what a function of arrays computes by operators and elementwise functions, as the statements of one kernel.

The function is called once for each combination of types, with :class:`Traced` in place of its arrays and numbers. These have
the array's operators, and the library's elementwise functions, and NumPy's ufuncs of the same names, take them. Each notes a
statement, with the dtypes that the operation would have by itself. So a kernel made of them gives what the operations would
give one after the other, rounding included; only what is stored in 16 bits is rounded at the end alone.

An operator in place keeps the dtype and the shape of its left side, or is refused, as of arrays: all that holds the same object
sees what it became. On an operand it is refused, since a fused function writes to none.

A function that decides by a value, or gives it to anything else, cannot be traced; it is compiled as it is
(:mod:`aiodev.kernels.elementwise.fusion`). What neither arrays' elements nor numbers have, such as a mean, is refused.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, NoReturn

import numpy as np

import aiodev
from aiodev import dtypes
from aiodev.kernels.elementwise import conversion, table
from aiodev.kernels.elementwise.rows import TABLE
from aiodev.kernels.elementwise.ufunc import DECLARED, DType, Elementwise

__all__ = ["Kept", "Refused", "Step", "Trace", "Traced", "Untraceable", "trace"]

_WEAK = (int, float, complex)


class Untraceable(TypeError):
    """A function looks at a value, or computes by something else than elementwise operations."""


class Refused(TypeError):
    """A function does what no fused function can, whether its operands are taken for arrays or for numbers."""


class Kept(NamedTuple):
    """What an operator in place asks of shapes: that the other operand makes the one that is written no larger."""

    name: str  #: of the operation
    written: frozenset[str]  #: the operands that what is written was computed of
    read: frozenset[str]  #: those of the other one


class Trace(NamedTuple):
    """What a function computes of operands of some types."""

    expression: str  #: over the operands' names in braces: statements, one a line, and behind them the result
    inputs: tuple[DType, ...]  #: what each operand becomes first
    result: DType
    kept: tuple[Kept, ...]


class Step(NamedTuple):
    """A statement of a trace, as what it computes."""

    made: Elementwise | None  #: the operation; None for a conversion
    values: Sequence[Any]
    result: Traced


class Tape:
    """The statements of a trace.

    Attributes:
        steps: what they compute, of arrays.
        kept: what operators in place ask of shapes.
        changed: the operand that one of them changes, which is fine if that is a number.
    """

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.steps: list[Step] = []
        self.kept: list[Kept] = []
        self.changed: str | None = None
        #: Which dtypes a number is used in, by its operand.
        self.uses: dict[str, set[DType]] = {}

    def note(self, code: str, dtype: DType, sources: frozenset[str]) -> Traced:
        name = f"t{len(self.lines)}_"
        self.lines.append(f"{name} = {_converted(code, dtype)}")
        return Traced(self, name, dtype, sources)

    def used(self, value: Any, dtype: DType) -> str:
        """The code of an operand of an operation that computes in ``dtype``."""
        if not isinstance(value, Traced):
            return _literal(value, dtype)
        if value.tape is not self:
            raise Untraceable("it is part of another function")
        if isinstance(value.kind, type):
            if not value.is_operand:
                return _converted(value.code, dtype)
            self.uses.setdefault(value.code, set()).add(dtype)
            return f"\0{value.code}\0{dtype.name}\0"
        return value.code if value.kind == dtype else _converted(value.code, dtype)


class Traced:
    """What stands for an array, or a number, in the call of a function that is traced.

    Attributes:
        kind: the dtype, or the class of a Python number.
        sources: the names of the operands that are arrays, of which it is computed: theirs is its shape.
    """

    __slots__ = ("code", "is_operand", "kind", "sources", "tape")

    def __init__(self, tape: Tape, code: str, kind: Any, sources: frozenset[str], is_operand: bool = False) -> None:
        self.tape = tape
        self.code = code
        self.kind = kind
        self.sources = sources
        self.is_operand = is_operand

    def __getattr__(self, name: str) -> Any:
        if isinstance(self.kind, type) or name.startswith("_") or not hasattr(aiodev.Array, name):
            raise AttributeError(f"what stands for an operand has no attribute {name!r}")
        advice = "give what it says as a number" if name in _OF_SHAPE else "do it before or behind the fused function"
        raise Refused(f".{name} is no elementwise step, and one kernel does only those: {advice}")

    def now(self) -> Traced:
        """What it is by now, whatever operators in place make of it."""
        return Traced(self.tape, self.code, self.kind, self.sources, self.is_operand)

    @property
    def dtype(self) -> DType:
        """The dtype, as of an array."""
        if isinstance(self.kind, type):
            raise AttributeError(f"{self.kind.__name__} has no dtype")
        dtype: DType = self.kind
        return dtype

    def astype(self, dtype: Any, *, copy: bool = True) -> Traced:
        """The elements in another dtype, as of an array."""
        wanted = dtypes.parse_dtype(dtype)
        if self.dtype.kind == "c" and wanted.kind not in "bc":
            raise Untraceable(f"{self.dtype} cannot become {wanted}")
        if self.dtype == wanted:
            return Traced(self.tape, self.code, wanted, self.sources) if copy else self
        result = self.tape.note(self.code, wanted, self.sources)
        self.tape.steps.append(Step(None, (self.now(),), result.now()))
        return result

    def __aiodev_operation__(self, operation: aiodev.Operation, given: Sequence[Any]) -> Traced:
        """The operation of this operand and others, as a statement."""
        made = DECLARED.get(operation)
        if made is None:
            raise _not_elementwise(operation.name)
        values, out = given[: len(made.operands)], given[len(made.operands) :]
        if any(one is not None for one in out):
            raise Refused(f"{operation.name} writes to an array by out=, and one kernel has one result")
        return self._computed(made, values)

    def _computed(self, made: Elementwise, values: Sequence[Any]) -> Traced:
        kinds = _kinds_of(values)
        if all(isinstance(kind, type) for kind in kinds):
            raise Untraceable(f"{made.name} of numbers")
        if made.near is not None:
            values = [
                value if isinstance(value, Traced) else made.near(value, other)
                for value, other in zip(values, reversed(values), strict=True)
            ]
            kinds = _kinds_of(values)
        *inputs, result = made.types(*kinds)
        codes = [self.tape.used(value, dtype) for value, dtype in zip(values, inputs, strict=True)]
        named = dict(zip(made.operands, (f"({code})" for code in codes), strict=True))
        sources = frozenset[str]().union(*[value.sources for value in values if isinstance(value, Traced)])
        computed = self.tape.note(made.expression_of(inputs).format(**named), result, sources)
        given = [value.now() if isinstance(value, Traced) else value for value in values]
        self.tape.steps.append(Step(made, given, computed.now()))
        return computed

    def _in_place(self, name: str, other: Any) -> Any:
        """An operator in place: as of arrays, whose memory keeps its dtype and shape; numbers become others."""
        if not self.sources or not (isinstance(other, Traced) or _is_number(other)):
            return NotImplemented
        computed = self._by(name, self, other)
        if not dtypes.can_cast(computed.dtype, self.dtype, "same_kind"):
            advice = "aiodev.kernels.astype converts"
            raise Refused(f"{name}: in place, {computed.dtype} cannot be written to {self.dtype}; {advice}")
        if not computed.sources <= self.sources:
            self.tape.kept.append(Kept(name, self.sources, computed.sources))
        if self.is_operand:
            self.tape.changed = self.code
        self.code = computed.astype(self.dtype).code
        return self

    def _by(self, name: str, *values: Any) -> Any:
        """An operator: of arrays and numbers the operation, of numbers alone Python's."""
        if not all(isinstance(value, Traced) or _is_number(value) for value in values):
            _refuse_captured(values)
            return NotImplemented
        kinds = _kinds_of(values)
        if all(isinstance(kind, type) for kind in kinds):
            return self._of_numbers(name, values, kinds)
        return self._computed(DECLARED[getattr(table, name).operation], values)

    def _of_numbers(self, name: str, values: Sequence[Any], kinds: Sequence[Any]) -> Traced:
        """What Python computes of numbers: a number, or a truth value."""
        form = _OF_NUMBERS.get(name)
        if form is None or (complex in kinds and name in _ORDERED):
            raise Untraceable(f"{name} of numbers")
        code = form.format(*[self.tape.used(value, np.dtype(own)) for value, own in zip(values, kinds, strict=True)])
        if name in _COMPARISONS.values():
            return self.tape.note(code, np.dtype(bool), frozenset())
        kind = max(kinds, key=_WEAK.index)
        if (name == "divide" and kind is int) or (name == "abs" and kind is complex):
            kind = float
        return Traced(self.tape, code, kind, frozenset())

    def __divmod__(self, other: Any) -> Any:
        return self // other, self % other

    def __rdivmod__(self, other: Any) -> Any:
        return other // self, other % self

    # NumPy's functions, which look for these first.

    def __array_ufunc__(self, ufunc: Any, method: str, *values: Any, **options: Any) -> Any:
        name = _UFUNCS.get(ufunc)
        if name is None or method != "__call__" or options:
            raise Untraceable(f"{ufunc.__name__} is no operation of the library")
        return self._computed(DECLARED[getattr(table, name).operation], values)

    def __array_function__(self, function: Any, types: Any, args: Any, kwargs: Any) -> Any:
        if function is not np.where and function is not np.clip:
            raise Untraceable(f"{function.__name__} is no elementwise operation of the library")
        return getattr(conversion, function.__name__)(*args, **kwargs)

    def _look(self, *values: Any) -> NoReturn:
        raise Untraceable("its value is not known here")

    def _refuse(self, *values: Any) -> NoReturn:
        raise Refused("indexing, iteration, `in`, len() and @ are no elementwise steps, and one kernel does only those")

    __array__ = __bool__ = __complex__ = __float__ = __index__ = __int__ = __round__ = __trunc__ = __floor__ = __ceil__ = _look
    __contains__ = __getitem__ = __iter__ = __len__ = __setitem__ = __matmul__ = __rmatmul__ = _refuse
    __hash__ = None  # type: ignore[assignment]


def _not_elementwise(name: str) -> Refused:
    return Refused(f"{name} is no elementwise step, and one kernel does only those: do it before or behind the fused function")


def _refuse_captured(values: Sequence[Any]) -> None:
    """Refuse an array that is no operand: the kernel would keep the values that it had in the first call."""
    for value in values:
        if isinstance(value, aiodev.Array | np.ndarray):
            shown = f"{type(value).__module__.partition('.')[0]}.{type(value).__name__}"
            raise Refused(f"it computes with an {shown} of the shape {value.shape} that is not among its operands: make it one")


def _operator(name: str, reflected: bool = False) -> Callable[..., Any]:
    def computed(self: Traced, *other: Any) -> Any:
        return self._by(name, *other, self) if reflected else self._by(name, self, *other)

    return computed


_BINARY = {
    "add": "add", "sub": "subtract", "mul": "multiply", "truediv": "divide", "floordiv": "floor_divide", "mod": "remainder",
    "pow": "pow", "and": "bitwise_and", "or": "bitwise_or", "xor": "bitwise_xor", "lshift": "bitwise_left_shift",
    "rshift": "bitwise_right_shift",
}  # fmt: skip
_COMPARISONS = {
    "lt": "less", "le": "less_equal", "eq": "equal", "ne": "not_equal", "gt": "greater", "ge": "greater_equal",
}  # fmt: skip
_ORDERED = {"less", "less_equal", "greater", "greater_equal"}
#: Attributes that depend on shapes, of which a trace knows nothing.
_OF_SHAPE = {"itemsize", "nbytes", "ndim", "shape", "size", "strides"}
_UNARY = {"neg": "negative", "pos": "positive", "abs": "abs", "invert": "bitwise_invert"}
#: Of Python's operators on numbers, those that raise nothing, but for a division by zero, which gives an infinity here.
_OF_NUMBERS = {
    "add": "({} + {})", "subtract": "({} - {})", "multiply": "({} * {})", "divide": "np.divide({}, {})", "negative": "(-{})",
    "positive": "{}", "abs": "abs({})", "less": "({} < {})", "less_equal": "({} <= {})", "equal": "({} == {})",
    "not_equal": "({} != {})", "greater": "({} > {})", "greater_equal": "({} >= {})",
}  # fmt: skip
for _short, _name in {**_BINARY, **_COMPARISONS, **_UNARY}.items():
    setattr(Traced, f"__{_short}__", _operator(_name))
for _short, _name in _BINARY.items():
    setattr(Traced, f"__r{_short}__", _operator(_name, reflected=True))
    setattr(Traced, f"__i{_short}__", functools.partialmethod(Traced._in_place, _name))
_UFUNCS = {row.reference: name for name, row in TABLE.items() if isinstance(row.reference, np.ufunc)}


def trace(function: Callable[..., Any], names: Sequence[str], kinds: Sequence[Any]) -> Trace:
    """Call a function with what stands for operands of some kinds: dtypes, or classes of Python numbers.

    Raises:
        Refused: the function does what no fused one can.
        Untraceable: the function does something else than elementwise operations.
        Exception: the function's own.
    """
    tape = Tape()
    operands = [
        Traced(tape, name, kind, frozenset(), True)
        if isinstance(kind, type)
        else Traced(tape, f"{{{name}}}", kind, frozenset([name]), True)
        for name, kind in zip(names, kinds, strict=True)
    ]
    result = function(*operands)
    if isinstance(result, tuple | list) and any(isinstance(value, Traced) for value in result):
        raise Refused(f"it returns {len(result)} results, and one kernel has one: make a fused function of each")
    if tape.changed is not None:
        name = tape.changed.strip("{}")
        raise Refused(f"an operator in place changes the operand {name}, which is only read: write `{name} = {name} + …`")
    if isinstance(result, Traced):
        kind = result.kind
    elif _is_number(result):
        kind = _kind_of(result)
    else:
        raise Untraceable(f"it returned {type(result).__name__}")
    arrays = [kind for kind in kinds if not isinstance(kind, type)]
    own = dtypes.result_type(*arrays, kind) if isinstance(kind, type) else kind
    lines = [*tape.lines, tape.used(result, own)]
    inputs = []
    for name, kind in zip(names, kinds, strict=True):
        if not isinstance(kind, type):
            inputs.append(kind)
            continue
        uses = tape.uses.get(name, set())
        only = next(iter(uses)) if len(uses) == 1 else np.dtype(kind)
        inputs.append(only)
        for use in uses:
            code = f"{{{name}}}" if use == only else _converted(f"{{{name}}}", use)
            lines = [line.replace(f"\0{name}\0{use.name}\0", code) for line in lines]
    return Trace("\n".join(lines), tuple(inputs), own, tuple(tape.kept))


def _converted(code: str, dtype: DType) -> str:
    """A value as one of a dtype, or of what that is computed in."""
    return f"np.{dtypes.compute_dtype(dtype).name}({code})" if dtype.kind != "b" else f"(({code}) != 0)"


def _literal(value: Any, dtype: DType) -> str:
    """A number as one of a dtype.

    Raises:
        OverflowError: the dtype has no such number.
    """
    number = dtype.type(value).item() if dtype.kind in "iub" else value.item() if isinstance(value, np.generic) else value
    parts = ", ".join(map(_shown, (number.real, number.imag))) if isinstance(number, complex) else ""
    return _converted(f"complex({parts})" if parts else _shown(number), dtype)


def _shown(number: float) -> str:
    """A real number as code."""
    if number != number:
        return "np.nan"
    return repr(number).replace("inf", "np.inf")


def _kinds_of(values: Sequence[Any]) -> list[Any]:
    return [value.kind if isinstance(value, Traced) else _kind_of(value) for value in values]


def _kind_of(value: Any) -> Any:
    if not _is_number(value):
        _refuse_captured([value])
        raise Untraceable(f"{type(value).__name__} is neither an operand nor a number")
    return dtypes.kind_of_operand(value)


def _is_number(value: Any) -> bool:
    return isinstance(value, bool | int | float | complex | np.generic)
