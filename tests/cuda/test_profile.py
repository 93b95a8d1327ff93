"""Profiles of CUDA devices: operations between two stamps of the driver's, and ranges for NVIDIA's tools."""

from __future__ import annotations

from collections.abc import Callable

Run = Callable[..., str]


def test_operations_are_between_two_stamps(run: Run) -> None:
    """Each copy and fill is there once, with its bytes and times in order; those of a stream do not overlap."""
    said = run(
        """
import numpy as np
from aiodev import profiler

async def main():
    stream = aiodev.Stream("cuda")
    with stream:
        array = aiodev.empty(64, dtype=np.float32)
        await stream.synchronize()
        async with profiler.profile() as prof:
            for _ in range(10):
                stream.copy(array, np.ones(64, np.float32))
            await aiodev.zeros(32, dtype=np.float32).numpy()
            await stream.synchronize()
    work = [each for each in prof.operations if each.stream_id == stream.stream_id]
    assert all(each.submitted_ns <= each.start_ns <= each.end_ns for each in work)
    assert all(one.end_ns <= two.start_ns for one, two in zip(work, work[1:]))
    assert {each.outcome for each in work} == {"done"}
    print([(each.name, each.nbytes) for each in work[:11]] == [("copy", 256)] * 10 + [("fill", 128)])

asyncio.run(main())
"""
    )
    assert said == "True\n"


def test_launches_are_ranges(run: Run) -> None:
    """With ``nvtx=True`` each submission is a range by the package nvtx, named after its kernel."""
    said = run(
        """
import types
import numpy as np
from aiodev import profiler

marked = []
sys.modules["nvtx"] = types.SimpleNamespace(
    push_range=lambda name, domain: marked.append(name), pop_range=lambda domain: marked.append("end")
)

@aiodev.kernel
def double(i, x):
    x[i] = 2 * x[i]

async def main():
    async with aiodev.Stream("cuda") as stream:
        array = aiodev.ones(64, dtype=np.float32)
        await double[64](array)
        async with profiler.profile(nvtx=True) as prof:
            await double[64](array)
    print(marked, [(each.name, each.shape) for each in prof.operations])

asyncio.run(main())
"""
    )
    assert said == "['double', 'end'] [('double', (64,))]\n"
