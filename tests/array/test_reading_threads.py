"""Arrays that one thread reads while another one submits what writes them."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import anyio
import numpy as np
import pytest
from halves import LARGE, put

import aiodev
from aiodev._array import readback
from aiodev._memory.buffer import Buffer

pytestmark = pytest.mark.anyio

SMALL = 3000  # of which NumPy copies without the GIL
SECONDS = 0.4


@aiodev.kernel
def add_one(i: int, x: Any) -> None:
    """One more."""
    x[i] += 1


@aiodev.kernel
def work_and_put(i: int, steps: int, x: Any, value: float) -> None:
    """Fill, after so many steps for each index."""
    worked = 1.0
    for _ in range(steps):
        worked = 0.5 * worked + 1
    x[i] = value if worked > 0 else -1.0


def by_launches(x: aiodev.Array, stream: aiodev.Stream) -> Callable[[], Any]:
    return lambda: add_one[x.size, stream](x)


def by_bound_launches(x: aiodev.Array, stream: aiodev.Stream) -> Callable[[], Any]:
    return add_one.bind((x.size, stream), x)


def by_copies(x: aiodev.Array, stream: aiodev.Stream) -> Callable[[], Any]:
    with stream:
        sources = [aiodev.full(x.shape, value, device="cpu") for value in (1.0, 2.0)]
    rounds = iter(range(1 << 40))
    return lambda: stream.copy(x, sources[next(rounds) % 2])


def by_assignments(x: aiodev.Array, stream: aiodev.Stream) -> Callable[[], Any]:
    rounds = iter(range(1 << 40))

    def submit() -> aiodev.Event:
        with stream:
            x[...] = float(next(rounds))
        return stream.record_event()

    return submit


def by_operators(x: aiodev.Array, stream: aiodev.Stream) -> Callable[[], Any]:
    def submit(y: aiodev.Array = x) -> aiodev.Event:
        with stream:
            y += 1
        return stream.record_event()

    return submit


def by_replays(x: aiodev.Array, stream: aiodev.Stream) -> Callable[[], Any]:
    async def captured() -> aiodev.Graph:
        async with aiodev.capture(stream) as graph:
            add_one[x.size, stream](x)
        return graph

    with ThreadPoolExecutor(1) as thread:  # a loop may be running in this one
        graph = thread.submit(asyncio.run, captured()).result()
    return lambda: graph.replay(stream)


WAYS = [by_launches, by_bound_launches, by_copies, by_assignments, by_operators, by_replays]


class Writer:
    """A thread that submits one write after the other until the block is left."""

    def __init__(self, submit: Callable[[], Any]) -> None:
        self._submit = submit
        self._is_over = False
        self._errors: list[BaseException] = []
        self._thread = threading.Thread(target=self._run)

    def _run(self) -> None:
        try:
            while not self._is_over:
                self._submit().synchronize_blocking(30)
                time.sleep(0.0001)
        except BaseException as error:
            self._errors.append(error)

    def __enter__(self) -> None:
        self._thread.start()

    def __exit__(self, *error: object) -> None:
        self._is_over = True
        self._thread.join(30)
        assert not self._errors, self._errors


def written(way: Callable[[aiodev.Array, aiodev.Stream], Callable[[], Any]], size: int) -> tuple[aiodev.Array, Writer]:
    """An array, and who writes all of its elements again and again."""
    stream = aiodev.Stream("cpu")
    with stream:
        x = aiodev.zeros(size, device="cpu")
    submit = way(x, stream)
    submit().synchronize_blocking(60)
    return x, Writer(submit)


def moments() -> Iterator[None]:
    """For some time."""
    until = time.monotonic() + SECONDS
    while time.monotonic() < until:
        yield


@pytest.mark.parametrize("size", [SMALL, LARGE])
@pytest.mark.parametrize("way", WAYS)
def test_a_blocking_read_is_of_one_moment(way: Callable[..., Any], size: int) -> None:
    """Never the half of a write, by whatever thread and in whatever way it was submitted."""
    x, writer = written(way, size)
    with writer:
        assert all(np.ptp(x.numpy_blocking(30)) == 0 for _ in moments())


@pytest.mark.parametrize("size", [SMALL, LARGE])
@pytest.mark.parametrize("way", WAYS)
async def test_an_awaited_read_is_of_one_moment(way: Callable[..., Any], size: int) -> None:
    """A thread that submits is no task: it has its turn in the midst of whatever the loop does."""
    x, writer = written(way, size)
    with writer:
        for _ in moments():
            assert np.ptp(await x.numpy()) == 0


def test_a_look_is_of_one_moment() -> None:
    """With no time to wait the values are those of one write, or none."""
    x, writer = written(by_launches, LARGE)
    seen = 0
    with writer:
        for _ in moments():
            try:
                values = x.numpy_blocking(0)
            except TimeoutError:
                continue
            seen += 1
            assert np.ptp(values) == 0
    assert seen


@pytest.mark.parametrize("timeout", [None, 0])
def test_a_write_that_is_submitted_while_the_array_is_copied(monkeypatch: pytest.MonkeyPatch, timeout: float | None) -> None:
    """Whatever was copied by then is thrown away."""
    stream = aiodev.Stream("cpu")
    with stream:
        x = aiodev.ones(SMALL, device="cpu")
    stream.synchronize_blocking(30)

    class Interrupted:
        """Memory, and another thread that has its turn when a half of it is copied."""

        def __init__(self, memory: Any) -> None:
            self._memory = memory

        def copy(self, order: str = "C") -> Any:
            values = self._memory.copy()
            monkeypatch.undo()
            thread = threading.Thread(target=lambda: put[SMALL, stream](x, 2.0).synchronize_blocking(30))
            thread.start()
            thread.join()
            values[SMALL // 2 :] = self._memory[SMALL // 2 :]
            return values

    for name in ("host_window", "host_view"):
        window = getattr(readback, name)
        monkeypatch.setattr(readback, name, lambda array, window=window: Interrupted(window(array)))
    assert (x.numpy_blocking(timeout) == 2).all()


@pytest.mark.parametrize("size", [SMALL, LARGE])
async def test_a_write_that_is_not_noted_yet(monkeypatch: pytest.MonkeyPatch, size: int) -> None:
    """It runs, and no buffer says so: the thread that has submitted it has lost its turn to the one that reads."""
    first, second = aiodev.Stream("cpu"), aiodev.Stream("cpu")
    with first:
        x = aiodev.zeros(size, device="cpu")
    await work_and_put[size, second](1, x, 1.0)
    await put[size, first](x, 2.0)  # so that the next write of the other stream is noted by a call
    second.wait_stream(first)
    is_submitted = threading.Event()
    record_write = Buffer._record_write

    def late(buffer: Buffer, timeline: Any, value: int) -> None:
        if threading.current_thread() is thread and buffer is x._buffer:
            is_submitted.set()
            time.sleep(0.02)
        record_write(buffer, timeline, value)

    monkeypatch.setattr(Buffer, "_record_write", late)
    steps = 20_000_000 // size
    thread = threading.Thread(target=lambda: work_and_put[size, second](steps, x, 3.0))
    thread.start()
    assert await anyio.to_thread.run_sync(is_submitted.wait, 30)
    values = await x.numpy()
    thread.join(30)
    assert set(values.tolist()) in ({2.0}, {3.0})
    assert (await x.numpy() == 3).all()


async def test_a_read_in_the_midst_of_a_submission() -> None:
    """As in a signal's handler: the submission cannot go on before the read returns, which gives it up after a moment."""
    from aiodev._core.timeline.noting import Noting

    x = aiodev.ones(SMALL, device="cpu")
    with Noting():
        assert (x.numpy_blocking(30) == 1).all() and (await x.numpy() == 1).all()
