"""Graphs on CUDA: replays submit their operations one by one, and keep what graphs promise."""

from __future__ import annotations

from collections.abc import Callable

Run = Callable[..., str]


def test_graphs_are_replayed(run: Run) -> None:
    """Branches, kernels, copies, calls of the host, inputs that change; what waits is refused."""
    printed = run("""
import numpy as np

@aiodev.kernel
def scale(i, factor, x):
    x[i] *= factor[()]

async def main():
    with aiodev.device("cuda"):
        x, y = aiodev.asarray(np.arange(4.0)), aiodev.asarray(np.arange(4.0) + 10)
        host, seen = np.zeros(4), []
        await aiodev.synchronize()
        first, second = aiodev.Stream(), aiodev.Stream()
        async with aiodev.capture(first) as graph:
            source = graph.input("x", x)
            number = graph.input("number", 3.0)
            made = aiodev.empty(4)
            first.copy(made, source)
            second.wait_stream(first)
            second.copy(made[:1], number.reshape(1))
            first.wait_stream(second)
            scale[4](number, made)
            first.copy(host, made)
            first.call(lambda: seen.append(host.tolist()))
        await graph.replay()
        graph.update(x=y, number=7.0)
        await graph.replay()
        print(seen, repr(graph))
        try:
            async with aiodev.capture(first):
                await first.synchronize()
        except aiodev.CaptureError as error:
            print(error.call)
        await first.synchronize()

asyncio.run(main())
""")
    assert printed.splitlines() == [
        "[[9.0, 3.0, 6.0, 9.0], [49.0, 77.0, 84.0, 91.0]] <aiodev.Graph of 5 operations on cuda:0, 2 streams>",
        "Stream.synchronize",
    ]
