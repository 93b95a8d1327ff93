"""Figures on a GPU, each next to its peers in one run: ``python tests/bench/gpu.py [--smoke] [--json FILE]``.

Peers that are not installed are left out. Times are medians of rounds in turns, as in the other benchmarks.
"""

from __future__ import annotations

import argparse
import asyncio
import importlib
import json
import statistics
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import numpy as np

import aiodev
from aiodev import kernels

DEVICE = "cuda:0"
ROUNDS = 7
Measure = Callable[[], Any]


def peer(name: str) -> Any:
    """A module, or None where it is not installed or does not work here."""
    try:
        found = importlib.import_module(name)
        if name == "torch" and not found.cuda.is_available() or name == "numba.cuda" and not found.is_available():
            raise RuntimeError("it has no CUDA device")
        return found
    except Exception as error:
        print(f"without {name}: {type(error).__name__}: {error}")
        return None


async def medians(cases: dict[str, Measure], rounds: int) -> dict[str, float]:
    """Every case once to warm up, then in turns; the median of each."""
    samples: dict[str, list[float]] = {name: [] for name in cases}
    for turn in range(rounds + 1):
        for name, case in cases.items():
            found = case()
            value = await found if isinstance(found, Awaitable) else found
            if turn:
                samples[name].append(value)
    return {name: statistics.median(values) for name, values in samples.items()}


def each(function: Callable[[], object], count: int, after: Callable[[], object] = lambda: None) -> float:
    """µs for each of ``count`` calls; ``after`` waits for the device, outside of the time."""
    began = time.perf_counter()
    for _ in range(count):
        function()
    elapsed = time.perf_counter() - began
    after()
    return elapsed / count * 1e6


@aiodev.kernel
def one(i: int, x: Any) -> None:
    x[i] = 1.0


@aiodev.kernel
def four(i: int, a: Any, x: Any, y: Any, out: Any) -> None:
    out[i] = a * x[i] + y[i]


@aiodev.kernel
def spin(i: int, rounds: int, x: Any) -> None:
    value = x[i]
    for _ in range(rounds):
        value = value * 1.0000001 + 0.0000001
    x[i] = value


async def launches(smoke: bool) -> dict[str, dict[str, float]]:
    """Host time of a launch of 1 and 4 arguments on 8 elements, in bursts that the driver has room for."""
    count = 8 if smoke else 100
    with aiodev.device(DEVICE):
        x, y, out = (aiodev.ones(8, dtype="f4") for _ in range(3))
        await one[8](x)
        await four[8](2.0, x, y, out)
    finish = lambda: aiodev.synchronize_blocking(DEVICE)  # noqa: E731
    stream = aiodev.default_stream(DEVICE)
    single: dict[str, Measure] = {"aiodev": lambda: each(lambda: one[8, stream](x), count, finish)}
    quadruple: dict[str, Measure] = {"aiodev": lambda: each(lambda: four[8, stream](2.0, x, y, out), count, finish)}
    if cupy := peer("cupy"):
        raw = cupy.RawKernel('extern "C" __global__ void one(float *x) { x[threadIdx.x] = 1; }', "one")
        parameters = "float a, float *x, float *y, float *o"
        body = "int i = threadIdx.x; o[i] = a * x[i] + y[i];"
        code = 'extern "C" __global__ void four(' + parameters + ") {" + body + "}"
        raw4, c = cupy.RawKernel(code, "four"), [cupy.ones(8, "f4") for _ in range(3)]
        wait = cupy.cuda.runtime.deviceSynchronize
        single["CuPy RawKernel"] = lambda: each(lambda: raw((1,), (8,), (c[0],)), count, wait)
        quadruple["CuPy RawKernel"] = lambda: each(lambda: raw4((1,), (8,), (np.float32(2), *c)), count, wait)
    if torch := peer("torch"):
        t = [torch.ones(8, device="cuda") for _ in range(3)]
        wait = torch.cuda.synchronize
        single["torch"] = lambda: each(lambda: t[0].fill_(1.0), count, wait)
        quadruple["torch"] = lambda: each(lambda: torch.add(t[1], t[0], alpha=2.0, out=t[2]), count, wait)
    if cuda := peer("numba.cuda"):
        jitted = cuda.jit(lambda x: None)
        on = cuda.to_device(np.ones(8, "f4"))
        single["numba-cuda"] = lambda: each(lambda: jitted[1, 8](on), count, cuda.synchronize)
    rounds = 1 if smoke else ROUNDS
    return {
        "launch, 1 array, µs": await medians(single, rounds),
        "launch, 3 arrays and a number, µs": await medians(quadruple, rounds),
    }


