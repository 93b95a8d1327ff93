"""Replays: order, failure, withdrawal, and what is not there yet."""

from __future__ import annotations

import asyncio
import gc
import linecache

import numpy as np
import pytest
from captured import add_one, double, raise_at, ready, sum_of, watched

import aiodev
from aiodev import kernels
from aiodev.kernels import random
from aiodev.kernels.linalg import openblas, products
from aiodev.testing import Latch, SimulatedBackend


async def test_readers_wait_for_the_replay(device: str) -> None:
    """An array that a replay writes is read after it, and one that it reads is freed after it."""
    stream = aiodev.Stream(device)
    x = await ready(aiodev.ones(4, device=device))
    async with aiodev.capture(stream) as graph:
        y = kernels.add(x, 1)
    latch = Latch(stream)
    graph.replay(stream)
    reading = asyncio.ensure_future(y.tolist())
    await asyncio.sleep(0)
    assert not reading.done() and x._buffer.pending()
    latch.release()
    assert await reading == [2] * 4


async def test_branches_run_beside_each_other(device: str) -> None:
    """A stream that waits for a captured one is captured, until that waits for it; order is as it was submitted."""
    first, second = aiodev.Stream(device), aiodev.Stream(device)
    x, y = aiodev.zeros(4, device=device), aiodev.zeros(4, device=device)
    out = await ready(aiodev.zeros(4, device=device))
    async with aiodev.capture(first) as graph:
        add_one[4](x)
        second.wait_event(first.record_event())
        double[4, second](x)
        add_one[4](y)
        middle = second.record_event()
        add_one[4, second](x)
        first.wait_event(middle)
        double[4](y)
        first.wait_stream(second)
        sum_of[4](x, y, out)
    assert repr(graph) == f"<aiodev.Graph of 6 operations on {aiodev.Device(device)}, 2 streams>"
    expected_x = expected_y = 0
    for _ in range(3):
        expected_x, expected_y = 2 * (expected_x + 1) + 1, 2 * (expected_y + 1)
        await graph.replay()
        assert await out.tolist() == [expected_x + expected_y] * 4
    assert second.timeline.recording is None and await double[4, second](x) is None


@pytest.mark.parametrize("branched", [False, True])
async def test_failure_names_the_node(device: str, branched: bool) -> None:
    """A node that fails is named with its kernel and the line that captured it; later replays run."""
    first, second = aiodev.Stream(device), aiodev.Stream(device)
    x, bad = aiodev.zeros(4, "int64", device), aiodev.zeros((), "int64", device)
    bad[...] = 1
    await aiodev.synchronize(device)
    failing = second if branched else first
    async with aiodev.capture(first) as graph:
        add_one[4](x)
        if branched:
            second.wait_stream(first)
        raise_at[4, failing](bad, x)  # here
        if branched:
            first.wait_stream(second)
        double[4](x)
    with pytest.raises(aiodev.KernelError) as caught:
        await graph.replay(first)
    error = caught.value
    assert error.kernel == "raise_at" and error.node == 1
    assert str(error.__cause__) == "bad value"
    file, _, line = (error.submitted_at or "").rpartition(":")
    assert linecache.getline(file, int(line)).endswith("# here\n")
    assert f"node 1 of a graph, captured at {file}:{line}" in str(error)
    assert max(await aiodev.asarray(np.zeros(1), device=device).tolist()) == 0  # the device goes on
    with first:
        x[...] = 5
    await graph.replay(first)
    assert await x.tolist() == [14] * 4


async def test_cause_of_a_failed_branch_is_known(device: str) -> None:
    """However early the failure is learnt of, while the branches are being submitted too, its cause is at hand."""
    first, *others = (aiodev.Stream(device) for _ in range(4))
    x, bad = await ready(aiodev.zeros(4, "int64", device)), await ready(aiodev.zeros((), "int64", device))
    async with aiodev.capture(first) as graph:
        for other in others:
            other.wait_stream(first)
            raise_at[4, other](bad, x)
            first.wait_stream(other)
    for _ in range(100):
        with pytest.raises(aiodev.KernelError) as caught:
            await graph.replay(first)
        assert caught.value.kernel == "raise_at"


