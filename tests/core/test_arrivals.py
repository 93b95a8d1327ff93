"""as_completed: what is done comes, each once; what it costs; and nothing of it stays in a wait set, however it is left."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import random
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any

import anyio
import pytest

import aiodev
from aiodev._core.waiting.reactor import current_reactor
from aiodev._core.waiting.waitset import WaitSet
from aiodev.testing import Latch, SimulatedBackend

pytestmark = pytest.mark.anyio


@pytest.fixture(autouse=True)
def started() -> None:
    """Else who waits for the CPU's streams waits for its start."""
    aiodev.init_blocking("cpu")


class Held:
    """An operation of a stream that is done when the test says so."""

    def __init__(self, stream: aiodev.Stream | None = None) -> None:
        self.stream = stream or aiodev.Stream("cpu")
        self.latch = Latch(self.stream)
        self.done: aiodev.Completion = aiodev.Completion(self.stream.timeline, self.latch.value)

    def release(self) -> None:
        """Let it be done, and wait for that."""
        self.latch.release()
        self.done.synchronize_blocking(30)


@contextlib.contextmanager
def several(count: int) -> Iterator[list[Held]]:
    held = [Held() for _ in range(count)]
    try:
        yield held
    finally:
        for one in held:
            one.latch.release()


def nobody_waits(held: list[Held]) -> bool:
    return len(current_reactor().waits) == 0 and not any(one.stream.timeline.parked for one in held)


@pytest.fixture
def entries(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, WaitSet[Any]]]:
    """What is done with wait sets from now on, that of the watcher among them."""
    noted: list[tuple[str, WaitSet[Any]]] = []

    def note(name: str) -> None:
        method = getattr(WaitSet, name)

        def noting(self: WaitSet[Any], *args: Any) -> Any:
            noted.append((name, self))
            return method(self, *args)

        monkeypatch.setattr(WaitSet, name, noting)

    note("add")
    note("discard")
    return noted


@pytest.mark.parametrize("order", ["forward", "backward"])
async def test_each_of_many_is_entered_once(order: str, entries: list[tuple[str, WaitSet[Any]]]) -> None:
    """A hundred streams that are done one by one take a hundred entries, not five thousand, and none is taken back."""
    added, discarded = ("add", current_reactor().waits), ("discard", current_reactor().waits)
    with several(100) as held:
        ahead = held.copy() if order == "backward" else held[::-1]
        together, seen = aiodev.as_completed([one.done for one in held]), []
        async with anyio.create_task_group() as group:
            group.start_soon(take, together, seen, lambda: ahead and ahead.pop().release())
            await anyio.wait_all_tasks_blocked()
            assert entries.count(added) == 100
            ahead.pop().release()
    assert seen == [one.done for one in (held if order == "forward" else held[::-1])]
    assert entries.count(added) == 100 and entries.count(discarded) == 0


async def take(together: AsyncIterator[aiodev.Completion], seen: list[aiodev.Completion], then: Callable[[], object]) -> None:
    async for done in together:
        assert done.query()
        seen.append(done)
        then()


async def test_those_of_one_stream_come_in_its_order() -> None:
    """Whatever order they were given in; with the same one twice, each comes."""
    stream = aiodev.Stream("cpu")
    held = [Held(stream) for _ in range(5)]
    given = [one.done for one in (held[3], held[0], held[4], held[2], held[1], held[2])]
    seen: list[aiodev.Completion] = []
    async with anyio.create_task_group() as group:
        group.start_soon(take, aiodev.as_completed(given), seen, lambda: None)
        for one in held:
            await anyio.wait_all_tasks_blocked()
            while not current_reactor().waits:  # who was woken has its turn of the loop to come
                await anyio.lowlevel.checkpoint()
            assert len(current_reactor().waits) == 1, "one entry for each stream"
            one.latch.release()
    assert [done.value for done in seen] == [held[n].done.value for n in (0, 1, 2, 2, 3, 4)]


async def test_what_arrives_while_nobody_waits_is_kept() -> None:
    """The body may take its time, and await other things, while others are done."""
    with several(6) as held:
        together, seen = aiodev.as_completed([one.done for one in held]), []
        held[2].release()
        async for done in together:
            seen.append(done)
            if len(seen) == 1:
                for one in (held[4], held[0], held[5]):
                    one.release()
                await anyio.sleep(0.01)  # the loop looks, and nobody takes
            elif len(seen) == 4:
                held[1].release()
                held[3].release()
        assert seen[0] == held[2].done and set(seen[1:4]) == {held[n].done for n in (4, 0, 5)}
        assert len(seen) == 6 and nobody_waits(held)


