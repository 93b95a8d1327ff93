"""Kernels for graphs, and what tests of them wait for."""

from __future__ import annotations

import asyncio
import threading

import aiodev
from aiodev._core.waiting.watcher import watcher


@aiodev.kernel
def double(i, x):
    x[i] *= 2


@aiodev.kernel
def add_one(i, x):
    x[i] += 1


@aiodev.kernel
def sum_of(i, x, y, out):
    out[i] = x[i] + y[i]


@aiodev.kernel
def raise_at(i, bad, x):
    if x[i] == bad[()]:
        raise ValueError("bad value")
    x[i] += 1


async def watched() -> None:
    """Wait until the watcher has let go of what was dropped, and is done, so far."""
    done = threading.Event()
    watcher.call(done.set)
    assert await asyncio.to_thread(done.wait, 10)


async def ready(x: aiodev.Array) -> aiodev.Array:
    """An array that any stream may use."""
    await aiodev.synchronize(x.device)
    return x