async def test_failure_of_a_graph_that_is_gone(device: str) -> None:
    """A failure that is learnt of when the graph is gone names its kernel, and not the wrong line."""
    stream = aiodev.Stream(device)
    x, bad = aiodev.zeros(4, "int64", device), await ready(aiodev.zeros((), "int64", device))
    async with aiodev.capture(stream) as graph:
        raise_at[4](bad, x)
    done = graph.replay(stream)
    del graph
    gc.collect()
    while not done.query():
        await asyncio.to_thread(done.timeline.operations.spin, done.timeline.queue, done.value, 10**7)
    await watched()
    with pytest.raises(aiodev.KernelError, match="raise_at: ValueError: bad value") as caught:
        await done
    assert caught.value.submitted_at is None or __file__ in caught.value.submitted_at


async def test_replay_of_nothing_behind_a_failure(device: str) -> None:
    """A graph without operations has replays of its own: one behind a failure that somebody was told of is done."""
    stream = aiodev.Stream(device)
    async with aiodev.capture(stream) as graph:
        pass
    with pytest.raises(ZeroDivisionError):
        await stream.call(lambda: 1 / 0)
    await graph.replay(stream)
    failed = stream.call(lambda: 1 / 0)
    with pytest.raises(aiodev.DependencyError):
        await graph.replay(stream)
    with pytest.raises(ZeroDivisionError):
        await failed


async def test_replay_behind_a_failure_does_not_run(device: str) -> None:
    """A replay behind a failure of its stream fails with it, as any operation."""
    stream = aiodev.Stream(device)
    x = await ready(aiodev.zeros(4, device=device))
    async with aiodev.capture(stream) as graph:
        add_one[4](x)
    with Latch(stream):
        failed = stream.call(int, "x")
        done = graph.replay(stream)
    with pytest.raises(aiodev.DependencyError):
        await done
    with pytest.raises(ValueError):
        await failed
    await graph.replay(stream)
    assert await x.tolist() == [1] * 4


@pytest.mark.parametrize("branched", [False, True])
async def test_replay_is_withdrawn(device: str, branched: bool) -> None:
    """A replay that has not begun is withdrawn as a whole, and later ones run."""
    first, second = aiodev.Stream(device), aiodev.Stream(device)
    x = await ready(aiodev.zeros(4, device=device))
    async with aiodev.capture(first) as graph:
        add_one[4](x)
        if branched:
            second.wait_stream(first)
            add_one[4, second](x)
            first.wait_stream(second)
        add_one[4](x)
    with Latch(first):
        done = graph.replay(first)
        assert done.cancel()
    with pytest.raises(aiodev.WithdrawnError):
        await done
    with first:
        x[...] = 0
    await graph.replay(first)
    assert await x.tolist() == [3 if branched else 2] * 4


@pytest.mark.parametrize("calls", [False, True])
@pytest.mark.parametrize("all_of_it", [False, True])
async def test_replay_behind_one_that_was_withdrawn(device: str, all_of_it: bool, calls: bool) -> None:
    """It runs on all streams of the graph, whoever submits their steps: who withdraws knows of it."""
    first, second, own = (aiodev.Stream(device) for _ in range(3))
    x, y = [await ready(aiodev.zeros(4, device=device)) for _ in range(2)]
    called: list[str] = []
    async with aiodev.capture(first) as graph:
        second.wait_stream(first)
        add_one[4, second](y)
        if calls:  # then each step is submitted by itself
            second.call(called.append, "called")
        add_one[4, first](x)
        first.wait_stream(second)
    await graph.replay(own)  # its code is loaded
    with Latch(own):
        withdrawn = graph.replay(own)
        assert own.cancel() if all_of_it else withdrawn.cancel()
        behind = graph.replay(own)
    with pytest.raises(aiodev.WithdrawnError):
        await withdrawn
    await behind
    await own.synchronize()
    with own:
        assert await x.tolist() == await y.tolist() == [2] * 4
    assert called == ["called"] * 2 * calls


async def test_replays_on_two_streams_at_once_are_refused(device: str) -> None:
    """A graph that runs on one stream is refused on another, unless that waits for it."""
    first, second = aiodev.Stream(device), aiodev.Stream(device)
    x = await ready(aiodev.zeros(4, device=device))
    async with aiodev.capture(first) as graph:
        add_one[4](x)
    latch = Latch(first)
    graph.replay(first)
    with pytest.raises(RuntimeError, match=f"Stream {second.stream_id}.* still runs on .*Stream {first.stream_id}"):
        graph.replay(second)
    second.wait_stream(first)
    done = graph.replay(second)
    latch.release()
    await done
    assert await x.tolist() == [2] * 4


