"""Random programs over one memory against NumPy: every statement reads some view of it and writes some other.

Programs run several times over, so that calls are remembered: operation by operation, on streams in turn, and as a graph whose
replays alternate with the operations themselves.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st
from selection import examples

import aiodev
from aiodev import kernels as k

SIZE, BOUND = 64, 101
#: A view of the memory: where it begins, its rows and columns, what is done with them.
View = tuple[int, int, int, str]
#: What is done, what is written, what is read, twice.
Statement = tuple[str, View, View, View]


def view_of(memory: Any, view: View) -> Any:
    """Rows and columns of some elements, as they are, turned round, or every other one of them."""
    offset, rows, columns, how = view
    block = memory[offset : offset + 2 * rows * columns]
    if how == "between":
        return block.reshape(rows, columns, 2)[:, :, 0]
    if how == "columns":
        return block.reshape(rows, 2 * columns)[:, columns:]
    shown = block[: rows * columns].reshape(rows, columns)
    return {"plain": shown, "turned": shown[::-1, ::-1], "transposed": shown.T if rows == columns else shown}[how]


def order_of(view: View) -> np.ndarray[Any, Any]:
    """Rows in another order, the same one each time."""
    return np.random.default_rng(view[0]).permutation(view[1])


#: Of what is written, two that are read, and the order of rows: by NumPy, with copies of what is read; and here.
STATEMENTS: dict[str, tuple[Callable[..., Any], Callable[..., Any]]] = {
    "+=": (lambda out, x, y, p: out.__iadd__(x), lambda out, x, y, p: out.__iadd__(x)),
    "-= row": (lambda out, x, y, p: out.__isub__(x[:1]), lambda out, x, y, p: out.__isub__(x[:1])),
    "add": (lambda out, x, y, p: np.add(x, y, out=out), lambda out, x, y, p: k.add(x, y, out=out)),
    "maximum": (lambda out, x, y, p: np.maximum(x, y[:, :1], out=out), lambda out, x, y, p: k.maximum(x, y[:, :1], out=out)),
    "where": (lambda out, x, y, p: np.copyto(out, np.where(x > 0, y, x)), lambda out, x, y, p: k.where(x > 0, y, x, out=out)),
    "set": (lambda out, x, y, p: np.copyto(out, x), lambda out, x, y, p: out.__setitem__(slice(None), x)),
    "put": (lambda out, x, y, p: out.__setitem__(p, x), lambda out, x, y, p: out.__setitem__(p, x)),
    "mask": (lambda out, x, y, p: out.__setitem__(x > y, 1), lambda out, x, y, p: out.__setitem__(x > y, 1)),
    "sum": (lambda out, x, y, p: np.sum(x, axis=0, out=out[0]), lambda out, x, y, p: k.sum(x, axis=0, out=out[0])),
    "running sum": (
        lambda out, x, y, p: np.copyto(out, np.cumsum(x, axis=0)), lambda out, x, y, p: k.cumulative_sum(x, axis=0, out=out)
    ),
    "sort": (lambda out, x, y, p: np.copyto(out, np.sort(x, axis=1)), lambda out, x, y, p: k.sort(x, axis=1, out=out)),
    "roll": (lambda out, x, y, p: np.copyto(out, np.roll(x, 1, axis=0)), lambda out, x, y, p: k.roll(x, 1, axis=0, out=out)),
    "take": (
        lambda out, x, y, p: np.copyto(out, x[p]),
        lambda out, x, y, p: k.take(x, aiodev.asarray(p, device="cpu"), axis=0, out=out),
    ),
    "concat": (
        lambda out, x, y, p: np.copyto(out, np.concatenate((x[1:], y[:1]))),
        lambda out, x, y, p: k.concat((x[1:], y[:1]), out=out),
    ),
}  # fmt: skip


def run_on_host(memory: np.ndarray[Any, Any], program: list[Statement]) -> None:
    """What each statement gives when it reads what was there before it."""
    for name, out, first, second in program:
        before = memory.copy()
        STATEMENTS[name][0](view_of(memory, out), view_of(before, first), view_of(before, second), order_of(out))
        memory %= BOUND


def run(memory: aiodev.Array, program: list[Statement], streams: list[aiodev.Stream] | None = None) -> None:
    """The same here; on streams, each statement on the next one."""
    for number, (name, out, first, second) in enumerate(program):
        main = aiodev.current_stream("cpu")
        stream = main if streams is None else streams[number % len(streams)]
        stream.wait_stream(main)
        with stream:
            STATEMENTS[name][1](view_of(memory, out), view_of(memory, first), view_of(memory, second), order_of(out))
            memory %= BOUND
        main.wait_stream(stream)


@st.composite
def programs(draw: st.DrawFn) -> list[Statement]:
    rows, columns = draw(st.sampled_from([(3, 3), (2, 5), (4, 2)]))
    ways = st.sampled_from(["plain", "turned", "transposed", "between", "columns"])
    views = st.tuples(st.integers(0, SIZE - 2 * rows * columns), st.just(rows), st.just(columns), ways)
    return draw(st.lists(st.tuples(st.sampled_from(sorted(STATEMENTS)), views, views, views), min_size=1, max_size=6))


@pytest.mark.parametrize("how", ["by operations", "on streams", "as a graph"])
@given(programs(), st.integers(0, 1 << 16))
@settings(max_examples=examples(100), deadline=None)
def test_programs_over_one_memory(how: str, program: list[Statement], seed: int) -> None:
    """Each statement reads what was there before it, whatever it writes over."""
    asyncio.run(compare(how, program, np.random.default_rng(seed).integers(0, BOUND, SIZE).astype(float)))


async def compare(how: str, program: list[Statement], host: np.ndarray[Any, Any]) -> None:
    streams = [aiodev.Stream("cpu") for _ in range(2)] if how == "on streams" else None
    async with aiodev.Stream("cpu") as stream:
        memory, graph = aiodev.asarray(host), None
        if how == "as a graph":
            await stream.synchronize()
            async with aiodev.capture(stream) as graph:
                run(memory, program)
        for turn in range(3):
            run_on_host(host, program)
            if graph is not None and turn != 1:
                graph.replay()
            else:
                run(memory, program, streams)
        np.testing.assert_array_equal(await memory.numpy(), host)