@pytest.mark.parametrize("way", ["closed", "raised", "dropped"])
async def test_nothing_stays_when_it_is_left(way: str, anyio_backend_name: str) -> None:
    """Left by a break or an exception, and closed; or dropped, and closed by the loop when it is collected."""
    if way == "dropped" and anyio_backend_name == "trio":
        pytest.skip("trio warns of generators that nobody closes")
    with several(5) as held:
        held[1].release()
        with contextlib.suppress(KeyError):
            if way == "dropped":
                async for _ in aiodev.as_completed([one.done for one in held]):
                    break
            else:
                async with contextlib.aclosing(aiodev.as_completed([one.done for one in held])) as together:
                    async for _ in together:
                        if way == "raised":
                            raise KeyError
                        break
        gc.collect()
        for _ in range(5):
            await anyio.lowlevel.checkpoint()
        assert nobody_waits(held)


async def test_nothing_stays_when_it_is_dropped_amid(anyio_backend_name: str) -> None:
    """What waits does so while the body runs, too, and does not hold the iterator, nor the body."""
    if anyio_backend_name == "trio":
        pytest.skip("trio warns of generators that nobody closes")
    with several(5) as held:
        together = aiodev.as_completed([one.done for one in held])
        async with anyio.create_task_group() as group:
            group.start_soon(anext, together)
            await anyio.wait_all_tasks_blocked()
            assert len(current_reactor().waits) == 5
            held[1].release()
        assert len(current_reactor().waits) == 4
        del together
        gc.collect()
        for _ in range(5):
            await anyio.lowlevel.checkpoint()
        assert nobody_waits(held)


async def test_nothing_stays_when_the_waiter_is_cancelled() -> None:
    """Cancelled, or by a deadline, where it waits; what it awaited goes on, and may be waited for again."""
    with several(5) as held:
        with anyio.CancelScope() as scope:
            async with anyio.create_task_group() as group:
                group.start_soon(take, aiodev.as_completed([one.done for one in held]), [], lambda: None)
                await anyio.wait_all_tasks_blocked()
                assert len(current_reactor().waits) == 5
                scope.cancel()
        assert nobody_waits(held)
        with anyio.move_on_after(0.001):
            async for _ in aiodev.as_completed([one.done for one in held]):
                raise AssertionError("nothing was done")
        assert nobody_waits(held)
        for one in held:
            one.latch.release()
        assert len([done async for done in aiodev.as_completed([one.done for one in held])]) == 5


async def test_one_that_cannot_be_waited_for_any_more_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    """Who is woken since its executor broke looks, tries again, and raises what that says; nothing stays."""
    with several(3) as held:
        async with anyio.create_task_group() as group:
            group.start_soon(raises, OSError, aiodev.as_completed([one.done for one in held]))
            await anyio.wait_all_tasks_blocked()
            waits = current_reactor().waits
            (entry,) = (token for token in tokens(waits) if token.timeline is held[1].stream.timeline)
            monkeypatch.setattr(WaitSet, "add", fail)
            waits.discard(entry.timeline, entry.value, entry)
            entry.resume_soon()
        assert nobody_waits(held)


def tokens(waits: WaitSet[Any]) -> list[Any]:
    lines = [line for group in waits._groups.values() for line in group.values()]
    return [token for line in lines for waiters in line.by_value.values() for token in waiters]


def fail(*args: object) -> bool:
    raise OSError("no bell rings any more")


async def raises(kind: type[Exception], together: AsyncIterator[aiodev.Completion]) -> None:
    with pytest.raises(kind):
        await anext(together)


async def test_a_backend_that_starts_holds_up_nobody_else(simulated: SimulatedBackend) -> None:
    """What others have done comes at once; what was submitted to the one that starts, when it has."""
    held, start = threading.Event(), simulated.start
    simulated.start = lambda: held.wait(30) and start()
    waiting = aiodev.Stream(simulated.name).call(int, 7)
    ready = aiodev.Stream("cpu").call(int, 3)
    seen = []
    async for done in aiodev.as_completed([waiting, ready]):
        seen.append(await done)
        held.set()
    assert seen == [3, 7]


