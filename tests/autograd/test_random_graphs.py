"""Graphs at random, over several streams: gradients are those of the same formulas by hand, whatever runs where."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, NamedTuple

import hypothesis.strategies as st
import numpy as np
from hypothesis import given, settings
from selection import examples

import aiodev
import aiodev.kernels as kernels
from aiodev import autograd, testing

LEAVES, STREAMS = 3, 3
#: Operations on two values; arrays of NumPy's will do, but for one.
OURS: dict[str, Callable[[Any, Any], Any]] = {
    "add": lambda x, y: x + y,
    "multiply": lambda x, y: x * y,
    "tanh": lambda x, y: kernels.tanh(x),
    "row": lambda x, y: x + y[0],
}


class Step(NamedTuple):
    """One operation: of two values that were there before, on a stream."""

    operation: str
    first: int
    second: int
    stream: int


@st.composite
def graphs(draw: st.DrawFn) -> list[Step]:
    steps = []
    for number in range(draw(st.integers(1, 12))):
        places = st.integers(0, LEAVES + number - 1)
        operation = draw(st.sampled_from(["add", "multiply", "tanh", "row"]))
        steps.append(Step(operation, draw(places), draw(places), draw(st.integers(0, STREAMS - 1))))
    return steps


def forwards(steps: list[Step], values: list[np.ndarray]) -> list[np.ndarray]:
    """All values, by NumPy."""
    values = list(values)
    for step in steps:
        x, y = values[step.first], values[step.second]
        values.append(np.tanh(x) if step.operation == "tanh" else OURS[step.operation](x, y))
    return values


def backwards(steps: list[Step], leaves: list[np.ndarray]) -> list[np.ndarray]:
    """The gradients of the sum of the last two values."""
    values = forwards(steps, leaves)
    gradients = [np.zeros_like(value) for value in values]
    for last in values[-2:]:
        place = next(k for k, value in enumerate(values) if value is last)
        gradients[place] += 1.0
    for place in reversed(range(len(steps))):
        step, g = steps[place], gradients[LEAVES + place]
        x, y = values[step.first], values[step.second]
        if step.operation == "add":
            gradients[step.first] += g
            gradients[step.second] += g
        elif step.operation == "multiply":
            gradients[step.first] += g * y
            gradients[step.second] += g * x
        elif step.operation == "tanh":
            gradients[step.first] += g * (1 - np.tanh(x) ** 2)
        else:
            gradients[step.first] += g
            gradients[step.second][0] += g.sum(axis=0)
    return gradients[:LEAVES]


async def ours(steps: list[Step], hosts: list[np.ndarray], held: int) -> list[np.ndarray]:
    """The same by a backward pass, while a latch holds one of the streams."""
    streams = [aiodev.Stream("cpu") for _ in range(STREAMS)]
    async with streams[0]:
        leaves = [autograd.Variable(aiodev.asarray(host)) for host in hosts]
        values: list[tuple[Any, aiodev.Stream]] = [(leaf, streams[0]) for leaf in leaves]
        for step in steps:
            stream = streams[step.stream]
            (x, first), (y, second) = values[step.first], values[step.second]
            stream.wait_stream(first)
            stream.wait_stream(second)
            with stream:
                values.append((OURS[step.operation](x, y), stream))
        roots = []
        for value, stream in values[-2:]:
            with stream:
                roots.append(value.sum())
        latch = testing.Latch(streams[held])
        await autograd.backward(roots)
        latch.release()
        return [np.zeros_like(host) if x.grad is None else await x.grad.numpy() for x, host in zip(leaves, hosts, strict=True)]


@settings(max_examples=examples(150), deadline=None)
@given(steps=graphs(), seed=st.integers(0, 9), held=st.integers(0, STREAMS - 1))
def test_random_graphs_over_streams(steps: list[Step], seed: int, held: int) -> None:
    """Every leaf has the gradient that the formulas give."""
    random = np.random.default_rng(seed)
    hosts = [random.uniform(-1, 1, (2, 3)) for _ in range(LEAVES)]
    for found, expected in zip(asyncio.run(ours(steps, hosts, held)), backwards(steps, hosts), strict=True):
        assert np.allclose(found, expected, rtol=1e-9, atol=1e-12)
