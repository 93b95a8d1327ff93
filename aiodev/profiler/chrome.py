"""A profile in the Trace Event Format, which Perfetto and Chrome's tracing open.

https://docs.google.com/document/d/1CvAClvFfyA5R-PhYUmn5OOQtYMH4h6I0nSsKchNAySU
"""

from __future__ import annotations

import itertools
import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from aiodev.profiler.operations import Operation
from aiodev.profiler.recorded import Recorded
from aiodev.profiler.summary import name_of, title_of

__all__ = ["trace_events", "write_chrome_trace"]

#: Microseconds that the instant of a submission is drawn as, so that an arrow can begin there: an arrow needs a slice.
SUBMISSION = 0.1
NO_TASK = "no task"


def write_chrome_trace(profile: Recorded, path: Path) -> Path:
    """Write a profile to a file."""
    encode = json.JSONEncoder(separators=(",", ":")).encode
    with path.open("w", encoding="utf-8") as file:
        file.write('{"displayTimeUnit": "ns", "traceEvents": [\n')
        separator = ""
        for event in trace_events(profile):
            file.write(separator + encode(event))
            separator = ",\n"
        file.write("\n]}\n")
    return path


def trace_events(profile: Recorded) -> Iterator[dict[str, Any]]:
    """The events of a profile. Times are µs from when its block was entered."""
    operations, origin = profile.operations, profile.began_ns
    devices = {device: 2 + place for place, device in enumerate(dict.fromkeys(each.device for each in operations))}
    tasks = {name: 1 + place for place, name in enumerate(dict.fromkeys(each.task or NO_TASK for each in operations))}
    host, rows = 1, _rows(operations)
    yield _named("process_name", host, 0, f"tasks of process {os.getpid()}")
    for name, row in tasks.items():
        yield _named("thread_name", host, row, name)
    for device, number in devices.items():
        yield _named("process_name", number, 0, str(device))
    for operation in {each.stream_id: each for each in operations}.values():
        yield _named("thread_name", devices[operation.device], rows[operation.stream_id], name_of(profile, operation))
    done = {(each.stream_id, each.value): each for each in operations if each.end_ns is not None and not each.nested}
    arrows = itertools.count(1)
    for operation in operations:
        place = {"pid": devices[operation.device], "tid": rows[operation.stream_id]}
        task = {"pid": host, "tid": tasks[operation.task or NO_TASK]}
        submitted = _micros(operation.submitted_ns - origin)
        name = title_of(profile, operation)
        if operation.runs and not operation.nested:
            yield {"ph": "X", "cat": "submission", "name": name, "ts": submitted, "dur": SUBMISSION, **task}
        if operation.start_ns is None:
            continue
        start = _micros(operation.start_ns - origin)
        end = _micros((operation.end_ns or profile.ended_ns) - origin)
        yield {
            "ph": "X", "cat": operation.kind, "name": name, "ts": start, "dur": max(0.0, round(end - start, 3)), **place,
            "args": _args(operation),
        }  # fmt: skip
        if operation.runs and not operation.nested:
            yield from _arrow("submission", next(arrows), (submitted, task), (start, place))
        before = done.get(operation.after) if operation.after is not None else None
        if before is not None and operation.end_ns is not None:
            there = {"pid": devices[before.device], "tid": rows[before.stream_id]}
            yield from _arrow("wait", next(arrows), (_micros((before.start_ns or 0) - origin), there), (end, place))
    for event in profile.memory_events:
        args = {"allocated": event.allocated, "reserved": event.reserved}
        yield {
            "ph": "C", "name": f"memory of {event.device}", "ts": _micros(event.time_ns - origin),
            "pid": devices.get(event.device, host), "tid": 0, "args": args,
        }  # fmt: skip
    for beat in list(profile.lag.beats):
        yield {
            "ph": "C", "name": "loop lag (ms)", "ts": _micros(beat.time_ns - origin), "pid": host, "tid": 0,
            "args": {"lag": beat.lag_ns / 1e6},
        }  # fmt: skip


def _rows(operations: list[Operation]) -> dict[int, int]:
    """The thread that stands for each stream; numbers of threads are small."""
    return {stream_id: 1 + place for place, stream_id in enumerate(dict.fromkeys(each.stream_id for each in operations))}


def _named(what: str, pid: int, tid: int, name: str) -> dict[str, Any]:
    return {"ph": "M", "name": what, "pid": pid, "tid": tid, "ts": 0, "args": {"name": name}}


_Place = tuple[float, dict[str, int]]


def _arrow(name: str, number: int, start: _Place, end: _Place) -> Iterator[dict[str, Any]]:
    common = {"cat": "order", "name": name, "id": number}
    yield {"ph": "s", **common, "ts": start[0], **start[1]}
    yield {"ph": "f", "bp": "e", **common, "ts": max(end[0], start[0]), **end[1]}


def _args(operation: Operation) -> dict[str, Any]:
    """What is shown of an operation that is clicked on."""
    details = {
        "number": operation.value, "outcome": operation.outcome, "shape": operation.shape, "bytes": operation.nbytes,
        "task": operation.task, "submitted at": operation.site, "node": operation.node,
    }  # fmt: skip
    return {key: value for key, value in details.items() if value is not None}


def _micros(nanoseconds: int) -> float:
    return round(nanoseconds / 1e3, 3)