async def latencies(smoke: bool) -> dict[str, dict[str, float]]:
    """A kernel and its wait, by ways of waiting, whose differences are those from the device's end to the task's resumption."""
    with aiodev.device(DEVICE):
        x = aiodev.ones(32, dtype="f4")
        rounds = 50_000
        await spin[32](rounds, x)
    stream = aiodev.default_stream(DEVICE)
    count = 3 if smoke else 50

    async def ours() -> float:
        began = time.perf_counter()
        for _ in range(count):
            await spin[32, stream](rounds, x)
        return (time.perf_counter() - began) / count * 1e6

    async def polled() -> float:
        began = time.perf_counter()
        for _ in range(count):
            done = spin[32, stream](rounds, x)
            while not done.query():  # noqa: ASYNC110  # it is what is measured
                await asyncio.sleep(0)
        return (time.perf_counter() - began) / count * 1e6

    async def in_a_thread() -> float:
        began = time.perf_counter()
        for _ in range(count):
            done = spin[32, stream](rounds, x)
            await asyncio.to_thread(done.synchronize_blocking)
        return (time.perf_counter() - began) / count * 1e6

    async def processor() -> float:
        before, began = time.process_time(), time.perf_counter()
        for _ in range(count):
            await spin[32, stream](rounds, x)
        return (time.process_time() - before) / (time.perf_counter() - began) * 100

    times = await medians(
        {"await": ours, "polling with sleep(0)": polled, "to_thread": in_a_thread}, 1 if smoke else ROUNDS
    )
    load = await medians({"await": processor}, 1 if smoke else ROUNDS)
    return {"kernel of some 200 µs and its wait, µs": times, "processor time while waiting, % of a core": load}


async def bandwidths(smoke: bool) -> dict[str, dict[str, float]]:
    """GB/s of an elementwise operation, a reduction where there is one, and copies within the device."""
    size = 1 << (16 if smoke else 28)
    with aiodev.device(DEVICE):
        x, y, out = (aiodev.ones(size, dtype="f4") for _ in range(3))
    nbytes, rounds = 4 * size, 1 if smoke else ROUNDS
    stream = aiodev.default_stream(DEVICE)

    async def ours(launch: Callable[[], Any], moved: float) -> float:
        began = time.perf_counter()
        for _ in range(5):
            done = launch()
        await done
        return 5 * moved / (time.perf_counter() - began) / 1e9

    async def call(function: Callable[[], object], moved: float) -> float:
        began = time.perf_counter()
        for _ in range(5):
            function()
        await aiodev.synchronize(DEVICE)
        return 5 * moved / (time.perf_counter() - began) / 1e9

    await four[size, stream](2.0, x, y, out)
    fused: dict[str, Measure] = {"aiodev": lambda: ours(lambda: four[size, stream](2.0, x, y, out), 3 * nbytes)}
    copies: dict[str, Measure] = {"aiodev": lambda: ours(lambda: stream.copy(out, x), 2 * nbytes)}
    added: dict[str, Measure] = {"aiodev.kernels": lambda: call(lambda: kernels.add(x, y, out=out), 3 * nbytes)}
    if torch := peer("torch"):
        t = [torch.ones(size, device="cuda") for _ in range(3)]

        def timed(function: Callable[[], object], moved: float) -> float:
            began = time.perf_counter()
            for _ in range(5):
                function()
            torch.cuda.synchronize()
            return 5 * moved / (time.perf_counter() - began) / 1e9

        fused["torch"] = lambda: timed(lambda: torch.add(t[1], t[0], alpha=2.0, out=t[2]), 3 * nbytes)
        added["torch"] = lambda: timed(lambda: torch.add(t[1], t[0], out=t[2]), 3 * nbytes)
        copies["torch"] = lambda: timed(lambda: t[2].copy_(t[0]), 2 * nbytes)
    return {
        "a * x + y, GB/s": await medians(fused, rounds),
        "add, GB/s": await medians(added, rounds),
        "copy on the device, GB/s": await medians(copies, rounds),
    }


