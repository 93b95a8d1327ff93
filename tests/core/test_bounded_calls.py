"""Bounded streams: whatever a call submits counts as one operation, and is submitted whole or not at all."""

from __future__ import annotations

import asyncio
import contextlib
import random
import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st
from selection import examples

import aiodev
import aiodev.kernels as kernels
from aiodev._core.backend.interface import COMPLETED
from aiodev.testing import Latch

pytestmark = pytest.mark.anyio

SIZE = 200_000


def make_adding() -> tuple[aiodev.Kernel, float]:
    """A kernel that was never compiled before, which adds a number to each element; and that number."""
    number = random.random()

    @aiodev.kernel
    def add_number(i: int, x: Any) -> None:
        x[i] += number

    return add_number, number


@aiodev.kernel
def increment(i: int, x: Any) -> None:
    """Add one."""
    x[i] += 1.0


async def ready(stream: aiodev.Stream, host: Any) -> aiodev.Array:
    """A copy that is there."""
    with stream:
        x = aiodev.asarray(host)
    await stream.synchronize()
    return x


async def test_what_is_being_compiled_has_the_room_that_was_asked_for() -> None:
    """Each of the first launches of a kernel waits at a gate of its own, which takes up no room."""
    stream = aiodev.Stream("cpu", maxsize=3)
    x = await ready(stream, np.zeros(4))
    add_number, number = make_adding()
    await stream.drain(3)
    for _ in range(3):
        add_number[4, stream](x)
    with pytest.raises(aiodev.StreamFullError):
        add_number[4, stream](x)
    assert stream.qsize() <= 3
    await stream.drain(3)
    assert stream.empty()
    np.testing.assert_allclose(await x.numpy(), np.full(4, number * 3))


@pytest.mark.parametrize("function", [kernels.sum, kernels.sort, lambda x: kernels.cumulative_sum(x, out=x)])
async def test_functions_of_several_launches_are_refused_whole(function: Callable[..., aiodev.Array]) -> None:
    """Also when they are called for the first time, and for the third; what is refused has submitted nothing."""
    stream, host = aiodev.Stream("cpu", maxsize=2), np.random.default_rng(0).random(SIZE)
    x = await ready(stream, host)
    with stream:
        for _ in range(3):
            with Latch(stream):
                found = function(x)
                before = stream.timeline.submitted
                assert stream.full() and before - stream.timeline.counters[COMPLETED] > 2
                with pytest.raises(aiodev.StreamFullError):
                    function(x)
                assert stream.timeline.submitted == before
            expected = np.asarray({kernels.sum: np.sum, kernels.sort: np.sort}.get(function, np.cumsum)(host))
            np.testing.assert_allclose(await found.numpy(), expected, rtol=1e-12)
            x = await ready(stream, host)


async def test_a_replay_is_one_operation() -> None:
    """However many branches the graph has."""
    main, side, stream = aiodev.Stream("cpu"), aiodev.Stream("cpu"), aiodev.Stream("cpu", maxsize=2)
    x, y = await ready(main, np.zeros(4)), await ready(main, np.zeros(4))
    async with aiodev.capture(main) as graph:
        increment[4](x)
        side.wait_stream(main)
        increment[4, side](y)
        increment[4](x)
        main.wait_stream(side)
        increment[4](y)
    for _ in range(2):
        await stream.drain(2)
        with Latch(stream):
            graph.replay(stream)
            assert stream.qsize() == 2
            with pytest.raises(aiodev.StreamFullError):
                graph.replay(stream)
    await stream.synchronize()
    assert await x.tolist() == await y.tolist() == [4.0] * 4


