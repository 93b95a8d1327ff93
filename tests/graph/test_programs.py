"""Random programs, captured and replayed, against a model that does the same one after the other."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest

import aiodev
from aiodev import kernels
from aiodev.testing import Latch

SIZE, ARRAYS, STREAMS = 8, 5, 3
Values = np.ndarray[Any, np.dtype[np.int64]]


@aiodev.kernel
def mix(i, a, x, y):
    y[i] = (3 * y[i] + a * x[i] + i) % 10007


@aiodev.kernel
def scale(i, factor, x):
    x[i] = (factor[()] * x[i] + 1) % 10007


@aiodev.kernel
def refuse(i, number, x):
    if x[0] % 7 == number[()]:
        raise ValueError("refused")
    x[i] = x[i] + 0


@dataclass
class State:
    """What the model knows: the arrays, the numbers, what calls have seen; and whether the rest does not run."""

    arrays: list[Values]
    numbers: dict[str, int]
    seen: list[list[int]] = field(default_factory=list)
    failed: bool = False


@dataclass
class Step:
    """One operation: on which stream, which arrays it uses, how it is submitted, and what the model does."""

    stream: int
    uses: tuple[int, ...]
    submit: Callable[[Run, aiodev.Stream], None]
    model: Callable[[State], None]


class Run:
    """A program's arrays and inputs on a device."""

    def __init__(self, device: str, graph: aiodev.Graph | None = None) -> None:
        self.device = device
        self.arrays = [aiodev.empty(SIZE, np.int64, device) for _ in range(ARRAYS)]
        self.hosts = [np.zeros(SIZE, np.int64) for _ in range(ARRAYS)]
        self.numbers: dict[str, aiodev.Array] = {}
        self.seen: list[list[int]] = []

    async def load(self, state: State) -> None:
        for array, values in zip(self.arrays, state.arrays, strict=True):
            await array.copy_from(values)


