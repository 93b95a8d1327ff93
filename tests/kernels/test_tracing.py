"""Fused functions of arrays: one kernel gives what the operations give one after the other."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given, settings, strategies as st
from selection import examples

import aiodev
import aiodev.kernels as kernels
from aiodev.kernels.elementwise import fusion
from aiodev.kernels.elementwise.tracing import Untraceable, trace

#: What a program may do next with values that it has.
UNARY: list[Callable[[Any], Any]] = [
    kernels.abs, kernels.exp, kernels.floor, kernels.negative, kernels.sign, kernels.sqrt, kernels.square, kernels.isnan,
    lambda x: -x, abs, lambda x: x + 3, lambda x: 2 - x, lambda x: x * 0.5, lambda x: 7 / x, lambda x: x // 2,
    lambda x: kernels.clip(x, 0, 2), lambda x: x > 1, lambda x: kernels.astype(x, "float32"),
    lambda x: kernels.astype(x, "int16"), lambda x: x.astype("int8"), lambda x: x.astype("uint8"), lambda x: x.astype("uint32"),
]  # fmt: skip
BINARY: list[Callable[[Any, Any], Any]] = [
    lambda x, y: x + y, lambda x, y: x * y, lambda x, y: x - y, lambda x, y: x / y, lambda x, y: x % y, lambda x, y: x <= y,
    lambda x, y: x != y, kernels.maximum, kernels.hypot, kernels.copysign, kernels.floor_divide,
    lambda x, y: kernels.where(x > y, x, y), kernels.logical_or,
]  # fmt: skip
IN_PLACE: list[Callable[[Any, Any], Any]] = [
    operator.iadd, operator.isub, operator.imul, operator.itruediv, operator.ifloordiv, operator.imod, operator.iand,
    operator.ior,
]  # fmt: skip
STEPS = len(UNARY) + len(BINARY) + len(IN_PLACE)
DTYPES = ["bool", "int8", "uint8", "int32", "int64", "uint64", "float32", "float64", "complex64"]


class Program:
    """Some steps, each of one or two of the values before it; those in place change what is no operand.

    Attributes:
        is_in_place: whether the step that began last is in place.
        is_rounded: whether a value has 16 bits, to which arrays are rounded on the way, and kernels at the end alone.
    """

    def __init__(self, steps: list[tuple[int, int, int]]) -> None:
        self.steps = steps
        self.is_in_place = self.is_rounded = False

    def __call__(self, x: Any, y: Any, a: Any) -> Any:
        """Run it; every value is used."""
        values = [x, y, a]
        for which, first, second in self.steps:
            one, other = values[first % len(values)], values[second % len(values)]
            self.is_in_place = which >= len(UNARY) + len(BINARY) and len(values) > 3
            if which < len(UNARY):
                values.append(UNARY[which](one))
            elif self.is_in_place:
                place = 3 + first % (len(values) - 3)
                values[place] = IN_PLACE[which - len(UNARY) - len(BINARY)](values[place], other)
            else:
                values.append(BINARY[(which - len(UNARY)) % len(BINARY)](one, other))
        self.is_rounded = any(getattr(value, "dtype", None) == np.float16 for value in values)
        return values[-1]


def on_device(host: Any) -> aiodev.Array:
    """A copy on the CPU device."""
    return aiodev.asarray(host, device="cpu")


def is_traceable(program: Program, kinds: Any) -> bool:
    """Whether it is not compiled for each element, where there are neither shapes nor arrays of another kind than numbers."""
    try:
        trace(lambda x, y, a: program(x, y, a), ("x", "y", "a"), kinds)
    except Untraceable:
        return False
    except Exception:
        pass  # refused, as it is to be
    return True


@given(
    steps=st.lists(
        st.tuples(st.integers(0, STEPS - 1), st.integers(0, 9), st.integers(0, 9)),
        min_size=1,
        max_size=6,
    ),
    types=st.tuples(st.sampled_from(DTYPES), st.sampled_from(DTYPES)),
    number=st.sampled_from([2, 0.5, np.float32(1.5), np.True_]),
    shapes=st.sampled_from([((6,), (6,)), ((6,), (5, 1)), ((2, 3), (2, 3))]),
)
@example(steps=[(0, 1, 0), (35, 0, 0)], types=("int8", "bool"), number=2, shapes=((6,), (5, 1)))
@example(steps=[(20, 2, 0), (8, 3, 0)], types=("bool", "bool"), number=np.float32(1.5), shapes=((6,), (6,)))
@example(steps=[(0, 0, 0), (11, 2, 0), (38, 1, 4)], types=("bool", "bool"), number=2, shapes=((6,), (6,)))
@settings(deadline=None, max_examples=examples(150))
def test_programs_give_the_same_bits(steps: Any, types: Any, number: Any, shapes: Any) -> None:
    """As the operations one after the other, with the same dtype; or both refuse, what is in place with the same error."""
    program = Program(steps)
    if any(which >= len(UNARY) + len(BINARY) for which, _, _ in steps) and isinstance(number, np.generic):
        number = float(number)  # NumPy's, and True, are arrays of no dimensions, which operators in place do not make larger
    values = np.array([0, 1, 2, 3, 5, 100])
    hosts = [np.resize(values, shape).astype(dtype) for shape, dtype in zip(shapes, types, strict=True)]
    x, y = map(on_device, hosts)
    fused = kernels.fused(lambda x, y, a: program(x, y, a))
    kinds = [np.dtype(types[0]), np.dtype(types[1]), aiodev.dtypes.kind_of_operand(number)]
    try:
        expected = program(x, y, number)
    except (ArithmeticError, RuntimeWarning, TypeError, AttributeError, ValueError) as error:
        # What a number's value makes too large, or a division by 0, is known where it is added; a kernel wraps, or has none.
        of_value = isinstance(error, (ArithmeticError, RuntimeWarning))  # NumPy's scalars warn
        if program.is_in_place and not of_value and is_traceable(program, kinds):
            with pytest.raises((type(error), TypeError)):  # dtypes are compared before shapes, where neither fits
                fused(x, y, number)
        return  # what is not defined of arrays may be of numbers
    if not isinstance(expected, aiodev.Array):
        return  # of the number alone
    try:
        found = trace(lambda x, y, a: program(x, y, a), ("x", "y", "a"), kinds)
    except Untraceable as error:
        assert "of numbers" in str(error)  # what Python may raise for some of them
        return
    assert found.result == expected.dtype
    result = fused(x, y, number)
    assert result.dtype == expected.dtype
    if program.is_rounded:
        return
    wanted = np.broadcast_to(expected.numpy_blocking(), result.shape)
    np.testing.assert_array_equal(result.numpy_blocking(), wanted)


def in_place(x: Any, y: Any) -> Any:
    """What all that holds an array sees of it."""
    z = x * 2
    same, copied = z, z.astype(z.dtype)
    z += y
    return same * 3 + copied + x


@pytest.mark.parametrize(("one", "other"), [("float32", "float64"), ("int32", "int64")])
def test_operators_in_place_keep_the_dtype(one: str, other: str) -> None:
    """And change what other names stand for, as of arrays."""
    x, y = on_device(np.array([1, 2, 3], one)), on_device(np.array([4, 5, 6], other))
    expected, found = in_place(x, y), kernels.fused(in_place)(x, y)
    assert found.dtype == expected.dtype == one
    np.testing.assert_array_equal(found.numpy_blocking(), expected.numpy_blocking())


def test_operators_in_place_refuse_what_does_not_fit() -> None:
    """As of arrays: another kind of dtype, and a larger shape, in calls of the same dtypes too."""

    def half(x: Any) -> Any:
        z = x + 0
        z /= 2
        return z

    x = on_device(np.ones(3, np.int32))
    with pytest.raises(TypeError, match="float64 cannot be written to int32"):
        half(x)
    with pytest.raises(TypeError, match=r"half: divide: in place, float64 cannot be written to int32"):
        kernels.fused(half)(x)
    with pytest.raises(ValueError, match="cannot be written"):  # the first call, which traces
        kernels.fused(in_place)(x, on_device(np.ones((2, 3), np.int32)))
    fused = kernels.fused(in_place)
    for wide in (on_device(np.ones((2, 3), np.int32)), on_device(np.ones((2, 1), np.int32))):
        fused(x, x)
        with pytest.raises(ValueError):
            in_place(x, wide)
        with pytest.raises(ValueError, match=r"in_place: add: in place, a result of the shape \(2, 3\) cannot be .* \(3,\)"):
            fused(x, wide)
    np.testing.assert_array_equal(fused(wide, wide[0]).numpy_blocking(), in_place(wide, wide[0]).numpy_blocking())


def test_operators_in_place_do_not_change_operands() -> None:
    """Of arrays they would; a number's name stands for another number."""

    def change(x: Any) -> Any:
        x += 1
        return x * 2

    x = on_device(np.ones(3))
    with pytest.raises(TypeError, match="change: an operator in place changes the operand x, which is only read"):
        kernels.fused(change)(x)

    def raised(a: Any, x: Any) -> Any:
        a += 1
        return a * x

    np.testing.assert_array_equal(kernels.fused(raised)(2, x).numpy_blocking(), [3, 3, 3])

    def of_numbers(v: Any) -> Any:
        v += 1
        return v if v > 0 else -v

    np.testing.assert_array_equal(kernels.fused(of_numbers)(x).numpy_blocking(), [2, 2, 2])


