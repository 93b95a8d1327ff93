"""On a GPU: what a launch costs the host, what order between streams costs, and what asking costs."""

from __future__ import annotations

import time
from typing import Any

from gpu_peers import DEVICE, bars, burst, core_launch, cuda_stream, cupy_launch, finish, join, numba_launch, peer
from harness import Bar, Case, Figure, Run

import aiodev
from aiodev._backends.cuda.tuning import CHANNELS

__all__ = ["FIGURES"]


@aiodev.kernel
def one(i: int, x: Any) -> None:
    x[i] = 1.0


@aiodev.kernel
def four(i: int, a: Any, x: Any, y: Any, out: Any) -> None:
    out[i] = a * (x[i] + y[i])


@aiodev.kernel
def sixteen(
    i: int, a: Any, b: Any, c: Any, d: Any, e: Any, f: Any, g: Any, h: Any, j: Any, k: Any, m: Any, n: Any, o: Any, p: Any,
    q: Any, out: Any,
) -> None:  # fmt: skip
    out[i] = a * (b[i] + c[i] + d[i] + e[i] + f[i] + g[i] + h[i] + j[i] + k[i] + m[i] + n[i] + o[i] + p[i] + q[i])


@aiodev.kernel
def spin(i: int, rounds: int, x: Any) -> None:
    value = x[i]
    for _ in range(rounds):
        value = value * 1.0000001 + 0.0000001
    x[i] = value


_KERNELS = {1: one, 4: four, 16: sixteen}


def _launch(arguments: int) -> Any:
    async def figure(run: Run) -> Figure:
        count = 8 if run.smoke else 100
        kernel, stream = _KERNELS[arguments], aiodev.default_stream(DEVICE)
        arrays = arguments if arguments == 1 else arguments - 1
        on = [aiodev.ones(8, "f4", DEVICE) for _ in range(arrays)]
        given = on if arguments == 1 else [2.0, *on]
        await kernel[8, stream](*given)
        place = (8, stream)
        bound = kernel.bind(place, *given)
        cases: dict[str, Case] = {
            "aiodev": lambda: burst(lambda: kernel[place](*given), count),
            "aiodev, bound": lambda: burst(bound, count),
        }
        await join(cases, "CuPy RawKernel", lambda: cupy_launch(arrays, count))
        await join(cases, "cuda.core", lambda: core_launch(arrays, count))
        await join(cases, "numba-cuda", lambda: numba_launch(arrays, count))
        if arguments < 16:
            await join(cases, "torch", lambda: _torch_launch(arguments, count))
        values = await run.medians(cases)
        wanted = [Bar(name, at_most=1) for name in ("CuPy RawKernel", "cuda.core", "numba-cuda")]
        return Figure(
            f"launch, {arguments} argument{'s'[: arguments - 1]}, on 8 elements", "µs", values,
            bars(values, *wanted, Bar("torch", at_most=1.5)),
        )  # fmt: skip

    return figure


def _torch_launch(arguments: int, count: int) -> Case:
    torch = peer("torch")
    x, y, out = (torch.ones(8, device="cuda") for _ in range(3))
    if arguments == 1:
        return lambda: burst(lambda: x.fill_(1.0), count, torch.cuda.synchronize)
    return lambda: burst(lambda: torch.add(x, y, alpha=2.0, out=out), count, torch.cuda.synchronize)


async def query(run: Run) -> Figure:
    """Whether something is done, that is."""
    count = run.scale(10_000)
    done = one[8, aiodev.default_stream(DEVICE)](aiodev.ones(8, "f4", DEVICE))
    await done
    cases: dict[str, Case] = {"aiodev": lambda: burst(done.query, count)}

    def torch_query() -> Case:
        torch = peer("torch")
        event = torch.cuda.Event()
        event.record()
        torch.cuda.synchronize()
        return lambda: burst(event.query, count)

    await join(cases, "torch", torch_query)
    values = await run.medians(cases)
    return Figure("asking whether something done is done", "µs", values, bars(values, Bar("torch", at_most=1)))


async def order(run: Run) -> Figure:
    """An event on one stream, and another that waits for it; the launch between them, without which none of ours waits, too."""
    count = 8 if run.smoke else 50
    first, second = aiodev.Stream(DEVICE), aiodev.Stream(DEVICE)
    x = aiodev.ones(8, "f4", DEVICE)
    await aiodev.synchronize(DEVICE)
    await one[8, first](x)

    def ours() -> float:
        def both() -> None:
            one[8, first](x)
            second.wait_event(first.record_event())

        return burst(both, count)

    cases: dict[str, Case] = {
        "aiodev": ours,
        "aiodev, the launch alone": lambda: burst(lambda: one[8, first](x), count),
    }

    def theirs() -> Case:
        torch = peer("torch")
        a, b, t = torch.cuda.Stream(), torch.cuda.Stream(), torch.ones(8, device="cuda")
        event = torch.cuda.Event()

        def both() -> None:
            t.fill_(1.0)
            event.record(a)
            b.wait_event(event)

        def case() -> float:
            with torch.cuda.stream(a):
                return burst(both, count, torch.cuda.synchronize)

        return case

    await join(cases, "torch", theirs)
    values = await run.medians(cases)
    return Figure("launch, record, and wait on another stream", "µs", values, bars(values, Bar("torch", at_most=1)))


