"""Capture and replay: what is recorded, what a replay does, what is refused, and what is left as it was."""

from __future__ import annotations

import asyncio
import gc
import linecache
import threading
import weakref
from typing import Any

import numpy as np
import pytest

import aiodev
from aiodev import kernels
from aiodev._core.config import settings
from aiodev._core.waiting.watcher import watcher
from aiodev._memory.allocators import allocator_for
from aiodev.kernels import random
from aiodev.kernels.linalg import openblas, products
from aiodev.testing import Latch, SimulatedBackend


@aiodev.kernel
def double(i, x):
    x[i] *= 2


@aiodev.kernel
def add_one(i, x):
    x[i] += 1


@aiodev.kernel
def sum_of(i, x, y, out):
    out[i] = x[i] + y[i]


@aiodev.kernel
def raise_at(i, bad, x):
    if x[i] == bad[()]:
        raise ValueError("bad value")
    x[i] += 1


async def watched() -> None:
    """Wait until the watcher has let go of what was dropped, and is done, so far."""
    done = threading.Event()
    watcher.call(done.set)
    assert await asyncio.to_thread(done.wait, 10)


async def ready(x: aiodev.Array) -> aiodev.Array:
    """An array that any stream may use."""
    await aiodev.synchronize(x.device)
    return x


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


@pytest.mark.skipif(settings.debug, reason="debug mode keeps what a capture has made")
async def test_memory_is_used_again_within_a_capture() -> None:
    """Temporary arrays of a long capture take the memory of a few."""
    x = await ready(aiodev.ones(100_000, device="cpu"))
    async with aiodev.capture() as graph:
        for _ in range(100):
            x = kernels.add(x, 1)
    assert graph.pool.memory_reserved() < 10 * x.nbytes
    await graph.replay()
    assert (await x.numpy()).tolist() == [101] * 100_000


async def test_what_a_capture_made_is_kept() -> None:
    """Dropped arrays of a capture give no memory to anybody else while the graph lives."""
    async with aiodev.capture() as graph:
        x = aiodev.zeros(1000, device="cpu")
        y = kernels.add(x, 1)
        del x
        z = kernels.add(y, 1)
    others = [aiodev.full(1000, 7.0, device="cpu") for _ in range(50)]
    await graph.replay()
    assert set(await z.tolist()) == {2}
    for other in others:
        assert set(await other.tolist()) == {7}


async def test_memory_of_before_lives_as_long_as_the_graph(device: str) -> None:
    """What a graph reads may be dropped by the program; it goes with the graph, once no replay runs."""
    weights = aiodev.full(64, 3.0, device=device)
    out = aiodev.zeros(64, device=device)
    buffer = weakref.ref(weights._buffer)
    async with aiodev.capture(aiodev.Stream(device)) as graph:
        sum_of[64](weights, weights, out)
    await aiodev.synchronize(device)
    del weights
    filler = [aiodev.full(64, 9.0, device=device) for _ in range(20)]
    await aiodev.synchronize(device)
    await graph.replay()
    assert set(await out.tolist()) == {6}
    del graph, filler
    await watched()
    assert buffer() is None


async def test_graph_is_in_no_cycle(device: str) -> None:
    """What a graph holds goes with it, without the garbage collector."""
    x = await ready(aiodev.ones(4, device=device))
    gc.collect()
    gc.disable()
    try:
        for is_replayed in (False, True):
            async with aiodev.capture(aiodev.Stream(device)) as graph:
                y = kernels.add(graph.input("x", x), 1)
            if is_replayed:
                await graph.replay()
            held = [weakref.ref(one) for one in (graph, graph.pool, y._buffer)]
            del graph, y
            await watched()
            assert [reference() for reference in held] == [None] * 3
    finally:
        gc.enable()


