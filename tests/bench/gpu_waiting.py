"""On a GPU: from the device's end to the task's resumption, what waiting costs the processor, and how late the loop gets.

Every way of waiting waits for the same kernel on the same CUstream, so that differences between them are theirs.
"""

from __future__ import annotations

import asyncio
import statistics
import time
from collections.abc import Awaitable, Callable
from typing import Any

from gpu_launching import one, spin
from gpu_peers import DEVICE, bars, cuda_stream, host_callback, join, peer
from harness import Bar, Case, Figure, Run

import aiodev
from aiodev import kernels

__all__ = ["FIGURES"]

#: Waits once for a kernel that was just launched.
Wait = Callable[[aiodev.Completion], Awaitable[object]]


async def _ways(stream: aiodev.Stream) -> dict[str, Callable[[], Wait]]:
    """How to wait: makers, which raise where a peer is missing."""

    async def ours(done: aiodev.Completion) -> None:
        await done

    async def native(done: aiodev.Completion) -> None:
        done.synchronize_blocking()

    async def polling(done: aiodev.Completion) -> None:
        while not done.query():  # noqa: ASYNC110  # it is what is measured
            await asyncio.sleep(0)

    def torch_event(blocking: bool) -> Any:
        torch = peer("torch")
        return torch.cuda.Event(blocking=blocking), torch.cuda.ExternalStream(cuda_stream(stream))

    def in_a_thread(blocking: bool) -> Wait:
        event, theirs = torch_event(blocking)

        async def wait(done: aiodev.Completion) -> None:
            event.record(theirs)
            await asyncio.to_thread(event.synchronize)

        return wait

    def torch_polling() -> Wait:
        event, theirs = torch_event(False)

        async def wait(done: aiodev.Completion) -> None:
            event.record(theirs)
            while not event.query():  # noqa: ASYNC110  # it is what is measured
                await asyncio.sleep(0)

        return wait

    def callback() -> Wait:
        loop, flag = asyncio.get_running_loop(), asyncio.Event()
        enqueue = host_callback(cuda_stream(stream), lambda: loop.call_soon_threadsafe(flag.set))

        async def wait(done: aiodev.Completion) -> None:
            flag.clear()
            enqueue()
            await flag.wait()

        return wait

    return {
        "aiodev": lambda: ours,
        "aiodev, blocking the loop": lambda: native,
        "aiodev, query and sleep(0)": lambda: polling,
        "torch, to_thread(event.synchronize)": lambda: in_a_thread(False),
        "torch, the same, blocking event": lambda: in_a_thread(True),
        "torch, query and sleep(0)": torch_polling,
        "host function through ctypes": callback,
    }


async def _cases(run: Run, rounds: int, count: int, measure: Callable[..., Any]) -> dict[str, Case]:
    stream = aiodev.Stream(DEVICE, reserve=True)
    x = aiodev.ones(32, "f4", DEVICE)
    await aiodev.synchronize(DEVICE)
    await spin[32, stream](rounds, x)
    cases: dict[str, Case] = {}
    for name, make in (await _ways(stream)).items():

        def case(make: Callable[[], Wait] = make) -> Case:
            wait = make()
            return lambda: measure(lambda: wait(spin[32, stream](rounds, x)), count)

        await join(cases, name, case)
    return cases


async def _time(wait: Callable[[], Awaitable[object]], count: int) -> float:
    times = []
    for _ in range(count):
        began = time.perf_counter()
        await wait()
        times.append(time.perf_counter() - began)
    return statistics.median(times) * 1e6


async def _load(wait: Callable[[], Awaitable[object]], count: int) -> float:
    before, began = time.process_time(), time.perf_counter()
    for _ in range(count):
        await wait()
    return (time.process_time() - before) / (time.perf_counter() - began) * 100


def _latency(rounds: int, about: str) -> Any:
    async def figure(run: Run) -> Figure:
        values = await run.medians(await _cases(run, 10 if run.smoke else rounds, 3 if run.smoke else 50, _time))
        wanted = (Bar(name, at_most=1) for name in values if name.startswith(("torch, to_thread", "host function")))
        note = f"a kernel of about {about}, launched and waited for"
        return Figure("from launch to resumption", "µs", values, bars(values, *wanted), note)

    return figure


async def load(run: Run) -> Figure:
    """Processor time of the whole process while one task waits."""
    rounds, count = (10, 2) if run.smoke else (20_000_000, 3)
    values = await run.medians(await _cases(run, rounds, count, _load), repeats=3)
    return Figure("processor time while waiting for some 200 ms", "% of a core", values)


