"""Rows that the rounds of a loop hand to the event loop, as they are written."""

from __future__ import annotations

import asyncio
import contextlib
import random
from typing import Any

import numpy as np
import pytest

import aiodev
from aiodev import kernels
from aiodev.testing import Latch

pytestmark = pytest.mark.parametrize("device", ["cpu", "sim"], indirect=True)

MOST = 8


@aiodev.kernel
def write_row(i, count, out):
    out[count[0], i] = 10 * count[0] + i


@aiodev.kernel
def end_round(i, count, rounds, goes_on):
    count[i] += 1
    goes_on[i] = count[i] < rounds[()]


@aiodev.kernel
def refuse_at(i, at, count):
    if count[i] == at[()]:
        raise ValueError("refused")


@aiodev.kernel
def look(i, count, released, held):
    held[i] = count[i] >= 2 and released[i] == 0


class Program:
    """A graph whose loop writes a row a round."""

    def __init__(self, device: str, shape: tuple[int, ...] = (MOST, 3), most: int = MOST) -> None:
        self.device, self.shape = device, shape
        self.stream = aiodev.Stream(device)
        self.out = aiodev.zeros(shape, "int64", device)
        self.count = aiodev.zeros(1, "int64", device)
        self.goes_on = aiodev.zeros(1, "bool", device)

    async def capture(self, rounds: int, at: int = -1, is_input: bool = False) -> aiodev.Graph:
        await aiodev.synchronize(self.device)
        width = self.shape[1] if len(self.shape) > 1 else 1
        async with aiodev.capture(self.stream) as graph:
            out = graph.input("out", self.out) if is_input else self.out
            number, refused = graph.input("rounds", rounds), graph.input("at", at)
            self.count[:] = 0
            self.goes_on[:] = number.reshape(1) > 0
            with graph.while_(self.goes_on, rows=out):
                refuse_at[1](refused, self.count)
                write_row[width](self.count, out.reshape(self.shape[0], width))
                end_round[1](self.count, number, self.goes_on)
        return graph


def expected(rounds: int) -> list[list[int]]:
    return [[10 * k + i for i in range(3)] for k in range(rounds)]


async def read(rows: Any) -> list[Any]:
    return [row.tolist() async for row in rows]


@pytest.mark.parametrize("rounds", [0, 1, 3, MOST])
async def test_rows_of_a_loop(device: str, rounds: int) -> None:
    """There is a row for each round, in order, and none when the loop has ended; each replay has its own."""
    program = Program(device)
    graph = await program.capture(rounds)
    for _ in range(3):
        done = graph.replay(program.stream)
        assert await read(graph.rows(program.out)) == expected(rounds)
        assert done.query()
    graph.update(rounds=2)
    graph.replay(program.stream)
    assert await read(graph.rows(program.out)) == expected(2)


async def test_numbers(device: str) -> None:
    """A row of an array with one dimension is a number."""
    program = Program(device, (MOST,))
    graph = await program.capture(3)
    graph.replay(program.stream)
    rows = [row async for row in graph.rows(program.out)]
    assert rows == [0, 10, 20] and all(isinstance(row, np.int64) for row in rows)


class Held(Program):
    """One whose third round does not go on before ``release``."""

    async def capture(self, rounds: int, at: int = -1, is_input: bool = False) -> aiodev.Graph:
        released, held = aiodev.zeros(1, "int64", self.device), aiodev.zeros(1, "bool", self.device)
        self._released, self._one = released, aiodev.ones(1, "int64", self.device)
        await aiodev.synchronize(self.device)
        async with aiodev.capture(self.stream) as graph:
            number = graph.input("rounds", rounds)
            self.count[:] = 0
            self.goes_on[:] = True
            with graph.while_(self.goes_on, rows=self.out):
                look[1](self.count, released, held)
                with graph.while_(held):
                    look[1](self.count, released, held)
                write_row[3](self.count, self.out)
                end_round[1](self.count, number, self.goes_on)
        return graph

    def release(self) -> None:
        aiodev.Stream(self.device, priority=-1).copy(self._released, self._one)


async def test_rows_come_while_the_loop_runs(device: str) -> None:
    """A row is there before later rounds are over, and its reader is not woken for others."""
    program = Held(device)
    graph = await program.capture(4)
    done = graph.replay(program.stream)
    rows = graph.rows(program.out)
    assert [(await anext(rows)).tolist() for _ in range(2)] == expected(2)
    third = asyncio.ensure_future(anext(rows))
    await asyncio.sleep(0)
    assert not done.query() and not third.done()
    program.release()
    assert (await third).tolist() == expected(3)[2]
    assert await read(rows) == expected(4)[3:]


