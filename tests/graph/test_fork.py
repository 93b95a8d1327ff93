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