def _mix(chance: random.Random) -> tuple[tuple[int, ...], Any, Any]:
    x, y = chance.sample(range(ARRAYS), 2)
    a = chance.randrange(-5, 5)
    first = chance.randrange(SIZE // 2)

    def submit(run: Run, stream: aiodev.Stream) -> None:
        mix[SIZE - first, stream](a, run.arrays[x][first:], run.arrays[y][first:])

    def model(state: State) -> None:
        i, own = np.arange(SIZE - first), state.arrays
        own[y][first:] = (3 * own[y][first:] + a * own[x][first:] + i) % 10007

    return (x, y), submit, model


def _scale(chance: random.Random) -> tuple[tuple[int, ...], Any, Any]:
    x = chance.randrange(ARRAYS)

    def model(state: State) -> None:
        state.arrays[x] = (state.numbers["factor"] * state.arrays[x] + 1) % 10007

    return (x,), lambda run, stream: scale[SIZE, stream](run.numbers["factor"], run.arrays[x]), model


def _library(chance: random.Random) -> tuple[tuple[int, ...], Any, Any]:
    x, y = chance.sample(range(ARRAYS), 2)

    def submit(run: Run, stream: aiodev.Stream) -> None:
        with stream:
            total = kernels.add(run.arrays[x], run.arrays[y])
            total = kernels.multiply(total[::-1], 2) + kernels.sum(run.arrays[x])
            run.arrays[y][...] = total % 10007

    def model(state: State) -> None:
        own = state.arrays
        own[y] = ((own[x] + own[y])[::-1] * 2 + own[x].sum()) % 10007

    return (x, y), submit, model


def _copy(chance: random.Random) -> tuple[tuple[int, ...], Any, Any]:
    x, y = chance.sample(range(ARRAYS), 2)
    step = chance.choice([1, 2])

    def model(state: State) -> None:
        state.arrays[y][::step] = state.arrays[x][::step]

    return (x, y), lambda run, stream: stream.copy(run.arrays[y][::step], run.arrays[x][::step]), model


def _fill(chance: random.Random) -> tuple[tuple[int, ...], Any, Any]:
    x, value = chance.randrange(ARRAYS), chance.randrange(100)

    def submit(run: Run, stream: aiodev.Stream) -> None:
        with stream:
            stream.copy(run.arrays[x], aiodev.full(SIZE, value, np.int64, run.device))

    def model(state: State) -> None:
        state.arrays[x] = np.full(SIZE, value)

    return (x,), submit, model


def _call(chance: random.Random) -> tuple[tuple[int, ...], Any, Any]:
    x = chance.randrange(ARRAYS)

    def submit(run: Run, stream: aiodev.Stream) -> None:
        stream.copy(run.hosts[x], run.arrays[x])
        stream.call(lambda: run.seen.append(run.hosts[x].tolist()))

    return (x,), submit, lambda state: state.seen.append(state.arrays[x].tolist())


def _refuse(chance: random.Random) -> tuple[tuple[int, ...], Any, Any]:
    x = chance.randrange(ARRAYS)

    def model(state: State) -> None:
        state.failed = bool(state.arrays[x][0] % 7 == state.numbers["number"])

    return (x,), lambda run, stream: refuse[SIZE, stream](run.numbers["number"], run.arrays[x]), model


KINDS = [_mix, _mix, _mix, _scale, _scale, _library, _copy, _fill, _call]


def program(chance: random.Random, streams: int, kinds: list[Any]) -> list[Step]:
    steps = []
    for _ in range(chance.randrange(1, 25)):
        uses, submit, model = chance.choice(kinds)(chance)
        steps.append(Step(chance.randrange(streams), uses, submit, model))
    return steps


def submit(run: Run, steps: list[Step], streams: list[aiodev.Stream], chance: random.Random) -> None:
    """Submit a program: streams wait for each other where they use an array that another one has used, and now and then."""
    last: dict[int, int] = {}
    for stream in streams[1:]:
        stream.wait_stream(streams[0])
    for step in steps:
        stream = streams[step.stream]
        for array in step.uses:
            other = last.get(array, step.stream)
            if other != step.stream:
                stream.wait_event(streams[other].record_event())
            last[array] = step.stream
        if chance.random() < 0.1:
            stream.wait_stream(chance.choice(streams))
        step.submit(run, stream)
    for stream in streams[1:]:
        streams[0].wait_stream(stream)


def simulate(state: State, steps: list[Step]) -> None:
    state.failed = False
    for step in steps:
        if state.failed:
            break
        step.model(state)


async def contents(run: Run, stream: aiodev.Stream) -> list[list[int]]:
    """What the arrays hold, whatever has failed on the stream."""
    hosts = [np.empty(SIZE, np.int64) for _ in range(ARRAYS)]
    copied = [stream.copy(host, array) for host, array in zip(hosts, run.arrays, strict=True)]
    await copied[-1]
    return [host.tolist() for host in hosts]


@pytest.mark.parametrize("streams", [1, STREAMS])
@pytest.mark.parametrize("seed", range(12))
async def test_replays_do_what_the_program_does(device: str, seed: int, streams: int) -> None:
    """Replays, numbers that change between them, replays that are withdrawn, and direct submissions give the model's values."""
    chance = random.Random(f"{seed} {streams}")
    steps = program(chance, streams, KINDS)
    state = State([np.array([chance.randrange(100) for _ in range(SIZE)]) for _ in range(ARRAYS)], {"factor": 2})
    run, own = Run(device), [aiodev.Stream(device) for _ in range(streams)]
    await run.load(state)
    async with aiodev.capture(own[0]) as graph:
        run.numbers["factor"] = graph.input("factor", 2)
        submit(run, steps, own, chance)
    for _ in range(6):
        stream = chance.choice(own[:2])
        latch = Latch(stream) if chance.random() < 0.5 else None
        for _ in range(chance.randrange(1, 4)):
            match chance.choice(["replay", "replay", "update", "withdraw"]):
                case "replay":
                    graph.replay(stream)
                    simulate(state, steps)
                case "update":
                    state.numbers["factor"] = chance.randrange(-3, 9)
                    graph.update(factor=state.numbers["factor"])
                case "withdraw" if latch is not None:
                    assert graph.replay(stream).cancel()
        if latch is not None:
            latch.release()
        assert await contents(run, stream) == [values.tolist() for values in state.arrays]
        assert sorted(run.seen) == sorted(state.seen)


@pytest.mark.parametrize("seed", range(12))
async def test_failures_end_a_replay(device: str, seed: int) -> None:
    """A replay ends with the first operation that fails; the next ones run, and so does what is submitted directly."""
    chance = random.Random(f"failures {seed}")
    steps = program(chance, 1, [*KINDS, _refuse, _refuse, _refuse])
    run, stream = Run(device), aiodev.Stream(device)
    async with aiodev.capture(stream) as graph:
        run.numbers = {"factor": graph.input("factor", 2), "number": graph.input("number", 0)}
        submit(run, steps, [stream], chance)
    for _ in range(8):
        state = State([np.array([chance.randrange(100) for _ in range(SIZE)]) for _ in range(ARRAYS)], {"factor": 2})
        state.numbers["number"] = chance.randrange(7)
        await run.load(state)
        run.seen.clear()
        graph.update(number=state.numbers["number"])
        simulate(state, steps)
        done = graph.replay(stream)
        if state.failed:
            with pytest.raises(aiodev.KernelError, match="refuse: ValueError: refused") as caught:
                await done
            assert caught.value.node is not None
        else:
            await done
        assert await contents(run, stream) == [values.tolist() for values in state.arrays]
        assert run.seen == state.seen


@pytest.mark.parametrize("seed", range(8))
async def test_failures_of_branches(device: str, seed: int) -> None:
    """After a failure in any of several streams, replays give what the model does."""
    chance = random.Random(f"branches {seed}")
    steps = program(chance, STREAMS, [*KINDS, _refuse, _refuse, _refuse])
    run, own = Run(device), [aiodev.Stream(device) for _ in range(STREAMS)]
    async with aiodev.capture(own[0]) as graph:
        run.numbers = {"factor": graph.input("factor", 2), "number": graph.input("number", 0)}
        submit(run, steps, own, chance)
    for _ in range(8):
        state = State([np.array([chance.randrange(100) for _ in range(SIZE)]) for _ in range(ARRAYS)], {"factor": 2})
        state.numbers["number"] = chance.randrange(7)
        await run.load(state)
        await aiodev.synchronize(device)
        run.seen.clear()
        graph.update(number=state.numbers["number"])
        simulate(state, steps)
        done = graph.replay(own[0])
        if state.failed:
            with pytest.raises(aiodev.KernelError):
                await done
            await _settled(device)
        else:
            await done
            for array, expected in zip(run.arrays, state.arrays, strict=True):
                assert (await array.numpy()).tolist() == expected.tolist()
            assert sorted(run.seen) == sorted(state.seen)


async def _settled(device: str) -> None:
    """Wait for all streams of a device, whatever has failed there."""
    while True:
        try:
            await aiodev.synchronize(device)
        except aiodev.AiodevError:
            continue
        return