async def transfers(smoke: bool) -> dict[str, dict[str, float]]:
    """GB/s between host and device, of ordinary host memory."""
    size = 1 << (16 if smoke else 27)
    host = np.ones(size, "f4")
    x = aiodev.asarray(host, device=DEVICE)
    rounds = 1 if smoke else ROUNDS

    async def up() -> float:
        began = time.perf_counter()
        await x.copy_from(host)
        return 4 * size / (time.perf_counter() - began) / 1e9

    async def down() -> float:
        began = time.perf_counter()
        await x.numpy()
        return 4 * size / (time.perf_counter() - began) / 1e9

    to: dict[str, Measure] = {"aiodev": up}
    back: dict[str, Measure] = {"aiodev": down}
    if torch := peer("torch"):
        t, h = torch.ones(size, device="cuda"), torch.from_numpy(host)
        pinned = h.pin_memory()

        def timed(function: Callable[[], object]) -> float:
            began = time.perf_counter()
            function()
            torch.cuda.synchronize()
            return 4 * size / (time.perf_counter() - began) / 1e9

        to["torch"] = lambda: timed(lambda: t.copy_(h))
        to["torch, pinned"] = lambda: timed(lambda: t.copy_(pinned, non_blocking=True))
        back["torch"] = lambda: timed(lambda: t.cpu())
        back["torch, pinned"] = lambda: timed(lambda: pinned.copy_(t, non_blocking=True))
    return {"host to device, GB/s": await medians(to, rounds), "device to host, GB/s": await medians(back, rounds)}


async def waits(smoke: bool) -> dict[str, dict[str, float]]:
    """Order between streams, asking whether something is done, and a thousand parked tasks."""
    count = 8 if smoke else 100
    with aiodev.device(DEVICE):
        x = aiodev.ones(8, dtype="f4")
    first, second = aiodev.Stream(DEVICE), aiodev.Stream(DEVICE)
    done = one[8, first](x)
    await done

    def order() -> float:
        began = time.perf_counter()
        for _ in range(count):
            one[8, first](x)
            second.wait_event(first.record_event())
        elapsed = time.perf_counter() - began
        aiodev.synchronize_blocking(DEVICE)
        return elapsed / count * 1e6

    async def thousand() -> float:
        streams = [aiodev.Stream(DEVICE) for _ in range(10 if smoke else 1000)]
        began = time.perf_counter()
        await asyncio.gather(*(stream.synchronize() for stream in streams if one[8, stream](x)))
        return (time.perf_counter() - began) * 1e3

    ordered: dict[str, Measure] = {"aiodev": order}
    asked: dict[str, Measure] = {"aiodev": lambda: each(done.query, 10 * count)}
    if torch := peer("torch"):
        a, b, t = torch.cuda.Stream(), torch.cuda.Stream(), torch.ones(8, device="cuda")
        event = torch.cuda.Event()

        def theirs() -> float:
            began = time.perf_counter()
            for _ in range(count):
                with torch.cuda.stream(a):
                    t.fill_(1.0)
                event.record(a)
                b.wait_event(event)
            elapsed = time.perf_counter() - began
            torch.cuda.synchronize()
            return elapsed / count * 1e6

        ordered["torch"] = theirs
        asked["torch"] = lambda: each(event.query, 10 * count)
    rounds = 1 if smoke else ROUNDS
    return {
        "launch, record and wait across streams, µs": await medians(ordered, rounds),
        "query of something done, µs": await medians(asked, rounds),
        "a thousand streams' waiters, ms in all": await medians({"aiodev": thousand}, rounds),
    }


async def measure(smoke: bool) -> dict[str, dict[str, float]]:
    """All figures, printed as they come."""
    found: dict[str, dict[str, float]] = {}
    for group in (launches, latencies, waits, bandwidths, transfers):
        try:
            figures = await group(smoke)
        except Exception as error:
            print(f"{group.__name__}: {type(error).__name__}: {error}")
            continue
        for name, values in figures.items():
            print(f"{name}: " + ", ".join(f"{case} {value:.4g}" for case, value in values.items()), flush=True)
        found |= figures
    return found


def main() -> None:
    """Measure and write."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--smoke", action="store_true", help="as little as possible of everything")
    parser.add_argument("--json", type=Path, help="where to write the outcome")
    options = parser.parse_args()
    found = asyncio.run(measure(options.smoke))
    if options.json:
        options.json.parent.mkdir(parents=True, exist_ok=True)
        options.json.write_text(json.dumps(found, indent=1))


if __name__ == "__main__":
    main()
