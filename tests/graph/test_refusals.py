"""What cannot be captured, which is refused by name and leaves everything as it was."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from captured import add_one, double, ready

import aiodev
from aiodev import kernels
from aiodev.kernels import random
from aiodev.testing import SimulatedBackend


async def test_branch_that_never_joins_is_refused(device: str) -> None:
    """A capture fails that leaves a stream which nothing waits for; all streams work as before."""
    first, second = aiodev.Stream(device), aiodev.Stream(device)
    x = await ready(aiodev.zeros(4, device=device))
    with pytest.raises(aiodev.CaptureError, match=f"Stream {second.stream_id} .*nothing waits for it"):
        async with aiodev.capture(first) as graph:
            second.wait_stream(first)
            double[4, second](x)
    await add_one[4, first](x)
    await add_one[4, second](x)
    assert await x.tolist() == [2] * 4
    with pytest.raises(RuntimeError, match="failed"):
        graph.replay()


async def test_generators_are_not_touched_by_a_capture() -> None:
    """A capture draws nothing, and refuses to reseed, whatever it is that fails."""
    generator = aiodev.Generator("cpu").manual_seed(5)
    with pytest.raises(aiodev.CaptureError, match="reseed"):
        async with aiodev.capture(aiodev.Stream("cpu")):
            random.random(100, device="cpu", generator=generator)
            generator.manual_seed(1)
    assert generator.get_offset() == 0 and generator.initial_seed() == 5


async def _await(x: aiodev.Array, stream: aiodev.Stream, done: aiodev.Completion[None]) -> None:
    await done


REFUSALS: dict[str, Any] = {
    "Completion.__await__": lambda x, stream, done: done.__await__().send(None),
    "Completion.query": lambda x, stream, done: done.query(),
    "Completion.cancel": lambda x, stream, done: done.cancel(),
    "Completion.synchronize_blocking": lambda x, stream, done: done.synchronize_blocking(),
    "Stream.synchronize_blocking": lambda x, stream, done: stream.synchronize_blocking(),
    "Stream.cancel": lambda x, stream, done: stream.cancel(),
    "Stream.wait_future": lambda x, stream, done: stream.wait_future(asyncio.get_running_loop().create_future()),
    "Event.record": lambda x, stream, done: aiodev.Event(enable_timing=True).record(stream),
    "synchronize_blocking": lambda x, stream, done: aiodev.synchronize_blocking("cpu"),
    "Array.numpy_blocking": lambda x, stream, done: x.numpy_blocking(),
    "Stream.wait": lambda x, stream, done: stream.wait(aiodev.Stream("cpu").call(int)),
    "Stream.wait_event": lambda x, stream, done: stream.wait_event(aiodev.default_stream("cpu").record_event()),
    "Graph.replay": lambda x, stream, done: _graph().replay(stream),
}


def _graph() -> aiodev.Graph:
    async def make() -> aiodev.Graph:
        async with aiodev.capture(aiodev.Stream("cpu")) as graph:
            pass
        return graph

    try:
        make().send(None)
    except StopIteration as stop:
        return stop.value
    raise AssertionError


@pytest.mark.filterwarnings("ignore::aiodev.SyncWarning")
@pytest.mark.parametrize("call", REFUSALS)
async def test_refused_call_is_named(call: str) -> None:
    """What cannot be captured raises an error that names the call and its place, and records nothing."""
    x = await ready(aiodev.ones(4, device="cpu"))
    stream = aiodev.Stream("cpu")
    await stream.call(int)
    async with aiodev.capture(stream) as graph:
        done = double[4](x)
        with pytest.raises(aiodev.CaptureError) as caught:
            REFUSALS[call](x, stream, done)
        add_one[4](x)
    assert caught.value.call == call and str(caught.value).startswith(f"{call} at ")
    assert (caught.value.place or "").startswith(__file__)
    assert len(graph) == 2
    await graph.replay(stream)
    assert await x.tolist() == [3] * 4


@pytest.mark.parametrize("wait", ["completion", "stream", "array", "device", "close"])
async def test_awaits_are_refused(wait: str) -> None:
    """A coroutine that waits for captured work gets the error, and neither hangs nor ends the capture."""
    x = await ready(aiodev.ones(4, device="cpu"))
    stream = aiodev.Stream("cpu")
    async with aiodev.capture(stream) as graph:
        done = double[4](x)
        with pytest.raises(aiodev.CaptureError):
            match wait:
                case "completion":
                    await done
                case "stream":
                    await stream.synchronize()
                case "array":
                    await x.numpy()
                case "device":
                    await aiodev.synchronize("cpu")
                case "close":
                    await stream.aclose()
    await graph.replay(stream)
    assert await x.tolist() == [2] * 4


async def test_inputs_are_not_read_by_the_host() -> None:
    """An input has another value at each replay: the program that captures cannot decide anything by it."""
    x = await ready(aiodev.ones(2, device="cpu"))
    async with aiodev.capture(aiodev.Stream("cpu")) as graph:
        for own in (graph.input("x", x), graph.input("n", 1)):
            with pytest.raises(aiodev.CaptureError, match="known only when the graph is replayed"):
                await own.tolist()
    assert await x.tolist() == [1, 1]


async def test_completion_of_captured_work_after_the_capture() -> None:
    """Who waits for a captured operation later is told that it is the replay which runs."""
    x = await ready(aiodev.ones(4, device="cpu"))
    async with aiodev.capture(aiodev.Stream("cpu")):
        done = double[4](x)
    with pytest.raises(aiodev.CaptureError, match="runs when its graph is replayed"):
        await done


async def test_error_in_the_block_leaves_everything_as_before(device: str) -> None:
    """A block that raises gives the stream back, and its memory; the graph is of no use."""
    stream = aiodev.Stream(device)
    x = await ready(aiodev.ones(4, device=device))
    timeline = stream.timeline
    with pytest.raises(KeyError):
        async with aiodev.capture(stream) as graph:
            double[4](x)
            kernels.add(x, 1)
            raise KeyError
    assert stream.timeline is timeline
    await add_one[4, stream](x)
    assert await x.tolist() == [2] * 4
    with pytest.raises(RuntimeError, match="failed"):
        graph.replay()
    y = await ready(aiodev.ones(4, device=device))
    assert await y.tolist() == [1] * 4


class WithoutBuffers(SimulatedBackend):
    """A device that is given operations one by one."""

    def start(self) -> None:
        super().start()
        self.executor.has_buffers = False  # type: ignore[misc]


async def test_blocks_need_command_buffers(register: Any) -> None:
    """A device that is given operations one by one cannot branch, and says so."""
    name = register(WithoutBuffers)
    x = await ready(aiodev.ones(1, "int64", name))
    with pytest.raises(aiodev.CaptureError, match="no command buffers"):
        async with aiodev.capture(aiodev.Stream(name)) as graph:
            with graph.while_(x):
                add_one[1](x)
