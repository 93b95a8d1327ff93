"""What cannot be captured, which is refused by name and leaves everything as it was."""

from __future__ import annotations

import asyncio
from typing import Any

import numpy as np
import pytest
from captured import add_one, double, ready
from turns import put_off_turns, run_at_once

import aiodev
from aiodev import kernels
from aiodev._core.waiting import spinning
from aiodev.kernels import random
from aiodev.testing import SimulatedBackend


async def test_branch_that_never_joins_is_refused(device: str) -> None:
    """A capture fails that leaves a stream which nothing waits for; all streams work as before."""
    first, second = aiodev.Stream(device), aiodev.Stream(device)
    x = await ready(aiodev.zeros(4, device=device))
    with pytest.raises(aiodev.CaptureError, match=f"capture at .*Stream {second.stream_id} .*nothing waits for it") as caught:
        async with aiodev.capture(first) as graph:
            second.wait_stream(first)
            double[4, second](x)
    assert (caught.value.place or "").startswith(__file__)
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
    "Stream.query": lambda x, stream, done: stream.query(),
    "Stream.qsize": lambda x, stream, done: stream.qsize(),
    "Stream.empty": lambda x, stream, done: stream.empty(),
    "Event.query": lambda x, stream, done: stream.record_event().query(),
    "Completion.done": lambda x, stream, done: done.done(),
    "Array.__bool__": lambda x, stream, done: bool(x[0]),
    "Array.__array_interface__": lambda x, stream, done: np.asarray(x),
    "Array.__dlpack__": lambda x, stream, done: np.from_dlpack(x),
    "capture": lambda x, stream, done: aiodev.capture(stream).__aenter__().send(None),
    "Generator.manual_seed": lambda x, stream, done: _drawn().manual_seed(1),
    "Generator.set_state": lambda x, stream, done: _drawn().set_state(bytes(16)),
    "Generator.get_state": lambda x, stream, done: _drawn().get_state(),
    "Generator.set_offset": lambda x, stream, done: _drawn().set_offset(4),
    "Generator.get_offset": lambda x, stream, done: _drawn().get_offset(),
    "Generator.clone_state": lambda x, stream, done: _drawn().clone_state(),
    "Generator.spawn": lambda x, stream, done: _drawn().spawn(1),
    "Graph.while_": lambda x, stream, done: _graph().while_(x).__enter__(),
    "Graph.if_": lambda x, stream, done: _graph().if_(x).__enter__(),
    "Graph.input": lambda x, stream, done: _graph().input("x", 1),
}


def _drawn() -> aiodev.Generator:
    return aiodev.Generator("cpu")


def _graph() -> aiodev.Graph:
    async def make() -> aiodev.Graph:
        async with aiodev.capture(aiodev.Stream("cpu")) as graph:
            pass
        return graph

    return run_at_once(make())


@pytest.mark.filterwarnings("ignore::aiodev.SyncWarning")
@pytest.mark.parametrize("call", REFUSALS)
async def test_refused_call_is_named(call: str) -> None:
    """What cannot be captured raises an error that names the call and its place, and records nothing."""
    x = await ready(aiodev.ones(4, device="cpu"))
    stream = aiodev.Stream("cpu")
    await stream.call(int)
    async with aiodev.capture(stream) as graph:
        done = double[4](x)
        put_off_turns()  # or what is sent to once may yield first
        with pytest.raises(aiodev.CaptureError) as caught:
            REFUSALS[call](x, stream, done)
        add_one[4](x)
    assert caught.value.call == call and str(caught.value).startswith(f"{call} at ")
    assert (caught.value.place or "").startswith(__file__)
    assert len(graph) == 2
    await graph.replay(stream)
    assert await x.tolist() == [3] * 4


async def _gather(done: aiodev.Completion[None], x: aiodev.Array) -> None:
    await asyncio.gather(done)


async def _await(done: aiodev.Completion[None], x: aiodev.Array) -> None:
    await done


async def _wait_for(done: aiodev.Completion[None], x: aiodev.Array) -> None:
    await asyncio.wait_for(_await(done, x), 30)


async def _nonzero(done: aiodev.Completion[None], x: aiodev.Array) -> None:
    await kernels.nonzero(x)


@pytest.mark.parametrize("spins", [True, False])
@pytest.mark.parametrize(
    ("ask", "call", "is_placed"),
    [
        (_await, "Completion.__await__", True),
        (_wait_for, "Completion.__await__", True),
        (_gather, "Completion.__await__", False),
        (_nonzero, "await", True),
    ],
)
async def test_refused_await_is_placed_in_the_program(
    ask: Any, call: str, is_placed: bool, spins: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The place is a line of the program, if one waits there, and never one of a loop's library or of ours."""
    if not spins:  # as on a single core
        monkeypatch.setattr(spinning, "_MOST_NS", 0)
    x = await ready(aiodev.ones(4, device="cpu"))
    async with aiodev.capture(aiodev.Stream("cpu")):
        done = double[4](x)
        with pytest.raises(aiodev.CaptureError) as caught:
            await ask(done, x)
    assert caught.value.call == call
    assert caught.value.place is None if not is_placed else (caught.value.place or "").startswith(__file__)


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
    for ask in (done.query, done.done, done.result, done.exception, done.synchronize_blocking):
        with pytest.raises(aiodev.CaptureError, match=r"^Completion\.\w+ at .*runs when its graph is replayed"):
            ask()
    with pytest.raises(aiodev.CaptureError, match="runs when its graph is replayed"):
        await done
    assert "Completion" in repr(done)


async def test_recorded_operations_take_up_no_room() -> None:
    """More operations than a stream has room for are captured: none of them is pending."""
    stream = aiodev.Stream("cpu", maxsize=2)
    x = await ready(aiodev.ones(4, device="cpu"))
    async with aiodev.capture(stream) as graph:
        for _ in range(5):
            double[4](x)
        assert not stream.full()
        await stream.drain(2)
    await graph.replay(stream)
    assert await x.tolist() == [32] * 4


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
