"""What ``python -m aiodev demo`` does, from making the model to the table."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from anyio.lowlevel import checkpoint

import aiodev
from aiodev import profiler
from aiodev._demo.measure import Result, Step, check, idle, threaded, write
from aiodev._demo.transformer import FIRST, DeviceText, DeviceWeights, NumPyText, make_weights

__all__ = ["FULL", "QUICK", "Amount", "demo"]


@dataclass(frozen=True, slots=True)
class Amount:
    """How much the demo measures."""

    seconds: float  #: of a turn
    turns: int  #: of each way, one after the other, so that a slow spell of the machine falls on all


FULL = Amount(seconds=0.5, turns=3)
QUICK = Amount(seconds=0.0, turns=1)

NUMPY, SUBMITTED, CAPTURED = "NumPy in asyncio.to_thread", "aiodev, operation by operation", "aiodev, captured"
TEXTS = 8
#: Tokens that are traced, of each text.
TRACED = 4


async def demo(directory: Path, amount: Amount, device: aiodev.DeviceLike = "cpu") -> int:
    """Run the demo, print its tables and draw a timeline in ``directory``, which exists; returns the exit status."""
    async with aiodev.device(device):
        where = aiodev.current_device()
        print(f"aiodev demo on {where} ({aiodev.get_device_name(where)})\n")
        weights = make_weights()
        began = time.perf_counter()
        async with profiler.loop_lag() as lag:
            there = DeviceWeights(weights, where)
            submitted, captured = ([DeviceText(there) for _ in range(TEXTS)] for _ in range(2))
            await aiodev.synchronize(where)
            for text in captured:
                await text.capture()
                await checkpoint()  # to capture takes milliseconds of Python
            for text in (*submitted, *captured):
                await text.step(FIRST, 0)
        print(
            f"ready after {time.perf_counter() - began:.1f} s, in which kernels were compiled or loaded; the loop was late by "
            f"{lag.max * 1e3:.1f} ms at most\n\n"
            f"a token takes {len(captured[0].graph or ())} small operations, and each token is awaited; the loop's lag is that "
            f"of a 1 ms timer, in ms"
        )
        ways: dict[str, list[Step]] = {
            NUMPY: [threaded(NumPyText(weights)) for _ in range(TEXTS)],
            SUBMITTED: [text.step for text in submitted],
            CAPTURED: [text.step for text in captured],
        }
        cores = os.cpu_count() or 1
        ok = True
        _print_table("", [await idle(max(amount.seconds, 0.05))])
        for title, texts, beside in (
            ("one text", 1, 0),
            (f"{TEXTS} texts at once", TEXTS, 0),
            (f"one text, beside {cores} busy process{'es' if cores > 1 else ''}", 1, cores),
        ):
            results = [Result(name) for name in ways]
            with busy_processes(beside):
                for _ in range(amount.turns):
                    for result, steps in zip(results, ways.values(), strict=True):
                        await write(result, steps[:texts], amount.seconds)
            _print_table(title, results)
            ok &= all(check(weights, text) for result in results for text in result.texts[:1])
        print(f"\ntokens of all, against NumPy in double precision: {'ok' if ok else 'WRONG'}")
        drawn = (await trace(submitted[0], captured[0])).timeline(directory / "timeline.svg")
    print(f"timeline of {TRACED} tokens, operation by operation and captured: {drawn}")
    return 0 if ok else 1


async def trace(submitted: DeviceText, captured: DeviceText) -> profiler.Profile:
    """Some tokens, in both ways, while every operation is noted by the device."""
    async with profiler.profile() as profile:
        for text in (submitted, captured):
            for place in range(TRACED):
                await text.step(FIRST, place)
        await aiodev.synchronize(submitted.stream.device)
    profile.names[submitted.stream.stream_id] = SUBMITTED
    profile.names[captured.stream.stream_id] = CAPTURED
    return profile


@contextlib.contextmanager
def busy_processes(count: int) -> Iterator[None]:
    """Have so many processes compute until the end of the block."""
    code = "print(flush=True)\nwhile True: pass"
    processes = [subprocess.Popen([sys.executable, "-S", "-c", code], stdout=subprocess.PIPE) for _ in range(count)]
    try:
        for process in processes:
            assert process.stdout is not None
            process.stdout.readline()
        yield
    finally:
        for process in processes:
            process.kill()
            process.communicate()


def _print_table(title: str, results: list[Result]) -> None:
    print(f"\n{title:34} {'tokens/s':>9} {'median':>8} {'p99':>8} {'worst':>8}")
    for result in results:
        rate = f"{result.rate:9,.0f}" if result.rate else f"{'–':>9}"
        lag = result.lag
        print(f"  {result.name:32} {rate} {lag.percentile(50):8.2f} {lag.percentile(99):8.2f} {lag.worst:8.2f}", flush=True)