async def test_a_slow_reader(device: str) -> None:
    """Rows that nobody has read when the replay is over are still there, for any number of readers."""
    program = Program(device)
    graph = await program.capture(5)
    await graph.replay(program.stream)
    first, second = graph.rows(program.out), graph.rows(program.out)
    assert (await anext(first)).tolist() == expected(1)[0]
    assert await read(second) == expected(5)
    assert await read(first) == expected(5)[1:]
    assert await read(graph.rows(program.out)) == expected(5)


async def test_rows_that_are_overwritten(device: str) -> None:
    """A reader that comes after the next replay is told so; it does not get that one's rows."""
    program = Program(device)
    graph = await program.capture(3)
    await graph.replay(program.stream)
    rows = graph.rows(program.out)
    assert (await anext(rows)).tolist() == expected(1)[0]
    graph.replay(program.stream)
    with pytest.raises(RuntimeError, match="row 1 was not read before"):
        await anext(rows)
    assert await read(graph.rows(program.out)) == expected(3)


async def test_replays_ahead(device: str) -> None:
    """A replay that writes to another array may be submitted before the rows of the last one are read."""
    program = Program(device)
    graph = await program.capture(3, is_input=True)
    first, second = program.out, aiodev.zeros(program.shape, "int64", device)
    await aiodev.synchronize(device)
    with Latch(program.stream):
        graph.replay(program.stream)
        earlier = graph.rows(first)
        graph.update(out=second, rounds=5)
        graph.replay(program.stream)
        later = graph.rows(second)
        with pytest.raises(ValueError, match="another array"):
            graph.rows(first)
    assert await read(later) == expected(5)
    assert await read(earlier) == expected(3)


@pytest.mark.parametrize("length", [0, 1, 2])
async def test_rows_of_a_replaced_array(device: str, length: int) -> None:
    """An array that takes the place of the one with the rows has them, also where it has room for none."""
    program = Program(device, (length,))
    other = aiodev.zeros(length, "int64", device)
    graph = await program.capture(0, is_input=True)
    for out in (program.out, other, program.out):
        graph.update(out=out)
        graph.replay(program.stream)
        assert await read(graph.rows(out)) == []


async def test_rows_beside_an_input(device: str) -> None:
    """Rows that lie between an input's elements stay where they are when that is replaced."""
    stream = aiodev.Stream(device)
    both, left = aiodev.zeros((4, 2), "int64", device), aiodev.ones(1, "int64", device)
    other = aiodev.zeros((4, 2), "int64", device)
    await aiodev.synchronize(device)
    async with aiodev.capture(stream) as graph:
        rows = both[:3, 1]
        kernels.add(graph.input("x", both[:, 0]), 1, out=both[:, 0])
        with graph.while_(left, rows=rows):
            rows[:1] = 7
            left[:] = 0
    graph.update(x=other[:, 0])
    graph.replay(stream)
    assert await read(graph.rows(rows)) == [7]


async def test_a_round_fails(device: str) -> None:
    """The rounds before it have given their rows; its own raises what the replay does. Later replays run."""
    program = Program(device)
    graph = await program.capture(5, at=2)
    graph.replay(program.stream)
    rows, found = graph.rows(program.out), []
    with pytest.raises(aiodev.KernelError, match="refuse_at: ValueError: refused") as caught:
        async for row in rows:
            found.append(row.tolist())
    assert found == expected(2) and caught.value.node is not None
    graph.update(at=-1)
    graph.replay(program.stream)
    assert await read(graph.rows(program.out)) == expected(5)


async def test_a_failure_ahead(device: str) -> None:
    """Rows of a replay that does not run, since something ahead of it has failed or it was withdrawn, raise that at once."""
    program = Program(device)
    graph = await program.capture(5)
    latch = Latch(program.stream)
    done = graph.replay(program.stream)
    rows = graph.rows(program.out)
    assert done.cancel()
    latch.release()
    with pytest.raises(aiodev.WithdrawnError):
        await anext(rows)
    failed = program.stream.call(int, "x")
    graph.replay(program.stream)
    with pytest.raises(aiodev.DependencyError):
        await anext(graph.rows(program.out))
    with pytest.raises(ValueError, match="invalid literal"):
        await failed
    graph.replay(program.stream)
    assert await read(graph.rows(program.out)) == expected(5)


async def test_a_reader_that_leaves(device: str) -> None:
    """A reader that is cancelled leaves the replay running; another one reads on."""
    program = Held(device)
    graph = await program.capture(4)
    done = graph.replay(program.stream)
    rows = graph.rows(program.out)
    await anext(rows), await anext(rows)
    third = asyncio.ensure_future(anext(rows))
    await asyncio.sleep(0)
    third.cancel()
    with pytest.raises(asyncio.CancelledError):
        await third
    assert not done.query()
    program.release()
    await done
    assert await read(rows) == expected(4)[2:]


