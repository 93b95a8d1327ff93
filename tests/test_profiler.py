"""aiodev.profiler: counters, and recordings of what ran when."""

from __future__ import annotations

import time

import numpy as np
import pytest

import aiodev
from aiodev import profiler


@aiodev.kernel
def double(i, x, out):
    out[i] = 2 * x[i]


async def test_record_sees_each_operation_in_its_place() -> None:
    """Kernels by name, copies, each with its stream, within the time of the block, in order within a stream."""
    stream, before = aiodev.Stream("cpu"), time.perf_counter_ns()
    with stream:
        x, out = aiodev.empty(64, dtype=np.float32), aiodev.empty(64, dtype=np.float32)
    await double.compile(x, out)
    with profiler.record() as activities:
        stream.copy(x, np.ones(64, np.float32))
        double[64, stream](x, out)
        await stream.synchronize()
    assert [activity.name for activity in activities] == ["copy", "double"]
    assert {activity.stream_id for activity in activities} == {stream.stream_id}
    assert {activity.device for activity in activities} == {aiodev.Device("cpu")}
    copy, kernel = activities
    assert before < copy.start_ns <= copy.end_ns <= kernel.start_ns <= kernel.end_ns < time.perf_counter_ns()
    assert kernel.duration_ns == kernel.end_ns - kernel.start_ns
    assert (await out.numpy() == 2).all()


async def test_record_sees_streams_made_inside_and_nothing_afterwards() -> None:
    """A stream that is made while a recording runs is in it; once the block is left, nothing is added."""
    host = np.ones(8, np.float32)
    with profiler.record() as activities:
        stream = aiodev.Stream("cpu")
        array = aiodev.empty(8, dtype=np.float32, device="cpu")
        await stream.copy(array, host)
    assert [activity.stream_id for activity in activities].count(stream.stream_id) == 1
    seen = list(activities)
    await stream.copy(array, host)
    assert activities == seen


async def test_one_recording_at_a_time() -> None:
    """A second recording says so, and does no harm to the first."""
    with profiler.record() as activities:
        with pytest.raises(RuntimeError, match="under way"), profiler.record():
            pass
        stream = aiodev.Stream("cpu")
        await stream.copy(aiodev.empty(8, dtype=np.float32, device="cpu"), np.ones(8, np.float32))
    assert len(activities) == 1


async def test_record_passes_by_a_full_stream() -> None:
    """A submission that is refused leaves no half-recorded operation behind."""
    stream = aiodev.Stream("cpu", maxsize=4)
    array = aiodev.empty(8, dtype=np.float32, device="cpu")
    gate = stream._gate()
    with profiler.record() as activities:
        with pytest.raises(aiodev.StreamFullError):
            for _ in range(9):
                stream.copy(array, np.ones(8, np.float32))
        gate.open()
        await stream.synchronize()
    assert activities
    assert all(activity.end_ns >= activity.start_ns > 0 for activity in activities)


async def test_counters_count_records() -> None:
    """``events_recorded`` goes up by one for each record."""
    stream = aiodev.Stream("cpu")
    before = profiler.counters()["events_recorded"]
    event = stream.record_event()
    stream.record_event(event)
    assert profiler.counters()["events_recorded"] - before == 2
