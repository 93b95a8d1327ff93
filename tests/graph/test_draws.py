"""Draws in loops and branches: how many a replay makes, the device alone knows until it is over."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import threading
import weakref
from collections.abc import AsyncIterator
from typing import Any

import numpy as np
import pytest

import aiodev
from aiodev.kernels import random
from aiodev.testing import Latch

pytestmark = pytest.mark.parametrize("device", ["cpu", "sim"], indirect=True)

SIZE = 6
#: Words by which a replay moves a generator that has failed.
SKIPPED = 1 << 40
#: Where the words of a seed end.
END = 2**64 - 4


@aiodev.kernel
def count_down(i, left):
    left[i] -= 1


@aiodev.kernel
def add(i, x, y):
    y[i] += x[i]


@aiodev.kernel
def refuse_at(i, at, left):
    if left[i] == at[()]:
        raise ValueError("refused")


class Walk:
    """A graph that draws ahead of a loop, in each of its rounds, and behind it; and the same, submitted directly."""

    def __init__(self, device: str) -> None:
        self.device = device
        self.generator = aiodev.Generator(device).manual_seed(7)
        self.model = aiodev.Generator(device).manual_seed(7)
        self.stream = aiodev.Stream(device)

    @contextlib.asynccontextmanager
    async def capture(self) -> AsyncIterator[None]:
        left, self.total = aiodev.zeros(1, "int64", self.device), aiodev.zeros(SIZE, "float64", self.device)
        await aiodev.synchronize(self.device)
        async with aiodev.capture(self.stream) as self.graph:
            rounds, at = self.graph.input("rounds", 0), self.graph.input("at", -1)
            self.stream.copy(left, rounds.reshape(1))
            random.random(out=self.total, generator=self.generator)
            with self.graph.while_(left):
                refuse_at[1](at, left)
                add[SIZE](random.standard_normal(SIZE, device=self.device, generator=self.generator), self.total)
                count_down[1](left)
            self.behind = random.integers(0, 100, 3, device=self.device, generator=self.generator)
            yield

    def replay(self, rounds: int, at: int = -1) -> aiodev.Completion[None]:
        self.graph.update(rounds=rounds, at=at)
        return self.graph.replay(self.stream)

    async def read(self) -> list[Any]:
        """What the last replay has left, read on its stream."""
        async with self.stream:
            return [await self.total.tolist(), await self.behind.tolist()]

    async def expected(self, rounds: int) -> list[Any]:
        total = await random.random(SIZE, device=self.device, generator=self.model).numpy()
        for _ in range(rounds):
            total += await random.standard_normal(SIZE, device=self.device, generator=self.model).numpy()
        behind = random.integers(0, 100, 3, device=self.device, generator=self.model)
        return [total.tolist(), await behind.tolist()]

    async def direct(self, generator: aiodev.Generator) -> list[float]:
        return await random.random(5, device=self.device, generator=generator).tolist()


async def captured(device: str) -> Walk:
    walk = Walk(device)
    async with walk.capture():
        pass
    return walk


async def test_rounds_draw_what_direct_calls_would(device: str) -> None:
    """Rounds, what follows them, direct calls and later replays draw one sequence, however often a loop has run."""
    walk = await captured(device)
    for rounds in (3, 0, 1, 7):
        walk.replay(rounds)
        assert await walk.read() == await walk.expected(rounds)
        assert await walk.direct(walk.generator) == await walk.direct(walk.model)
    assert walk.generator.get_state() == walk.model.get_state()


async def test_replays_and_draws_ahead(device: str) -> None:
    """Nobody waits: replays and draws that are submitted while one runs continue where it will end, on other streams, too."""
    walk, found, expected = await captured(device), [], []
    other, kept = aiodev.Stream(device), aiodev.zeros(SIZE, device=device)
    await aiodev.synchronize(device)
    async with aiodev.capture(aiodev.Stream(device)) as fixed:
        kept[:] = random.random(SIZE, device=device, generator=walk.generator)
    latch = Latch(walk.stream)
    for rounds in (2, 0, 5):
        walk.replay(rounds)
        with other:
            found.append(random.random(5, device=device, generator=walk.generator))
            fixed.replay()
            found.append(kept + 0)
    assert "behind a replay" in repr(walk.generator)
    latch.release()
    for rounds in (2, 0, 5):
        await walk.expected(rounds)
        expected += [await walk.direct(walk.model), await random.random(SIZE, device=device, generator=walk.model).tolist()]
    assert [await x.tolist() for x in found] == expected
    assert walk.generator.get_state() == walk.model.get_state()
    assert repr(walk.generator) == repr(walk.model)


async def test_branches_and_nested_loops(device: str) -> None:
    """What a branch leaves out is not drawn, and a loop in a loop draws in each round of both."""
    generator, model = (aiodev.Generator(device).manual_seed(3) for _ in range(2))
    outer, inner, taken = (aiodev.zeros(1, "int64", device) for _ in range(3))
    rows = [aiodev.zeros(SIZE, device=device) for _ in range(4)]
    await aiodev.synchronize(device)

    def draw(own: aiodev.Generator, k: int) -> None:
        add[SIZE](random.random(SIZE, device=device, generator=own), rows[k])

    async with aiodev.capture(aiodev.Stream(device)) as graph:
        stream = aiodev.current_stream(device)
        stream.copy(outer, graph.input("outer", 0).reshape(1))
        with graph.while_(outer):
            draw(generator, 0)
            stream.copy(inner, outer)
            with graph.while_(inner):
                draw(generator, 1)
                count_down[1](inner)
            with graph.if_(outer[0:1]):
                stream.copy(taken, graph.input("taken", 0).reshape(1))
                with graph.if_(taken):
                    draw(generator, 2)
            draw(generator, 3)
            count_down[1](outer)
    async with aiodev.Stream(device):
        for rounds, chosen in ((0, 1), (3, 0), (2, 1)):
            for row in rows:
                row[:] = 0
            graph.update(outer=rounds, taken=chosen)
            await graph.replay()
            found = [await row.tolist() for row in rows]
            for row in rows:
                row[:] = 0
            for left in range(rounds, 0, -1):
                draw(model, 0)
                for _ in range(left):
                    draw(model, 1)
                if chosen:
                    draw(model, 2)
                draw(model, 3)
            assert found == [await row.tolist() for row in rows]
            assert generator.get_offset() == model.get_offset()


async def test_other_streams_draw_beside_a_loop(device: str) -> None:
    """A stream that drew before a loop of another one keeps its words; what draws behind the loop follows it there."""
    generator, model = (aiodev.Generator(device).manual_seed(3) for _ in range(2))
    first, second, left = aiodev.Stream(device), aiodev.Stream(device), aiodev.zeros(1, "int64", device)
    total = aiodev.zeros(SIZE, device=device)
    await aiodev.synchronize(device)
    async with aiodev.capture(first) as graph:
        first.copy(left, graph.input("rounds", 0).reshape(1))
        second.wait_stream(first)
        with graph.while_(left):
            random.random(out=total, generator=generator)
            count_down[1](left)
        with second:
            beside = random.random(SIZE, device=device, generator=generator)
            second.copy(left, graph.input("more", 0).reshape(1))
            with graph.while_(left):
                random.random(out=total, generator=generator)
                count_down[1](left)
        behind = random.random(SIZE, device=device, generator=generator)
        first.wait_stream(second)
    for rounds, more in ((2, 1), (0, 3)):
        graph.update(rounds=rounds, more=more)
        await graph.replay()
        for _ in range(rounds):
            random.random(SIZE, device=device, generator=model)
        expected = [await random.random(SIZE, device=device, generator=model).tolist()]
        for _ in range(more):
            random.random(SIZE, device=device, generator=model)
        expected.append(await random.random(SIZE, device=device, generator=model).tolist())
        assert [await beside.tolist(), await behind.tolist()] == expected


async def test_replay_that_fails(device: str) -> None:
    """It moves its generator by more than it can have drawn: no word is drawn twice, and what follows is known beforehand."""
    walk = await captured(device)
    began = walk.generator.get_offset()
    done = walk.replay(5, at=3)
    with pytest.raises(aiodev.KernelError, match="refuse_at"):
        await done
    assert walk.generator.get_offset() == began + SKIPPED
    walk.model.set_offset(began + SKIPPED)
    walk.replay(2)
    assert await walk.read() == await walk.expected(2)


async def test_replays_that_are_withdrawn(device: str) -> None:
    """One that never ran moves its generator as one that failed, and so do those that were submitted behind it."""
    walk = await captured(device)
    with Latch(walk.stream):
        walk.replay(4)
        withdrawn, behind = walk.replay(2), walk.replay(1)
        assert withdrawn.cancel()
    with pytest.raises(aiodev.DependencyError):
        await behind
    await walk.expected(4)
    assert walk.generator.get_offset() == walk.model.get_offset() + 2 * SKIPPED
    walk.model.set_offset(walk.generator.get_offset())
    walk.replay(2)
    assert await walk.read() == await walk.expected(2)


async def test_a_replay_near_the_end_of_a_seed(device: str) -> None:
    """It is refused where it might pass the end, and takes nothing; so is what is submitted behind one that runs."""
    walk = await captured(device)
    for offset, left in ((END - 8, "8"), (END - SKIPPED, str(SKIPPED))):
        walk.generator.set_offset(offset)
        with pytest.raises(ValueError, match=f"words asked for by a replay.*, {left} are left under seed 7"):
            walk.replay(5)
        assert walk.generator.get_offset() == offset
    began = END - SKIPPED - 12  # four are for what is drawn behind the loop
    for own in (walk.generator, walk.model):
        own.set_offset(began)
    with Latch(walk.stream):
        walk.replay(2)
        ahead = random.random_raw(8, device=device, generator=walk.generator)
        for submit in (lambda: random.random_raw(1, device=device, generator=walk.generator), lambda: walk.replay(1)):
            with pytest.raises(ValueError, match="asked for.*, 0 are left under seed 7 whatever is drawn by replays that run"):
                submit()
    assert await walk.read() == await walk.expected(2)
    assert await ahead.tolist() == await random.random_raw(8, device=device, generator=walk.model).tolist()
    assert walk.generator.get_state() == walk.model.get_state()
    assert await walk.direct(walk.generator) == await walk.direct(walk.model)


async def test_replays_ahead_near_the_end_of_a_seed(device: str) -> None:
    """Each that runs counts as many words as one may take; those that are over, what they took."""
    walk, gates, completions = await captured(device), list[Latch](), list[aiodev.Completion[None]]()
    for own in (walk.generator, walk.model):
        own.set_offset(END - 3 * SKIPPED)

    with contextlib.ExitStack() as stack:

        def submit() -> None:
            gates.append(stack.enter_context(Latch(walk.stream)))
            completions.append(walk.replay(1))

        submit()
        submit()
        for k in range(4):
            with pytest.raises(ValueError, match="are left"):
                walk.replay(1)
            gates[k].release()
            await completions[k]
            submit()
    await walk.stream.synchronize()
    for _ in completions:
        await walk.expected(1)
    assert walk.generator.get_state() == walk.model.get_state()


async def test_failed_replays_up_to_the_end_of_a_seed(device: str) -> None:
    """What they count for is there; then no replay is accepted, and direct draws take what is left."""
    walk = await captured(device)
    walk.generator.set_offset(END - SKIPPED - 4)
    with pytest.raises(aiodev.KernelError, match="refuse_at"):
        await walk.replay(5, at=3)
    assert walk.generator.get_offset() == END - 4
    with pytest.raises(ValueError, match="4 are left"):
        walk.replay(1)
    assert walk.generator.reserve(4).offset == END - 4
    with pytest.raises(ValueError, match="0 are left"):
        walk.generator.reserve(1)


@pytest.mark.parametrize("rounds", [1, 3])
async def test_a_replay_that_passes_the_end_of_a_seed(device: str, rounds: int) -> None:
    """By more words than a replay may draw: nothing is left then, for draws and replays that come after it."""
    generator, left = aiodev.Generator(device).manual_seed(7), aiodev.full(1, rounds, "int64", device)
    await aiodev.synchronize(device)
    async with aiodev.capture(aiodev.Stream(device)) as graph:
        with graph.while_(left):
            generator.reserve(2 * SKIPPED)
            count_down[1](left)
    generator.set_offset(END - SKIPPED)
    await graph.replay()
    for take in (lambda: random.random_raw(1, device=device, generator=generator), graph.replay):
        with pytest.raises(ValueError, match=", 0 are left under seed 7;"):
            take()
    assert generator.get_offset() == END
    assert generator.manual_seed(8).reserve(4).offset == 0


async def test_states_while_a_replay_runs(device: str) -> None:
    """A copy of the state, or a block that forks it, needs no wait; the offset itself does, unless it is forbidden."""
    walk = await captured(device)
    with Latch(walk.stream) as latch:
        walk.replay(3)
        clone = walk.generator.clone_state()
        aiodev.set_sync_debug_mode("error")
        for ask in (walk.generator.get_offset, walk.generator.get_state, lambda: walk.generator.spawn(1)):
            with pytest.raises(aiodev.SyncError):
                ask()
        aiodev.set_sync_debug_mode("default")
        drawn = random.random(5, device=device, generator=clone)
        asyncio.get_running_loop().run_in_executor(None, latch.release)
        offset = walk.generator.get_offset()
    await walk.expected(3)
    assert offset == walk.model.get_offset()
    assert await drawn.tolist() == await walk.direct(walk.generator) == await walk.direct(walk.model)
    assert clone.get_state() == walk.model.get_state()


async def test_reseeding_while_a_replay_runs(device: str) -> None:
    """A generator that is reseeded, or set elsewhere, has nothing to do with the replay any more."""
    walk = await captured(device)
    with Latch(walk.stream):
        walk.replay(3)
        walk.generator.set_offset(400)
        assert walk.generator.get_offset() == 400
        walk.replay(3)
        assert walk.generator.manual_seed(9).get_offset() == 0
        assert await walk.direct(walk.generator) == await walk.direct(aiodev.Generator(device).manual_seed(9))


async def test_default_generators(device: str) -> None:
    """The default generator of a block that forks it continues behind a replay that runs, and leaves the outer one there."""
    left, total = aiodev.full(1, 3, "int64", device), aiodev.zeros(SIZE, device=device)
    await aiodev.synchronize(device)
    stream, three = aiodev.Stream(device), aiodev.asarray(np.array([3]), device=device)
    await aiodev.synchronize(device)
    async with aiodev.capture(stream) as graph:
        stream.copy(left, three)
        with graph.while_(left):
            random.random(out=total)
            count_down[1](left)
    aiodev.default_generator(device).manual_seed(5)
    with Latch(stream):
        graph.replay(stream)
        with aiodev.fork_rng():
            forked = random.random(SIZE, device=device)
        outer = random.random(SIZE, device=device)
    model = aiodev.Generator(device).manual_seed(5)
    for _ in range(3):
        random.random(SIZE, device=device, generator=model)
    expected = await random.random(SIZE, device=device, generator=model).tolist()
    assert await forked.tolist() == await outer.tolist() == expected


async def test_draws_that_are_not_captured(device: str) -> None:
    """A draw on a stream that is not captured is none of the graph's, within the block, too."""
    generator, model, stream = aiodev.Generator(device), aiodev.Generator(device), aiodev.Stream(device)
    async with aiodev.capture(aiodev.Stream(device)) as graph:
        inside = random.random(SIZE, device=device, generator=generator)
        with stream:
            outside = random.random(SIZE, device=device, generator=generator)
    assert await outside.tolist() == await random.random(SIZE, device=device, generator=model).tolist()
    await graph.replay()
    assert await inside.tolist() == await random.random(SIZE, device=device, generator=model).tolist()


