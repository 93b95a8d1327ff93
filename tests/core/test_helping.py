"""Helping: who waits for the CPU does a part of the work, as long as nobody else needs its thread."""

from __future__ import annotations

import asyncio
import contextlib
import os
import threading
from collections.abc import Generator
from itertools import pairwise
from types import SimpleNamespace
from typing import Any

import anyio
import numpy as np
import pytest
from turns import Clock

import aiodev
from aiodev import kernels
from aiodev._core.config import Settings
from aiodev._core.tuning import BLIND_TURN_NS, LOOKED_NS, MOST_TURNS, TURN_NS
from aiodev._core.waiting import spinning
from aiodev._core.waiting.asyncio_reactor import AsyncioReactor
from aiodev._core.waiting.fairness import budget
from aiodev._core.waiting.reactor import current_reactor, help_at_once
from aiodev.testing import held_workers

native = pytest.mark.skipif(
    aiodev.get_backend("cpu").executor_kind != "native",  # type: ignore[attr-defined]
    reason="only native workers leave work to others",
)


@aiodev.kernel
def increment(i, x):
    x[i] += 1


@aiodev.kernel
def count_to(i, counts, out):
    for number in range(counts[i]):
        out[i] = number


@aiodev.kernel(uniform=True)
def burn(i, stop, out):
    """About a µs for each index, until ``stop``."""
    value = np.float64(i)
    if stop[0] == 0:
        for _ in range(400):
            value = value * 0.5 + 1.0
    out[i] = value