async def test_a_block_counts_as_one_operation() -> None:
    """Blocks within it are parts of it, and what it raises leaves what it has submitted."""
    stream, seen = aiodev.Stream("cpu", maxsize=2), list[int]()
    with Latch(stream):
        with stream.as_one():
            stream.call(seen.append, 1)
            with stream.as_one():
                stream.call(seen.append, 2)
            stream.call(seen.append, 3)
        assert stream.qsize() == 2
        with pytest.raises(aiodev.StreamFullError), stream.as_one():
            raise AssertionError("there was no room for the block")
    await stream.drain(2)
    with pytest.raises(ZeroDivisionError), stream.as_one():
        for number in (4, 5):
            stream.call(seen.append, number)
        raise ZeroDivisionError
    for number in (6, 7):
        stream.call(seen.append, number)
        await stream.drain(2)
    assert seen == [1, 2, 3, 4, 5, 6, 7] and stream.empty()


async def test_a_block_where_nothing_is_counted() -> None:
    """In an unbounded stream, and while one is captured; in a closed one it is refused."""
    free, bounded = aiodev.Stream("cpu"), aiodev.Stream("cpu", maxsize=1)
    x = await ready(free, np.zeros(4))
    for stream in (free, bounded):
        async with aiodev.capture(stream) as graph:
            with stream.as_one():
                increment[4](x)
                increment[4](x)
        with stream.as_one():
            graph.replay(stream)
        await stream.synchronize()
        await stream.aclose()
        with pytest.raises(aiodev.ClosedError), stream.as_one():
            raise AssertionError("the stream is closed")
    assert await x.tolist() == [4.0] * 4


@pytest.mark.parametrize("own", [False, True])
async def test_bounded_streams_are_captured(own: bool) -> None:
    """What is captured takes up no room, whether it is of one operation or several, or in a block."""
    stream = aiodev.Stream("cpu", maxsize=1)
    captured = aiodev.Stream("cpu") if own else stream
    x = await ready(captured, np.arange(4.0))
    async with aiodev.capture(captured) as graph:
        if own:
            stream.wait_stream(captured)
        with stream:
            y = kernels.sort(kernels.cumulative_sum(x + 1))
            with stream.as_one():
                y += kernels.matmul(y, y)
        if own:
            captured.wait_stream(stream)
    assert stream.empty()
    await graph.replay()
    expected = np.cumsum(np.arange(4.0) + 1)
    assert await y.tolist() == list(expected + expected @ expected)


@settings(max_examples=examples(30), deadline=None)
@given(st.integers(1, 4), st.lists(st.one_of(st.just("release"), st.integers(1, 3), st.lists(st.integers(0, 3), max_size=3))))
def test_blocks_at_random_follow_a_count(maxsize: int, steps: list[Any]) -> None:
    """So many calls by themselves, blocks with blocks in them, and the stream's work let go from time to time."""
    stream, seen, expected, pending = aiodev.Stream("cpu", maxsize=maxsize), list[int](), list[int](), 1
    latch = Latch(stream)

    def submit(calls: int) -> None:
        for _ in range(calls):
            stream.call(seen.append, len(expected))
            expected.append(len(expected))

    for step in steps:
        if step == "release":
            latch.release()
            stream.synchronize_blocking(60)
            latch, pending = Latch(stream), 1
        elif isinstance(step, int):
            for _ in range(step):
                with contextlib.nullcontext() if pending < maxsize else pytest.raises(aiodev.StreamFullError):
                    submit(1)
                    pending += 1
        else:
            with contextlib.nullcontext() if pending < maxsize else pytest.raises(aiodev.StreamFullError):
                with stream.as_one():
                    for calls in step:
                        with stream.as_one():
                            submit(calls)
                pending += sum(step) > 0
        assert (stream.qsize(), stream.full()) == (pending, pending == maxsize)
    latch.release()
    stream.synchronize_blocking(60)
    assert seen == expected and stream.empty()


