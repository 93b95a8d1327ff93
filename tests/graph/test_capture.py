"""Capture: what is recorded, that nothing of it runs, and how a graph is shown."""

from __future__ import annotations

import asyncio
import sys
import weakref
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

import numpy as np
import pytest
from captured import add_one, double, ready
from native import load_native

import aiodev
from aiodev import kernels
from aiodev._core.config import settings
from aiodev._graph import recorder
from aiodev.testing import Latch


@aiodev.kernel
def add_to(i, x, y):
    y[i] += x[i]


async def test_nothing_runs_before_the_replay(device: str) -> None:
    """A captured launch runs once for each replay, and not when it is captured."""
    x = await ready(aiodev.ones(4, device=device))
    async with aiodev.capture(aiodev.Stream(device)) as graph:
        double[4](x)
        add_one[4](x)
    assert await x.tolist() == [1] * 4
    for expected in (3, 7, 15):
        await graph.replay()
        assert await x.tolist() == [expected] * 4


async def test_default_stream_of_capture_is_its_own(device: str) -> None:
    """Without a stream, what other streams are given meanwhile runs."""
    x = await ready(aiodev.ones(4, device=device))
    with aiodev.device(device):
        async with aiodev.capture() as graph:
            await asyncio.create_task(_double_on_the_default_stream(x), context=None)
            add_one[4](x)
    assert await x.tolist() == [2] * 4
    await graph.replay()
    assert await x.tolist() == [3] * 4


async def _double_on_the_default_stream(x: aiodev.Array) -> None:
    with aiodev.default_stream(x.device):
        await double[4](x)


