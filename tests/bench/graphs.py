"""Figures of graphs: what capturing and replaying cost, and a step of a small model captured, submitted anew, and in NumPy."""

from __future__ import annotations

import functools
import itertools
import time
from collections.abc import Awaitable, Callable

import numpy as np
from core_submit import nothing
from harness import Bar, Figure, Run
from peers import numpy_add

import aiodev
from aiodev._demo.measure import Result, Step, threaded, write
from aiodev._demo.transformer import DeviceText, DeviceWeights, NumPyText, make_weights

__all__ = ["FIGURES"]

LAUNCHES, NODES, FORKS = 50, 1000, 10
#: Seconds of a turn.
TURN = 0.5


@aiodev.kernel
def axpy(i, a, x, y, out):
    """A small kernel of three arrays."""
    out[i] = a * x[i] + y[i]


async def _eight(count: int = 3) -> list[aiodev.Array]:
    arrays = [aiodev.zeros(8, np.float32, "cpu") for _ in range(count)]
    await aiodev.synchronize("cpu")
    return arrays


async def _awaited(count: int, submit: Callable[[], Awaitable[None]]) -> float:
    """What submitting and awaiting takes, in µs."""
    began = time.perf_counter()
    for _ in range(count):
        await submit()
    return (time.perf_counter() - began) / count * 1e6


async def replay_node(run: Run) -> Figure:
    """An empty node of a graph of 1,000, replayed and awaited."""
    stream = aiodev.Stream("cpu")
    await nothing[1, stream]()
    async with aiodev.capture(stream) as graph:
        for _ in range(NODES):
            nothing[1]()
    count = run.scale(200)

    async def ours() -> float:
        began = time.perf_counter()
        for _ in range(count):
            await graph.replay(stream)
        return (time.perf_counter() - began) / count / NODES * 1e6

    values = await run.medians({"aiodev": ours, "np.add": lambda: numpy_add(run.scale(20_000))})
    return Figure("replay of 1,000 empty nodes, each", "µs", values, [Bar("np.add", at_most=0.25)])


async def replay_launches(run: Run) -> Figure:
    """A graph of 50 kernels on 8 elements, and its launches, both awaited."""
    stream = aiodev.Stream("cpu")
    x, y, out = await _eight()

    def launch() -> aiodev.Completion[None]:
        for _ in range(LAUNCHES):
            done = axpy[8, stream](2.0, x, y, out)
        return done

    await launch()
    async with aiodev.capture(stream) as graph:
        launch()
    count = run.scale(500)

    values = await run.medians(
        {"aiodev": lambda: _awaited(count, lambda: graph.replay(stream)), "50 launches": lambda: _awaited(count, launch)}
    )
    return Figure("replay of 50 small kernels + await", "µs", values, [Bar("50 launches", at_most=1 / 5)])


async def replay_updated(run: Run) -> Figure:
    """The same graph, an array of which is another one in each replay, and its launches, both awaited."""
    stream = aiodev.Stream("cpu")
    *inputs, y, out = await _eight(4)

    def launch() -> aiodev.Completion[None]:
        for _ in range(LAUNCHES):
            done = axpy[8, stream](2.0, out, y, out)
        return done

    await axpy[8, stream](2.0, inputs[0], y, out)
    await launch()
    async with aiodev.capture(stream) as graph:
        axpy[8, stream](2.0, graph.input("x", inputs[0]), y, out)
        launch()
    count, number = run.scale(500), itertools.count()

    def updated() -> aiodev.Completion[None]:
        graph.update(x=inputs[next(number) % 2])
        return graph.replay(stream)

    values = await run.medians({"aiodev": lambda: _awaited(count, updated), "50 launches": lambda: _awaited(count, launch)})
    return Figure("update of an array + replay of 51 small kernels + await", "µs", values, [Bar("50 launches", at_most=1 / 3)])