@pytest.fixture(autouse=True)
def helps(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever AIODEV_SPIN_US says here."""
    monkeypatch.setattr(spinning, "settings", Settings(spin_us=50))
    monkeypatch.setattr(spinning, "_MOST_NS", 50_000)


async def learnt(size: int = 1000) -> aiodev.Array:
    """An array that ``increment`` has been run on, so that its cost is known."""
    array = aiodev.zeros(size, np.int64, "cpu")
    for _ in range(3):
        await increment[size](array)
    return array


@native
@pytest.mark.anyio
async def test_a_task_does_what_no_worker_has_time_for() -> None:
    """With all workers held, on every loop; at the first attempt, unless this process is kept from its core just then."""
    array = await learnt()
    with held_workers(aiodev.get_backend("cpu")):  # type: ignore[arg-type]
        for _ in range(100):
            with anyio.move_on_after(0.2) as scope:
                await increment[1000](array)
            if not scope.cancelled_caught:
                break
    assert not scope.cancelled_caught
    found = await array.numpy()
    assert found[0] > 3 and (found == found[0]).all()


@native
async def test_a_task_does_products_of_many_shapes() -> None:
    """Of each it is known what it takes, as in a step of a model, whose layers are of several widths."""
    widths = range(64, 256, 16)
    with aiodev.Stream("cpu"):
        x = aiodev.ones((1, widths[0]), np.float32)
        weights = [aiodev.ones(shape, np.float32) / np.float32(shape[0]) for shape in pairwise(widths)]

        async def product() -> aiodev.Array:
            out = x
            for weight in weights:
                out = kernels.matmul(out, weight)
            return await out.numpy()

        for _ in range(30):
            for _ in range(3):  # on a busy machine one may seem to be too long for a helper
                await product()
            with held_workers(aiodev.get_backend("cpu")), contextlib.suppress(TimeoutError):  # type: ignore[arg-type]
                async with asyncio.timeout(0.2):
                    found = await product()
                break
        else:
            pytest.fail("nobody does what the task waits for")
    np.testing.assert_allclose(found, np.ones((1, widths[-1])), rtol=1e-5)


@native
async def test_a_thread_that_blocks_helps_too() -> None:
    array = await learnt()
    with held_workers(aiodev.get_backend("cpu")):  # type: ignore[arg-type]
        for _ in range(100):
            done = increment[1000](array)
            with contextlib.suppress(TimeoutError):
                await asyncio.to_thread(done.synchronize_blocking, 0.2)
                break
        assert done.query()
    found = await array.numpy()
    assert found[0] > 3 and (found == found[0]).all()


@native
async def test_a_thread_that_blocks_runs_loops_that_depend_on_elements() -> None:
    """Once they have been short; and a task does not, whose loop might have to wait for one that is long."""
    counts, out = (aiodev.zeros(100, np.int64, "cpu") for _ in range(2))
    for _ in range(3):
        await count_to[100](counts, out)
    with held_workers(aiodev.get_backend("cpu")):  # type: ignore[arg-type]
        done = count_to[100](counts, out)
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.05):
                await done
        for _ in range(100):  # if this process is kept from its core, that seems to be long
            with contextlib.suppress(TimeoutError):
                await asyncio.to_thread(done.synchronize_blocking, 0.2)
                break
        assert done.query()


@native
async def test_who_never_spins_never_helps(monkeypatch: pytest.MonkeyPatch) -> None:
    """AIODEV_SPIN_US=0."""
    monkeypatch.setattr(spinning, "settings", Settings(spin_us=0))
    monkeypatch.setattr(spinning, "_MOST_NS", 0)
    array = await learnt()
    with held_workers(aiodev.get_backend("cpu")):  # type: ignore[arg-type]
        done = increment[1000](array)
        done.timeline.spins = False
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.05):
                await done
    await done


@native
@pytest.mark.parametrize("how", ["thread", "timer", "pipe"])
async def test_the_loop_goes_on_while_it_helps(how: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """What a thread, a timer or a descriptor brings is looked at before the work is done, which would take seconds."""
    loop, stop, size = asyncio.get_running_loop(), aiodev.zeros(1, np.int64, "cpu"), 5_000_000
    out, read_end, write_end = aiodev.zeros(size, np.float64, "cpu"), *os.pipe()
    await burn[1000](stop, out)
    flag, backend = np.from_dlpack(stop), aiodev.get_backend("cpu")
    helped: list[int] = []
    seen: list[bool] = []
    helps = backend.executor.help

    def help(*arguments: int) -> bool:
        if not helped:
            bring()
        helped.append(arguments[2])
        return helps(*arguments)

    def bring() -> None:
        if how == "thread":
            threading.Timer(0.02, loop.call_soon_threadsafe, [look]).start()
        elif how == "timer":
            loop.call_later(0.02, look)
        else:
            loop.add_reader(read_end, look)
            threading.Timer(0.02, os.write, [write_end, b"x"]).start()

    def look() -> None:
        seen.append(done.query())
        flag[0] = 1
        loop.remove_reader(read_end)

    monkeypatch.setattr(backend.executor, "help", help)
    done = burn[size](stop, out)
    await done
    assert seen == [False]
    for end in (read_end, write_end):
        os.close(end)


class Told:
    """A timeline that is helped with as often as it is told, which ``takes`` so many ns of a clock each time."""

    def __init__(self, times: int, takes: int = 0, clock: Clock | None = None) -> None:
        self.times, self.takes, self.clock = times, takes, clock or Clock()
        self.durations: list[int] = []
        self.timeline: Any = SimpleNamespace(
            parked=0,
            parked_at=0,
            spins=True,
            quick_waits=0,
            queue=0,
            reached=lambda value: self.times == 0,
            operations=SimpleNamespace(help=self._help),
        )

    def _help(self, queue: int, value: int, duration: int, descriptor: int) -> bool:
        self.durations.append(duration)
        self.clock.work(self.takes)
        self.times -= 1
        return self.times >= 0


async def awaiting(told: Told) -> bool:
    """Help as a task does that waits; whether it is done."""
    return await _Helping(told)


class _Helping:
    def __init__(self, told: Told) -> None:
        self._told = told

    def __await__(self) -> Generator[Any, Any, bool]:
        return current_reactor().help(self._told.timeline, 1)


async def test_one_task_helps_at_a_time() -> None:
    """Between its turns another one does not; it may afterwards, when the first was cancelled, too."""
    first, second = Told(3), Told(1)
    helping = current_reactor().help(first.timeline, 1)
    next(helping)
    assert list(current_reactor().help(second.timeline, 1)) == [] and second.durations == []
    helping.close()
    assert list(current_reactor().help(second.timeline, 1)) == [] and len(second.durations) == 1


async def test_help_goes_on_turn_after_turn() -> None:
    """Until there is nothing more to do, or it is done."""
    done, endless = Told(3), Told(10)
    assert len(list(current_reactor().help(done.timeline, 1))) == 2 and len(done.durations) == 3
    endless.timeline.reached = lambda value: False
    assert len(list(current_reactor().help(endless.timeline, 1))) == 10 and len(endless.durations) == 11


async def test_others_go_first() -> None:
    """While they have something to do nobody helps: who waits lets them have some turns, and parks then."""
    loop, told = asyncio.get_running_loop(), Told(3)
    other = loop.call_soon(int)
    helping = current_reactor().help(told.timeline, 1)
    next(helping)
    assert list(current_reactor().help(Told(1).timeline, 1)) == []
    for _ in range(1, MOST_TURNS):
        next(helping)
    assert told.durations == []
    other.cancel()
    await asyncio.sleep(0)
    next(helping)
    assert len(told.durations) == 1
    busy = loop.call_soon(int)
    assert len(list(helping)) == MOST_TURNS and len(told.durations) == 1
    busy.cancel()


async def test_what_is_done_while_others_have_their_turns_is_waited_for_no_longer(waiting: Clock) -> None:
    """And counts as a wait that was over soon."""
    loop, told = asyncio.get_running_loop(), Told(1)
    told.timeline.spins, told.timeline.spin_doubts = False, 1
    busy = loop.call_soon(int)
    helping = current_reactor().help(told.timeline, 1)
    next(helping)
    told.times = 0
    assert list(helping) == [] and told.durations == []
    assert told.timeline.spins
    busy.cancel()


async def test_who_helped_for_a_moment_spins_the_next_time(waiting: Clock) -> None:
    """As one who parked for a moment does: what takes so little is over before a thread that helps has begun."""
    quick, slow = (Told(1, spinning._SOON_NS + more, waiting) for more in (0, 1))
    for told in (quick, slow):
        told.timeline.spins, told.timeline.spin_doubts = False, 1
    assert await awaiting(quick) and quick.timeline.spins
    assert await awaiting(slow) and not slow.timeline.spins


async def test_where_tasks_are_parked_nobody_helps() -> None:
    """Others were here before."""
    told = Told(1)
    told.timeline.parked = 1
    assert list(current_reactor().help(told.timeline, 1)) == [] and told.durations == []


async def test_help_without_a_turn(waiting: Clock) -> None:
    """Until there is nothing more to do, or the work is done; none where others are ready, or were there before."""
    loop, here = asyncio.get_running_loop(), current_reactor()
    done, more = Told(1, 2 * LOOKED_NS, waiting), Told(2)
    assert help_at_once(done.timeline, 1) and len(done.durations) == 1
    assert not help_at_once(more.timeline, 1) and len(more.durations) == 1
    assert not here.helping
    busy = loop.call_soon(int)
    assert not help_at_once(more.timeline, 1)
    busy.cancel()
    await asyncio.sleep(0)
    more.timeline.parked = 1
    assert not help_at_once(more.timeline, 1) and len(more.durations) == 1


def test_no_help_without_a_loop() -> None:
    told = Told(1)
    assert not help_at_once(told.timeline, 1) and told.durations == []


def test_no_help_without_a_turn_where_the_loop_cannot_be_looked_into() -> None:
    """Its tasks would wait for who helps."""
    uvloop, told = pytest.importorskip("uvloop"), Told(1)

    async def main() -> bool:
        return help_at_once(told.timeline, 1)

    assert not uvloop.run(main()) and told.durations == []


async def test_leisure_ends_with_what_the_loop_knows_of(monkeypatch: pytest.MonkeyPatch) -> None:
    """A timer that is due, or something that is ready."""
    loop, here = asyncio.get_running_loop(), current_reactor()
    now = loop.time()
    monkeypatch.setattr(loop, "time", lambda: now)
    duration, descriptor = here.leisure()
    assert duration == TURN_NS and descriptor >= 0
    timer = loop.call_later(0.001, int)
    assert 0 < here.leisure()[0] <= 1_000_000
    timer.cancel()
    late = loop.call_later(-1, int)
    assert here.leisure()[0] == 0
    late.cancel()
    ready = loop.call_soon(int)
    assert here.leisure()[0] == 0
    ready.cancel()


def test_a_loop_that_cannot_be_looked_into_is_kept_for_less() -> None:
    """Such as one that is not asyncio's own."""
    loop: Any = SimpleNamespace(add_reader=lambda *_: None)
    here = AsyncioReactor(loop)
    assert here.leisure() == (BLIND_TURN_NS, -1)
    here.waits.recycle()


async def test_a_turn_in_which_nothing_would_happen_is_left_out(waiting: Clock, clock: Clock) -> None:
    """Who helped, and looked at the loop meanwhile, goes on at once; but now and then others have their turn all the same."""
    here = current_reactor()
    await asyncio.sleep(0)

    for ago, renewed in ((0, True), (2 * TURN_NS, False)):
        told = Told(1, 2 * LOOKED_NS, waiting)
        clock.work(1)
        here.turned, before = waiting.now - ago, budget.until
        assert list(current_reactor().help(told.timeline, 1)) == []
        assert (budget.until > before) is renewed


def test_nobody_helps_when_the_loop_is_to_stop() -> None:
    told, loop = Told(5), asyncio.new_event_loop()
    loop.call_soon(loop.stop)
    task = loop.create_task(awaiting(told))
    loop.run_forever()
    assert told.durations == []
    assert loop.run_until_complete(task) and len(told.durations) == 5
    loop.close()


def test_loops_that_cannot_be_looked_into_are_not_kept_from_others(waiting: Clock) -> None:
    """A fifth of the time at most, however long the work, and however many tasks wait."""
    uvloop = pytest.importorskip("uvloop")

    async def main() -> tuple[int, int]:
        tolds = [Told(1000, 200_000, waiting) for _ in range(10)]
        began = waiting.now
        while waiting.now < began + 50_000_000:
            await asyncio.gather(*map(awaiting, tolds))
            waiting.work(20_000)  # what else the loop does
        durations = [duration for told in tolds for duration in told.durations]
        assert set(durations) == {BLIND_TURN_NS}
        return len(durations) * 200_000, waiting.now - began

    helped, elapsed = uvloop.run(main())
    assert 0 < helped <= elapsed // 4
