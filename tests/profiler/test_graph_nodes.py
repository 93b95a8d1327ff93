"""Replays in a profile: each node as often as it has run, in the order of the device."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import aiodev
from aiodev import kernels, profiler
from aiodev.testing import Latch, SimulatedBackend


class Plain(SimulatedBackend):
    """A device without command buffers: it is given the operations one by one."""

    name = "plain"

    def start(self) -> None:
        super().start()
        self.executor.has_buffers = False  # type: ignore[misc]


@pytest.fixture(params=["cpu", "sim", "plain"])
def device(request: pytest.FixtureRequest, register: Callable[[type[Any]], str]) -> str:
    """The native executor, the portable one, and one without command buffers."""
    kinds = {"sim": SimulatedBackend, "plain": Plain}
    name = register(kinds[request.param]) if request.param in kinds else "cpu"
    aiodev.init_blocking(name)
    return name


@aiodev.kernel
def double(i, x):
    x[i] *= 2


@aiodev.kernel
def count_down(i, left):
    left[i] -= 1


@aiodev.kernel
def checked(i, x):
    if x[i] < 0:
        raise ValueError("negative")


def is_plain(device: str) -> bool:
    return not aiodev.get_backend(device).executor.has_buffers


def nodes(prof: profiler.Profile) -> list[profiler.Operation]:
    return [operation for operation in prof.operations if operation.node is not None]


async def captured(device: str, x: aiodev.Array) -> aiodev.Graph:
    """Three kernels, a fill and a copy."""
    stream = aiodev.Stream(device)
    await aiodev.synchronize(device)
    async with aiodev.capture(stream) as graph:
        double[64, stream](x)
        y = aiodev.zeros(32, dtype=np.float32)
        stream.copy(y, x[:32])
        double[32, stream](y)
        kernels.add(y, 1)
    await graph.replay(stream)
    return graph


async def test_nodes_of_a_replay(device: str) -> None:
    """Each node has its number, kernel, shape, bytes, line and task; and its time, behind the node before it."""
    x = aiodev.ones(64, np.float32, device)
    graph = await captured(device, x)
    async with profiler.profile() as prof:
        for _ in range(3):
            graph.replay()
        await graph.replay()
    found = nodes(prof)
    assert [each.node for each in found] == [0, 1, 2, 3, 4] * 4
    assert [each.name for each in found[:5]] == ["double", "fill", "copy", "double", "add"]
    assert [each.kind for each in found[:5]] == ["kernel", "fill", "copy", "kernel", "kernel"]
    assert [each.shape for each in found[:5]] == [(64,), None, None, (32,), (32,)]
    assert [each.nbytes for each in found[:5]] == [256, 128, 128, 128, 256]
    assert all(each.outcome == "done" and each.site is not None and __file__ in each.site for each in found)
    assert all(before.end_ns <= each.start_ns for before, each in zip(found, found[1:], strict=False))  # type: ignore[operator]
    replays = {(each.stream_id, each.value): each for each in prof.operations if each.kind == "graph"}
    for each in found if not is_plain(device) else []:
        replay = replays[each.stream_id, each.value]
        assert each.nested and each.task == replay.task
        assert replay.start_ns <= each.start_ns <= each.end_ns <= replay.end_ns  # type: ignore[operator]
    assert [each.name for each in prof.operations][:1] == (["double"] if is_plain(device) else ["graph"])


async def test_nodes_of_several_streams(device: str) -> None:
    """Nodes are on the streams that ran them; what waits for another node begins after that has ended."""
    first, second = aiodev.Stream(device), aiodev.Stream(device)
    x = aiodev.ones(64, np.float32, device)
    await aiodev.synchronize(device)
    async with aiodev.capture(first) as graph:
        double[64, first](x)
        second.wait_stream(first)
        double[32, second](x[:32])
        double[32, first](x[32:])
        first.wait_stream(second)
        double[64, first](x)
    await graph.replay(first)
    async with profiler.profile() as prof:
        await graph.replay(first)
    found = nodes(prof)
    assert sorted(each.node for each in found if each.node is not None) == [0, 1, 2, 3]
    times = {each.node: (each.start_ns or 0, each.end_ns or 0) for each in found}
    assert times[0][1] <= min(times[1][0], times[2][0]) and max(times[1][1], times[2][1]) <= times[3][0]
    assert len({each.stream_id for each in found}) == 2


async def test_rounds_of_a_loop(device: str) -> None:
    """A node of a loop is there once for each round."""
    if is_plain(device):
        pytest.skip("a device without command buffers has no loops")
    stream, left = aiodev.Stream(device), aiodev.zeros(1, "int64", device)
    await aiodev.synchronize(device)
    async with aiodev.capture(stream) as graph:
        left[:] = graph.input("rounds", 3).reshape(1)
        with graph.while_(left):
            count_down[1](left)
    await graph.replay(stream)
    async with profiler.profile() as prof:
        for rounds in (0, 2, 5):
            graph.update(rounds=rounds)
            await graph.replay(stream)
    assert [each.name for each in nodes(prof)] == ["copy", *["copy", *["count_down"] * 2], "copy", *["count_down"] * 5]


async def test_a_node_that_fails(device: str) -> None:
    """A node that fails is the last one that is there, as failed; a replay that was withdrawn has none."""
    stream, x = aiodev.Stream(device), aiodev.ones(4, np.int64, device)
    await aiodev.synchronize(device)
    async with aiodev.capture(stream) as graph:
        double[4, stream](x)
        checked[4, stream](x)
        double[4, stream](x)
    await graph.replay(stream)
    stream.copy(x, np.full(4, -1))
    await stream.synchronize()
    async with profiler.profile() as prof:
        with pytest.raises(aiodev.KernelError):
            await graph.replay(stream)
        with Latch(stream):
            assert graph.replay(stream).cancel()
        await stream.synchronize()
    ran = [(each.name, each.outcome) for each in nodes(prof) if each.outcome not in ("skipped", "withdrawn")]
    assert ran == [("double", "done"), ("checked", "failed")]


async def test_a_replay_behind_a_withdrawn_one(device: str) -> None:
    """It is skipped, and has no nodes that ran."""
    stream = aiodev.Stream(device)
    graph = await captured(device, aiodev.ones(64, np.float32, device))
    await graph.replay(stream)
    async with profiler.profile() as prof:
        with Latch(stream):
            first, second = graph.replay(stream), graph.replay(stream)
            assert first.cancel()
        with pytest.raises(aiodev.DependencyError):
            await second
    outcomes = {each.value: each.outcome for each in prof.operations if each.runs}
    middle = first._value
    assert {outcome for value, outcome in outcomes.items() if value <= middle} == {"withdrawn"}
    assert {outcome for value, outcome in outcomes.items() if value > middle} == {"skipped"}
    await stream.synchronize()


async def test_nodes_outlive_their_graph(device: str) -> None:
    """A profile that is read when the graph is gone still says what its nodes were."""
    graph = await captured(device, aiodev.ones(64, np.float32, device))
    async with profiler.profile() as prof:
        await graph.replay()
    del graph
    await aiodev.synchronize(device)
    assert [each.name for each in nodes(prof)] == ["double", "fill", "copy", "double", "add"]


async def test_replays_of_before(device: str) -> None:
    """A replay that was submitted before the profile began is not there, nor are its nodes; a profile within it has its own."""
    x, stream = aiodev.ones(64, np.float32, device), aiodev.Stream(device)
    graph = await captured(device, x)
    latch = Latch(stream)
    graph.replay(stream)
    async with profiler.profile() as outer:
        graph.replay(stream)
        async with profiler.profile() as inner:
            done = graph.replay(stream)
            latch.release()
            await done
    assert len(nodes(outer)) == 10 and len(nodes(inner)) == 5


async def test_nodes_in_what_is_shown(device: str, tmp_path: Path) -> None:
    """Tables count nodes by kernel and time a stream once; traces nest them in their replay; pictures show them."""
    graph = await captured(device, aiodev.ones(64, np.float32, device))
    async with profiler.profile() as prof:
        await graph.replay()
    lines = prof.table().splitlines()
    assert any(line.split()[:2] == ["double", "2"] for line in lines)
    operations, part = 5 if is_plain(device) else 1, next(line for line in lines if "busy" in line)
    assert f"{operations} operations" in part and float(part.split("busy ")[1].split("%")[0]) <= 100
    events = json.loads(prof.export_chrome_trace(tmp_path / "trace.json").read_text())["traceEvents"]
    shown = [event for event in events if event["ph"] == "X" and event.get("args", {}).get("node") is not None]
    assert [event["name"] for event in shown] == ["double", "fill", "copy", "double", "add"]
    whole = [event for event in events if event["ph"] == "X" and event["cat"] == "graph"]
    for event in shown if whole else []:
        assert whole[0]["ts"] <= event["ts"] and event["ts"] + event["dur"] <= whole[0]["ts"] + whole[0]["dur"] + 0.002
    assert "double" in prof.timeline(tmp_path / "t.svg").read_text()
