"""Tasks that asyncio's reactor resumes itself: in order, for as long as the time allows, whatever one of them does."""

from __future__ import annotations

import asyncio
import contextvars
import logging
import select
from collections.abc import Callable
from typing import Any

import anyio
import pytest
from interrupts import interrupted_everywhere
from turns import WORK, Clock

import aiodev
from aiodev._core.waiting import asyncio_reactor, waitset
from aiodev._core.waiting.asyncio_reactor import AsyncioReactor, AsyncioWaiter
from aiodev._core.waiting.reactor import current_reactor
from aiodev.testing import Latch

variable: contextvars.ContextVar[str] = contextvars.ContextVar("variable", default="of nobody")


async def parked(*tasks: asyncio.Task[Any]) -> None:
    """Until so many tasks are parked, each of which waits for an operation."""
    waits = current_reactor().waits
    while len(waits) < len(tasks):
        await anyio.lowlevel.checkpoint()


async def release(latch: Latch, stream: aiodev.Stream) -> None:
    """Have all be done that a latch has held, before the loop is told of the first."""
    latch.release()
    stream.synchronize_blocking(30)


async def test_who_is_woken_goes_on_in_the_turn_that_finds_it_done() -> None:
    """In order, each in its own context; a future would have taken another turn of the loop."""
    stream, went = aiodev.Stream("cpu"), list[tuple[int, str]]()
    latch = Latch(stream)
    calls = [stream.call(int) for _ in range(3)]

    async def task(number: int) -> None:
        variable.set(f"of {number}")
        await calls[number]
        went.append((number, variable.get()))

    tasks = [asyncio.create_task(task(number)) for number in range(3)]
    await parked(*tasks)
    await release(latch, stream)
    woken = []
    loop = asyncio.get_running_loop()
    loop.call_soon(lambda: loop.call_soon(lambda: woken.append(len(went))))  # the next turn reads the descriptor
    await asyncio.gather(*tasks)
    assert went == [(0, "of 0"), (1, "of 1"), (2, "of 2")]
    assert woken == [3]


