"""Waiting: fairness, cancellation at any moment, many loops and threads, and loops that end."""

from __future__ import annotations

import asyncio
import threading
import time
from typing import Any

import anyio
import pytest

import aiodev
from aiodev._core.backend.interface import SUBMITTED
from aiodev._core.tuning import MOST_TURNS
from aiodev._core.waiting.reactor import current_reactor
from aiodev.testing import Latch


def nothing_waits() -> bool:
    """Whether no waiter of the running loop was left behind."""
    return len(current_reactor().waits) == 0


def empty(stream: aiodev.Stream) -> aiodev.Completion:
    """Submit an operation that does nothing."""
    return aiodev.Completion(stream.timeline, stream._fill(0, 0, bytes(1)))


@pytest.mark.anyio
async def test_tasks_that_never_wait_let_others_run() -> None:
    """Two tasks that submit and await for ever, and one that awaits what is done, leave a heartbeat its turn."""
    streams = [aiodev.Stream("cpu") for _ in range(2)]
    done = empty(streams[0])
    await done
    beats, stop = 0, False

    async def greedy(stream: aiodev.Stream) -> None:
        while not stop:
            await empty(stream)

    async def idle() -> None:
        while not stop:
            await done

    async with anyio.create_task_group() as group:
        group.start_soon(greedy, streams[0])
        group.start_soon(greedy, streams[1])
        group.start_soon(idle)
        while beats < 50:
            await anyio.sleep(0.001)  # a timer is what must not starve
            beats += 1
        stop = True
    assert beats == 50


@pytest.mark.anyio
async def test_an_await_of_something_done_yields_now_and_then() -> None:
    """Of 1,000 such awaits some, but few, make a round trip through the loop."""
    stream, turns = aiodev.Stream("cpu"), 0
    done = empty(stream)
    await done
    finished = anyio.Event()

    async def count() -> None:
        nonlocal turns
        while not finished.is_set():
            turns += 1
            await anyio.lowlevel.checkpoint()

    async with anyio.create_task_group() as group:
        group.start_soon(count)
        await anyio.lowlevel.checkpoint()
        before = turns
        for _ in range(1000):
            await done
        took = turns - before
        finished.set()
    assert 3 <= took <= 500


@pytest.mark.anyio
async def test_cancelling_a_waiter_leaves_the_work_and_other_waiters_alone() -> None:
    """One of two waiters of the same operation is cancelled; the other, and later ones, get it."""
    stream, got = aiodev.Stream("cpu"), []
    latch = Latch(stream)
    call = stream.call(int, 7)

    async def wait() -> None:
        got.append(await call)

    async with anyio.create_task_group() as group:
        with anyio.move_on_after(0.01) as scope:
            await call
        assert scope.cancelled_caught
        group.start_soon(wait)
        await anyio.lowlevel.checkpoint()
        latch.release()
    assert got == [7] and await call == 7 and nothing_waits()


@pytest.mark.anyio
async def test_cancellation_around_the_moment_of_completion() -> None:
    """A waiter that is cancelled just before, at, or after completion leaks nothing, and the work is done all the same."""
    stream = aiodev.Stream("cpu")
    for i in range(300):
        latch = Latch(stream)
        stream.timeline.spins = False
        with anyio.CancelScope() as scope:
            async with anyio.create_task_group() as group:
                group.start_soon(stream.synchronize)
                await anyio.lowlevel.checkpoint()
                if i % 3 == 0:
                    scope.cancel()
                latch.release()
                if i % 3 == 1:
                    scope.cancel()
                await anyio.lowlevel.checkpoint()
                if i % 3 == 2:
                    scope.cancel()
        await stream.synchronize()
    assert nothing_waits()


async def test_ten_thousand_waiters_cancelled_at_once() -> None:
    """They all end, nothing of them is left, and the stream goes on."""
    streams = [aiodev.Stream("cpu") for _ in range(32)]
    latches = [Latch(stream) for stream in streams]
    waiters = [asyncio.ensure_future(streams[i % 32].synchronize()) for i in range(10_000)]
    for _ in range(1 + MOST_TURNS):  # that the first of them leaves to the others
        await asyncio.sleep(0)
    assert len(current_reactor().waits) == 10_000
    for waiter in waiters:
        waiter.cancel()
    outcomes = await asyncio.gather(*waiters, return_exceptions=True)
    assert all(isinstance(outcome, asyncio.CancelledError) for outcome in outcomes) and nothing_waits()
    for latch in latches:
        latch.release()
    await aiodev.synchronize("cpu")


async def test_a_timeout_of_nothing() -> None:
    """`asyncio.timeout(0)` ends a wait that has to wait; a later wait works."""
    stream = aiodev.Stream("cpu")
    latch = Latch(stream)
    call = stream.call(int, 1)
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0):
            await call
    latch.release()
    assert await call == 1 and nothing_waits()


@pytest.mark.anyio
async def test_cancellation_inside_guards_restores() -> None:
    """A task that is cancelled inside two guards leaves the current device and stream as they were."""
    before = aiodev.current_stream("cpu")
    stream = aiodev.Stream("cpu")
    latch = Latch(stream)
    with anyio.move_on_after(0.01) as scope:
        async with aiodev.device("cpu"), stream:
            await stream.synchronize()
    assert scope.cancelled_caught and aiodev.current_stream("cpu") is before
    latch.release()
    await stream.synchronize()