async def replay_forks(run: Run) -> Figure:
    """A graph of ten forks of four streams, a small kernel on each, and the same launches and waits, both awaited."""
    streams = [aiodev.Stream("cpu") for _ in range(4)]
    own, others = streams[0], streams[1:]
    arrays = [await _eight() for _ in streams]

    def launch() -> aiodev.Completion[None]:
        for _ in range(FORKS):
            for stream in others:
                stream.wait_stream(own)
            for stream, (x, y, out) in zip(streams, arrays, strict=True):
                axpy[8, stream](2.0, x, y, out)
            for stream in others:
                own.wait_stream(stream)
        return axpy[8, own](2.0, *arrays[0])

    await launch()
    async with aiodev.capture(own) as graph:
        launch()
    count = run.scale(200)

    values = await run.medians(
        {"aiodev": lambda: _awaited(count, lambda: graph.replay(own)), "launches and waits": lambda: _awaited(count, launch)}
    )
    return Figure("replay of 10 forks of 4 streams + await", "µs", values, [Bar("launches and waits", at_most=1 / 2)])


async def capture_launches(run: Run) -> Figure:
    """The capture of 50 launches, and the launches."""
    stream = aiodev.Stream("cpu")
    x, y, out = await _eight()
    await axpy[8, stream](2.0, x, y, out)
    count = run.scale(200)

    async def ours() -> float:
        began = time.perf_counter()
        for _ in range(count):
            async with aiodev.capture(stream):
                for _ in range(LAUNCHES):
                    axpy[8, stream](2.0, x, y, out)
        return (time.perf_counter() - began) / count * 1e6

    async def launches() -> float:
        began = time.perf_counter()
        for _ in range(count):
            for _ in range(LAUNCHES):
                axpy[8, stream](2.0, x, y, out)
        took = time.perf_counter() - began
        await stream.synchronize()
        return took / count * 1e6

    values = await run.medians({"aiodev": ours, "50 launches": launches})
    return Figure("capture of 50 small kernels", "µs", values, [Bar("50 launches", at_most=2)])


# A step of a small transformer, batch 1, as the demo has it


async def _tokens(run: Run, sessions: int) -> Figure:
    weights = make_weights()
    async with aiodev.device("cpu") as device:
        there = DeviceWeights(weights, device)
        await aiodev.synchronize(device)
        ways: dict[str, list[Step]] = {
            "aiodev": [(await DeviceText(there).capture()).step for _ in range(sessions)],
            "aiodev, not captured": [DeviceText(there).step for _ in range(sessions)],
            "NumPy, to_thread": [threaded(NumPyText(weights)) for _ in range(sessions)],
        }
        results = {name: Result(name) for name in ways}

        async def rate(name: str) -> float:
            await write(results[name], ways[name], 0.0 if run.smoke else TURN)
            return results[name].rates[-1]

        values = await run.medians({name: functools.partial(rate, name) for name in ways})
    texts = {name: result.texts for name, result in results.items()}
    assert all(text == texts["aiodev"][0] for own in texts.values() for text in own), texts
    single = sessions == 1
    bars = [Bar("NumPy, to_thread", at_least=2.5 if single else 2), Bar("aiodev, not captured", at_least=1.2 if single else 2)]
    plural = "session" if sessions == 1 else "sessions"
    return Figure(f"steps of a small transformer, {sessions} {plural}", "tokens/s", values, bars)


async def tokens_of_one(run: Run) -> Figure:
    """One session, each token awaited."""
    return await _tokens(run, 1)


async def tokens_of_eight(run: Run) -> Figure:
    """Eight sessions at once."""
    return await _tokens(run, 8)


FIGURES = {
    "replay_node": replay_node,
    "replay_launches": replay_launches,
    "replay_updated": replay_updated,
    "replay_forks": replay_forks,
    "capture_launches": capture_launches,
    "tokens_1": tokens_of_one,
    "tokens_8": tokens_of_eight,
}
