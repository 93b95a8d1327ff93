"""Memory of graphs: how long it is theirs, and that all of it goes back."""

from __future__ import annotations

import gc
import weakref

import numpy as np
import pytest
from captured import double, ready, sum_of, watched

import aiodev
from aiodev import kernels
from aiodev._core.config import settings
from aiodev._memory.allocators import allocator_for
from aiodev.kernels import random
from aiodev.testing import Latch


@pytest.mark.skipif(settings.debug, reason="debug mode keeps what a capture has made")
async def test_memory_is_used_again_within_a_capture() -> None:
    """Temporary arrays of a long capture take the memory of a few."""
    x = await ready(aiodev.ones(100_000, device="cpu"))
    async with aiodev.capture() as graph:
        for _ in range(100):
            x = kernels.add(x, 1)
    assert graph.pool.memory_reserved() < 10 * x.nbytes
    await graph.replay()
    assert (await x.numpy()).tolist() == [101] * 100_000


@pytest.mark.parametrize("device", ["cpu", "sim"], indirect=True)
async def test_a_dropped_condition_serves_no_other_branch(device: str) -> None:
    """The stream that made it gets its memory again only once it waits for the block that looks at it."""
    first, second = aiodev.Stream(device), aiodev.Stream(device)
    x = await ready(aiodev.ones(8, device=device))
    async with aiodev.capture(first) as graph:
        second.wait_stream(first)
        with second:
            condition = aiodev.ones(1, "int64", device)
        first.wait_stream(second)
        with graph.if_(condition):
            double[8](x)
        address = condition.address
        del condition
        with second:
            assert (other := aiodev.zeros(1, "int64", device)).address != address
        first.wait_stream(second)
    await graph.replay()
    assert await x.tolist() == [2] * 8 and await other.tolist() == [0]


async def test_what_a_capture_made_is_kept() -> None:
    """Dropped arrays of a capture give no memory to anybody else while the graph lives."""
    async with aiodev.capture() as graph:
        x = aiodev.zeros(1000, device="cpu")
        y = kernels.add(x, 1)
        del x
        z = kernels.add(y, 1)
    others = [aiodev.full(1000, 7.0, device="cpu") for _ in range(50)]
    await graph.replay()
    assert set(await z.tolist()) == {2}
    for other in others:
        assert set(await other.tolist()) == {7}


async def test_memory_of_before_lives_as_long_as_the_graph(device: str) -> None:
    """What a graph reads may be dropped by the program; it goes with the graph, once no replay runs."""
    weights = aiodev.full(64, 3.0, device=device)
    out = aiodev.zeros(64, device=device)
    buffer = weakref.ref(weights._buffer)
    async with aiodev.capture(aiodev.Stream(device)) as graph:
        sum_of[64](weights, weights, out)
    await aiodev.synchronize(device)
    del weights
    filler = [aiodev.full(64, 9.0, device=device) for _ in range(20)]
    await aiodev.synchronize(device)
    await graph.replay()
    assert set(await out.tolist()) == {6}
    del graph, filler
    await watched()
    assert buffer() is None


async def test_graph_is_in_no_cycle(device: str) -> None:
    """What a graph holds goes with it, without the garbage collector."""
    x = await ready(aiodev.ones(4, device=device))
    gc.collect()
    gc.disable()
    try:
        for is_replayed in (False, True):
            async with aiodev.capture(aiodev.Stream(device)) as graph:
                y = kernels.add(graph.input("x", x), 1)
            if is_replayed:
                await graph.replay()
            held = [weakref.ref(one) for one in (graph, graph.pool, y._buffer)]
            del graph, y
            await watched()
            assert [reference() for reference in held] == [None] * 3
    finally:
        gc.enable()