async def test_replays_that_are_over_are_let_go_of(device: str) -> None:
    """A program that always has a replay ahead holds what tells its generator of those that run, and of no others."""
    walk, told = await captured(device), []
    gates, completions = list[Latch](), list[aiodev.Completion[None]]()
    for _ in range(2):
        gates.append(Latch(walk.stream))
        completions.append(walk.replay(1))
        told.append(weakref.ref(walk.generator._state.ahead.told.words))  # type: ignore[union-attr]
    gates[0].release()
    await completions[0]
    walk.replay(1)
    gc.collect()
    assert told[0]() is None and told[1]() is not None
    gates[1].release()
    await walk.stream.synchronize()
    for _ in range(3):
        await walk.expected(1)
    assert walk.generator.get_state() == walk.model.get_state()


@aiodev.kernel
def choose(i, noise, shares, tokens, count, goes_on):
    left, code = noise[0], 0
    while code < shares.shape[1] - 1 and left >= shares[tokens[count[0]], code]:
        left -= shares[tokens[count[0]], code]
        code += 1
    count[0] += 1
    tokens[count[0]] = code
    goes_on[0] = count[0] < 64


async def test_sixty_four_tokens_are_one_submission(device: str) -> None:
    """A loop that samples is one replay, whose tokens come as they are chosen: those that one step after the other chooses."""
    shares = aiodev.asarray(np.random.default_rng(1).dirichlet(np.ones(20), 20), device=device)
    generator, model = (aiodev.Generator(device).manual_seed(5) for _ in range(2))

    def step(own: aiodev.Generator, *arrays: aiodev.Array) -> None:
        choose[1](random.random(1, device=device, generator=own), shares, *arrays)

    async with aiodev.Stream(device) as stream:
        tokens, count, goes_on = aiodev.zeros(65, "int64"), aiodev.zeros(1, "int64"), aiodev.ones(1, "bool")
        async with aiodev.capture(stream) as graph:
            count[:], goes_on[:] = 0, True
            with graph.while_(goes_on, rows=tokens[1:]):
                step(generator, tokens, count, goes_on)
        graph.replay()
        found = [int(token) async for token in graph.rows(tokens[1:])]
        assert graph.obstacles == []
        count[:] = 0
        for _ in range(64):
            step(model, tokens, count, goes_on)
        assert found == (await tokens.tolist())[1:] and len(set(found)) > 5
        assert generator.get_state() == model.get_state()


