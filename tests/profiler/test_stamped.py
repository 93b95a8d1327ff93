"""Profiles of devices whose executors note no times, but stamp them."""

from __future__ import annotations

import asyncio

import numpy as np
import pytest

import aiodev
from aiodev import profiler
from aiodev.testing import Latch, SimulatedBackend


class Untraced(SimulatedBackend):
    """A simulated device whose executor does not trace."""

    def __init__(self) -> None:
        super().__init__()
        self.capabilities = self.capabilities._replace(tracing=False)


@pytest.fixture
def untraced(register) -> str:
    """Such a device, started."""
    name = register(Untraced)
    aiodev.init_blocking(name)
    return name


async def test_operations_are_between_two_stamps(untraced) -> None:
    """Each copy is there once, with times in order, and those of a stream do not overlap."""
    stream, array = aiodev.Stream(untraced), aiodev.empty(8, device=untraced)
    async with profiler.profile() as prof:
        for _ in range(20):
            stream.copy(array, np.ones(8))
        await stream.synchronize()
    assert [each.name for each in prof.operations] == ["copy"] * 20
    assert {(each.outcome, each.nbytes, each.stream_id) for each in prof.operations} == {("done", 64, stream.stream_id)}
    assert all(each.submitted_ns <= each.start_ns <= each.end_ns for each in prof.operations)
    pairs = zip(prof.operations, prof.operations[1:], strict=False)
    assert all(each.end_ns <= following.start_ns for each, following in pairs)
    before = stream.timeline.submitted
    await stream.copy(array, np.ones(8))
    assert stream.timeline.submitted == before + 1


async def test_failures_without_stamps(untraced) -> None:
    """A stamp behind a failure is not made; what failed and what did not run is there all the same."""
    stream, array = aiodev.Stream(untraced), aiodev.empty(8, device=untraced)
    backend = aiodev.get_backend(untraced)
    async with profiler.profile() as prof:
        backend.fail(ValueError("injected"), after=1)  # behind the stamp
        failed = stream.copy(array, np.ones(8))
        stream.copy(array, np.ones(8))
        with pytest.raises(ValueError, match="injected"):
            await failed
        await asyncio.sleep(0)
    await stream.synchronize()
    assert [each.outcome for each in prof.operations] == ["failed", "skipped"]
    assert all(each.submitted_ns <= each.start_ns <= each.end_ns for each in prof.operations)


async def test_withdrawals_without_stamps(untraced) -> None:
    """What was withdrawn itself, and what is behind it."""
    stream, array = aiodev.Stream(untraced), aiodev.empty(8, device=untraced)
    async with profiler.profile() as prof:
        with Latch(stream):
            withdrawn, skipped = stream.copy(array, np.ones(8)), stream.copy(array, np.ones(8))
            assert withdrawn.cancel()
        with pytest.raises(aiodev.DependencyError):
            await skipped
    await stream.synchronize()
    assert [each.outcome for each in prof.operations if each.kind == "copy"] == ["withdrawn", "skipped"]


async def test_pending_without_stamps(untraced) -> None:
    """What is in flight is pending, and has its times when it is done."""
    stream, array = aiodev.Stream(untraced), aiodev.empty(8, device=untraced)
    with Latch(stream):
        async with profiler.profile() as prof:
            stream.copy(array, np.ones(8))
        assert [each.outcome for each in prof.operations] == ["pending"]
    await stream.synchronize()
    assert [each.outcome for each in prof.operations] == ["done"]