def test_loops_in_several_threads_wait_for_the_same_work() -> None:
    """Launched in one place, awaited in others: eight loops in eight threads, and a thread that blocks."""
    stream, got = aiodev.Stream("cpu"), []
    latch = Latch(stream)
    call = stream.call(int, 5)
    waiting = threading.Barrier(10)

    async def wait() -> None:
        stream.timeline.spins = False
        task = asyncio.ensure_future(asyncio.wait_for(_result(call), 30))
        await asyncio.sleep(0)
        waiting.wait(30)
        got.append(await task)

    def block() -> None:
        waiting.wait(30)
        got.append(call.synchronize_blocking(30))

    threads = [threading.Thread(target=asyncio.run, args=(wait(),)) for _ in range(8)] + [
        threading.Thread(target=block)
    ]
    for thread in threads:
        thread.start()
    waiting.wait(30)
    latch.release()
    for thread in threads:
        thread.join(30)
    assert got == [5] * 9


async def _result(completion: aiodev.Completion) -> int:
    result: int = await completion
    return result


def test_a_loop_that_closes_with_work_in_flight_loses_only_its_own_wake_ups() -> None:
    """A second loop then waits for the same work, and a third for later work."""
    stream = aiodev.Stream("cpu")
    latch = Latch(stream)
    call = stream.call(int, 3)

    async def give_up() -> None:
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(_result(call), 0.01)

    loop = asyncio.new_event_loop()
    loop.run_until_complete(give_up())
    abandoned = loop.create_task(_result(call))
    loop.run_until_complete(asyncio.sleep(0))
    loop.close()
    latch.release()
    assert asyncio.run(_result(call)) == 3
    assert asyncio.run(_result(stream.call(int, 4))) == 4
    assert not abandoned.done()
    abandoned._log_destroy_pending = False


def test_a_blocking_wait_ends_at_its_timeout() -> None:
    """And the next one gets the result."""
    stream = aiodev.Stream("cpu")
    latch = Latch(stream)
    call = stream.call(int, 2)
    began = time.monotonic()
    with pytest.raises(TimeoutError):
        call.synchronize_blocking(0.05)
    assert time.monotonic() - began >= 0.05
    latch.release()
    assert call.synchronize_blocking(30) == 2


async def test_waking_a_crowd_takes_one_turn() -> None:
    """A thousand tasks that wait for one operation are woken by one wake-up of the loop."""
    stream = aiodev.Stream("cpu")
    latch = Latch(stream)
    call = stream.call(int, 1)
    waiters = [asyncio.ensure_future(_result(call)) for _ in range(1000)]
    await asyncio.sleep(0)
    waits = current_reactor().waits
    collections, collect_into = 0, waits.collect_into

    def counted(line: Any) -> None:
        nonlocal collections
        collections += 1
        collect_into(line)

    waits.collect_into = counted  # type: ignore[method-assign]
    try:
        latch.release()
        assert await asyncio.gather(*waiters) == [1] * 1000
    finally:
        del waits.collect_into
    assert 1 <= collections <= 3 and stream.timeline.counters[SUBMITTED] == 2


def test_a_recycled_descriptor_wakes_its_next_owner() -> None:
    """A wake-up that a closed loop never saw does not silence the loop that gets its descriptor."""
    stream = aiodev.Stream("cpu")
    for turn in range(50):
        latch = Latch(stream)
        call = stream.call(int, turn)
        loop = asyncio.new_event_loop()
        abandoned = loop.create_task(_result(call))
        loop.run_until_complete(asyncio.sleep(0))
        loop.close()
        abandoned._log_destroy_pending = False
        latch.release()  # and the wake-up goes to nobody
        call.synchronize_blocking(30)

        async def wait() -> None:
            await asyncio.sleep(0)  # the reactor has nothing to wait for when the stale wake-up arrives
            current_reactor()
            for _ in range(3):
                await asyncio.sleep(0)  # through the selector, where the stale wake-up would arrive
            held = Latch(stream)
            later = asyncio.ensure_future(_result(stream.call(int, 1)))
            await asyncio.sleep(0)
            held.release()
            assert await asyncio.wait_for(later, 10) == 1

        asyncio.run(wait())


def test_threads_that_end_leave_their_descriptors_to_others() -> None:
    """Each thread's loop, and each thread that blocks, has a descriptor to wait with; a hundred of them need few."""
    aiodev.init_blocking("cpu")
    seen: set[int] = set()

    async def wait_here() -> None:
        stream, gate = aiodev.Stream("cpu"), asyncio.get_running_loop().create_future()
        held = stream.wait_future(gate)
        asyncio.get_running_loop().call_soon(gate.set_result, None)
        await held
        seen.add(current_reactor().waits.descriptor.read_end)

    for _ in range(100):
        thread = threading.Thread(target=lambda: asyncio.run(wait_here()))
        thread.start()
        thread.join()
    assert len(seen) < 10
