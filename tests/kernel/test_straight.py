"""Which bodies are taken to be uniform without being told."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from numpy import linspace

from aiodev import lang
from aiodev._kernel.straight import is_straight

SCALE = 2.0


def twice(value: Any) -> Any:
    return 2 * value


def descend(value: Any) -> Any:
    return 1 if value == 0 else descend(value - 1)


def count(value: Any) -> Any:
    while value > 0:
        value -= 1
    return value


FUNCTIONS = (twice, count)


def applies(value: Any, function: Any = count) -> Any:
    return function(value)


def elementwise(i: int, x: Any, y: Any) -> None:
    x[i] = np.sqrt(y[i]) + math.sin(y[i]) * SCALE + np.float32(2) if y[i] > 0 else np.where(y[i] < np.pi, x[i], -y[i])


def calls(i: int, x: Any, y: Any) -> None:
    x[i] = max(twice(y[i]), lang.atomic_add(y, 0, 1)) + x.shape[0] + len(y)


@pytest.mark.parametrize("body", [elementwise, calls])
def test_straight(body: Any) -> None:
    assert is_straight(body)


def loops(i: int, x: Any, y: Any) -> None:
    while x[i] > 0:
        x[i] -= 1


def comprehends(i: int, x: Any, y: Any) -> None:
    x[i] = max([value for value in y])  # noqa: C416


def recurses(i: int, x: Any, y: Any) -> None:
    x[i] = descend(i)


def calls_one_that_loops(i: int, x: Any, y: Any) -> None:
    x[i] = count(y[i])


def calls_one_of_several(i: int, x: Any, y: Any) -> None:
    x[i] = FUNCTIONS[1](y[i])


def calls_what_is_a_default(i: int, x: Any, y: Any) -> None:
    x[i] = applies(y[i])


def cuts_a_part_out(i: int, x: Any, y: Any) -> None:
    x[i] = np.max(y[:i])


def looks_for(i: int, x: Any, y: Any) -> None:
    x[i] = i in y


def makes_an_array(i: int, x: Any, y: Any) -> None:
    x[i] = np.arange(y[i])[-1]


def makes_an_array_by_another_name(i: int, x: Any, y: Any) -> None:
    x[i] = linspace(0, 1, y[i])[-1]


def repeats(i: int, x: Any, y: Any) -> None:
    x[i] = np.repeat(y, i)[0]


def draws(i: int, x: Any, y: Any) -> None:
    x[i] = np.random.random()


@pytest.mark.parametrize(
    "body",
    [
        loops,
        comprehends,
        recurses,
        calls_one_that_loops,
        calls_one_of_several,
        calls_what_is_a_default,
        cuts_a_part_out,
        looks_for,
        makes_an_array,
        makes_an_array_by_another_name,
        repeats,
        draws,
    ],
)
def test_not_straight(body: Any) -> None:
    assert not is_straight(body)
