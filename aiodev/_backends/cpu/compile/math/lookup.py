"""Elementary functions in single precision by tables that lie in registers: polynomials with coefficients by interval.

AVX-512 looks 16 places up in a table of 32 numbers by one instruction. With the interval's own coefficients a polynomial
is short, and needs no division. There is a place in each interval where the function's value, rounded, is off by less than a
thousandth of a last place (S. Gal, "Computing elementary functions: a new approach for achieving high accuracy and good
performance", 1986): the polynomial is in the distance from there, its first coefficient that value.

tanh is within 1 unit in the last place, log within 1.6.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from llvmlite import ir
from numba.core import cgutils
from numba.core.registry import cpu_target

from aiodev._backends.cpu.compile.math.values import Value, choose, fma, horner
from aiodev._backends.cpu.compile.vector_variants import call_variants

__all__ = ["has_lookup", "log_by_table", "tanh_by_table"]

#: Elements of a vector, and entries of a table.
_LANES, _ENTRIES = 16, 32
_FLOATS = ir.VectorType(ir.FloatType(), _LANES)
_WORDS = ir.VectorType(ir.IntType(32), _LANES)
#: Of tanh: the bits at which the second interval begins, and how many a step takes: a quarter of an octave. The first begins at
#: 0; the last ends at 10, beyond which the result is 1.
_FIRST, _STEP, _LAST = 0x3D400000, 21, 9.99
#: Of log: the bits at which the first interval begins, about 0.695, and how many a step takes; 32 steps are an octave.
_LEAST, _PART = 0x3F320000, 18
_MANTISSA, _LN2 = 23, 0.6931471805599453

Table = np.ndarray[Any, np.dtype[np.float32]]
Function = Callable[[Any], Any]


@functools.cache
def has_lookup() -> bool:
    """Whether code is made for a processor with AVX-512."""
    features: str = cpu_target.target_context.codegen().magic_tuple()[2]
    return "+avx512f" in features


def tanh_by_table(x: Value) -> Value:
    """Hyperbolic tangent of a ``float``."""
    return _by_table("tanh", x, _tanh)


def log_by_table(x: Value) -> Value:
    """Natural logarithm of a normal, positive ``float``."""
    return _by_table("log", x, _log)


def _by_table(name: str, x: Value, emit: Callable[[Value], Value]) -> Value:
    """Call ``emit``, which is for vectors of 16, for a number."""

    def scalar(builder: Any, args: Sequence[Any], function: Any) -> Any:
        place = ir.Constant(ir.IntType(32), 0)
        wide = builder.insert_element(ir.Constant(_FLOATS, ir.Undefined), args[0], place)
        return builder.extract_element(emit(Value(builder, wide)).ir, place)

    def vector(builder: Any, args: Sequence[Any], function: Any) -> Any:
        given, width = args[0], args[0].type.count
        lanes = ir.Constant(_WORDS, [lane % width for lane in range(_LANES)])
        wide = builder.shuffle_vector(given, ir.Constant(given.type, ir.Undefined), lanes)
        values = emit(Value(builder, wide)).ir
        lanes = ir.Constant(ir.VectorType(ir.IntType(32), width), list(range(width)))
        return builder.shuffle_vector(values, ir.Constant(_FLOATS, ir.Undefined), lanes)

    return call_variants(f"by_table_{name}", (x,), scalar, vector)


def _tanh(x: Value) -> Value:
    base, *coefficients = _tanh_tables()
    size = abs(x)
    size = choose(size > _LAST, x.like(_LAST), size)
    interval = (size.bits() - (_FIRST - (1 << _STEP))) >> _STEP
    interval = choose(interval < 0, interval.like(0), interval)
    away = size - _look_up(base, interval)
    result = _look_up(coefficients[-1], interval)
    for table in reversed(coefficients[:-1]):
        result = fma(result, away, _look_up(table, interval))
    return result.with_sign_of(x)


def _log(x: Value) -> Value:
    inverses, logarithms, polynomial = _log_tables()
    moved = x.bits() - _LEAST
    interval = moved >> _PART  # its low bits count
    n = (moved >> _MANTISSA).to_float()
    left = ((moved & ((1 << _MANTISSA) - 1)) + _LEAST).from_bits()
    away = fma(left, _look_up(inverses, interval), -1.0)
    near = fma(away * away, horner(away, polynomial), away)
    return fma(n, _LN2, _look_up(logarithms, interval) + near)


def _look_up(table: Table, interval: Value) -> Value:
    """The entries of a table that the low bits of the elements say."""
    builder = interval.builder
    halves = [ir.Constant(_FLOATS, [float(number) for number in half]) for half in table.reshape(2, _LANES)]
    kind = ir.FunctionType(_FLOATS, [_FLOATS, _WORDS, _FLOATS])
    function = cgutils.get_or_insert_function(builder.module, kind, "llvm.x86.avx512.vpermi2var.ps.512")
    return Value(builder, builder.call(function, [halves[0], interval.ir, halves[1]]))


@functools.cache
def _tanh_tables() -> tuple[Table, ...]:
    """The places from which on, and the coefficients in the distance, that of the lowest power first."""
    rows: list[list[float]] = [[0, 0, 1, 0, -1 / 3, 0, 2 / 15]]
    for k in range(_ENTRIES - 1):
        low, high = _floats(_FIRST + (k << _STEP), _FIRST + ((k + 1) << _STEP))
        # beyond the last interval the result is that at its end, 1
        at = _place(np.tanh, (low + high) / 2) if k < _ENTRIES - 2 else high

        def slope(y: Any, at: float = at) -> Any:
            """(tanh(at + y) - tanh(at)) / y."""
            return np.sinh(y) / y / (np.cosh(at) * np.cosh(at + y))

        rows.append([at, np.tanh(at), *_interpolate(slope, low - at, high - at, 5)])
    return tuple(np.array(rows, np.float32).T)


@functools.cache
def _log_tables() -> tuple[Table, Table, tuple[float, ...]]:
    """Tables of log: a factor; a summand; and (log(1 + y) - y) / y² as a polynomial in y, what is left."""
    inverses, furthest = [], 0.0
    for k in range(_ENTRIES):
        low, high = _floats(_LEAST + (k << _PART), _LEAST + ((k + 1) << _PART))
        inverse = 1.0 if low <= 1 < high else _place(np.log, 2 / (low + high))
        inverses.append(inverse)
        furthest = max(furthest, abs(low * inverse - 1), abs(high * inverse - 1))

    def rest(y: Any) -> Any:
        return sum(-((-y) ** k) / (k + 2) for k in range(12))

    polynomial = tuple(float(np.float32(c)) for c in _interpolate(rest, -furthest, furthest, 3))
    return np.array(inverses, np.float32), -np.log(inverses).astype(np.float32), polynomial


def _floats(*bits: int) -> tuple[float, ...]:
    return tuple(float(number) for number in np.array(bits, np.uint32).view(np.float32))


def _place(function: Function, near: float) -> float:
    """A ``float`` near a number whose value is nearly one."""
    middle = int(np.float32(near).view(np.uint32))
    candidates = np.arange(middle - 4000, middle + 4000, dtype=np.uint32).view(np.float32).astype(np.float64)
    values = function(candidates)
    rounded = values.astype(np.float32)
    return float(candidates[np.argmin(np.abs((values - rounded) / np.spacing(rounded)))])


def _interpolate(function: Function, low: float, high: float, count: int) -> Any:
    """The coefficients of the polynomial that agrees at Chebyshev's places."""
    scale = (high - low) / 2
    places = (high + low) / 2 + scale * np.cos((2 * np.arange(count) + 1) * np.pi / (2 * count))
    return np.linalg.solve(np.vander(places / scale, increasing=True), function(places)) / scale ** np.arange(count)
