"""Graphs of large kernels, whose indices the workers share, beside other streams."""

from __future__ import annotations

import numpy as np
import pytest

import aiodev
from aiodev.testing import Latch

SIZE = 1 << 20


@aiodev.kernel
def add_one(i, x):
    x[i] += 1


@aiodev.kernel
def refuse(i, at, x):
    if i == at[()]:
        raise ValueError("refused")
    x[i] += 1


@pytest.mark.parametrize("reserve", [False, True])
async def test_large_commands_beside_urgent_streams(device: str, reserve: bool) -> None:
    """A graph gives way between its commands, and between chunks of them, and every index runs once."""
    stream, urgent = aiodev.Stream(device, reserve=reserve), aiodev.Stream(device, priority=-1)
    x, y = aiodev.zeros(SIZE, np.int64, device), aiodev.zeros(16, np.int64, device)
    await aiodev.synchronize(device)
    async with aiodev.capture(stream) as graph:
        for _ in range(4):
            for _ in range(3):
                add_one[SIZE](x)
            for first in range(0, 64, 16):
                add_one[16](x[first : first + 16])
    for _ in range(5):
        graph.replay(stream)
        for _ in range(20):
            add_one[16, urgent](y)
    await aiodev.synchronize(device)
    found = await x.numpy()
    assert set(found[64:].tolist()) == {60} and set(found[:64].tolist()) == {80}
    assert set(await y.tolist()) == {100}


async def test_large_commands_of_branches(device: str) -> None:
    """Branches of large kernels run beside each other, several replays in line."""
    streams = [aiodev.Stream(device) for _ in range(3)]
    arrays = [aiodev.zeros(SIZE, np.int64, device) for _ in streams]
    await aiodev.synchronize(device)
    async with aiodev.capture(streams[0]) as graph:
        for stream in streams[1:]:
            stream.wait_stream(streams[0])
        for _ in range(3):
            for stream, x in zip(streams, arrays, strict=True):
                add_one[SIZE, stream](x)
        for stream in streams[1:]:
            streams[0].wait_stream(stream)
    with Latch(streams[0]):
        done = [graph.replay(streams[0]) for _ in range(6)]
    await done[-1]
    for x in arrays:
        assert set((await x.numpy()).tolist()) == {18}


async def test_failure_in_a_large_command(device: str) -> None:
    """An index that fails while several workers run the command fails the replay, and later ones run."""
    stream = aiodev.Stream(device)
    x, y = aiodev.zeros(SIZE, np.int64, device), aiodev.zeros(4, np.int64, device)
    await aiodev.synchronize(device)
    async with aiodev.capture(stream) as graph:
        at = graph.input("at", -1)
        add_one[4](y)
        refuse[SIZE](at, x)
        add_one[4](y)
    for where, expected in ((-1, 2), (SIZE - 1, 3), (-1, 5), (SIZE // 2, 6), (0, 7), (-1, 9)):
        graph.update(at=where)
        if where < 0:
            await graph.replay(stream)
        else:
            with pytest.raises(aiodev.KernelError, match="refused") as caught:
                await graph.replay(stream)
            assert caught.value.node == 1
        host = np.empty(4, np.int64)
        await stream.copy(host, y)
        assert host.tolist() == [expected] * 4
