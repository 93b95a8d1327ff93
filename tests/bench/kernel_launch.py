"""What launching a kernel costs in Python: plainly, bound, and with types that change."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from harness import Bar, Figure, Run
from peers import numpy_add, timed

import aiodev

__all__ = ["FIGURES"]


@aiodev.kernel
def four(i, a, b, c, out):
    """Takes four arrays."""
    out[i] = a[i] + b[i] + c[i]


async def bound_launch(run: Run) -> Figure:
    """A bound launch of four arrays next to a plain one; the queue is emptied outside the timed part."""
    stream = aiodev.Stream("cpu")
    single = [aiodev.zeros(8, dtype=np.float32, device="cpu") for _ in range(4)]
    double = [aiodev.zeros(8, dtype=np.float64, device="cpu") for _ in range(4)]
    await aiodev.synchronize("cpu")
    for arrays in (single, double, single, double):
        await four[8, stream](*arrays)
    bound = four.bind((8, stream), *single)
    a, b, c, out = single
    w, x, y, z = double
    count = run.scale(20_000)

    def measured(launch: Callable[[], object]) -> Callable[[], object]:
        async def case() -> float:
            value = timed(launch, count)
            await stream.synchronize()
            return value

        return case

    def alternating() -> None:
        four[8, stream](a, b, c, out)
        four[8, stream](w, x, y, z)

    async def halved() -> float:
        return await measured(alternating)() / 2

    values = await run.medians(
        {
            "aiodev": measured(bound),
            "plain launch": measured(lambda: four[8, stream](a, b, c, out)),
            "plain launch, float32 and float64 in turn": halved,
            "np.add": lambda: numpy_add(count),
        }
    )
    return Figure("bound launch of a compiled kernel, 4 arrays", "µs", values, [Bar("plain launch", at_most=0.75)])


FIGURES = {
    "bound-launch": bound_launch,
}