async def test_memory_that_a_graph_uses_is_never_given_back(device: str) -> None:
    """What is free in the pool of a graph stays where it is, whoever empties caches, and serves captures alone."""
    x = await ready(aiodev.ones(1 << 20, device=device))
    async with aiodev.capture(aiodev.Stream(device)) as graph:
        y = kernels.sum(kernels.add(kernels.multiply(x, 2), 1))
    reserved = graph.pool.memory_reserved()
    aiodev.memory.empty_cache(device)
    assert graph.pool.memory_reserved() == reserved > 2 * x.nbytes
    await graph.replay()
    assert await y.item() == 3 << 20
    with pytest.raises(RuntimeError, match="is a graph's"), graph.pool:
        pass


@pytest.mark.parametrize("is_replayed", [False, True])
@pytest.mark.parametrize("keeps", [False, True])
async def test_dropped_graphs_give_their_memory_back(is_replayed: bool, keeps: bool) -> None:
    """The pool of a graph that is gone has no memory and no addresses, once arrays that came from it are gone, too."""
    before = aiodev.memory.memory_reserved("cpu")
    for _ in range(3):
        async with aiodev.capture(aiodev.Stream("cpu")) as graph:
            x = aiodev.zeros(10_000_000, np.uint8, "cpu")
            double[10_000_000](x)
        if is_replayed:
            await graph.replay()
        if keeps:
            graph = None  # the array goes after it
            await watched()
        x = graph = None
        await watched()
    assert aiodev.memory.memory_reserved("cpu") == before
    assert not [pool for pool in allocator_for("cpu").private_pools if pool.abandoned and pool.segments.all()]


async def test_graph_dropped_while_it_runs(device: str) -> None:
    """A graph may be dropped with replays in flight: they run to the end."""
    x = await ready(aiodev.ones(4, device=device))
    stream = aiodev.Stream(device)
    async with aiodev.capture(stream) as graph:
        double[4](x)
        y = kernels.add(x, 1)
    with Latch(stream):
        done = [graph.replay(stream) for _ in range(3)]
        del graph
        gc.collect()
    await done[-1]
    assert await x.tolist() == [8] * 4 and await y.tolist() == [9] * 4


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


async def test_branch_that_never_joins_is_refused(device: str) -> None:
    """A capture fails that leaves a stream which nothing waits for; all streams work as before."""
    first, second = aiodev.Stream(device), aiodev.Stream(device)
    x = await ready(aiodev.zeros(4, device=device))
    with pytest.raises(aiodev.CaptureError, match=f"Stream {second.stream_id} .*nothing waits for it"):
        async with aiodev.capture(first) as graph:
            second.wait_stream(first)
            double[4, second](x)
    await add_one[4, first](x)
    await add_one[4, second](x)
    assert await x.tolist() == [2] * 4
    with pytest.raises(RuntimeError, match="failed"):
        graph.replay()


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
    with pytest.raises(ZeroDivisionError):
        await graph.replay()
    assert len(graph) == 4


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
    with pytest.raises(aiodev.AiodevError) as caught:
        await graph.replay(first)
    error = caught.value if not branched else caught.value.__cause__
    assert isinstance(error, aiodev.KernelError) and error.kernel == "raise_at" and error.node == 1
    assert str(error.__cause__) == "bad value"
    file, _, line = (error.submitted_at or "").rpartition(":")
    assert linecache.getline(file, int(line)).endswith("# here\n")
    assert f"node 1 of a graph, captured at {file}:{line}" in str(error)
    assert max(await aiodev.asarray(np.zeros(1), device=device).tolist()) == 0  # the device goes on
    with first:
        x[...] = 5
    await graph.replay(first)
    assert await x.tolist() == [14] * 4


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


async def test_update_outlives_a_replay_that_does_not_run(device: str) -> None:
    """What a replay that was withdrawn would have seen, the next one sees."""
    x = await ready(aiodev.ones(4, device=device))
    stream = aiodev.Stream(device)

    @aiodev.kernel
    def multiply(i, factor, x):
        x[i] *= factor[()]

    async with aiodev.capture(stream) as graph:
        multiply[4](graph.input("factor", 2.0), x)
    with Latch(stream):
        graph.update(factor=5.0)
        assert graph.replay(stream).cancel()
    done = graph.replay(stream)
    await done
    assert await x.tolist() == [5] * 4


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


