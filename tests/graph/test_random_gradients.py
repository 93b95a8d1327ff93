"""Formulas at random, captured with their backward passes over several streams: each replay gives the gradients by hand."""

from __future__ import annotations

import random
from typing import Any, NamedTuple

import numpy as np
import pytest
from selection import examples

import aiodev
from aiodev import autograd, kernels

LEAVES, STREAMS = 3, 3
Values = np.ndarray[Any, np.dtype[np.float64]]


class Step(NamedTuple):
    """One operation: of two values that were there before, on a stream."""

    operation: str
    first: int
    second: int
    stream: int


def formula(chance: random.Random) -> list[Step]:
    steps = []
    for number in range(chance.randrange(1, 12)):
        first, second = (chance.randrange(LEAVES + number) for _ in range(2))
        steps.append(Step(chance.choice(["add", "multiply", "tanh", "row", "last"]), first, second, chance.randrange(STREAMS)))
    return steps


def compute(operation: str, x: Any, y: Any, tanh: Any) -> Any:
    match operation:
        case "add":
            return x + y
        case "multiply":
            return x * y
        case "tanh":
            return tanh(x)
        case "row":
            return x + y[0]
    return x[:, ::-1] * 2


def backwards(steps: list[Step], leaves: list[Values]) -> list[Values]:
    """The gradients of the sum of the last value, with respect to the leaves."""
    values = list(leaves)
    for step in steps:
        values.append(compute(step.operation, values[step.first], values[step.second], np.tanh))
    gradients = [np.zeros_like(value) for value in values]
    gradients[-1] += 1.0
    for place in reversed(range(len(steps))):
        step, g = steps[place], gradients[LEAVES + place]
        x, y = values[step.first], values[step.second]
        match step.operation:
            case "add":
                gradients[step.first] += g
                gradients[step.second] += g
            case "multiply":
                gradients[step.first] += g * y
                gradients[step.second] += g * x
            case "tanh":
                gradients[step.first] += g * (1 - np.tanh(x) ** 2)
            case "row":
                gradients[step.first] += g
                gradients[step.second][0] += g.sum(axis=0)
            case _:
                gradients[step.first] += 2 * g[:, ::-1]
    return gradients[:LEAVES]


@pytest.mark.parametrize("seed", range(examples(60)))
async def test_captured_backward_passes(device: str, seed: int) -> None:
    """Whatever the leaves hold when a replay comes to them, and whatever runs beside, the gradients are those of that."""
    chance, numbers = random.Random(f"gradients {seed}"), np.random.default_rng(seed)
    steps = formula(chance)
    streams = [aiodev.Stream(device) for _ in range(STREAMS)]
    memory = [aiodev.asarray(numbers.uniform(-1, 1, (2, 3)), device=device) for _ in range(LEAVES)]
    await aiodev.synchronize(device)
    async with aiodev.capture(streams[0]) as graph:
        for stream in streams[1:]:
            stream.wait_stream(streams[0])
        leaves = [autograd.Variable(graph.input(f"x{n}", array)) for n, array in enumerate(memory)]
        values: list[tuple[Any, aiodev.Stream]] = [(leaf, streams[0]) for leaf in leaves]
        for step in steps:
            stream = streams[step.stream]
            (x, first), (y, second) = values[step.first], values[step.second]
            stream.wait_stream(first)
            stream.wait_stream(second)
            with stream:
                values.append((compute(step.operation, x, y, kernels.tanh), stream))
        last, stream = values[-1]
        with stream:
            found = await autograd.grad([last.sum()], leaves, allow_unused=True)
        for stream in streams[1:]:
            streams[0].wait_stream(stream)
    for _ in range(4):
        hosts = [numbers.uniform(-1, 1, (2, 3)) for _ in range(LEAVES)]
        for n, host in enumerate(hosts):
            if chance.random() < 0.5:
                memory[n] = aiodev.asarray(host, device=device)
                graph.update(**{f"x{n}": memory[n]})
            else:
                aiodev.current_stream(device).copy(memory[n], host)
        streams[0].wait_stream(aiodev.current_stream(device))
        done = graph.replay(streams[0])
        beside = kernels.tanh(memory[0])
        await done
        for gradient, expected in zip(found, backwards(steps, hosts), strict=True):
            own = np.zeros((2, 3)) if gradient is None else await gradient.numpy()
            assert np.allclose(own, expected, rtol=1e-9, atol=1e-12)
        assert np.allclose(await beside.numpy(), np.tanh(hosts[0]))
