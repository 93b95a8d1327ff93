"""Axes and numbers that are parts of keys: refused by type and by range, as the array API says, whatever was called before."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from decimal import Decimal
from typing import Any

import numpy as np
import pytest

import aiodev
from aiodev import kernels
from aiodev.kernels import fft, linalg, random

#: What functions that have an axis are given besides it and the first array.
OTHERS: dict[str, Callable[[aiodev.Array], tuple[Any, ...]]] = {
    "concat": lambda x: ([x, x],),
    "cross": lambda x: (aiodev.ones((3, 3), "f4", "cpu"), aiodev.ones((3, 3), "f4", "cpu")),
    "stack": lambda x: ([x, x],),
    "repeat": lambda x: (x, 2),
    "roll": lambda x: (x, 1),
    "scatter_add": lambda x: (x, aiodev.zeros(1, "i8", "cpu"), aiodev.ones((), "f4", "cpu")),
    "take": lambda x: (x, aiodev.zeros(1, "i8", "cpu")),
    "take_along_axis": lambda x: (x, aiodev.zeros((2, 2), "i8", "cpu")),
    "vecdot": lambda x: (x, x),
}


def functions() -> list[Any]:
    """All functions of the library that have a parameter ``axis``."""
    found = []
    for module in (kernels, fft, linalg, random):
        for name in module.__all__:
            value = getattr(module, name)
            if inspect.isfunction(value) and "axis" in inspect.signature(value).parameters:
                found.append(pytest.param(value, id=f"{module.__name__}.{name}"))
    return found


def call(function: Callable[..., Any], x: aiodev.Array, axis: Any) -> None:
    found = function(*OTHERS.get(function.__name__, lambda x: (x,))(x), axis=axis)
    if isinstance(found, aiodev.Array):
        aiodev.current_stream(found.device).synchronize_blocking()


@pytest.mark.parametrize("function", functions())
def test_an_axis_of_another_type(function: Callable[..., Any]) -> None:
    """TypeError, also where calls with the integer that it equals are remembered."""
    x = aiodev.ones((2, 2) if function is not kernels.squeeze else (1, 1), "f4", "cpu")
    for _ in range(4):
        for axis in (0, 1, -1):
            call(function, x, axis)
    for axis in (0.0, 1.0, -1.0, True, np.True_, "0", 1 + 0j, x):
        with pytest.raises(TypeError):
            call(function, x, axis)


@pytest.mark.parametrize("axis", [-4, 3, 1 << 70])
@pytest.mark.parametrize("function", functions())
def test_an_axis_that_is_not_there(function: Callable[..., Any], axis: int) -> None:
    """Both an IndexError, which the array API wants, and a ValueError: NumPy's AxisError."""
    x = aiodev.ones((2, 2), "f4", "cpu")
    with pytest.raises(np.exceptions.AxisError):
        call(function, x, axis)


def test_axes_of_permutations() -> None:
    """permute_dims, moveaxis and transpose tell what is not there from what is there twice."""
    x = aiodev.ones((2, 3), "f4", "cpu")
    for attempt in (
        lambda: x.transpose(0, 2),
        lambda: x.transpose(-3, 0),
        lambda: kernels.permute_dims(x, (0, 2)),
        lambda: kernels.moveaxis(x, 0, 2),
    ):
        with pytest.raises(IndexError):
            attempt()
    for attempt in (lambda: x.transpose(0, 0), lambda: kernels.permute_dims(x, (1, 1)), lambda: x.transpose(0)):
        with pytest.raises(ValueError) as caught:
            attempt()
        assert not isinstance(caught.value, IndexError)


@pytest.mark.parametrize(
    ("function", "name", "number"),
    [
        (kernels.var, "correction", 1),
        (kernels.std, "correction", 1),
        (kernels.layer_norm, "eps", 0.5),
        (kernels.rms_norm, "eps", 0.5),
    ],
)
def test_numbers_that_equal_a_float(function: Callable[..., Any], name: str, number: float) -> None:
    """A complex number or a decimal is refused whatever was called before; any real number is one."""
    x = aiodev.asarray([1.0, 2.0, 4.0], device="cpu")
    for _ in range(4):
        expected = function(x, **{name: number}).numpy_blocking()
    for other in (number + 0j, Decimal(number), str(number), x):
        with pytest.raises(TypeError, match=name):
            function(x, **{name: other})
    for same in (float(number), np.float32(number)):
        assert np.array_equal(function(x, **{name: same}).numpy_blocking(), expected)


def test_devices_by_index() -> None:
    """A device is an integer or a name; 0.0 is none, whatever was asked before."""
    assert aiodev.current_stream(0).device.index == 0
    with pytest.raises(TypeError):
        aiodev.empty(1, device=0.0)
