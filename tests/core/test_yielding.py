"""Every public coroutine counts as an await, whatever it finds: a task that meets only such awaits lets others run in time."""

from __future__ import annotations

import asyncio
import importlib
import inspect
import time
from collections.abc import AsyncIterable, Awaitable, Callable, Iterator
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from types import ModuleType
from typing import Any

import anyio
import numpy as np
import pytest
from turns import Clock, Turns

import aiodev
import aiodev.kernels
from aiodev import autograd, memory, profiler
from aiodev.interop import safetensors

PATIENCE = 10.0  #: seconds that a timer of a millisecond may be late before it counts as starved


@aiodev.kernel
def increment(i: int, x: Any) -> None:
    x[i] += 1


@aiodev.kernel
def count_up(i: int, count: Any, out: Any, goes_on: Any) -> None:
    out[count[0]] = count[0]
    count[0] += 1
    goes_on[0] = count[0] < 4


async def square(x: Any) -> Any:
    return x * x


class Program:
    """What there is to await, all of it done, or submitted so that it is done soon."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.stream, self.closed = aiodev.Stream("cpu"), aiodev.Stream("cpu")
        self.bounded = aiodev.Stream("cpu", maxsize=4)
        self.done = self.stream.call(int)
        self.array, self.one = aiodev.ones(4, "float64", "cpu"), aiodev.ones((), "float64", "cpu")
        self.event, self.recorded = aiodev.Event("cpu"), aiodev.Event("cpu")
        self.square = aiodev.make_graphed(square)
        self.derivative, self.second = autograd.value_and_grad(aiodev.kernels.sum), autograd.hessian(aiodev.kernels.sum)

    async def prepare(self) -> Program:
        await self.done
        await self.closed.aclose()
        self.recorded.record(self.stream)
        await increment.compile(self.array)
        async with aiodev.capture() as self.graph:
            self.graph.input("x", self.array)[:] = 1
        await self.graph.save(self.folder / "graph")
        count, goes_on = aiodev.zeros(1, "int64", "cpu"), aiodev.ones(1, "bool", "cpu")
        self.rows = aiodev.zeros(4, "int64", "cpu")
        async with aiodev.capture() as self.loop:
            with self.loop.while_(goes_on, rows=self.rows):
                count_up[1](count, self.rows, goes_on)
        await self.loop.replay()
        await safetensors.save(self.folder / "arrays", {"array": self.array})
        await self.square(self.array)
        await aiodev.synchronize("cpu")
        return self

    def variable(self) -> autograd.Variable:
        return (autograd.Variable(self.one) * 2).reshape(())


async def enter(guard: AbstractAsyncContextManager[object]) -> None:
    async with guard:
        pass


async def exhaust(items: AsyncIterable[object]) -> None:
    async for _ in items:
        pass


async def await_it(awaitable: Awaitable[object]) -> None:
    await awaitable


async def grad_of(program: Program) -> None:
    leaf = autograd.Variable(program.one)
    await autograd.grad(leaf * 2, leaf)


#: One await of each public coroutine, by the name of what is awaited; a second way to await the same has words behind it.
AWAITS: dict[str, Callable[[Program], Awaitable[object]]] = {
    "Array.item": lambda p: p.one.item(),
    "Array.item of an index": lambda p: p.array.item(1),
    "Array.numpy": lambda p: p.array.numpy(),
    "Array.tolist": lambda p: p.array.tolist(),
    "Completion.__await__": lambda p: await_it(p.done),
    "Completion.synchronize": lambda p: p.done.synchronize(),
    "Event.__await__": lambda p: await_it(p.event),
    "Event.synchronize": lambda p: p.event.synchronize(),
    "Event.synchronize of what was recorded": lambda p: p.recorded.synchronize(),
    "Graph.load": lambda p: aiodev.Graph.load(p.folder / "graph", x=p.array),
    "Graph.rows": lambda p: exhaust(p.loop.rows(p.rows)),
    "Graph.save": lambda p: p.graph.save(p.folder / "saved"),
    "Kernel.compile": lambda p: increment.compile(p.array),
    "Stream.__aenter__": lambda p: enter(p.stream),
    "Stream.aclose": lambda p: p.closed.aclose(),
    "Stream.aclose of an idle one": lambda p: aiodev.Stream("cpu").aclose(),
    "Stream.drain": lambda p: p.stream.drain(),
    "Stream.drain of a bounded one": lambda p: p.bounded.drain(4),
    "Stream.synchronize": lambda p: p.stream.synchronize(),
    "stream of none": lambda p: enter(aiodev.stream(None)),
    "StreamGroup.__aenter__": lambda p: enter(aiodev.StreamGroup("cpu")),
    "as_completed": lambda p: exhaust(aiodev.as_completed([p.done])),
    "as_completed of none": lambda p: exhaust(aiodev.as_completed([])),
    "capture.__aenter__": lambda p: enter(aiodev.capture()),
    "device.__aenter__": lambda p: enter(aiodev.device("cpu")),
    "device.__aenter__ of none": lambda p: enter(aiodev.device(None)),
    "fork_rng.__aenter__": lambda p: enter(aiodev.fork_rng()),
    "init": lambda p: aiodev.init("cpu"),
    "make_graphed of a coroutine function": lambda p: p.square(p.array),
    "synchronize": lambda p: aiodev.synchronize("cpu"),
    "Lease.__aenter__": lambda p: enter(memory.lease(1, "cpu")),
    "MemoryPool.__aenter__": lambda p: enter(memory.MemoryPool("cpu")),
    "Variable.backward": lambda p: p.variable().backward(),
    "backward": lambda p: autograd.backward(p.variable()),
    "backward of several": lambda p: autograd.backward([p.variable(), p.variable()]),
    "grad": grad_of,
    "gradcheck": lambda p: autograd.gradcheck(lambda x: x * x, [autograd.Variable(p.one)]),
    "gradgradcheck": lambda p: autograd.gradgradcheck(lambda x: x * x, [autograd.Variable(p.one)]),
    "hessian": lambda p: p.second(p.one),
    "jvp": lambda p: autograd.jvp(lambda x: x, [p.one], [p.one]),
    "value_and_grad": lambda p: p.derivative(p.one),
    "vjp": lambda p: autograd.vjp(lambda x: x, p.one),
    "BlockingDetector.__aenter__": lambda p: enter(profiler.detect_blocking(1000.0)),
    "LoopLag.__aenter__": lambda p: enter(profiler.LoopLag(1000.0)),
    "Profile.__aenter__": lambda p: enter(profiler.profile()),
    "nonzero": lambda p: aiodev.kernels.nonzero(p.array),
    "select": lambda p: aiodev.kernels.select(p.array, p.array),
    "unique_all": lambda p: aiodev.kernels.unique_all(p.array),
    "unique_counts": lambda p: aiodev.kernels.unique_counts(p.array),
    "unique_inverse": lambda p: aiodev.kernels.unique_inverse(p.array),
    "unique_values": lambda p: aiodev.kernels.unique_values(p.array),
    "warm_up": lambda p: aiodev.kernels.warm_up([], device="cpu"),
    "load": lambda p: safetensors.load(p.folder / "arrays", "cpu"),
    "save": lambda p: safetensors.save(p.folder / "other", {"array": p.array}),
}

MODULES = (
    "aiodev", "aiodev.memory", "aiodev.autograd", "aiodev.optim", "aiodev.profiler", "aiodev.kernels", "aiodev.kernels.random",
    "aiodev.kernels.linalg", "aiodev.kernels.fft", "aiodev.array_api", "aiodev.testing", "aiodev.interop.safetensors",
)  # fmt: skip


def public_coroutines() -> dict[int, str]:
    """The names of what a program can await, by what it is: an inherited method has the name of one class that has it."""
    found: dict[int, str] = {}
    for module in map(importlib.import_module, MODULES):
        for name, thing in sorted(members_of(module)):
            if inspect.isclass(thing):
                for method in sorted(dir(thing)):
                    function = inspect.getattr_static(thing, method)
                    function = getattr(function, "__func__", function)
                    is_public = not method.startswith("_") and is_awaited(function)
                    if is_public or method in ("__await__", "__aenter__", "__anext__"):
                        found.setdefault(id(function), f"{name}.{method}")
            elif is_awaited(thing):
                found.setdefault(id(thing), name)
    return found


def members_of(module: ModuleType) -> Iterator[tuple[str, Any]]:
    return ((name, getattr(module, name)) for name in getattr(module, "__all__", dir(module)) if not name.startswith("_"))


def is_awaited(function: Any) -> bool:
    if inspect.iscoroutinefunction(function) or inspect.isasyncgenfunction(function):
        return True
    return "Coroutine" in str(getattr(function, "__annotations__", {}).get("return", ""))


def test_every_public_coroutine_is_gone_through() -> None:
    """So that a new one is added to the table."""
    assert set(public_coroutines().values()) - AWAITS.keys() == set()


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where files go; and what there is to compile was compiled, for which a test has not the time."""
    path = tmp_path_factory.mktemp("yielding")

    async def main() -> None:
        program = await Program(path).prepare()
        for make in AWAITS.values():
            await make(program)

    asyncio.run(main())
    return path


