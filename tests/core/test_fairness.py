"""Whoever awaits yields in time, and takes turns with others: by a clock that only the test moves, in counted turns."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Awaitable, Callable
from typing import cast

import anyio
import pytest
from turns import WORK, Clock, Turns

import aiodev
from aiodev._core.tuning import AWAITS, MOST_TURNS, PERIOD_NS, SHARE_NS
from aiodev._core.waiting import fairness
from aiodev._core.waiting.reactor import current_reactor
from aiodev._core.waiting.trio_reactor import ReadyQueue
from aiodev._memory.lease import Admission
from aiodev.testing import Latch


async def something_done() -> aiodev.Completion:
    """A completion that is done."""
    done = aiodev.Stream("cpu").call(int)
    await done
    return done


async def works_of(turns: Turns, clock: Clock, tasks: int, wait: Callable[[], Awaitable[object]], works: int = 4) -> None:
    """So many tasks wait and work, over and over; check that they take turns, one work a turn, and one task after the other."""
    worked: list[tuple[int, int]] = []

    async def task(number: int) -> None:
        for _ in range(works):
            await wait()
            clock.work()
            worked.append((turns.count, number))

    async with anyio.create_task_group() as group:
        for number in range(tasks):
            group.start_soon(task, number)
    in_turns = [turn for turn, _ in worked]
    assert len(set(in_turns)) == len(in_turns) == works * tasks
    for first in range(0, len(worked), tasks):
        assert {number for _, number in worked[first : first + tasks]} == set(range(tasks)), worked


# The budget


@pytest.mark.anyio
@pytest.mark.parametrize("share", [SHARE_NS, PERIOD_NS])
async def test_an_await_of_something_done_yields_when_the_time_is_over(clock: Clock, share: int) -> None:
    """Its share of a period, where others are ready: at the very next await, however few there were."""
    done = await something_done()
    async with Turns() as turns:
        for _ in range(5):
            clock.work()
            await done
            before = turns.count
            clock.work(SHARE_NS - 1)
            await done
            assert turns.count == before
            clock.work(share - SHARE_NS + 1)
            await done
            assert turns.count > before


@pytest.mark.anyio
async def test_a_synchronize_of_nothing_yields_when_the_time_is_over(clock: Clock) -> None:
    """As any other await does; and so does the wait for an event, and a result's."""
    stream, event = aiodev.Stream("cpu"), aiodev.Event("cpu")
    call = stream.call(int)
    await call
    event.record(stream)
    async with Turns() as turns:
        for wait in (stream.synchronize, event.synchronize, call.synchronize, lambda: aiodev.synchronize("cpu")):
            await wait()
            before = turns.count
            clock.work()
            await wait()
            assert turns.count > before


@pytest.mark.anyio
async def test_loops_over_what_need_not_be_waited_for_yield_when_the_time_is_over(clock: Clock) -> None:
    """Completions that are done, and leases that can be had."""
    stream = aiodev.Stream("cpu")
    calls = [stream.call(int) for _ in range(4)]
    await stream.synchronize()
    async with Turns() as turns:
        seen = []
        async for _ in aiodev.as_completed(calls):
            seen.append(turns.count)
            clock.work()
        for _ in range(4):
            async with aiodev.memory.lease(1, "cpu"):
                seen.append(turns.count)
                clock.work()
    assert len(set(seen)) == 8


@pytest.mark.anyio
async def test_awaits_of_something_done_yield_after_some_in_which_no_time_went_by(clock: Clock) -> None:
    """Of so many one yields."""
    done = await something_done()
    async with Turns() as turns:
        await done
        before = turns.count
        for _ in range(10 * AWAITS):
            await done
        assert 8 <= turns.count - before <= 12


class CountedLoop(asyncio.SelectorEventLoop):
    """Counts its turns, by nothing that is ready in them."""

    turns = 0

    def _run_once(self) -> None:
        self.turns += 1
        super()._run_once()  # type: ignore[misc]


