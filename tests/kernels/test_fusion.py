"""Elementwise functions of one's own, next to the same function of NumPy arrays."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st
from hypothesis.extra import numpy as hnp
from selection import examples

import aiodev
import aiodev.kernels as kernels
from aiodev import lang


@kernels.fused
def saxpy(a: Any, x: Any, y: Any) -> Any:
    """A number, or an array, times x plus y."""
    return a * x + y


def on_device(host: Any) -> aiodev.Array:
    """A copy on the CPU device."""
    return aiodev.asarray(host, device="cpu")


@given(st.data())
@settings(deadline=None, max_examples=examples(30))
def test_shapes_broadcast(data: st.DataObject) -> None:
    """Three operands of any shapes that go together, to a new array and to one that is given."""
    shapes = data.draw(hnp.mutually_broadcastable_shapes(num_shapes=3, max_dims=5, max_side=3, min_side=0))
    hosts = [np.arange(1.0, 1 + math.prod(shape)).reshape(shape) for shape in shapes.input_shapes]
    expected = hosts[0] * hosts[1] + hosts[2]
    found = saxpy(*map(on_device, hosts))
    np.testing.assert_array_equal(found.numpy_blocking(), expected)
    out = aiodev.zeros(shapes.result_shape, device="cpu")
    assert saxpy(*map(on_device, hosts), out=out) is out
    np.testing.assert_array_equal(out.numpy_blocking(), expected)


@pytest.mark.parametrize("x", ["i2", "f2", "f4", "f8", "c8"])
@pytest.mark.parametrize("y", ["i4", "f4"])
@pytest.mark.parametrize("a", [2, 2.5, np.float64(2.5)])
def test_types_are_promoted_as_numpy_does(a: Any, x: str, y: str) -> None:
    """Python's numbers are weak, NumPy's are not."""
    one, two = np.array([1, 2, 3], x), np.array([4, 5, 6], y)
    expected = a * one + two
    found = saxpy(a, on_device(one), on_device(two))
    assert found.dtype == expected.dtype
    np.testing.assert_array_equal(found.numpy_blocking(), expected)


def test_functions_may_branch_and_call() -> None:
    """As a kernel's body may; a truth value gives booleans."""

    def twice(v: Any) -> Any:
        return v + v

    def ramp(v: Any) -> Any:
        return twice(v) if v > 0 else lang.exp(v)

    host = np.linspace(-2, 2, 9)
    x = on_device(host)
    expected = np.where(host > 0, 2 * host, np.exp(host))
    np.testing.assert_allclose(kernels.unary_transform(ramp, x).numpy_blocking(), expected, rtol=1e-15)
    inside = kernels.binary_transform(lambda v, limit: abs(v) < limit, x, 1.0)
    assert inside.dtype == bool
    np.testing.assert_array_equal(inside.numpy_blocking(), abs(host) < 1)


def test_functions_of_libraries_are_taken() -> None:
    """NumPy's and those of ``aiodev.lang``."""
    host = np.linspace(0.1, 2, 5, dtype="f4")
    for function in (np.sqrt, lang.tanh):
        found = kernels.unary_transform(function, on_device(host))
        assert found.dtype == np.float32
        np.testing.assert_allclose(found.numpy_blocking(), function(host), rtol=3e-7)


def test_the_dtype_may_be_given() -> None:
    """For functions that cannot be tried with ones, too."""

    @kernels.fused(dtype="float32")
    def checked(x: Any) -> Any:
        if x == 1:
            raise ValueError("one")
        return x * 0.5

    found = checked(on_device(np.array([2, 4])))
    assert found.dtype == np.float32
    np.testing.assert_array_equal(found.numpy_blocking(), [1.0, 2.0])
    with pytest.raises(TypeError, match=r"checked: cannot tell .* ValueError: one; .*dtype"):
        kernels.fused(checked.py_func)(on_device(np.array([2, 4])))


def test_wrong_calls_say_what_is_expected() -> None:
    """Too few operands, functions of something else."""
    x = on_device(np.ones(3))
    with pytest.raises(TypeError, match=r"saxpy: expected the operands \(a, x, y\), got 2"):
        saxpy(1.0, x)
    with pytest.raises(TypeError, match="y"):
        saxpy(1.0, x, "y")
    with pytest.raises(TypeError, match="function of numbers"):
        kernels.fused(lambda *xs: xs)
    with pytest.raises(TypeError, match="returns a number"):
        kernels.unary_transform(lambda v: None, x)
    assert repr(saxpy) == "<aiodev.kernels.Fused saxpy(a, x, y)>"
    assert saxpy.__doc__ == "A number, or an array, times x plus y."
