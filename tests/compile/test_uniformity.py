"""Which bodies are uniform without being told: those that have no loop, and call none."""

from __future__ import annotations

import inspect
import math
import time
from collections.abc import Callable
from typing import Any

import numba
import numpy as np
import pytest
from numpy import linspace

import aiodev
from aiodev import lang
from aiodev._kernel.analysis.uniformity import is_loop_free
from aiodev.lang import exp, sort

SCALE, PAIR = 3, (1, 2)


@numba.njit
def scaled(x):
    return math.sqrt(x) + SCALE * PAIR[0]


@numba.njit
def repeated(x):
    total = 0.0
    for _ in range(3):
        total += x
    return total


def recursive(x):
    return x if x < 1 else recursive(x - 1)


def through(x):
    return repeated(x)


SEVERAL = (scaled, repeated)


def applied(x, function=repeated):
    return function(x)


def arithmetic(i, a, x, out):
    out[i] = a * x[i] + out[i] if x[i] > 0 else math.pi


def functions(i, x, out):
    out[i] = scaled(x[i]) + np.sin(x[i]) + lang.tanh(x[i]) + aiodev.lang.rsqrt(x[i]) + exp(x[i]) + max(x[i], 0)


def types(i, x, out):
    out[i] = np.float32(x.shape[0]) + x[i].real + int(x[i])


def atomics(i, x, out):
    lang.atomic_add(out, 0, x[i])


def refusing(i, x, out):
    if x[i] < 0:
        raise ValueError("negative")
    out[i] = x[i]


def counting(i, x, out):
    for k in range(x[i]):
        out[i] += k


def waiting(i, x, out):
    while x[i] > 0:
        x[i] -= 1


def gathering(i, x, out):
    out[i] = [x[k] for k in range(i)][0]


def slicing(i, x, out):
    out[i] = np.max(x[out[i] : out[i + 1]])


def calling(i, x, out):
    out[i] = through(x[i])


def recursing(i, x, out):
    out[i] = recursive(x[i])


def calling_one_of_several(i, x, out):
    out[i] = SEVERAL[1](x[i])


def calling_a_default(i, x, out):
    out[i] = applied(x[i])


def searching(i, x, out):
    out[i] = i in x


def making_an_array(i, x, out):
    out[i] = np.arange(x[i])[-1]


def making_an_array_by_another_name(i, x, out):
    out[i] = linspace(0, 1, x[i])[-1]


def repeating(i, x, out):
    out[i] = np.repeat(x, i)[0]


def drawing(i, x, out):
    out[i] = np.random.random()


def sorting(i, x, out):
    sort(x)


def meeting(i, x, out):
    lang.team_barrier()


def sleeping(i, x, out):
    time.sleep(1)


def printing(i, x, out):
    print(i)


def interpreting(i, x, out):
    with numba.objmode():
        out[i] = x[i]


@pytest.mark.parametrize("body", [arithmetic, functions, types, atomics, refusing])
def test_loop_free(body: Callable[..., Any]) -> None:
    assert is_loop_free(body)


@pytest.mark.parametrize(
    "body",
    [
        counting, waiting, gathering, slicing, calling, calling_one_of_several, calling_a_default, recursing, searching,
        making_an_array, making_an_array_by_another_name, repeating, drawing, sorting, meeting, sleeping, printing,
        interpreting,
    ],  # fmt: skip
)
def test_not_straight(body: Callable[..., Any]) -> None:
    """It loops, may wait, or is not known."""
    assert not is_loop_free(body)


def test_closures_are_looked_into() -> None:
    """What a body takes from around it counts as what it takes from its module."""

    def make(function: Any) -> Callable[..., Any]:
        def body(i, x, out):
            out[i] = function(x[i])

        return body

    assert is_loop_free(make(scaled)) and is_loop_free(make(math.exp)) and is_loop_free(make(np.abs))
    assert not is_loop_free(make(repeated)) and not is_loop_free(make(time.sleep))


@pytest.mark.parametrize(("uniform", "expected"), [(None, True), (True, True), (False, False)])
def test_what_the_decorator_says_counts(uniform: bool | None, expected: bool) -> None:
    kernel = aiodev.kernel(uniform=uniform)(arithmetic)
    x = aiodev.zeros(4, np.float32, "cpu")
    assert kernel._specializations.of((1.0, x, x), x.device).loading.spec.uniform is expected


def test_the_decorator_names_what_says_how_long_an_index_takes() -> None:
    """Where the body does not show it: the spec has their places."""
    kernel = aiodev.kernel(uniform=["out", "a"])(arithmetic)
    x = aiodev.zeros(4, np.float32, "cpu")
    names = list(inspect.signature(arithmetic).parameters)[1:]
    spec = kernel._specializations.of((1.0, x, x), x.device).loading.spec
    assert not spec.uniform
    assert [names[place] for place in spec.paced_by or ()] == ["a", "out"]


def test_what_the_decorator_says_may_be_wrong() -> None:
    with pytest.raises(TypeError, match=r"uniform=\['absent'\]: expected names among"):
        aiodev.kernel(uniform=["absent"])(arithmetic)
    with pytest.raises(TypeError, match="uniform=1: expected True, False, None or names of parameters"):
        aiodev.kernel(uniform=1)  # type: ignore[call-overload]