async def test_streams_that_are_bounded(device: str) -> None:
    """A replay that tells how far it came takes room as any other: for itself."""
    walk = await captured(device)
    stream = aiodev.Stream(device, maxsize=1)
    for rounds in (3, 2):
        walk.graph.update(rounds=rounds)
        await walk.graph.replay(stream)
        await walk.expected(rounds)
        assert walk.generator.get_offset() == walk.model.get_offset()


async def test_threads_that_draw_while_a_replay_runs(device: str) -> None:
    """No word is given to two of them, and none is left out."""
    walk, places = await captured(device), list[int]()

    def draw() -> None:
        for _ in range(50):
            places.append(walk.generator.reserve(3).offset)

    with Latch(walk.stream):
        walk.replay(2)
        first = walk.generator.reserve(4).offset
        threads = [threading.Thread(target=draw) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert sorted(places) == list(range(first + 4, first + 4 + 800, 4))
    await walk.expected(2)
    assert walk.generator.get_offset() == walk.model.get_offset() + 804


async def test_a_draw_on_another_stream_in_a_block(device: str) -> None:
    """It is refused, and takes no words."""
    generator, first, second = aiodev.Generator(device), aiodev.Stream(device), aiodev.Stream(device)
    left = aiodev.full(1, 2, "int64", device)
    await aiodev.synchronize(device)
    async with aiodev.capture(first) as graph:
        second.wait_stream(first)
        with graph.while_(left):
            with second, pytest.raises(aiodev.CaptureError, match="one stream"):
                random.random(SIZE, device=device, generator=generator)
            random.random(4, dtype="float32", device=device, generator=generator)
            count_down[1](left)
        first.wait_stream(second)
    await graph.replay()
    assert generator.get_offset() == 8
