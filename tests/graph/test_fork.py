"""Graphs and forks."""

from __future__ import annotations

import pytest
from forking import run


@pytest.mark.parametrize("executor", ["native", "python"])
def test_graphs_belong_to_their_process(executor: str) -> None:
    """In a forked child a graph of the parent says so, goes quietly, and others are captured; the parent's goes on."""
    run(
        """
        import asyncio, gc

        @aiodev.kernel
        def add_one(i, x):
            x[i] += 1

        async def capture(x):
            async with aiodev.capture(aiodev.Stream("cpu")) as graph:
                add_one[4](x)
            return graph

        def captured():
            x = aiodev.zeros(4, device="cpu")
            aiodev.default_stream("cpu").synchronize_blocking(30)
            return x, asyncio.run(capture(x))

        def child():
            global graph, fresh
            for inherited in (graph, fresh):
                error = raises(aiodev.BadForkError, inherited.replay, aiodev.Stream("cpu"))
                assert "capture it here" in str(error)
            x, own = captured()
            own.replay(aiodev.default_stream("cpu")).synchronize_blocking(30)
            assert x.numpy_blocking().tolist() == [1] * 4
            del graph, fresh, inherited, error
            gc.collect()

        x, graph = captured()
        y, fresh = captured()
        graph.replay(aiodev.default_stream("cpu")).synchronize_blocking(30)
        in_child(child)
        graph.replay(aiodev.default_stream("cpu")).synchronize_blocking(30)
        assert x.numpy_blocking().tolist() == [2] * 4
        """,
        AIODEV_EXECUTOR=executor,
    )


@pytest.mark.parametrize("executor", ["native", "python"])
def test_generators_behind_a_replay_of_the_parent(executor: str) -> None:
    """A child does not learn how far the replay came: its generator continues behind all that this can have drawn."""
    run(
        """
        import asyncio
        from aiodev.kernels import random
        from aiodev.testing import Latch

        @aiodev.kernel
        def count_down(i, left):
            left[i] -= 1

        async def capture(left):
            async with aiodev.capture(stream) as graph:
                with graph.while_(left):
                    random.random(4, dtype="float32", device="cpu", generator=generator)
                    count_down[1](left)
            return graph

        stream, generator = aiodev.Stream("cpu"), aiodev.Generator("cpu").manual_seed(1)
        left = aiodev.full(1, 3, "int64", "cpu")
        aiodev.default_stream("cpu").synchronize_blocking(30)
        graph = asyncio.run(capture(left))
        latch = Latch(stream)
        done = graph.replay(stream)

        def child():
            assert generator.get_offset() == 1 << 40

        in_child(child)
        latch.release()
        done.synchronize_blocking(30)
        assert generator.get_offset() == 12
        """,
        AIODEV_EXECUTOR=executor,
    )


@pytest.mark.parametrize("executor", ["native", "python"])
def test_graphed_functions_are_captured_anew(executor: str) -> None:
    """A forked child calls them as its parent does, and takes nothing of the parent's captures."""
    run(
        """
        import asyncio

        double = aiodev.make_graphed(lambda x: 2 * x)

        @aiodev.make_graphed
        async def triple(x):
            return 3 * x

        async def called():
            x = aiodev.ones(2, device="cpu")
            return await double(x).tolist(), await (await triple(x)).tolist()

        def child():
            assert asyncio.run(called()) == ([2, 2], [3, 3]) and double.captures == triple.captures == 2

        assert asyncio.run(called()) == ([2, 2], [3, 3])
        in_child(child)
        assert asyncio.run(called()) == ([2, 2], [3, 3]) and double.captures == triple.captures == 1
        """,
        AIODEV_EXECUTOR=executor,
    )