async def test_a_batch_ends_when_its_time_is_over(clock: Clock) -> None:
    """The others come behind turns of the loop, in order, ahead of who came later."""
    stream, went = aiodev.Stream("cpu"), list[int]()
    latch = Latch(stream)
    calls = [stream.call(int) for _ in range(6)]
    turns = 0

    async def count() -> None:
        nonlocal turns
        while len(went) < 6:
            turns += 1
            await asyncio.sleep(0)

    seen: list[int] = []

    async def task(number: int) -> None:
        await calls[number]
        went.append(number)
        seen.append(turns)
        clock.work(WORK if number < 2 else WORK // 6)

    tasks = [asyncio.create_task(task(number)) for number in range(6)]
    await parked(*tasks)
    await release(latch, stream)
    await asyncio.gather(count(), *tasks)
    assert went == list(range(6))
    assert len(set(seen)) == 3 and seen[2:] == [seen[2]] * 4, seen  # 0 and 1 one by one, then four in a period
    assert seen[1] - seen[0] >= 2 <= seen[2] - seen[1]  # turns in between, for timers and who sleeps on them


@pytest.mark.parametrize("message", [None, "enough"])
async def test_a_task_that_is_cancelled_while_it_is_parked(message: str | None) -> None:
    """It gets the message, once, and what it waited for goes on."""
    stream = aiodev.Stream("cpu")
    latch = Latch(stream)
    call = stream.call(int, 5)

    async def task() -> int:
        return await call

    waiting = asyncio.create_task(task())
    await parked(waiting)
    assert waiting.cancel(message)
    assert "waiter pending" not in repr(waiting)
    with pytest.raises(asyncio.CancelledError) as caught:
        await waiting
    assert caught.value.args == (() if message is None else (message,))
    await release(latch, stream)
    assert await call == 5


async def test_a_task_that_is_cancelled_between_its_wake_up_and_its_turn() -> None:
    """By one of the same batch: it is cancelled, and not resumed twice."""
    stream, went = aiodev.Stream("cpu"), list[str]()
    latch = Latch(stream)
    calls = [stream.call(int) for _ in range(3)]

    async def task(number: int) -> None:
        try:
            await calls[number]
        except asyncio.CancelledError:
            went.append(f"{number} cancelled")
            raise
        went.append(f"{number}")
        tasks[1].cancel()

    tasks = [asyncio.create_task(task(number)) for number in range(3)]
    await parked(*tasks)
    await release(latch, stream)
    await asyncio.wait(tasks)
    assert sorted(went) == ["0", "1 cancelled", "2"]
    assert tasks[1].cancelled() and not tasks[0].cancelled()


class Enough(SystemExit):
    """Ends a loop, as Ctrl-C does."""


def test_what_ends_the_loop_in_one_task_leaves_the_others_in_line() -> None:
    """They go on when the loop runs again."""
    loop, went = asyncio.new_event_loop(), list[int]()
    stream = aiodev.Stream("cpu")

    async def task(number: int) -> None:
        await calls[number]
        went.append(number)
        if number == 1:
            raise Enough

    async def main() -> None:
        await parked(*tasks)
        await release(latch, stream)
        await asyncio.Event().wait()

    async def prepare() -> None:
        nonlocal latch, calls, tasks
        latch = Latch(stream)
        calls = [stream.call(int) for _ in range(4)]
        tasks = [asyncio.create_task(task(number)) for number in range(4)]

    latch: Latch
    calls: list[aiodev.Completion[int]]
    tasks: list[asyncio.Task[None]]
    try:
        loop.run_until_complete(prepare())
        running = loop.create_task(main())
        with pytest.raises(Enough):
            loop.run_until_complete(running)
        assert went == [0, 1]
        loop.run_until_complete(asyncio.wait([tasks[2], tasks[3]], timeout=30))
        assert went == [0, 1, 2, 3]
        with pytest.raises(Enough):
            tasks[1].result()
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            loop.run_until_complete(running)
    finally:
        loop.close()


class Stub:
    """A loop whose callbacks the test runs."""

    def __init__(self) -> None:
        self.soon: list[Callable[[], object]] = []

    def add_reader(self, descriptor: int, callback: Callable[[], object]) -> None:
        self.wake = callback

    def call_soon(self, callback: Callable[..., object], *args: object, context: object = None) -> None:
        self.soon.append(lambda: callback(*args))

    def get_debug(self) -> bool:
        return False

    def is_closed(self) -> bool:
        return False

    def run(self, descriptor: int) -> None:
        """Turns, until nothing is to be done."""
        while self.soon or select.select([descriptor], [], [], 0)[0]:
            ready, self.soon = self.soon, []
            if select.select([descriptor], [], [], 0)[0]:
                ready.append(self.wake)
            for callback in ready:
                callback()


def test_whom_an_interrupt_finds_in_line_goes_on() -> None:
    """At whatever moment it arrives: each of them once."""
    loop, went = Stub(), list[int]()
    here = AsyncioReactor(loop)  # type: ignore[arg-type]
    stream = aiodev.Stream("cpu")
    timeline = stream.timeline
    stream.call(int).synchronize_blocking()

    def prepare() -> None:
        went.clear()
        latch = Latch(stream)
        for number in range(3):
            done, waiter = stream.call(int), AsyncioWaiter(loop)  # type: ignore[arg-type]
            waiter.add_done_callback(lambda waiter, number=number: went.append(number))  # type: ignore[misc]
            assert here.waits.add(timeline, done.value, waiter)
        latch.release()
        stream.synchronize_blocking(30)

    def act() -> None:
        loop.wake()

    try:
        for _ in interrupted_everywhere(act, asyncio_reactor, waitset, prepare=prepare):
            loop.run(here.waits.descriptor.read_end)
            assert sorted(went) == [0, 1, 2] and not here.line and not here.taking_turns and len(here.waits) == 0
    finally:
        here.waits.recycle()


async def test_debug_mode_names_the_task_that_holds_the_loop(caplog: pytest.LogCaptureFixture) -> None:
    """As it does where a future of asyncio's resumes the task."""
    loop = asyncio.get_running_loop()
    loop.set_debug(True)
    loop.slow_callback_duration = 0.02
    stream = aiodev.Stream("cpu")
    latch = Latch(stream)
    call = stream.call(int)

    async def slow() -> None:
        await call
        stream.call(int).synchronize_blocking()
        until = loop.time() + 0.05
        while loop.time() < until:
            pass

    task = asyncio.create_task(slow(), name="the slow one")
    await parked(task)
    with caplog.at_level(logging.WARNING, "asyncio"):
        await release(latch, stream)
        await task
    loop.set_debug(False)
    assert [record.getMessage() for record in caplog.records if "the slow one" in record.getMessage()]


async def test_a_waiter_is_a_future_to_those_who_ask() -> None:
    """By the protocol that ``asyncio.isfuture`` names."""
    loop, went = asyncio.get_running_loop(), list[object]()
    for end in ("resume", "resume_soon", "cancel"):
        waiter = AsyncioWaiter(loop)
        assert asyncio.isfuture(waiter) and waiter.get_loop() is loop and not waiter.done()
        waiter.add_done_callback(went.append)
        getattr(waiter, end)()
        assert waiter.done() and waiter.cancelled() is (end == "cancel") and not waiter.cancel()
        waiter.resume()  # which is too late
        await asyncio.sleep(0)
        assert went.pop() is waiter and not went
        if end == "cancel":
            with pytest.raises(asyncio.CancelledError):
                waiter.result()
        else:
            waiter.result()
    assert isinstance(current_reactor(), AsyncioReactor)