async def test_a_backend_that_cannot_start_is_a_failure(simulated: SimulatedBackend) -> None:
    """What was submitted to it is done, and failed."""

    simulated.start = fail
    waiting = aiodev.Stream(simulated.name).call(int, 7)
    async for done in aiodev.as_completed([waiting]):
        with pytest.raises(aiodev.BackendUnavailableError):
            await done


@pytest.mark.parametrize("seed", range(8))
async def test_random_ones_agree_with_a_model(seed: int) -> None:
    """Of latches on several streams, released at random, from the body and beside it: all come, in each stream's order."""
    choose = random.Random(seed)
    streams = [aiodev.Stream("cpu") for _ in range(5)]
    held = [Held(choose.choice(streams)) for _ in range(30)]
    given = [choose.choice(held).done for _ in range(25)]
    ahead, seen = held.copy(), list[aiodev.Completion]()

    def release_some() -> None:
        for _ in range(choose.choice((0, 0, 1, 1, 2, 5))):
            if ahead:
                ahead.pop(choose.randrange(len(ahead))).latch.release()

    async def release_all() -> None:
        while ahead:
            release_some()
            if choose.random() < 0.3:
                await anyio.wait_all_tasks_blocked()
            else:
                await anyio.lowlevel.checkpoint()

    async with anyio.create_task_group() as group:
        group.start_soon(release_all)
        group.start_soon(take, aiodev.as_completed(given), seen, release_some)
    for stream in streams:
        mine = sorted(done.value for done in given if done.timeline is stream.timeline)
        assert [done.value for done in seen if done.timeline is stream.timeline] == mine
    assert len(seen) == len(given) and nobody_waits(held)


def test_one_loop_goes_on_where_another_has_begun() -> None:
    """What is expected is expected there, and nothing of it stays in the first, which may run in another thread."""
    with several(3) as held:
        together = aiodev.as_completed([one.done for one in held])
        held[2].release()
        first, second = asyncio.new_event_loop(), asyncio.new_event_loop()
        try:
            assert first.run_until_complete(step(together)) == held[2].done
            first.run_until_complete(as_many_wait_here(2))
            held[1].release()
            assert second.run_until_complete(step(together)) == held[1].done
            second.run_until_complete(as_many_wait_here(1))
            first.run_until_complete(as_many_wait_here(0))
            held[0].release()
            assert first.run_until_complete(step(together)) == held[0].done
            second.run_until_complete(as_many_wait_here(0))
        finally:
            first.close()
            second.close()


async def step(together: AsyncIterator[aiodev.Completion]) -> aiodev.Completion:
    return await anext(together)


async def as_many_wait_here(count: int) -> None:
    await asyncio.sleep(0)
    assert len(current_reactor().waits) == count


async def test_one_that_is_woken_twice_comes_once() -> None:
    """As after Ctrl-C, which may come when it has arrived and its task was not resumed yet; once it was left, nothing comes."""
    with several(2) as held:
        seen: list[aiodev.Completion] = []
        async with anyio.create_task_group() as group:
            group.start_soon(take, aiodev.as_completed([one.done for one in held]), seen, lambda: None)
            await anyio.wait_all_tasks_blocked()
            both = tokens(current_reactor().waits)
            held[0].release()
            while not seen:
                await anyio.lowlevel.checkpoint()
            both[0].resume_soon()
            await anyio.wait_all_tasks_blocked()
            held[1].release()
        for entry in both:
            entry.resume_soon()
        assert seen == [one.done for one in held]


def test_in_debug_mode_each_has_a_turn_of_its_own() -> None:
    """asyncio then resumes the tasks itself; each comes all the same."""

    async def main() -> None:
        with several(20) as held:
            ahead, seen = held.copy(), list[aiodev.Completion]()
            async with anyio.create_task_group() as group:
                group.start_soon(take, aiodev.as_completed([one.done for one in held]), seen, lambda: None)
                while ahead:
                    ahead.pop().release()
                    ahead and ahead.pop().release()
                    await asyncio.sleep(0)
            assert len(seen) == 20 and nobody_waits(held)

    asyncio.run(main(), debug=True)