async def thousand(run: Run) -> Figure:
    """A task for each of a thousand streams, each with a kernel of its own."""
    count = 10 if run.smoke else 1000
    streams = [aiodev.Stream(DEVICE) for _ in range(count)]
    x = aiodev.ones(8, "f4", DEVICE)
    await aiodev.synchronize(DEVICE)
    await asyncio.gather(*(one[8, stream](x) for stream in streams))

    async def ours() -> float:
        began = time.perf_counter()
        await asyncio.gather(*(asyncio.create_task(_wait(one[8, stream](x))) for stream in streams))
        return (time.perf_counter() - began) * 1e3

    async def tasks() -> float:
        event = asyncio.Event()
        asyncio.get_running_loop().call_soon(event.set)
        began = time.perf_counter()
        await asyncio.gather(*(asyncio.create_task(event.wait()) for _ in streams))
        return (time.perf_counter() - began) * 1e3

    cases: dict[str, Case] = {"aiodev": ours, "as many tasks on one asyncio.Event": tasks}

    def theirs() -> Case:
        torch = peer("torch")
        made = [torch.cuda.Stream() for _ in streams]
        t = torch.ones(8, device="cuda")

        async def case() -> float:
            began = time.perf_counter()
            waits = []
            for stream in made:
                with torch.cuda.stream(stream):
                    t.fill_(1.0)
                    event = torch.cuda.Event()
                    event.record()
                waits.append(asyncio.to_thread(event.synchronize))
            await asyncio.gather(*waits)
            return (time.perf_counter() - began) * 1e3

        return case

    await join(cases, "torch, to_thread", theirs)
    values = await run.medians(cases)
    return Figure(
        f"{count:,} streams, launched to and waited for", "ms", values, bars(values, Bar("torch, to_thread", at_most=1))
    )


async def _wait(done: aiodev.Completion) -> None:
    await done


async def _lateness(work: Callable[[], Awaitable[object]], seconds: float) -> float:
    """The 99th percentile of how late a task's 1 ms timer is, in ms, while ``work`` is done again and again."""
    late: list[float] = []

    async def tick() -> None:
        while True:
            began = time.perf_counter()
            await asyncio.sleep(0.001)
            late.append(time.perf_counter() - began - 0.001)

    ticking = asyncio.create_task(tick())
    until = time.perf_counter() + seconds
    while time.perf_counter() < until:
        await work()
    ticking.cancel()
    late.sort()
    return late[int(0.99 * (len(late) - 1))] * 1e3 if late else 0.0


async def lag(run: Run) -> Figure:
    """How late another task's timer is while this one waits, copies, compiles, and has cuBLAS load code."""
    seconds = 0.05 if run.smoke else 1.0
    stream = aiodev.Stream(DEVICE)
    x = aiodev.ones(32, "f4", DEVICE)
    large = aiodev.ones(1 << (12 if run.smoke else 24), "f4", DEVICE)
    host = await large.numpy()
    await spin[32, stream](1, x)
    serial = 0

    async def compiling() -> None:
        nonlocal serial
        serial += 1
        namespace: dict[str, Any] = {}
        exec(f"def made{serial}(i, x):\n    x[i] = x[i] * {serial} + {time.time()}\n", namespace)
        await aiodev.kernel(namespace[f"made{serial}"]).compile(x)

    side = 64 if run.smoke else 2048
    square = aiodev.ones((side, side), "f4", DEVICE)

    async def multiplying() -> None:
        nonlocal serial
        serial += 1
        size = 17 + 97 * serial % (side - 17)
        kernels.matmul(square[:size, :size], square[:size])
        await aiodev.current_stream(DEVICE).synchronize()

    works: dict[str, Callable[[], Awaitable[object]]] = {
        "idle": lambda: asyncio.sleep(0.01),
        "aiodev": lambda: spin[32, stream](10 if run.smoke else 2_000_000, x),
        "copies": lambda: large.copy_from(host),
        "reading": large.numpy,
        "compiling": compiling,
        "products of other sizes": multiplying,
    }
    cases: dict[str, Case] = {}
    for name, work in works.items():
        await join(cases, name, lambda work=work: lambda: _lateness(work, seconds))
    values = await run.medians(cases, repeats=3)
    wanted = (Bar("idle", within=1.0, case=name) for name in works if name != "idle")
    return Figure(
        "lateness of a 1 ms timer, 99th percentile", "ms", values, bars(values, *wanted), "waiting, and the rest"
    )


FIGURES = {
    "latency-short": _latency(10_000, "100 µs"),
    "latency": _latency(100_000, "1 ms"),
    "load": load,
    "thousand": thousand,
    "lag": lag,
}