@pytest.mark.parametrize(
    ("function", "step"),
    [
        (lambda v: v - v.mean(), r"\.mean is no elementwise step"),
        (lambda v: (v + 1).sum(), r"\.sum is no elementwise step"),
        (lambda v: kernels.exp(v) / kernels.sum(kernels.exp(v)), "sum is no elementwise step"),
        (lambda v: v / v.shape[0], r"\.shape is no elementwise step.*give what it says as a number"),
        (lambda v: v + on_device(np.ones(3)), r"an aiodev.Array of the shape \(3,\) that is not among"),
        (lambda v: kernels.add(v, on_device(np.ones(3))), r"an aiodev.Array of the shape \(3,\) that is not among"),
        (lambda v: v + np.ones(3), r"an numpy.ndarray of the shape \(3,\) that is not among its operands"),
        (lambda v: v[0], "indexing.* no elementwise steps"),
        (lambda v: v @ v, "@ are no elementwise steps"),
        (lambda v: (v + 1, v - 1), "returns 2 results"),
    ],
)
def test_what_is_not_elementwise_is_refused_by_name(function: Any, step: str) -> None:
    """Not by what the compiler says of numbers."""
    with pytest.raises(TypeError, match=f"fused: .*{step}"):
        kernels.fused(function)(on_device(np.ones(3)))