@pytest.mark.parametrize("is_native", [True, False])
async def test_what_is_noted_of_memory_that_was_there(is_native: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whether it is written, also where it was read first; nothing of a stream that is not captured. By either launcher."""
    if is_native:
        load_native()
    else:
        monkeypatch.setattr(recorder, "native_function", lambda name, own: None)
    x, y, unused = [await ready(aiodev.ones(4, device="cpu")) for _ in range(3)]
    stream, beside = aiodev.Stream("cpu"), aiodev.Stream("cpu")
    async with aiodev.capture(stream) as graph:
        recording, noted = stream.timeline.recording, stream.timeline.noted
        assert recording is not None
        held = recording.held
        assert not held and noted is (None if settings.debug else held)  # in debug mode each use is noted
        for expected in ({x._buffer: False, y._buffer: True}, {x._buffer: False, y._buffer: True}):
            add_to[4, stream](x, y)
            assert held == expected
        for _ in range(2):
            double[4, stream](x)
            assert held == {x._buffer: True, y._buffer: True}
        double[4, beside](unused)
        assert beside.timeline.noted is None and unused._buffer not in held
        recorded = stream.timeline
    assert recorded.noted is None
    await graph.replay()
    assert await y.tolist() == [3] * 4 and await x.tolist() == [4] * 4 and await unused.tolist() == [2] * 4


async def test_library_operations_views_and_copies(device: str) -> None:
    """Functions of the library, views, strided copies, fills and conversions are captured as they are."""
    x = aiodev.asarray(np.arange(12, dtype=np.float32).reshape(3, 4), device=device)
    async with aiodev.capture(aiodev.Stream(device)) as graph:
        y = kernels.square(x) + 1
        z = aiodev.zeros((4, 3), np.float32, device)
        z[:] = y.T
        total = kernels.sum(z[::2], axis=1)
        whole = kernels.astype(kernels.matmul(x, z), np.float64)
    for offset in (0, 5):
        host = np.arange(12, dtype=np.float32).reshape(3, 4) + offset
        await x.copy_from(host)
        graph.replay(aiodev.current_stream(device))
        expected = host**2 + 1
        assert np.array_equal(await y.numpy(), expected)
        assert np.array_equal(await total.numpy(), expected.T[::2].sum(axis=1))
        assert np.allclose(await whole.numpy(), host @ expected.T)


@aiodev.kernel
def add_factor(i, factor, x, out):
    out[i] = x[i] + factor


@aiodev.operation(reads=["x"], numbers=["factor"], writes="out")
def raised(call: aiodev.Call, x: aiodev.Array, factor: float, /, *, out: aiodev.Array | None = None) -> aiodev.Array:
    """``sum(x + factor)``, by scratch memory and two launches."""
    scratch, found = call.scratch(x.shape, x.dtype), call.out((), x.dtype)
    call.launch(add_factor, x.size, factor, x, scratch)
    return kernels.sum(scratch, out=found)


async def test_users_operations(device: str) -> None:
    """An operation of a user's own is captured as it is, whether it was called before or not."""
    x = await ready(aiodev.ones(4, device=device))
    before = raised(x, 3.0) if device == "sim" else None
    async with aiodev.capture(aiodev.Stream(device)) as graph:
        total = raised(graph.input("x", x), 2.0)
    assert before is None or await before.item() == 16
    for k in range(3):
        other = aiodev.full(4, float(k), device=device)
        graph.update(x=other)
        graph.replay(aiodev.current_stream(device))
        assert await total.item() == 4 * (k + 2)


async def test_host_arrays_are_read_at_each_replay(device: str) -> None:
    """A captured copy from the host reads what is there when the replay runs, and one to the host writes then."""
    host, back = np.zeros(3), np.zeros(3)
    async with aiodev.capture(aiodev.Stream(device)) as graph:
        x = aiodev.empty(3, device=device)
        stream = aiodev.current_stream(device)
        stream.copy(x, host)
        add_one[3](x)
        stream.copy(back, x)
    for value in (1, 2):
        host[:] = value
        await graph.replay()
        assert back.tolist() == [value + 1] * 3


async def test_constants_are_written_by_each_replay(device: str) -> None:
    """What is made of host values in a capture has them in every replay, though later operations use the memory again."""
    out = await ready(aiodev.zeros((2, 3), device=device))
    async with aiodev.capture(aiodev.Stream(device)) as graph:
        for row in range(2):
            constant = aiodev.asarray([row, 1, 2], "float64", device)
            double[3](constant)
            out[row] = constant
            del constant
    for _ in range(2):
        await graph.replay()
        assert await out.tolist() == [[0, 2, 4], [2, 2, 4]]


async def test_graph_is_shown(device: str) -> None:
    """A graph prints as a table and exports to DOT: operations, streams by id, order between them, places."""
    first, second = aiodev.Stream(device), aiodev.Stream(device)
    x = await ready(aiodev.zeros(4, device=device))
    async with aiodev.capture(first) as graph:
        add_one[4](x)
        second.wait_stream(first)
        double[3, second](x)
        second.call(_noted)
        first.wait_stream(second)
        double[2](x)
    title, head, *lines = str(graph).splitlines()
    assert title == repr(graph) and head.split() == ["node", "stream", "operation", "size", "after", "captured", "at"]
    rows = [line.split() for line in lines]
    ids = [str(first.stream_id), str(second.stream_id)]
    assert rows[0][:4] == ["0", ids[0], "add_one", "4"] and rows[1][:5] == ["1", ids[1], "double", "3", "0"]
    assert rows[2][:2] == [ids[1], "_noted"] and rows[3][:5] == ["2", ids[0], "double", "2", "_noted"]
    assert all(__file__ in row[-1] for row in rows)
    dot = graph.to_dot()
    assert dot.count("subgraph") == 2 and f'label="stream {ids[1]}"' in dot and '"1 double  3"' in dot
    edges = {line.strip() for line in dot.splitlines() if "->" in line}
    assert edges == {"n0 -> n1;", "n1 -> n2;", "n0 -> n3;", "n2 -> n3;"}


async def test_graph_that_is_being_captured(device: str, tmp_path: Path) -> None:
    """In the block it says that this is to be left; after a failure, that it has failed; if nobody captures it, just that."""
    x = await ready(aiodev.zeros(4, device=device))
    graph = aiodev.Graph(x.device)
    with pytest.raises(RuntimeError, match="^the graph was not captured$"):
        graph.replay(aiodev.Stream(device))
    assert "not captured" in repr(graph)
    with pytest.raises(KeyError):
        async with aiodev.capture(aiodev.Stream(device)) as graph:
            add_one[4](graph.input("x", x))
            assert "being captured" in repr(graph) and str(graph) == repr(graph)
            for call in (graph.replay, graph.update, graph.to_dot, lambda: graph.obstacles, partial(graph.rows, x)):
                with pytest.raises(RuntimeError, match="is being captured: leave the block"):
                    call()
            with pytest.raises(RuntimeError, match="is being captured: leave the block"):
                await graph.save(tmp_path / "a.graph")
            raise KeyError
    assert "not captured" in repr(graph)
    for call in (graph.replay, graph.update, graph.to_dot):
        with pytest.raises(RuntimeError, match="was not captured: the block has failed"):
            call()


def _noted() -> None:
    """A function of the host."""


async def test_stream_forked_at_the_beginning(device: str) -> None:
    """A stream may fork from the very beginning of a capture, and its replay follows what was submitted before it."""
    first, second = aiodev.Stream(device), aiodev.Stream(device)
    x = await ready(aiodev.zeros(4, device=device))
    async with aiodev.capture(first) as graph:
        second.wait_stream(first)
        double[4, second](x)
        first.wait_stream(second)
    stream = aiodev.Stream(device)
    with Latch(stream):
        add_one[4, stream](x)
        done = graph.replay(stream)
        add_one[4, stream](x)
    await done
    await stream.synchronize()
    assert await x.tolist() == [3] * 4


@aiodev.kernel
def note(i, number, noted, count):
    """Note a number behind those that were noted before."""
    noted[count[i]] = number
    count[i] += 1


async def test_threads_submit_to_a_captured_stream(device: str) -> None:
    """What several threads launch at once is numbered without gaps, and runs in the order of its numbers."""
    threads, launches = 4, 400
    stream = aiodev.Stream(device)
    noted = await ready(aiodev.zeros(threads * launches, np.int64, device))
    count = await ready(aiodev.zeros(1, np.int64, device))

    def launch(thread: int) -> list[tuple[int, int]]:
        numbers = range(thread * launches, (thread + 1) * launches)
        return [(note[1, stream](number, noted, count).value, number) for number in numbers]

    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        async with aiodev.capture(stream) as graph:
            with ThreadPoolExecutor(threads) as pool:
                launched = sorted(one for part in pool.map(launch, range(threads)) for one in part)
    finally:
        sys.setswitchinterval(interval)
    first = launched[0][0]
    assert [value for value, _ in launched] == list(range(first, first + threads * launches))
    await graph.replay()
    assert await noted.tolist() == [number for _, number in launched]


async def test_host_calls(device: str) -> None:
    """A captured call of the host runs in stream order, once for each replay, and what it raises fails that replay."""
    seen: list[float] = []
    x, host = await ready(aiodev.zeros(1, device=device)), np.zeros(1)
    async with aiodev.capture(aiodev.Stream(device)) as graph:
        stream = aiodev.current_stream(device)
        add_one[1](x)
        stream.copy(host, x)
        stream.call(lambda: seen.append(1 / (3 - int(host[0]))))
        double[1](x)
    await graph.replay()
    assert seen == [1 / 2] and await x.tolist() == [2]
    with pytest.raises(ZeroDivisionError) as caught:
        await graph.replay()
    (note,) = caught.value.__notes__
    assert "<lambda>: a call of a graph, captured at " in note and __file__ in note
    assert len(graph) == 4


async def test_empty_graph(device: str) -> None:
    """A graph without operations is replayed all the same."""
    async with aiodev.capture(aiodev.Stream(device)) as graph:
        pass
    assert len(graph) == 0 and graph
    await graph.replay()


async def test_bound_launches_are_captured(device: str) -> None:
    """A launch that was bound before belongs to the stream that it was bound to, and is captured with that."""
    stream = aiodev.Stream(device)
    x = await ready(aiodev.ones(4, device=device))
    step = double.bind((4, stream), x)
    await step()
    async with aiodev.capture(stream) as graph:
        step()
    buffer = weakref.ref(x._buffer)
    del x, step
    assert buffer() is not None
    await graph.replay()
    assert graph._sealed().held


async def test_cached_tables_are_not_of_the_capture() -> None:
    """Functions that make tables for later calls may be called first in a capture: the tables are there at once."""
    host = np.arange(24.0).reshape(4, 6)
    x = aiodev.asarray(host, device="cpu")
    async with aiodev.capture(aiodev.Stream("cpu")) as graph:
        rolled = kernels.roll(x, 5, axis=1)
        tiled = kernels.tile(x, (2, 1))
    assert np.array_equal(await kernels.roll(x, 5, axis=1).numpy(), np.roll(host, 5, axis=1))
    await graph.replay()
    assert np.array_equal(await rolled.numpy(), np.roll(host, 5, axis=1))
    assert np.array_equal(await tiled.numpy(), np.tile(host, (2, 1)))