def test_blocks_of_threads_count_as_one_each() -> None:
    """Whichever operation is whose; and a block that another thread leaves is left."""
    stream, together = aiodev.Stream("cpu", maxsize=3), threading.Barrier(2)

    def block() -> None:
        with stream.as_one():
            together.wait(60)
            for _ in range(3):
                stream.call(int)
            together.wait(60)

    with Latch(stream):
        threads = [threading.Thread(target=block) for _ in range(2)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert stream.qsize() == 3 and stream.full()
        with pytest.raises(aiodev.StreamFullError):
            stream.call(int)
    stream.synchronize_blocking()
    left = contextlib.ExitStack()
    left.enter_context(stream.as_one())
    leaving = threading.Thread(target=left.close)
    leaving.start()
    leaving.join()
    with Latch(stream):
        for _ in range(2):
            stream.call(int)
        with pytest.raises(aiodev.StreamFullError):
            stream.call(int)


def test_threads_submit_calls_whole() -> None:
    """To one stream; who is refused tries again, and nothing has been computed twice."""
    stream, rounds = aiodev.Stream("cpu", maxsize=4), 30
    with stream:
        arrays = [aiodev.full(SIZE, 1.0, np.int64, "cpu") for _ in range(3)]
    stream.synchronize_blocking()

    def work(x: aiodev.Array) -> None:
        done = 0
        with stream:
            while done < rounds:
                try:
                    kernels.cumulative_sum(x, out=x)  # several launches; the numbers wrap around
                    done += 1
                except aiodev.StreamFullError:
                    stream.synchronize_blocking()

    threads = [threading.Thread(target=work, args=(x,)) for x in arrays]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    expected = np.ones(SIZE, np.int64)
    for _ in range(rounds):
        expected = np.cumsum(expected)
    for x in arrays:
        assert np.array_equal(x.numpy_blocking(), expected)
    stream.synchronize_blocking()
    assert stream.empty() and not stream._is_admitted


KINDS = ["kernel", "new kernel", "function", "functions", "copy", "strided copy", "call", "replay"]


@settings(max_examples=examples(25), deadline=None)
@given(
    maxsize=st.integers(1, 6),
    steps=st.lists(st.lists(st.sampled_from(KINDS), min_size=1, max_size=6), min_size=1, max_size=8),
    low_water=st.integers(0, 5),
)
def test_steps_that_drained_are_submitted_whole(maxsize: int, steps: list[list[str]], low_water: int) -> None:
    """Random programs: who asked for room for a step has it, and the bound is kept."""

    async def main() -> None:
        stream = aiodev.Stream("cpu", maxsize=maxsize, low_water=min(low_water, maxsize - 1))
        x = await ready(stream, np.zeros((8, 8)))
        expected, called, known = np.zeros((8, 8)), 0, 0
        own = aiodev.Stream("cpu")
        async with aiodev.capture(own) as graph:
            increment[8](x[0])
            side = aiodev.Stream("cpu")
            side.wait_stream(own)
            increment[8, side](x[1])
            own.wait_stream(side)
            increment[8](x[1])

        def call() -> None:
            nonlocal called
            called += 1

        for step in steps:
            for part in (step[k : k + maxsize] for k in range(0, len(step), maxsize)):
                await stream.drain(len(part))
                for kind in part:
                    with stream:
                        if kind == "kernel":
                            increment[8](x[2])
                            expected[2] += 1
                        elif kind == "new kernel":
                            add_number, number = make_adding()
                            add_number[8](x[3])
                            expected[3] += number
                        elif kind == "function":
                            kernels.add(x, 1.0, out=x)
                            expected += 1
                        elif kind == "functions":
                            kernels.cumulative_sum(x, axis=0, out=x)
                            expected = np.cumsum(expected, axis=0)
                        elif kind == "copy":
                            stream.copy(x[4], np.full(8, 3.0))
                            expected[4] = 3
                        elif kind == "strided copy":
                            stream.copy(x, x.T)
                            expected = expected.T.copy()
                        elif kind == "call":
                            stream.call(call)
                            known += 1
                        else:
                            graph.replay(stream)
                            expected[:2] += [[1], [2]]
                    assert stream.qsize() <= maxsize
        await stream.drain(maxsize)
        assert stream.empty() and called == known
        np.testing.assert_allclose(await x.numpy(), expected, rtol=1e-12)

    asyncio.run(main())
