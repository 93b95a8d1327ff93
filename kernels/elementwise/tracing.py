"""Tracing: what a function of arrays computes by operators and elementwise functions, as the statements of one kernel.

The function is called once for each combination of types, with :class:`Traced` in place of its arrays and numbers. These have
the array's operators, and the library's elementwise functions, and NumPy's ufuncs of the same names, take them. Each notes a
statement, with the dtypes that the operation would have by itself. So a kernel made of them gives what the operations would
give one after the other, rounding included; only what is stored in 16 bits is rounded at the end alone.

A function that decides by a value, or gives it to anything else, cannot be traced; it is compiled as it is
(:mod:`aiodev.kernels.elementwise.fusion`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, NoReturn

import numpy as np

import aiodev
from aiodev import dtypes
from aiodev.kernels.elementwise import conversion, table
from aiodev.kernels.elementwise.rows import TABLE
from aiodev.kernels.elementwise.ufunc import DECLARED, DType, Elementwise

__all__ = ["Step", "Trace", "Traced", "Untraceable", "trace"]

_WEAK = (int, float, complex)


class Untraceable(TypeError):
    """A function looks at a value, or computes by something else than elementwise operations."""


class Trace(NamedTuple):
    """What a function computes of operands of some types."""

    expression: str  #: over the operands' names in braces: statements, one a line, and behind them the result
    inputs: tuple[DType, ...]  #: what each operand becomes first
    result: DType


class Step(NamedTuple):
    """A statement of a trace, as what it computes."""

    made: Elementwise | None  #: the operation; None for a conversion
    values: Sequence[Any]
    result: Traced


class Tape:
    """The statements of a trace.

    Attributes:
        steps: what they compute, of arrays.
    """

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.steps: list[Step] = []
        #: Which dtypes a number is used in, by its operand.
        self.uses: dict[str, set[DType]] = {}

    def note(self, code: str, dtype: DType) -> Traced:
        name = f"t{len(self.lines)}_"
        self.lines.append(f"{name} = {_converted(code, dtype)}")
        return Traced(self, name, dtype)

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
    """

    __slots__ = ("code", "is_operand", "kind", "tape")

    def __init__(self, tape: Tape, code: str, kind: Any, is_operand: bool = False) -> None:
        self.tape = tape
        self.code = code
        self.kind = kind
        self.is_operand = is_operand

    @property
    def dtype(self) -> DType:
        """The dtype, as of an array."""
        if isinstance(self.kind, type):
            raise AttributeError(f"{self.kind.__name__} has no dtype")
        dtype: DType = self.kind
        return dtype

    def astype(self, dtype: Any) -> Traced:
        """The elements in another dtype, as of an array."""
        wanted = dtypes.parse_dtype(dtype)
        if self.dtype.kind == "c" and wanted.kind not in "bc":
            raise Untraceable(f"{self.dtype} cannot become {wanted}")
        if self.dtype == wanted:
            return self
        result = self.tape.note(self.code, wanted)
        self.tape.steps.append(Step(None, (self,), result))
        return result

    def __aiodev_operation__(self, operation: aiodev.Operation, given: Sequence[Any]) -> Traced:
        """The operation of this operand and others, as a statement."""
        made = DECLARED.get(operation)
        if made is None:
            raise Untraceable(f"{operation.name} is not elementwise")
        values, out = given[: len(made.operands)], given[len(made.operands) :]
        if any(one is not None for one in out):
            raise Untraceable(f"{operation.name} writes to an array")
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
        computed = self.tape.note(made.expression_of(inputs).format(**named), result)
        self.tape.steps.append(Step(made, values, computed))
        return computed

    def _by(self, name: str, *values: Any) -> Any:
        """An operator: of arrays and numbers the operation, of numbers alone Python's."""
        if not all(isinstance(value, Traced) or _is_number(value) for value in values):
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
            return self.tape.note(code, np.dtype(bool))
        kind = max(kinds, key=_WEAK.index)
        if (name == "divide" and kind is int) or (name == "abs" and kind is complex):
            kind = float
        return Traced(self.tape, code, kind)

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

    __array__ = __bool__ = __complex__ = __float__ = __index__ = __int__ = __round__ = __trunc__ = __floor__ = __ceil__ = _look
    __contains__ = __getitem__ = __iter__ = __len__ = __setitem__ = _look
    __hash__ = None  # type: ignore[assignment]


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
_UFUNCS = {row.reference: name for name, row in TABLE.items() if isinstance(row.reference, np.ufunc)}


def trace(function: Callable[..., Any], names: Sequence[str], kinds: Sequence[Any]) -> Trace:
    """Call a function with what stands for operands of some kinds: dtypes, or classes of Python numbers.

    Raises:
        Untraceable: the function does something else than elementwise operations.
        Exception: the function's own.
    """
    tape = Tape()
    operands = [
        Traced(tape, name if isinstance(kind, type) else f"{{{name}}}", kind, isinstance(kind, type))
        for name, kind in zip(names, kinds, strict=True)
    ]
    result = function(*operands)
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
    return Trace("\n".join(lines), tuple(inputs), own)


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
        raise Untraceable(f"{type(value).__name__} is neither an operand nor a number")
    return dtypes.kind_of_operand(value)


def _is_number(value: Any) -> bool:
    return isinstance(value, bool | int | float | complex | np.generic)