async def test_outputs_of_one_graph_are_inputs_of_another(device: str) -> None:
    """A graph may read what another one of the same pool has made; that memory is not given to the second."""
    with aiodev.device(device):
        x = await ready(aiodev.ones(100))
        async with aiodev.capture() as first:
            y = kernels.add(x, 1)
        async with aiodev.capture(pool=first.pool) as second:
            z = kernels.multiply(y, 3)
        stream = aiodev.Stream()
        first.replay(stream)
        second.replay(stream)
        assert set(await z.tolist()) == {6}


async def test_kernels_are_compiled_until_the_replay(device: str) -> None:
    """A kernel that nobody has launched may be captured; the replay waits for its code, and not the capture."""

    @aiodev.kernel
    def fresh(i, x):
        x[i] = 3 * x[i] + 17.25

    x = await ready(aiodev.ones(4, device=device))
    async with aiodev.capture(aiodev.Stream(device)) as graph:
        fresh[4](x)
    graph.replay()
    await graph.replay()
    assert await x.tolist() == [3 * 20.25 + 17.25] * 4


async def test_kernel_that_does_not_compile(device: str) -> None:
    """A replay of a kernel that does not compile fails with the compiler's message."""

    @aiodev.kernel
    def wrong(i, x):
        x[i] = "text"

    x = await ready(aiodev.ones(4, device=device))
    async with aiodev.capture(aiodev.Stream(device)) as graph:
        wrong[4](x)
    with pytest.raises(aiodev.CompileError):
        await graph.replay()


async def test_replays_draw_what_eager_calls_would(device: str) -> None:
    """Replays and direct calls draw the same numbers in any mixture, from default and other generators."""

    def draw(own: aiodev.Generator) -> list[aiodev.Array]:
        first = random.random(5, device=device)
        second = random.standard_normal(7, device=device, generator=own)
        third = random.integers(0, 100, 3, device=device, generator=own)
        return [first, second, third]

    aiodev.manual_seed(3)
    own = aiodev.Generator(device).manual_seed(4)
    expected = [[await x.tolist() for x in draw(own)] for _ in range(4)]
    aiodev.manual_seed(3)
    own = aiodev.Generator(device).manual_seed(4)
    async with aiodev.capture(aiodev.Stream(device)) as graph:
        captured = draw(own)
    found = [[await x.tolist() for x in draw(own)]]
    for _ in range(2):
        await graph.replay()
        found.append([await x.tolist() for x in captured])
    found.append([await x.tolist() for x in draw(own)])
    assert found == expected


async def test_replay_on_a_stream_of_another_device() -> None:
    """A graph runs on its own device alone."""
    if "sim" not in aiodev.available_backends():
        aiodev.register_backend("sim", SimulatedBackend)
    async with aiodev.capture(aiodev.Stream("cpu")) as graph:
        pass
    with pytest.raises(ValueError, match="the graph is on cpu:0"):
        graph.replay(aiodev.Stream("sim"))
    with pytest.raises(TypeError, match="replay: argument stream: expected a Stream"):
        graph.replay(3)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="replay: argument stream: expected a Stream"):
        graph.replay(aiodev.default_stream("cpu").call(int))  # type: ignore[arg-type]


async def test_full_stream_refuses_a_replay(device: str) -> None:
    """A replay needs room in a bounded stream."""
    stream = aiodev.Stream(device, maxsize=1)
    x = await ready(aiodev.ones(4, device=device))
    async with aiodev.capture(aiodev.Stream(device)) as graph:
        double[4](x)
    latch = Latch(stream)
    with pytest.raises(aiodev.StreamFullError):
        graph.replay(stream)
    latch.release()


async def test_library_that_is_loaded_meanwhile(monkeypatch: pytest.MonkeyPatch) -> None:
    """A product may be captured before its library is loaded: the first replay waits for that, and not the capture."""
    monkeypatch.setattr(openblas, "_tables", {})
    monkeypatch.setattr(products, "_units", {})
    host = np.random.default_rng(0).standard_normal((40, 40))
    x = await ready(aiodev.asarray(host, device="cpu"))
    async with aiodev.capture(aiodev.Stream("cpu")) as graph:
        product = kernels.matmul(x, x)
    await graph.replay()
    assert np.allclose(await product.numpy(), host @ host)