async def room(run: Run) -> Figure:
    """The longest that a submission takes while the device is busy and gets far more than the driver has room for.

    The driver blocks whoever gives it more. So this shows whether what we hand it at most is little enough.
    """
    streams = [aiodev.Stream(DEVICE) for _ in range(4 if run.smoke else 200)]
    each = 8 if run.smoke else 300
    rounds = 1000 if run.smoke else 60_000_000
    x = aiodev.ones(32, "f4", DEVICE)
    await spin[32, streams[0]](1, x)
    await one[8, streams[0]](x)

    async def longest() -> float:
        await aiodev.synchronize(DEVICE)
        held = spin[32, streams[0]](rounds, x)
        for stream in streams[1:]:
            stream.wait(held)
        most = 0.0
        for _ in range(each):
            for stream in streams:
                began = time.perf_counter()
                one[8, stream](x)
                most = max(most, time.perf_counter() - began)
        pending = not held.query()
        finish()
        if not (pending or run.smoke):
            print("    the device was done before everything was submitted: take more rounds")
        return most * 1e3

    values = await run.medians({"aiodev": longest}, repeats=3)
    note = f"{len(streams)} streams, {each} launches each, behind a kernel"
    return Figure("the longest submission to a device that is full", "ms", values, note=note)


async def apart(run: Run) -> Figure:
    """Small kernels on several streams, two on each: as long as on one stream, if none waits for another.

    None need wait on as many streams as the context has channels; of twice as many, two share one.
    """
    count = 2 if run.smoke else CHANNELS
    streams = [aiodev.Stream(DEVICE) for _ in range(2 * count)]
    rounds = 10 if run.smoke else 2_000_000
    arrays = [aiodev.ones(32, "f4", DEVICE) for _ in streams]
    await aiodev.synchronize(DEVICE)
    await spin[32, streams[0]](1, arrays[0])

    def on(count: int) -> Case:
        def case() -> float:
            began = time.perf_counter()
            for _ in range(2):
                for stream, x in zip(streams[:count], arrays, strict=False):
                    spin[32, stream](rounds, x)
            finish()
            return (time.perf_counter() - began) * 1e3

        return case

    cases: dict[str, Case] = {"aiodev": on(count), "aiodev, on twice as many": on(2 * count), "one stream": on(1)}
    values = await run.medians(cases, repeats=3)
    return Figure(f"kernels on {count} streams", "ms", values, [Bar("one stream", at_most=1.3)])


async def timing(run: Run) -> Figure:
    """What events say of a kernel of about five milliseconds, alone on its stream, next to the host's clock around it."""
    stream = aiodev.Stream(DEVICE, reserve=True)
    rounds = 10 if run.smoke else 500_000
    x = aiodev.ones(32, "f4", DEVICE)
    await aiodev.synchronize(DEVICE)
    await spin[32, stream](rounds, x)

    async def ours() -> float:
        start, end = aiodev.Event(enable_timing=True), aiodev.Event(enable_timing=True)
        start.record(stream)
        spin[32, stream](rounds, x)
        end.record(stream)
        await end
        return start.elapsed_time(end) * 1e3

    def host() -> float:
        began = time.perf_counter()
        spin[32, stream](rounds, x).synchronize_blocking()
        return (time.perf_counter() - began) * 1e6

    cases: dict[str, Case] = {"aiodev": ours, "clock of the host, launch and wait": host}

    def theirs() -> Case:
        torch = peer("torch")
        theirs = torch.cuda.ExternalStream(cuda_stream(stream))

        def case() -> float:
            start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
            start.record(theirs)
            spin[32, stream](rounds, x)
            end.record(theirs)
            end.synchronize()
            return float(start.elapsed_time(end)) * 1e3

        return case

    await join(cases, "torch's events", theirs)
    values = await run.medians(cases)
    return Figure("a kernel of about 5 ms by events", "µs", values, bars(values, Bar("torch's events", at_most=1.05)))


FIGURES = {
    "launch-1": _launch(1),
    "launch-4": _launch(4),
    "launch-16": _launch(16),
    "query": query,
    "order": order,
    "apart": apart,
    "timing": timing,
    "room": room,
}
