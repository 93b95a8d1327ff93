"""What the library's figures share: rates of plain calls and of submissions, a machine's copies, and waits for small calls."""

from __future__ import annotations

import asyncio
import importlib.util
import math
import threading
import time
from collections.abc import Awaitable, Callable
from typing import Any

import numpy as np
from harness import Bar, Figure, Run

import aiodev

__all__ = [
    "COPY",
    "NUMBA",
    "NUMPY",
    "PAUSE",
    "TORCH",
    "Call",
    "awaited_small",
    "copying",
    "has_torch",
    "rate",
    "rates",
    "tensors",
]

#: Computes once, or submits what does.
Call = Callable[[], object]
HostArray = np.ndarray[Any, Any]
#: Seconds of ours that are submitted before the stream is awaited, and how many calls those are at least and at most: a rate is
#: that of a queue with work. Of the peers, whose calls block, as many are timed together.
LASTING, FEWEST, MOST = 1e-3, 5, 50
#: Elements from which on the rate of a function is held to its peers'.
LARGE = 10**6

NUMPY, NUMBA, TORCH, COPY = "NumPy, out=", "numba prange", "PyTorch, 2 threads", "copy by two threads"
#: Where the peers read and write as much memory, each of them, and the machine's copies, within a tenth.
_AT_LEAST = {NUMPY: 1.0, NUMBA: 1.0, TORCH: 1.0, COPY: 0.9}


#: Seconds between two cases: threads of OpenMP look for more work for a while, on the cores that the next case needs.
PAUSE = 0.05


def has_torch() -> bool:
    """Whether PyTorch can take part."""
    return importlib.util.find_spec("torch") is not None


def tensors(*hosts: HostArray) -> tuple[Any, ...]:
    """The same numbers as tensors of PyTorch, which has two threads from now on."""
    import torch

    torch.set_num_threads(2)
    return tuple(torch.from_numpy(host.copy()) for host in hosts)


def rate(amount: float, count: int, function: Call, in_a_row: int) -> Callable[[], float]:
    """10⁹ units of ``amount`` in a second, from the best of ``count`` times some calls: others use the machine, too."""

    def case() -> float:
        best = math.inf
        for _ in range(count):
            began = time.perf_counter()
            for _ in range(in_a_row):
                function()
            best = min(best, (time.perf_counter() - began) / in_a_row)
        return amount / best / 1e9

    return case


def _submitted(amount: float, count: int, submit: Call, in_a_row: int) -> Callable[[], Awaitable[float]]:
    """The same of something that is submitted to the current stream: some times in a row, and then awaited."""

    async def case() -> float:
        stream, best = aiodev.current_stream("cpu"), math.inf
        for _ in range(count):
            began = time.perf_counter()
            for _ in range(in_a_row):
                submit()
            await stream.synchronize()
            best = min(best, (time.perf_counter() - began) / in_a_row)
        return amount / best / 1e9

    return case


async def _lasting(submit: Call) -> int:
    """How many calls take as long as is timed together."""
    best = await _submitted(1e9, 10, submit, FEWEST)()  # calls in a second
    return min(MOST, max(FEWEST, round(LASTING * best)))


def copying(source: HostArray, target: HostArray) -> Call:
    """A copy by two threads: what the machine's memory gives."""

    def copy() -> None:
        half = len(source) // 2
        other = threading.Thread(target=np.copyto, args=(target[:half], source[:half]))
        other.start()
        np.copyto(target[half:], source[half:])
        other.join()

    return copy


async def rates(
    run: Run,
    name: str,
    unit: str,
    amount: float,
    ours: Call,
    peers: dict[str, Call],
    note: str,
    at_least: dict[str, float] | None = None,
    count: int | None = None,
    elements: int = LARGE,
    in_a_row: int | None = None,
) -> Figure:
    """Rates of ours and of peers, in 10⁹ units of ``amount`` in a second; of copies given, in what they move.

    Args:
        ours: submits to the current stream.
        peers: by name; a copy is of ``amount`` bytes, read and written together.
        at_least: of each peer's rate, where it is not the usual bar.
        count: how many times some calls in each round, of which the best counts.
        in_a_row: how many of ours are submitted before the stream is awaited, by default what takes :data:`LASTING`; when
            given, there are no bars.
        elements: there are bars from :data:`LARGE` on; below that a copy is no peer, since to start its thread takes longer.
    """
    large = elements >= LARGE
    peers = {peer: call for peer, call in peers.items() if large or peer != COPY}
    count = (count or (5 if amount >= 2e7 else 25)) if large else 200
    bars = _AT_LEAST | (at_least or {})
    await aiodev.synchronize()  # what is there to compute with was submitted to another stream
    async with aiodev.Stream("cpu"):
        together = in_a_row or await _lasting(ours)
        cases: dict[str, Any] = {"aiodev": _submitted(amount, count, ours, together)}
        cases |= {peer: rate(amount, count, call, together) for peer, call in peers.items()}
        values = await run.medians(cases, pause=PAUSE)
    found = [Bar(peer, at_least=bars[peer]) for peer in peers] if large and in_a_row is None else []
    return Figure(name, unit, values, found, note=note)


async def awaited_small(run: Run, name: str, submit: Call, called: str, call: Callable[..., Any], *args: Any) -> Figure:
    """µs to submit something small and wait for it, next to the same NumPy call in a thread."""
    stream, count = aiodev.Stream("cpu"), run.scale(2000)

    async def ours() -> float:
        began = time.perf_counter()
        async with stream:
            for _ in range(count):
                submit()
                await stream.synchronize()
        return (time.perf_counter() - began) / count * 1e6

    async def threads() -> float:
        calls = max(8, count // 10)
        began = time.perf_counter()
        for _ in range(calls):
            await asyncio.to_thread(call, *args)
        return (time.perf_counter() - began) / calls * 1e6

    peer = f"asyncio.to_thread({called})"
    return Figure(name, "µs", await run.medians({"aiodev": ours, peer: threads}), [Bar(peer, at_most=0.05)])
