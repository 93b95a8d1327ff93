"""The backward pass on streams: each node where its forward ran, and events only between streams that differ."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import aiodev
import aiodev.kernels
from aiodev import autograd, profiler, testing

pytestmark = pytest.mark.anyio


def a_leaf(value: float = 1.0) -> Any:
    return autograd.Variable(aiodev.full(3, value, device="cpu"))


async def counted(work: Callable[[], Any]) -> tuple[int, int]:
    """Events recorded and waits asked for by an awaitable."""
    before = profiler.counters()
    await work()
    after = profiler.counters()
    change = {name: after[name] - before[name] for name in after}
    return change["events_recorded"], change["waits_enqueued"] + change["waits_elided"]


async def test_one_stream_has_no_events() -> None:
    """Whatever the graph, a node's stream is the one that everything is on."""
    async with aiodev.Stream("cpu"):
        x, w = a_leaf(), a_leaf(2.0)
        y = x * w + x
        loss = (y * y + y * x).sum()
        assert await counted(loss.backward) == (0, 0)
        assert await x.grad.tolist() == [3 * 3 * 2 + 3 + 3] * 3


async def test_one_producer_on_another_stream() -> None:
    """A gradient that passes to another stream costs one record and one wait."""
    first, second = aiodev.Stream("cpu"), aiodev.Stream("cpu")
    async with first:
        x = a_leaf()
        y = x * 2.0
        second.wait_stream(first)
        with second:
            loss = (y * 3.0).sum()
        assert await counted(loss.backward) == (1, 1)
        assert await x.grad.tolist() == [6.0] * 3


async def test_two_producers_on_the_consumers_stream() -> None:
    """Their sum is made on that stream, without an event."""
    async with aiodev.Stream("cpu"):
        x = a_leaf()
        y = x * 2.0
        loss = (y * 3.0 + y * 4.0).sum()
        assert await counted(loss.backward) == (0, 0)
        assert await x.grad.tolist() == [14.0] * 3


async def test_two_producers_one_on_another_stream() -> None:
    """The accumulation waits once for the one that is elsewhere; the consumer waits for nothing more."""
    first, second = aiodev.Stream("cpu"), aiodev.Stream("cpu")
    async with first:
        x = a_leaf()
        y = x * 2.0
        near = (y * 3.0).sum()
        second.wait_stream(first)
        with second:
            far = (y * 4.0).sum()
        assert await counted(lambda: autograd.backward([far, near])) == (1, 1)
        assert await x.grad.tolist() == [14.0] * 3


async def test_two_producers_both_on_another_stream() -> None:
    """Each is waited for, since the sum is made where it is taken."""
    first, second = aiodev.Stream("cpu"), aiodev.Stream("cpu")
    async with first:
        x = a_leaf()
        y = x * 2.0
        second.wait_stream(first)
        with second:
            loss = (y * 3.0).sum() + (y * 4.0).sum()
        assert await counted(loss.backward) == (2, 2)
        assert await x.grad.tolist() == [14.0] * 3


async def test_a_leaf_on_a_side_stream() -> None:
    """One more record and wait at the end: the caller's stream follows the leaf's."""
    main, side = aiodev.Stream("cpu"), aiodev.Stream("cpu")
    async with main:
        with side:
            x = a_leaf()
            loss = (x * 2.0).sum()
        assert await counted(loss.backward) == (1, 1)
        clock = main.timeline.frontier[1]
        assert side.timeline in clock or side.query()
        assert await x.grad.tolist() == [2.0] * 3


async def test_a_leaf_has_the_stream_of_its_first_use_in_this_graph() -> None:
    """No stream of an earlier pass is kept at a parameter: the next graph, on another stream, has no event."""
    x = a_leaf()
    for _ in range(2):
        async with aiodev.Stream("cpu"):
            x.grad = None
            loss = (x * 2.0).sum()
            assert await counted(loss.backward) == (0, 0)


async def test_gradients_follow_what_still_runs_on_another_stream() -> None:
    """The backward pass of a branch waits, on the device, for the gradient of one that a latch holds."""
    first, second = aiodev.Stream("cpu"), aiodev.Stream("cpu")
    async with first:
        x = a_leaf()
        y = x * 2.0
        second.wait_stream(first)
        with second:
            loss = (y * 3.0).sum()
        latch = testing.Latch(second)
        await loss.backward()
        assert not x.grad._buffer.is_written()
        latch.release()
        assert await x.grad.tolist() == [6.0] * 3


async def test_branches_on_different_streams_overlap() -> None:
    """While a latch holds one branch's stream, the backward pass of the other runs to its end."""
    main, held, free = (aiodev.Stream("cpu") for _ in range(3))
    async with main:
        x, w = a_leaf(), a_leaf()
        for stream in (held, free):
            stream.wait_stream(main)
        with held:
            slow = (x * 2.0).sum()
        with free:
            fast = (w * 3.0).sum()
        latch = testing.Latch(held)
        await autograd.backward([slow, fast])
        with free:
            assert await w.grad.tolist() == [3.0] * 3
        assert not held.query() and not x.grad._buffer.is_written()
        latch.release()
        assert await x.grad.tolist() == [2.0] * 3


