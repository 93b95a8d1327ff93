"""Arithmetic on LLVM values, written with Python's operators: what the elementary functions are made of.

A :class:`Value` is a ``float``, a ``double``, an integer or a truth value in the code that is being emitted. Numbers beside
it take its type. Nothing here branches or calls out, so a loop over such code becomes vector code.

Every operation carries the flag ``afn``, which means nothing to it: numba gives a kernel's ``fastmath`` flags to operations
that have none, and compensated arithmetic would not survive those.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from llvmlite import ir
from numba.core import cgutils

__all__ = ["Value", "choose", "fma", "horner", "horner_in_two", "quotient", "two_sum"]

_FLAGS = ("afn",)
_SUFFIX = {"float": "f32", "double": "f64"}


class Value:
    """A value in the code that is being emitted.

    Attributes:
        builder: where code is added.
        ir: the LLVM value.
    """

    __slots__ = ("builder", "ir")

    def __init__(self, builder: Any, value: Any) -> None:
        self.builder = builder
        self.ir = value

    # Kinds

    @property
    def is_double(self) -> bool:
        """Whether it is a ``double``, or of these."""
        return isinstance(self._kind, ir.DoubleType)

    @property
    def _kind(self) -> Any:
        """The type, or that of a vector's elements."""
        return self.ir.type.element if isinstance(self.ir.type, ir.VectorType) else self.ir.type

    def _with(self, kind: Any) -> Any:
        """The type that has elements of another kind."""
        return ir.VectorType(kind, self.ir.type.count) if isinstance(self.ir.type, ir.VectorType) else kind

    @property
    def _floats(self) -> bool:
        return isinstance(self._kind, ir.FloatType | ir.DoubleType)

    def like(self, number: float) -> Value:
        """A constant of the same type."""
        return Value(self.builder, self._other(number))

    def _other(self, value: Value | float) -> Any:
        if isinstance(value, Value):
            return value.ir
        vector = isinstance(self.ir.type, ir.VectorType)
        return ir.Constant(self.ir.type, [value] * self.ir.type.count if vector else value)

    # Arithmetic

    def __add__(self, other: Value | float) -> Value:
        code = self.builder
        result = (
            code.fadd(self.ir, self._other(other), flags=_FLAGS)
            if self._floats
            else code.add(self.ir, self._other(other))
        )
        return Value(code, result)

    def __sub__(self, other: Value | float) -> Value:
        code = self.builder
        result = (
            code.fsub(self.ir, self._other(other), flags=_FLAGS)
            if self._floats
            else code.sub(self.ir, self._other(other))
        )
        return Value(code, result)

    def __mul__(self, other: Value | float) -> Value:
        code = self.builder
        result = (
            code.fmul(self.ir, self._other(other), flags=_FLAGS)
            if self._floats
            else code.mul(self.ir, self._other(other))
        )
        return Value(code, result)

    def __rsub__(self, other: float) -> Value:
        return self.like(other) - self

    def __truediv__(self, other: Value | float) -> Value:
        return Value(self.builder, self.builder.fdiv(self.ir, self._other(other), flags=_FLAGS))

    def __rtruediv__(self, other: float) -> Value:
        return self.like(other) / self

    def __neg__(self) -> Value:
        return Value(self.builder, self.builder.fneg(self.ir))

    __radd__ = __add__
    __rmul__ = __mul__

    # Comparisons: false where one side is NaN

    def _compare(self, how: str, other: Value | float) -> Value:
        right = self._other(other)
        if self._floats:
            return Value(self.builder, self.builder.fcmp_ordered(how, self.ir, right, flags=_FLAGS))
        return Value(self.builder, self.builder.icmp_signed(how, self.ir, right))

    def __lt__(self, other: Value | float) -> Value:
        return self._compare("<", other)

    def __le__(self, other: Value | float) -> Value:
        return self._compare("<=", other)

    def __gt__(self, other: Value | float) -> Value:
        return self._compare(">", other)

    def __ge__(self, other: Value | float) -> Value:
        return self._compare(">=", other)

    def equals(self, other: Value | float) -> Value:
        """Whether they are equal."""
        return self._compare("==", other)

    # Bits

    def __and__(self, other: Value | int) -> Value:
        return Value(self.builder, self.builder.and_(self.ir, self._other(other)))

    def __or__(self, other: Value | int) -> Value:
        return Value(self.builder, self.builder.or_(self.ir, self._other(other)))

    def __xor__(self, other: Value | int) -> Value:
        return Value(self.builder, self.builder.xor(self.ir, self._other(other)))

    def __lshift__(self, count: int) -> Value:
        return Value(self.builder, self.builder.shl(self.ir, self._other(count)))

    def __rshift__(self, count: int) -> Value:
        """Copies the sign."""
        return Value(self.builder, self.builder.ashr(self.ir, self._other(count)))

    def shifted_down(self, count: int) -> Value:
        """The bits moved down, with zeros above."""
        return Value(self.builder, self.builder.lshr(self.ir, self._other(count)))

    def bits(self) -> Value:
        """A float's bits as an integer."""
        return Value(self.builder, self.builder.bitcast(self.ir, self._with(ir.IntType(64 if self.is_double else 32))))

    def from_bits(self) -> Value:
        """The float that has an integer's bits."""
        double = self._kind.width == 64
        kind = self._with(ir.DoubleType() if double else ir.FloatType())
        return Value(self.builder, self.builder.bitcast(self.ir, kind))

    def to_float(self) -> Value:
        """An integer's value in the float of its size."""
        double = self._kind.width == 64
        kind = self._with(ir.DoubleType() if double else ir.FloatType())
        return Value(self.builder, self.builder.sitofp(self.ir, kind))

    def to_double(self) -> Value:
        """A ``float`` as a ``double``."""
        return self if self.is_double else Value(self.builder, self.builder.fpext(self.ir, ir.DoubleType()))

    def to_single(self) -> Value:
        """A ``double`` rounded to a ``float``."""
        return Value(self.builder, self.builder.fptrunc(self.ir, ir.FloatType()))

    # Intrinsics

    def _call(self, name: str, *others: Value) -> Value:
        kind = self.ir.type
        function_type = ir.FunctionType(kind, [kind] * (1 + len(others)))
        suffix = ("" if kind is self._kind else f"v{kind.count}") + _SUFFIX[str(self._kind)]
        function = cgutils.get_or_insert_function(self.builder.module, function_type, f"llvm.{name}.{suffix}")
        return Value(self.builder, self.builder.call(function, [self.ir, *(other.ir for other in others)]))

    def __abs__(self) -> Value:
        return self._call("fabs")

    def rounded(self) -> Value:
        """The nearest whole number; ties go to the even one."""
        return self._call("rint")

    def root(self) -> Value:
        """The square root."""
        return self._call("sqrt")

    def with_sign_of(self, other: Value) -> Value:
        """Its size with another's sign."""
        return self._call("copysign", other)

    def element_of(self, name: str, numbers: Sequence[float]) -> Value:
        """``numbers[self]`` as a ``double``, from a constant table; the index must be one of it."""
        module = self.builder.module
        kind = ir.ArrayType(ir.DoubleType(), len(numbers))
        symbol = f"aiodev.table.{name}"
        table = module.globals.get(symbol)
        if table is None:
            table = ir.GlobalVariable(module, kind, symbol)
            table.global_constant, table.linkage = True, "internal"
            table.initializer = ir.Constant(kind, [ir.Constant(ir.DoubleType(), number) for number in numbers])
        zero = ir.Constant(ir.IntType(64), 0)
        return Value(self.builder, self.builder.load(self.builder.gep(table, [zero, self.ir], inbounds=True)))

    def clamped(self, low: float, high: float) -> Value:
        """At least ``low`` and at most ``high``; NaN stays."""
        below = choose(self > high, self.like(high), self)
        return choose(below < low, self.like(low), below)