def alone(test: Callable[[CountedLoop, aiodev.Completion], Awaitable[None]]) -> None:
    """Run a task in such a loop, beside which there is nobody."""

    async def main() -> None:
        done = await something_done()
        for _ in range(10):
            await asyncio.sleep(0)
        fairness.budget.renew(fairness.clock())
        await test(loop, done)

    with asyncio.Runner(loop_factory=CountedLoop) as runner:
        loop = cast("CountedLoop", runner.get_loop())
        runner.run(main())


def test_a_task_beside_which_nobody_is_ready_goes_on_until_the_period_is_over(clock: Clock) -> None:
    """Neither its share nor the number of its awaits ends its turn."""

    async def test(loop: CountedLoop, done: aiodev.Completion) -> None:
        for _ in range(3):
            before, began = loop.turns, clock.now
            while clock.now + SHARE_NS < began + PERIOD_NS:
                clock.work(SHARE_NS)
                for _ in range(2 * AWAITS):
                    await done
            assert loop.turns == before
            clock.work(SHARE_NS)
            await done
            assert loop.turns > before

    alone(test)


@pytest.mark.parametrize("what", ["a callback", "a callback of another thread's", "a timer", "a descriptor"])
def test_whatever_a_turn_would_find_ends_the_share_of_a_task(clock: Clock, what: str) -> None:
    """Callbacks, timers that are due and descriptors that are readable; before the share is over none of them does."""

    async def test(loop: CountedLoop, done: aiodev.Completion) -> None:
        called, (read_end, write_end) = [], os.pipe()

        def call() -> None:
            called.append(clock.now)
            loop.remove_reader(read_end)

        if what == "a callback":
            loop.call_soon(call)
        elif what == "a timer":
            loop.call_at(loop.time(), call)
        elif what == "a descriptor":
            loop.add_reader(read_end, call)
            os.write(write_end, b"x")
        else:
            thread = threading.Thread(target=loop.call_soon_threadsafe, args=(call,))
            thread.start()
            thread.join()
        clock.work(SHARE_NS - 1)
        await done
        assert not called
        for duration in (1, SHARE_NS):  # what a turn finds runs in that one, or, behind the task, in the next
            clock.work(duration)
            await done
        assert called
        os.close(read_end)
        os.close(write_end)

    alone(test)


# Taking turns


@pytest.mark.anyio
@pytest.mark.parametrize("tasks", [1, 8, 32])
async def test_tasks_that_work_between_awaits_run_in_turns(clock: Clock, tasks: int) -> None:
    """However many await what is done, of those that work for longer than a period one runs a turn, first in, first out."""
    done = await something_done()

    async def wait() -> None:
        await done

    async with Turns() as turns:
        clock.work()
        await works_of(turns, clock, tasks, wait)


@pytest.mark.anyio
@pytest.mark.parametrize("streams", [1, 32])
async def test_tasks_that_one_wake_up_finds_run_in_turns(clock: Clock, streams: int) -> None:
    """The loop is woken once for all of them, and has a turn between any two."""
    held = [aiodev.Stream("cpu") for _ in range(streams)]
    worked: list[int] = []

    async def task(number: int, wait: aiodev.Completion) -> None:
        await wait
        clock.work()
        worked.append(turns.count)

    latches = [Latch(stream) for stream in held]
    calls = [stream.call(int) for stream in held]
    async with Turns() as turns:
        async with anyio.create_task_group() as group:
            for number in range(32):
                group.start_soon(task, number, calls[number % streams])
            while any(stream.timeline.parked < 2 for stream in held):  # the loop, and the watcher
                await anyio.lowlevel.checkpoint()
            for _ in range(2 * MOST_TURNS):  # who has looked whether there is something to help with parks as well
                await anyio.lowlevel.checkpoint()
            for latch in latches:
                latch.release()
            for stream in held:
                stream.synchronize_blocking(30)
        assert len(set(worked)) == len(worked) == 32