def test_defaults_are_refused() -> None:
    """An operand is given in each call."""
    with pytest.raises(TypeError, match="without defaults"):
        kernels.fused(lambda x, k=2: x * k)


def test_numpys_functions_are_the_librarys() -> None:
    """A function that was written for NumPy's arrays, as it is."""

    def shade(x: Any, y: Any) -> Any:
        return np.where(x > y, np.sqrt(np.abs(x)), np.clip(np.exp(-y), 0.5, 1.0))

    host = np.linspace(-2, 2, 9, dtype=np.float32)
    found = kernels.fused(shade)(on_device(host), on_device(host[::-1].copy()))
    assert found.dtype == np.float32
    np.testing.assert_allclose(found.numpy_blocking(), shade(host, host[::-1]), rtol=1e-6)


def test_integers_wrap_around_and_division_by_zero_does_not_raise() -> None:
    """As for arrays; in the numbers of the compiler the first would be wide, and the second an exception."""
    fused = kernels.fused(lambda x, y: (x + y) // (x - x) + x / (y - y))
    x = on_device(np.array([100, -100], np.int8))
    np.testing.assert_array_equal(fused(x, x).numpy_blocking(), [math.inf, -math.inf])
    wrapped = kernels.fused(lambda x: x + x)(x)
    assert wrapped.dtype == np.int8
    np.testing.assert_array_equal(wrapped.numpy_blocking(), [-56, 56])


def test_a_value_that_is_used_again_is_computed_once() -> None:
    """So that what doubles itself is not twice as much code each time."""

    def doubled(x: Any) -> Any:
        for _ in range(60):
            x = x + x
        return x

    found = trace(doubled, ("x",), [np.dtype(np.float64)])
    assert found.expression.count("\n") == 60
    x = on_device(np.array([1.0, 3.0]))
    np.testing.assert_array_equal(kernels.fused(doubled)(x).numpy_blocking(), [2.0**60, 3 * 2.0**60])


def test_constants_that_do_not_fit_are_refused() -> None:
    """As of arrays."""
    x = on_device(np.array([1, 2], np.uint8))
    for wrong in (lambda v: v + 300, lambda v: v * -1):
        with pytest.raises(OverflowError):
            wrong(x)
        with pytest.raises(OverflowError, match="out of bounds"):
            kernels.fused(wrong)(x)
    np.testing.assert_array_equal(kernels.fused(lambda v: v < 300)(x).numpy_blocking(), [True, True])


def test_a_number_may_be_used_in_several_dtypes() -> None:
    """Of each operand it takes the dtype."""
    fused = kernels.fused(lambda a, x, n: (a * n) + (a * x))
    x, n = on_device(np.array([0.5, 1.5], np.float32)), on_device(np.array([3, 4], np.int16))
    for a in (2, 2.0):
        expected = a * n + a * x
        found = fused(a, x, n)
        assert found.dtype == expected.dtype
        np.testing.assert_array_equal(found.numpy_blocking(), expected.numpy_blocking())


def test_16_bits_are_rounded_at_the_end() -> None:
    """What is between is computed in single precision, and fits where 16 bits would not."""
    fused = kernels.fused(lambda x: x * x / x)
    x = on_device(np.array([300.0, 2.0], np.float16))
    found = fused(x)
    assert found.dtype == np.float16
    np.testing.assert_array_equal(found.numpy_blocking(), [300.0, 2.0])


@pytest.mark.parametrize(
    "function",
    [
        lambda v: v if v > 0 else -v,
        lambda v: math.exp(v),
        lambda v: float(v),
        lambda v: kernels.sum(v),
        lambda v: v[0],
        lambda v: np.dot(v, v),
        lambda v: np.add.reduce(v),
        lambda v: kernels.exp(2.0),
        lambda v: (v, v),
        lambda v: v + "one",
        lambda v: v + np.ones(3),
        lambda v: v.shape,
    ],
)
def test_what_looks_at_values_is_not_traced(function: Any) -> None:
    """Nor what is not elementwise."""
    with pytest.raises((TypeError, AttributeError)):
        trace(function, ("v",), [np.dtype(np.float64)])


def test_values_of_two_functions_are_not_mixed() -> None:
    """What one has kept is nothing to another."""
    kept: list[Any] = []

    def keep(x: Any) -> Any:
        kept.append(x)
        return x + kept[0]

    trace(keep, ("x",), [np.dtype(np.float64)])
    with pytest.raises(Untraceable):
        trace(keep, ("x",), [np.dtype(np.float64)])


def test_a_traced_function_is_one_kernel() -> None:
    """Called again, it is one launch."""
    fused: Any = kernels.fused(lambda x, y: kernels.tanh(x * y) + 1.0)
    x = on_device(np.ones(64, np.float32))
    stream = aiodev.current_stream("cpu")
    fused(x, x).numpy_blocking()  # it is compiled
    for _ in range(3):
        before = stream.timeline.submitted
        fused(x, x)
        assert stream.timeline.submitted - before == 1
    assert isinstance(fused, fusion.Fused)