def choose(condition: Value, yes: Value, no: Value | float) -> Value:
    """``yes`` where the condition holds, else ``no``; both are computed."""
    return Value(yes.builder, yes.builder.select(condition.ir, yes.ir, yes._other(no)))


def fma(a: Value, b: Value | float, c: Value | float) -> Value:
    """``a * b + c``, rounded once."""
    second, third = (x if isinstance(x, Value) else a.like(x) for x in (b, c))
    return a._call("fma", second, third)


def horner(x: Value, coefficients: Sequence[float]) -> Value:
    """The polynomial with these coefficients, that of the lowest power first."""
    result = x.like(coefficients[-1])
    for coefficient in reversed(coefficients[:-1]):
        result = fma(result, x, coefficient)
    return result


def horner_in_two(x: Value, coefficients: Sequence[float]) -> Value:
    """A polynomial by its even and its odd powers: half the latency, which pays from a dozen coefficients on."""
    square = x * x
    return fma(horner(square, coefficients[1::2]), x, horner(square, coefficients[::2]))


def two_sum(a: Value, b: Value) -> tuple[Value, Value]:
    """a + b, and what that lacks (Knuth)."""
    total = a + b
    virtual = total - a
    return total, (a - (total - virtual)) + (b - virtual)


def quotient(a: Value, b: Value, more_a: Value, more_b: Value) -> Value:
    """(a + more_a) / (b + more_b) to little more than half a unit in the last place; the second parts are small."""
    inverse = 1.0 / b
    result = a * inverse
    return fma(inverse, fma(-result, b, a) + fma(-result, more_b, more_a), result)