async def test_graphs_that_share_a_pool(device: str) -> None:
    """Graphs of one pool use the same memory, and are refused at once on two streams."""
    with aiodev.device(device):
        x = await ready(aiodev.ones(10_000))
        async with aiodev.capture() as first:
            total = kernels.sum(kernels.square(kernels.add(x, 1)))
        reserved = first.pool.memory_reserved()
        async with aiodev.capture(pool=first.pool) as second:
            product = kernels.sum(kernels.multiply(kernels.add(x, 2), 2))
        assert second.pool is first.pool and first.pool.memory_reserved() == reserved
        one, other = aiodev.Stream(), aiodev.Stream()
        latch = Latch(one)
        first.replay(one)
        with pytest.raises(RuntimeError, match="memory"):
            second.replay(other)
        latch.release()
        await one.synchronize()
        await second.replay(other)
        assert await total.item() == 40_000 and await product.item() == 60_000


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


# Generators


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


async def test_generators_are_not_touched_by_a_capture() -> None:
    """A capture draws nothing, and refuses to reseed, whatever it is that fails."""
    generator = aiodev.Generator("cpu").manual_seed(5)
    with pytest.raises(aiodev.CaptureError, match="reseed"):
        async with aiodev.capture(aiodev.Stream("cpu")):
            random.random(100, device="cpu", generator=generator)
            generator.manual_seed(1)
    assert generator.get_offset() == 0 and generator.initial_seed() == 5


# Inputs


async def test_numbers_are_updated(device: str) -> None:
    """A number is what it was made of until it is updated, and a replay that was submitted before keeps the old one."""

    @aiodev.kernel
    def add(i, factor, shift, x):
        x[i] = factor[()] * x[i] + shift[()]

    x = await ready(aiodev.ones(4, device=device))
    stream = aiodev.Stream(device)
    async with aiodev.capture(stream) as graph:
        add[4](graph.input("factor", 2.0), graph.input("shift", 3, "int32"), x)
    with Latch(stream):
        graph.replay(stream)
        graph.update(factor=10.0)
        done = graph.replay(stream)
        graph.update(shift=np.int8(-1), factor=0)
    await done
    assert await x.tolist() == [53] * 4
    await graph.replay(stream)
    assert await x.tolist() == [-1] * 4


async def test_arrays_are_updated(device: str) -> None:
    """Another array takes the place of an input, in views of it as well, from the next replay on."""
    x, y = [await ready(aiodev.asarray(np.arange(6.0) + k, device=device)) for k in (0, 10)]
    stream = aiodev.Stream(device)
    async with aiodev.capture(stream) as graph:
        graph.input("x", x)
        out = kernels.add(x[::2], x[1::2])
        double[2](x[4:])
        aiodev.current_stream(device).copy(x[:1], x[5:])
    with Latch(stream):
        graph.replay(stream)
        graph.update(x=y)
        done = graph.replay(stream)
        del y
    await done
    assert await out.tolist() == [21, 25, 29]
    assert await x.tolist() == [10, 1, 2, 3, 8, 10]
    graph.update(x=x)
    await graph.replay(stream)
    assert await out.tolist() == [11, 5, 18]


async def test_replaced_input_is_let_go_of(device: str) -> None:
    """An array that was replaced belongs to the program again."""
    x, y = aiodev.ones(4, device=device), await ready(aiodev.ones(4, device=device))
    async with aiodev.capture(aiodev.Stream(device)) as graph:
        double[4](graph.input("x", x))
    buffer = weakref.ref(x._buffer)
    graph.update(x=y)
    del x
    assert buffer() is None
    await graph.replay()
    assert await y.tolist() == [2] * 4


