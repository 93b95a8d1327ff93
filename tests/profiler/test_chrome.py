"""Exported traces keep the Trace Event Format, as Perfetto and Chrome read it."""

from __future__ import annotations

import asyncio
import json
from numbers import Real
from typing import Any

import numpy as np
import pytest

import aiodev
from aiodev import profiler
from aiodev.testing import Latch

#: Fields that an event of a phase must have, beyond ``ph``, ``pid`` and ``tid``; see the format's description.
FIELDS = {
    "X": {"name", "cat", "ts", "dur"},
    "M": {"name", "args"},
    "C": {"name", "ts", "args"},
    "s": {"name", "cat", "id", "ts"},
    "f": {"name", "cat", "id", "ts", "bp"},
}
TOLERANCE = 0.0015  #: µs; times are rounded to a ns


def check(trace: dict[str, Any]) -> None:
    """Raise AssertionError if a trace in JSON's object format breaks a rule of the Trace Event Format."""
    assert set(trace) == {"traceEvents", "displayTimeUnit"}
    assert trace["displayTimeUnit"] in ("ms", "ns")
    slices: dict[tuple[int, int], list[tuple[float, float]]] = {}
    for event in trace["traceEvents"]:
        assert event["ph"] in FIELDS
        assert event.keys() >= FIELDS[event["ph"]] | {"pid", "tid"}
        assert isinstance(event["pid"], int) and isinstance(event["tid"], int)
        assert isinstance(event["name"], str) and event["name"]
        if event["ph"] == "X":
            assert event["dur"] >= 0
            slices.setdefault((event["pid"], event["tid"]), []).append((event["ts"], event["ts"] + event["dur"]))
        if event["ph"] == "C":
            assert all(isinstance(value, Real) for value in event["args"].values())
        if event["ph"] == "M":
            assert event["name"] in ("process_name", "thread_name")
            assert isinstance(event["args"]["name"], str)
        if "ts" in event:
            assert isinstance(event["ts"], Real)
    for arrow in {(event["cat"], event["id"]) for event in trace["traceEvents"] if event["ph"] in "sf"}:
        ends = [e for e in trace["traceEvents"] if e["ph"] in "sf" and (e["cat"], e["id"]) == arrow]
        start, finish = ends
        assert (start["ph"], finish["ph"], finish["bp"]) == ("s", "f", "e")
        assert start["name"] == finish["name"]
        assert start["ts"] <= finish["ts"]
        for end in ends:  # an arrow is drawn between slices that enclose its ends
            rows = slices[end["pid"], end["tid"]]
            assert any(begin - TOLERANCE <= end["ts"] <= over + TOLERANCE for begin, over in rows)
    named = {(event["pid"], event["tid"]) for event in trace["traceEvents"] if event["name"] == "thread_name"}
    assert set(slices) <= named


def streams_do_not_overlap(trace: dict[str, Any]) -> None:
    """Slices of a thread are one within the other or apart; those of a stream are apart."""
    rows: dict[tuple[int, int], list[tuple[float, float]]] = {}
    for event in trace["traceEvents"]:
        if event["ph"] == "X" and event["pid"] != 1:
            rows.setdefault((event["pid"], event["tid"]), []).append((event["ts"], event["ts"] + event["dur"]))
    for mine in rows.values():
        mine.sort()
        assert all(one[1] <= two[0] + TOLERANCE for one, two in zip(mine, mine[1:], strict=False))


async def profiled(device: str) -> profiler.Profile:
    first, second = aiodev.Stream(device), aiodev.Stream(device)
    async with profiler.profile() as prof:
        x, y = aiodev.empty(64, device=device), aiodev.empty(64, device=device)
        with Latch(first):
            first.copy(x, np.ones(64))
            second.wait_stream(first)
        second.copy(y, x)
        second.call(int)
        await second.synchronize()
        await asyncio.sleep(0.01)
    prof.names[first.stream_id] = "copies in"
    return prof


async def test_trace_keeps_the_format(device, tmp_path) -> None:
    """A profile with copies, waits, calls, memory and lag is a trace as the format's description has it."""
    prof = await profiled(device)
    trace = json.loads(prof.export_chrome_trace(tmp_path / "trace.json").read_text())
    check(trace)
    streams_do_not_overlap(trace)
    events = trace["traceEvents"]
    assert {event["ph"] for event in events} == set(FIELDS)
    assert {"copies in", "cpu:0"} & {event["args"]["name"] for event in events if event["ph"] == "M"} >= {"copies in"}
    copies = [event for event in events if event["ph"] == "X" and event["cat"] == "copy"]
    assert [copy["args"]["bytes"] for copy in copies] == [512, 512]
    assert [event["name"] for event in events if event["ph"] == "s"].count("wait") == 1


async def test_pending_operations_are_drawn_until_now(device, tmp_path) -> None:
    """What has begun and is not over ends with the profile; what has not begun is a submission alone."""
    stream, x = aiodev.Stream(device), aiodev.empty(4, device=device)
    with Latch(stream) as latch:
        async with profiler.profile() as prof:
            stream.copy(x, np.ones(4))
        trace = json.loads(prof.export_chrome_trace(tmp_path / "trace.json").read_text())
        assert latch is None or not stream.query()
    check(trace)
    assert [event["cat"] for event in trace["traceEvents"] if event["ph"] == "X"] == ["submission"]
    await stream.synchronize()


async def test_empty_profile_is_a_trace(tmp_path) -> None:
    """A block in which nothing happens gives a trace that can be opened."""
    async with profiler.profile() as prof:
        pass
    check(json.loads(prof.export_chrome_trace(tmp_path / "trace.json").read_text()))


@pytest.mark.parametrize("broken", [{"ph": "X", "cat": "c"}, {"ph": "B"}])
def test_check_finds_what_is_wrong(broken) -> None:
    """The check that these tests rely on refuses an event without a duration, and a phase that is not written."""
    with pytest.raises(AssertionError):
        check({"displayTimeUnit": "ns", "traceEvents": [{"name": "x", "ts": 1.0, "pid": 1, "tid": 1, **broken}]})