async def test_more_rounds_than_rows(device: str) -> None:
    """Rounds beyond the length of the array hand on nothing."""
    program = Program(device)
    async with aiodev.capture(program.stream) as graph:
        number = graph.input("rounds", 2 * MOST)
        program.count[:] = 0
        program.goes_on[:] = True
        with graph.while_(program.goes_on, rows=program.out):
            end_round[1](program.count, number, program.goes_on)
    graph.replay(program.stream)
    assert await read(graph.rows(program.out)) == [[0, 0, 0]] * MOST


async def test_rows_of_a_graph_of_several_streams(device: str) -> None:
    """A loop between waits of streams and calls of the host hands on its rows, too."""
    program, seen = Program(device), list[str]()
    second, x, flag = aiodev.Stream(device), aiodev.zeros(1, "int64", device), aiodev.zeros(1, "bool", device)
    await aiodev.synchronize(device)
    async with aiodev.capture(program.stream) as graph:
        second.wait_stream(program.stream)
        end_round[1, second](x, graph.input("most", 9), flag)
        program.stream.call(seen.append, "before")
        program.count[:] = 0
        program.goes_on[:] = True
        number = graph.input("rounds", 3)
        with graph.while_(program.goes_on, rows=program.out):
            write_row[3](program.count, program.out)
            end_round[1](program.count, number, program.goes_on)
        program.stream.wait_stream(second)
    for _ in range(2):
        graph.replay(program.stream)
        assert await read(graph.rows(program.out)) == expected(3)
    assert seen == ["before"] * 2


async def test_large_and_strided_rows(device: str) -> None:
    """Rows beyond what the host copies itself, and rows with gaps, are copied by the device."""
    rows = aiodev.zeros((4, 2, 20_000), "int64", device)
    count, goes_on = aiodev.zeros(1, "int64", device), aiodev.zeros(1, "bool", device)
    await aiodev.synchronize(device)
    views = rows[:, 1], rows[:, 0, ::2], rows[:, 0, :0]
    graphs = []
    for view in views:
        async with aiodev.capture(aiodev.Stream(device)) as graph:
            number = graph.input("rounds", 2)
            count[:] = 0
            goes_on[:] = True
            with graph.while_(goes_on, rows=view):
                write_row[view.shape[1]](count, view)
                end_round[1](count, number, goes_on)
        graphs.append(graph)
    for graph, view in zip(graphs, views, strict=True):
        await graph.replay()
        want = [[10 * k + i for i in range(view.shape[1])] for k in range(2)]
        assert await read(graph.rows(view)) == want


async def test_refusals(device: str) -> None:
    """What is no array of rows, and what has none, is refused with a word about what would do."""
    program = Program(device)
    async with aiodev.capture(program.stream) as graph:
        for rows, error in ((3, TypeError), (program.count[0], ValueError)):
            with pytest.raises(error, match="rows"), graph.while_(program.goes_on, rows=rows):  # type: ignore[arg-type]
                pass
    with pytest.raises(ValueError, match="no loop of the graph writes rows"):
        graph.rows(program.out)
    graph = await program.capture(2)
    with pytest.raises(RuntimeError, match="not replayed"):
        graph.rows(program.out)
    graph.replay(program.stream)
    with pytest.raises(ValueError, match="another array"):
        graph.rows(program.count)
    with pytest.raises(TypeError, match="output"):
        graph.rows(3)  # type: ignore[arg-type]
    assert len(await read(graph.rows(program.out))) == 2


@pytest.mark.parametrize("seed", range(6))
async def test_random_readers(device: str, seed: int) -> None:
    """Readers that come, leave and go on as they like get the rows of their replays, and failures at their rows."""
    chance = random.Random(seed)
    program = Program(device)
    graph = await program.capture(3)

    async def reader(rows: Any, rounds: int, at: int) -> None:
        last = rounds if at < 0 or at >= rounds else at
        found: list[Any] = []
        try:
            while True:
                if chance.random() < 0.3:
                    await asyncio.sleep(0)
                if chance.random() < 0.2:
                    step = asyncio.ensure_future(anext(rows))
                    await asyncio.sleep(0)
                    if step.cancel():
                        await asyncio.wait([step])
                        continue
                    found.append(step.result().tolist())
                else:
                    found.append((await anext(rows)).tolist())
        except StopAsyncIteration:
            assert last == rounds
        except aiodev.AiodevError:
            assert last != rounds
        assert found == expected(last)

    for _ in range(12):
        rounds, at = chance.randrange(MOST + 1), chance.choice([-1, -1, chance.randrange(MOST)])
        graph.update(rounds=rounds, at=at)
        latch = Latch(program.stream) if chance.random() < 0.5 else None
        graph.replay(program.stream)
        readers = [asyncio.ensure_future(reader(graph.rows(program.out), rounds, at)) for _ in range(chance.randrange(4))]
        if latch is not None:
            await asyncio.sleep(0)
            latch.release()
        await asyncio.gather(*readers)
        with contextlib.suppress(aiodev.KernelError):
            await program.stream.synchronize()