@pytest.mark.anyio
async def test_each_await_yields_when_the_time_is_over(clock: Clock, folder: Path) -> None:
    """At the very next await, whatever that is of; but for one in a hundred, on uvloop, that has something to wait for."""
    program, kept = await Program(folder).prepare(), []

    async def keeps_the_loop(make: Callable[[Program], Awaitable[Any]]) -> bool:
        await make(program)
        before = turns.count
        clock.work()
        await make(program)
        return turns.count == before

    async with Turns() as turns:
        for name, make in AWAITS.items():
            if all([await keeps_the_loop(make) for _ in range(3)]):
                kept.append(name)
    assert kept == []


@pytest.mark.anyio
async def test_a_timer_is_not_starved_by_tasks_that_need_not_wait(folder: Path) -> None:
    """A whole program: a loop of nothing but one kind of await ends when a timer of a millisecond, beside it, has fired."""
    program, starved = await Program(folder).prepare(), []
    for name, make in AWAITS.items():
        fired = False

        async def beat() -> None:
            nonlocal fired
            await anyio.sleep(0.001)
            fired = True

        async with anyio.create_task_group() as group:
            group.start_soon(beat)
            await anyio.lowlevel.checkpoint()
            until = time.monotonic() + PATIENCE
            while not fired and time.monotonic() < until:
                await make(program)
            if not fired:
                starved.append(name)
    assert starved == []


@pytest.mark.anyio
async def test_a_read_takes_the_values_before_it_yields(clock: Clock) -> None:
    """What others write while the reader has its turn behind it, the reader does not see."""
    array = aiodev.zeros(4, "float64", "cpu")
    await array.numpy()

    async def write() -> None:
        array[:] = 1
        await array.numpy()

    for read in (array.numpy, lambda: array.item(0), array.tolist):
        array[:] = 0
        await array.numpy()
        async with anyio.create_task_group() as group:
            group.start_soon(write)
            clock.work()
            assert np.all(np.asarray(await read()) == 0)
        assert np.all(await array.numpy() == 1)