@pytest.mark.parametrize(
    ("make", "error", "message"),
    [
        (lambda: {"z": 1}, TypeError, "z: the graph has no input of that name; it has x, n"),
        (lambda: {"x": 1}, TypeError, "x: expected an array, got int"),
        (lambda: {"x": aiodev.ones(5, device="cpu")}, ValueError, r"x: expected the shape \(4,\)"),
        (lambda: {"x": aiodev.ones(4, "float32", "cpu")}, ValueError, "dtype float32"),
        (lambda: {"x": aiodev.ones(8, device="cpu")[::2]}, ValueError, "strides"),
        (lambda: {"n": "one"}, TypeError, "n: expected an array or a number, got str"),
        (lambda: {"n": 1 << 40}, OverflowError, "n: 1099511627776 is out of bounds for int32"),
        (lambda: {"x": aiodev.broadcast_to(aiodev.ones((), device="cpu"), 4)}, ValueError, "strides"),
    ],
)
async def test_updates_that_do_not_fit(make: Any, error: type[Exception], message: str) -> None:
    """What does not fit an input is refused by its name, and nothing has changed."""
    x = await ready(aiodev.ones(4, device="cpu"))
    async with aiodev.capture(aiodev.Stream("cpu")) as graph:
        kernels.add(graph.input("x", x), graph.input("n", 5, "int32"), out=x)
    with pytest.raises(error, match=message):
        graph.update(**{"n": 100, **make()})
    await graph.replay()
    assert await x.tolist() == [6] * 4


async def test_inputs_that_are_refused() -> None:
    """Inputs have names of their own, are of before the capture, and do not overlap; they are named in the block alone."""
    x = await ready(aiodev.ones(4, device="cpu"))
    async with aiodev.capture(aiodev.Stream("cpu")) as graph:
        graph.input("x", x[:2])
        with pytest.raises(ValueError, match="'x': the graph has one"):
            graph.input("x", 1)
        with pytest.raises(ValueError, match="'y': it shares memory with input 'x'"):
            graph.input("y", x[1:])
        graph.input("rest", x[2:])
        with pytest.raises(ValueError, match="made before the capture"):
            graph.input("z", aiodev.zeros(3, device="cpu"))
        with pytest.raises(TypeError, match="an array or a number"):
            graph.input("z", "text")
    with pytest.raises(aiodev.CaptureError, match="while the graph is captured"):
        graph.input("z", 1)


# Refusals


async def _await(x: aiodev.Array, stream: aiodev.Stream, done: aiodev.Completion[None]) -> None:
    await done


REFUSALS: dict[str, Any] = {
    "Completion.__await__": lambda x, stream, done: done.__await__().send(None),
    "Completion.query": lambda x, stream, done: done.query(),
    "Completion.cancel": lambda x, stream, done: done.cancel(),
    "Completion.synchronize_blocking": lambda x, stream, done: done.synchronize_blocking(),
    "Stream.synchronize_blocking": lambda x, stream, done: stream.synchronize_blocking(),
    "Stream.cancel": lambda x, stream, done: stream.cancel(),
    "Stream.wait_future": lambda x, stream, done: stream.wait_future(asyncio.get_running_loop().create_future()),
    "Event.record": lambda x, stream, done: aiodev.Event(enable_timing=True).record(stream),
    "synchronize_blocking": lambda x, stream, done: aiodev.synchronize_blocking("cpu"),
    "Array.numpy_blocking": lambda x, stream, done: x.numpy_blocking(),
    "Stream.wait": lambda x, stream, done: stream.wait(aiodev.Stream("cpu").call(int)),
    "Stream.wait_event": lambda x, stream, done: stream.wait_event(aiodev.default_stream("cpu").record_event()),
    "Graph.replay": lambda x, stream, done: _graph().replay(stream),
}


def _graph() -> aiodev.Graph:
    async def make() -> aiodev.Graph:
        async with aiodev.capture(aiodev.Stream("cpu")) as graph:
            pass
        return graph

    try:
        make().send(None)
    except StopIteration as stop:
        return stop.value
    raise AssertionError


