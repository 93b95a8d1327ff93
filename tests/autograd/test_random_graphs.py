"""Graphs at random, over several streams: gradients are those of the same formulas by hand, whatever runs where."""

from __future__ import annotations

import asyncio

import hypothesis.strategies as st
import numpy as np
from hypothesis import given, settings
from selection import examples
from variable_programs import LEAVES, OPERATIONS, STREAMS, Step, programs, run_forward

import aiodev
from aiodev import autograd, testing


def forwards(steps: list[Step], values: list[np.ndarray]) -> list[np.ndarray]:
    """All values, by NumPy."""
    values = list(values)
    for step in steps:
        x, y = values[step.first], values[step.second]
        values.append(np.tanh(x) if step.operation == "tanh" else OPERATIONS[step.operation](x, y))
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
        roots = run_forward(steps, leaves, streams)
        latch = testing.Latch(streams[held])
        await autograd.backward(roots)
        latch.release()
        return [np.zeros_like(host) if x.grad is None else await x.grad.numpy() for x, host in zip(leaves, hosts, strict=True)]


@settings(max_examples=examples(150), deadline=None)
@given(steps=programs(12), seed=st.integers(0, 9), held=st.integers(0, STREAMS - 1))
def test_random_graphs_over_streams(steps: list[Step], seed: int, held: int) -> None:
    """Every leaf has the gradient that the formulas give."""
    random = np.random.default_rng(seed)
    hosts = [random.uniform(-1, 1, (2, 3)) for _ in range(LEAVES)]
    for found, expected in zip(asyncio.run(ours(steps, hosts, held)), backwards(steps, hosts), strict=True):
        assert np.allclose(found, expected, rtol=1e-9, atol=1e-12)