@pytest.mark.anyio
async def test_who_asked_first_goes_on_first(clock: Clock, anyio_backend_name: str) -> None:
    """Whoever finds the time over does not overtake those who have let others run for a turn before it was."""
    if anyio_backend_name == "trio":
        pytest.skip("trio runs the tasks of one turn in any order")
    done = await something_done()
    came, went = list[int](), list[int]()

    async def task(number: int) -> None:
        for _ in range(3):
            clock.work(80_000)
            came.append(number)
            await done
            went.append(number)

    clock.work()
    await done
    async with anyio.create_task_group() as group:
        for number in range(40):
            group.start_soon(task, number)
    assert went == came


@pytest.mark.anyio
async def test_leases_are_granted_in_the_order_of_the_calls(clock: Clock) -> None:
    """Whoever lets others run when it asks for one has its place before."""
    done, admission = await something_done(), Admission(lambda: 3)
    came, went = list[int](), list[int]()

    async def task(number: int) -> None:
        clock.work(80_000)
        came.append(number)
        await admission.acquire(2)
        went.append(number)
        admission.release(2)

    clock.work()
    await done
    await admission.acquire(2)
    async with anyio.create_task_group() as group:
        for number in range(40):
            group.start_soon(task, number)
        while len(admission) < 40:
            await anyio.lowlevel.checkpoint()
        admission.release(2)
    assert went == came and admission.leased == 0


@pytest.mark.anyio
@pytest.mark.parametrize("full", [True, False])
async def test_streams_are_drained_in_the_order_of_the_calls(clock: Clock, full: bool) -> None:
    """Where there is no room, and where there is: whoever lets others run when it asks has its place before."""
    done, stream = await something_done(), aiodev.Stream("cpu", maxsize=1)
    came, went = list[int](), list[int]()

    async def task(number: int) -> None:
        clock.work(80_000)
        came.append(number)
        await stream.drain()
        went.append(number)
        stream.call(int)

    clock.work()
    await done
    latch = Latch(stream) if full else None
    async with anyio.create_task_group() as group:
        for number in range(40):
            group.start_soon(task, number)
        if latch is not None:
            while len(came) < 40:
                await anyio.lowlevel.checkpoint()
            latch.release()
    assert went == came


@pytest.mark.anyio
@pytest.mark.parametrize("what", ["a lease", "room"])
async def test_who_is_cancelled_while_others_run_gives_its_place_back(clock: Clock, what: str) -> None:
    """Whoever has a lease, or is the next to have room, and is cancelled before it goes on: those behind get it."""
    admission, stream, went = Admission(lambda: 3), aiodev.Stream("cpu", maxsize=1), list[str]()
    await something_done()
    assert not current_reactor().line
    await anyio.wait_all_tasks_blocked()  # trio's turns begin at rest: who stands in line is cancelled before it is resumed

    async def task(name: str) -> None:
        await (admission.acquire(2) if what == "a lease" else stream.drain())
        went.append(name)

    clock.work()
    async with anyio.create_task_group() as group:
        with anyio.CancelScope() as scope:
            async with anyio.create_task_group() as doomed:
                doomed.start_soon(task, "cancelled")
                while not (admission.leased or current_reactor().draining.get(stream)):
                    await anyio.lowlevel.checkpoint()
                group.start_soon(task, "last")
                scope.cancel()
    assert went == ["last"] and admission.leased == (2 if what == "a lease" else 0)
    assert not len(admission) and not current_reactor().draining.get(stream)


async def test_timers_have_a_turn_between_two_tasks_that_work(clock: Clock) -> None:
    """A task that sleeps for as good as no time wakes between any two works of eight tasks."""
    done = await something_done()
    worked, most, working = 0, 0, True

    async def beat() -> None:
        nonlocal worked, most
        while working:
            worked = 0
            await asyncio.sleep(1e-6)
            most = max(most, worked)

    async def task() -> None:
        nonlocal worked
        for _ in range(10):
            await done
            clock.work()
            worked += 1

    clock.work()
    heart = asyncio.create_task(beat())
    await asyncio.gather(*(task() for _ in range(8)))
    working = False
    await heart
    assert most == 1