@pytest.mark.filterwarnings("ignore::aiodev.SyncWarning")
@pytest.mark.parametrize("call", REFUSALS)
async def test_refused_call_is_named(call: str) -> None:
    """What cannot be captured raises an error that names the call and its place, and records nothing."""
    x = await ready(aiodev.ones(4, device="cpu"))
    stream = aiodev.Stream("cpu")
    await stream.call(int)
    async with aiodev.capture(stream) as graph:
        done = double[4](x)
        with pytest.raises(aiodev.CaptureError) as caught:
            REFUSALS[call](x, stream, done)
        add_one[4](x)
    assert caught.value.call == call and str(caught.value).startswith(f"{call} at ")
    assert (caught.value.place or "").startswith(__file__)
    assert len(graph) == 2
    await graph.replay(stream)
    assert await x.tolist() == [3] * 4


@pytest.mark.parametrize("wait", ["completion", "stream", "array", "device", "close"])
async def test_awaits_are_refused(wait: str) -> None:
    """A coroutine that waits for captured work gets the error, and neither hangs nor ends the capture."""
    x = await ready(aiodev.ones(4, device="cpu"))
    stream = aiodev.Stream("cpu")
    async with aiodev.capture(stream) as graph:
        done = double[4](x)
        with pytest.raises(aiodev.CaptureError):
            match wait:
                case "completion":
                    await done
                case "stream":
                    await stream.synchronize()
                case "array":
                    await x.numpy()
                case "device":
                    await aiodev.synchronize("cpu")
                case "close":
                    await stream.aclose()
    await graph.replay(stream)
    assert await x.tolist() == [2] * 4


async def test_inputs_are_not_read_by_the_host() -> None:
    """An input has another value at each replay: the program that captures cannot decide anything by it."""
    x = await ready(aiodev.ones(2, device="cpu"))
    async with aiodev.capture(aiodev.Stream("cpu")) as graph:
        for own in (graph.input("x", x), graph.input("n", 1)):
            with pytest.raises(aiodev.CaptureError, match="known only when the graph is replayed"):
                await own.tolist()
    assert await x.tolist() == [1, 1]


async def test_completion_of_captured_work_after_the_capture() -> None:
    """Who waits for a captured operation later is told that it is the replay which runs."""
    x = await ready(aiodev.ones(4, device="cpu"))
    async with aiodev.capture(aiodev.Stream("cpu")):
        done = double[4](x)
    with pytest.raises(aiodev.CaptureError, match="runs when its graph is replayed"):
        await done


async def test_error_in_the_block_leaves_everything_as_before(device: str) -> None:
    """A block that raises gives the stream back, and its memory; the graph is of no use."""
    stream = aiodev.Stream(device)
    x = await ready(aiodev.ones(4, device=device))
    timeline = stream.timeline
    with pytest.raises(KeyError):
        async with aiodev.capture(stream) as graph:
            double[4](x)
            kernels.add(x, 1)
            raise KeyError
    assert stream.timeline is timeline
    await add_one[4, stream](x)
    assert await x.tolist() == [2] * 4
    with pytest.raises(RuntimeError, match="failed"):
        graph.replay()
    y = await ready(aiodev.ones(4, device=device))
    assert await y.tolist() == [1] * 4


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


class WithoutBuffers(SimulatedBackend):
    """A device that is given operations one by one."""

    def start(self) -> None:
        super().start()
        self.executor.has_buffers = False  # type: ignore[misc]


async def test_blocks_need_command_buffers(register: Any) -> None:
    """A device that is given operations one by one cannot branch, and says so."""
    name = register(WithoutBuffers)
    x = await ready(aiodev.ones(1, "int64", name))
    with pytest.raises(aiodev.CaptureError, match="no command buffers"):
        async with aiodev.capture(aiodev.Stream(name)) as graph:
            with graph.while_(x):
                add_one[1](x)