async def test_the_profiler_shows_that_branches_overlap() -> None:
    """All kernels of one branch's backward pass lie between two of the other's, by the times that workers noted."""
    latches: list[testing.Latch] = []
    begun: list[aiodev.Event] = []

    class Held(autograd.Function):
        """The identity, whose backward holds its stream."""

        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            return x * 1.0

        @staticmethod
        def backward(ctx: Any, g: Any) -> Any:
            begun.append(aiodev.current_stream("cpu").record_event())
            latches.append(testing.Latch(aiodev.current_stream("cpu")))
            return g

    outer, inner = aiodev.Stream("cpu"), aiodev.Stream("cpu")
    x, w = a_leaf(), a_leaf()
    with outer:
        first = aiodev.kernels.sin(Held.apply(aiodev.kernels.sin(x))).sum()
    with inner:
        second = aiodev.kernels.sin(aiodev.kernels.sin(w)).sum()
    await outer.synchronize()
    await inner.synchronize()
    async with profiler.profile() as profile:
        latch = testing.Latch(inner)
        await autograd.backward([first, second])
        await begun[0]
        latch.release()
        await inner.synchronize()
        latches[0].release()
        await outer.synchronize()
    kernels = [each for each in profile.operations if each.kind == "kernel"]
    spans = [
        [(each.start_ns, each.end_ns) for each in kernels if each.stream_id == stream.stream_id] for stream in (outer, inner)
    ]
    assert [len(own) for own in spans] == [2, 2]
    (_, before), (behind, _) = spans[0]
    assert all(before <= start <= end <= behind for start, end in spans[1])


async def test_the_profiler_shows_where_nodes_ran() -> None:
    """A profile of the pass has each kernel on the stream of its node's forward."""
    near, far = aiodev.Stream("cpu"), aiodev.Stream("cpu")
    x, w = a_leaf(), a_leaf()
    with near:
        first = (x * 2.0).sum()
    with far:
        second = (w * w * 3.0).sum()
    async with profiler.profile() as profile:
        await autograd.backward([first, second])
        await near.synchronize()
        await far.synchronize()
    seen = {each.stream_id for each in profile.operations if each.name.startswith("multiply")}
    assert seen == {near.stream_id, far.stream_id}


async def test_the_backward_pass_submits_and_does_not_wait() -> None:
    """It is over while the device has not begun."""
    async with aiodev.Stream("cpu") as stream:
        x = a_leaf()
        loss = (x * x).sum()
        latch = testing.Latch(stream)
        await loss.backward()
        assert not stream.query()
        latch.release()
        assert await x.grad.tolist() == [2.0] * 3


async def test_a_node_runs_on_the_stream_of_its_forward() -> None:
    """Whatever stream is current when the pass is asked for; and that one is current again behind it."""
    side = aiodev.Stream("cpu")
    seen = []

    class Spy(autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            return x * 1.0

        @staticmethod
        def backward(ctx: Any, g: Any) -> Any:
            seen.append(aiodev.current_stream("cpu"))
            return g

    with side:
        loss = Spy.apply(a_leaf()).sum()
    async with aiodev.Stream("cpu") as main:
        await loss.backward()
        assert aiodev.current_stream() is main
    assert seen == [side]


async def test_accumulation_over_passes_on_different_streams() -> None:
    """A sum waits for the gradient that another stream still computes."""
    x = a_leaf()
    held, free = aiodev.Stream("cpu"), aiodev.Stream("cpu")
    async with held:
        loss = (x * 2.0).sum()
        latch = testing.Latch(held)
        await loss.backward()
    async with free:
        await (x * 3.0).sum().backward()
        latch.release()
        assert await x.grad.tolist() == [5.0] * 3


async def test_several_devices(register: Callable[[type[Any]], str]) -> None:
    """A gradient goes back by the way that its operand came, from device to device."""
    name = register(testing.SimulatedBackend)
    x = a_leaf()
    await aiodev.init(name)
    there = x.to(name)
    assert there.device == aiodev.Device(name)
    back = there.to("cpu")
    await (back * 3.0).sum().backward()
    assert np.array_equal(await x.grad.numpy(), [3.0] * 3)


TWO_DEVICES = """
import asyncio
import aiodev
from aiodev import autograd, profiler

async def step(x, y, side):
    here = (x * 2.0).to("cpu:1")  # to the second device, and there on two streams
    product = here * y
    side.wait_stream(aiodev.current_stream("cpu:1"))
    with side:
        beside = (here * here).sum()
    aiodev.current_stream("cpu:1").wait_stream(side)
    before = profiler.counters()
    await autograd.backward([product.sum(), beside])
    after = profiler.counters()
    print(after["events_recorded"] - before["events_recorded"], x.grad.device, y.grad.device)

async def main():
    x = autograd.Variable(aiodev.asarray([1.0, 2.0], device="cpu:0"))
    y = autograd.Variable(aiodev.asarray([3.0, 4.0], device="cpu:1"))
    async with aiodev.Stream("cpu:0"), aiodev.Stream("cpu:1"):
        side = aiodev.Stream("cpu:1")
        await step(x, y, side)
        print(await x.grad.tolist(), await y.grad.tolist())
        await step(x, y, side)
        print(await x.grad.tolist(), await y.grad.tolist())

asyncio.run(main())
"""


def test_accumulation_over_several_devices() -> None:
    """Passes over two devices, with a side stream on one, add up, with an event wherever a gradient changes its stream."""
    found = subprocess.run(
        [sys.executable, "-c", TWO_DEVICES], env={**os.environ, "AIODEV_CPU_DEVICES": "2"},
        capture_output=True, text=True, timeout=120, check=True,
    )  # fmt: skip
    # One for each of the side stream's two gradients of what was copied there, and one for the copy on its way back.
    assert found.stdout.splitlines() == [
        "3 cpu:0 cpu:1", "[14.0, 24.0] [2.0, 4.0]", "3 cpu:0 cpu:1", "[28.0, 48.0] [4.0, 8.0]",
    ]  # fmt: skip