async def test_memory_that_a_graph_uses_is_never_given_back(device: str) -> None:
    """What is free in the pool of a graph stays where it is, whoever empties caches, and serves captures alone."""
    x = await ready(aiodev.ones(1 << 20, device=device))
    async with aiodev.capture(aiodev.Stream(device)) as graph:
        y = kernels.sum(kernels.add(kernels.multiply(x, 2), 1))
    reserved = graph.pool.memory_reserved()
    aiodev.memory.empty_cache(device)
    assert graph.pool.memory_reserved() == reserved > 2 * x.nbytes
    await graph.replay()
    assert await y.item() == 3 << 20
    with pytest.raises(RuntimeError, match="is a graph's"), graph.pool:
        pass


@pytest.mark.parametrize("is_replayed", [False, True])
@pytest.mark.parametrize("keeps", [False, True])
async def test_dropped_graphs_give_their_memory_back(is_replayed: bool, keeps: bool) -> None:
    """The pool of a graph that is gone has no memory and no addresses, once arrays that came from it are gone, too."""
    gc.collect()  # graphs of earlier tests
    await watched()
    before = aiodev.memory.memory_reserved("cpu")
    for _ in range(3):
        async with aiodev.capture(aiodev.Stream("cpu")) as graph:
            x = aiodev.zeros(10_000_000, np.uint8, "cpu")
            double[10_000_000](x)
        if is_replayed:
            await graph.replay()
        if keeps:
            graph = None  # the array goes after it
            await watched()
        x = graph = None
        await watched()
    assert aiodev.memory.memory_reserved("cpu") == before
    pools = [pool.slow_path for pool in allocator_for("cpu").private_pools]
    assert not any(pool.abandonment is not None and not pool.is_spent() for pool in pools)


async def test_graph_dropped_while_it_runs(device: str) -> None:
    """A graph may be dropped with replays in flight: they run to the end."""
    x = await ready(aiodev.ones(4, device=device))
    stream = aiodev.Stream(device)
    async with aiodev.capture(stream) as graph:
        double[4](x)
        y = kernels.add(x, 1)
    with Latch(stream):
        done = [graph.replay(stream) for _ in range(3)]
        del graph
        gc.collect()
    await done[-1]
    assert await x.tolist() == [8] * 4 and await y.tolist() == [9] * 4


async def test_graphs_that_share_a_pool(device: str) -> None:
    """Graphs of one pool use the same memory, and are refused at once on two streams."""
    with aiodev.device(device):
        x = await ready(aiodev.ones(10_000))
        async with aiodev.capture() as first:
            total = kernels.sum(kernels.square(kernels.add(x, 1)))
        reserved = first.pool.memory_reserved()
        async with aiodev.capture(pool=first.pool) as second:
            product = kernels.sum(kernels.multiply(kernels.add(x, 2), 2))
        assert second.pool is first.pool and first.pool.memory_reserved() == reserved
        one, other = aiodev.Stream(), aiodev.Stream()
        latch = Latch(one)
        first.replay(one)
        with pytest.raises(RuntimeError, match="memory"):
            second.replay(other)
        latch.release()
        await one.synchronize()
        await second.replay(other)
        assert await total.item() == 40_000 and await product.item() == 60_000


async def test_memory_of_numbers(device: str) -> None:
    """A number that is named late lies in memory that no operation ahead of it has had, and overwritten."""
    x, stream = aiodev.zeros(1, "int64", device), aiodev.Stream(device)
    generator = aiodev.Generator(device).manual_seed(5)
    await aiodev.synchronize(device)
    async with aiodev.capture(stream) as graph:
        for _ in range(3):
            aiodev.full(1, 77, "int64")  # dropped at once
        number = graph.input("number", 3)
        aiodev.full(2, 77, "int64")
        drawn = random.random(1, generator=generator)
        stream.copy(x, number.reshape(1))
    await graph.replay(stream)
    assert await x.tolist() == [3]
    assert await drawn.item() == await random.random(1, generator=aiodev.Generator(device).manual_seed(5)).item()
