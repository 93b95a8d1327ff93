"""Fused functions of arrays: one kernel gives what the operations give one after the other."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st
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
    lambda x: kernels.astype(x, "int16"), lambda x: x.astype("int8"),
]  # fmt: skip
BINARY: list[Callable[[Any, Any], Any]] = [
    lambda x, y: x + y, lambda x, y: x * y, lambda x, y: x - y, lambda x, y: x / y, lambda x, y: x % y, lambda x, y: x <= y,
    lambda x, y: x != y, kernels.maximum, kernels.hypot, kernels.copysign, kernels.floor_divide,
    lambda x, y: kernels.where(x > y, x, y), kernels.logical_or,
]  # fmt: skip
DTYPES = ["bool", "int8", "uint8", "int32", "int64", "uint64", "float32", "float64", "complex64"]


class Program:
    """Some steps, each of one or two of the values before it."""

    def __init__(self, steps: list[tuple[int, int, int]]) -> None:
        self.steps = steps

    def __call__(self, x: Any, y: Any, a: Any) -> Any:
        """Run it; every value is used."""
        values = [x, y, a]
        for which, first, second in self.steps:
            one, other = values[first % len(values)], values[second % len(values)]
            values.append(UNARY[which](one) if which < len(UNARY) else BINARY[which - len(UNARY)](one, other))
        return values[-1]


def on_device(host: Any) -> aiodev.Array:
    """A copy on the CPU device."""
    return aiodev.asarray(host, device="cpu")


@given(
    steps=st.lists(
        st.tuples(st.integers(0, len(UNARY) + len(BINARY) - 1), st.integers(0, 9), st.integers(0, 9)),
        min_size=1,
        max_size=6,
    ),
    types=st.tuples(st.sampled_from(DTYPES), st.sampled_from(DTYPES)),
    number=st.sampled_from([2, 0.5, np.float32(1.5), np.True_]),
    shapes=st.sampled_from([((6,), (6,)), ((6,), (5, 1)), ((2, 3), (2, 3))]),
)
@settings(deadline=None, max_examples=examples(150))
def test_programs_give_the_same_bits(steps: Any, types: Any, number: Any, shapes: Any) -> None:
    """As the operations one after the other, with the same dtype; or both refuse."""
    program = Program(steps)
    values = np.array([0, 1, 2, 3, 5, 100])
    hosts = [np.resize(values, shape).astype(dtype) for shape, dtype in zip(shapes, types, strict=True)]
    x, y = map(on_device, hosts)
    try:
        expected = program(x, y, number)
    except (TypeError, OverflowError, AttributeError):
        return  # what is not defined of arrays may be of numbers
    if not isinstance(expected, aiodev.Array):
        return  # of the number alone
    kinds = [np.dtype(types[0]), np.dtype(types[1]), aiodev.dtypes.kind_of_operand(number)]
    try:
        found = trace(lambda x, y, a: program(x, y, a), ("x", "y", "a"), kinds)
    except Untraceable as error:
        assert "of numbers" in str(error)  # what Python may raise for some of them
        return
    assert found.result == expected.dtype

    def fused(x: Any, y: Any, a: Any) -> Any:
        return program(x, y, a)

    result = kernels.fused(fused)(x, y, number)
    assert result.dtype == expected.dtype
    wanted = np.broadcast_to(expected.numpy_blocking(), result.shape)
    np.testing.assert_array_equal(result.numpy_blocking(), wanted)


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