@pytest.mark.anyio
async def test_many_that_do_little_share_a_turn(clock: Clock) -> None:
    """A thousand tasks that take 10 µs each need some ten periods, and about as many turns."""
    stream, ran = aiodev.Stream("cpu"), set[int]()
    latch = Latch(stream)
    call = stream.call(int)

    async def task() -> None:
        await call
        clock.work(10_000)
        ran.add(turns.count)

    async with Turns() as turns:
        async with anyio.create_task_group() as group:
            for _ in range(1000):
                group.start_soon(task)
            while stream.timeline.parked < 2:
                await anyio.lowlevel.checkpoint()
            latch.release()
        assert 10 <= len(ran) <= 40  # on trio the one that counts runs in the middle of a turn


@pytest.mark.anyio
async def test_a_task_that_is_cancelled_in_the_line_leaves_it(clock: Clock) -> None:
    """And holds up nobody behind it."""
    done = await something_done()
    went: list[str] = []

    async def task(name: str) -> None:
        await done
        clock.work()
        went.append(name)

    clock.work()
    async with anyio.create_task_group() as group:
        group.start_soon(task, "first")
        with anyio.CancelScope() as scope:
            async with anyio.create_task_group() as doomed:
                for _ in range(5):
                    doomed.start_soon(task, "cancelled")
                await anyio.lowlevel.checkpoint()
                group.start_soon(task, "last")
                scope.cancel()
    assert sorted({*went} - {"cancelled"}) == ["first", "last"] and len(went) < 7


def test_who_is_busy_elsewhere_keeps_nobody_from_going_on(clock: Clock) -> None:
    """A callback of another's that takes ten periods each turn: the line moves all the same, by one task at least."""

    async def main() -> None:
        loop, done, working = asyncio.get_running_loop(), await something_done(), True

        def busy() -> None:
            clock.work(10 * PERIOD_NS)
            if working:
                loop.call_soon(busy)

        async def task() -> None:
            for _ in range(5):
                clock.work()
                await done

        busy()
        await asyncio.wait_for(asyncio.gather(*(task() for _ in range(8))), 30)
        working = False

    asyncio.run(main())


# The line


def run(queue: ReadyQueue[int], clock: Clock, duration: int) -> list[int]:
    """Resume a batch whose tasks each take so long; who went on."""
    went = []
    for token in queue.take():
        if queue.admits():
            went.append(token)
            clock.work(duration)
        else:
            queue.give_back(token)
    return went


def test_a_batch_is_as_large_as_the_time_allows(clock: Clock) -> None:
    """It doubles while it takes less than half of the period, and shrinks to as many as went on."""
    queue: ReadyQueue[int] = ReadyQueue()
    queue.extend(range(10_000))
    short = [len(run(queue, clock, 100)) for _ in range(8)]
    assert short == [64, 128, 256, 512, 1024, 2048, 4096, 1872] and not queue
    queue.extend(range(1000))
    assert [len(run(queue, clock, WORK)) for _ in range(20)] == [1] * 20
    assert [len(run(queue, clock, 100_000)) for _ in range(6)] == [2, 4, 8, 8, 8, 8]


def test_who_let_others_run_stands_ahead_of_the_line(clock: Clock) -> None:
    """In order, and behind whoever was given back."""
    queue: ReadyQueue[int] = ReadyQueue()
    queue.extend((1, 2))
    assert run(queue, clock, WORK) == [1]
    queue.append(5)
    queue.stand_ahead(3)
    queue.stand_ahead(4)
    assert len(queue) == 4
    went = []
    while queue:
        went += run(queue, clock, WORK)
    assert went == [2, 3, 4, 5]


def test_the_line_is_first_in_first_out(clock: Clock) -> None:
    """Who is given back goes to its head, in order, and newcomers to its end."""
    queue: ReadyQueue[int] = ReadyQueue()
    queue.extend(range(5))
    went = []
    for newcomer in range(5, 20):
        went += run(queue, clock, WORK)
        queue.append(newcomer)
    while queue:
        went += run(queue, clock, WORK)
    assert went == list(range(20))
