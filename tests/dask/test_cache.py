"""A worker that is short of memory keeps none for arrays to come, and so goes on."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import dask_tasks
import pytest

import aiodev
import aiodev.dask
from aiodev import memory
from aiodev.dask import cache

NBYTES = 64 << 20


class Process:
    """A worker whose process has ``used`` bytes, and a limit of 100.

    Attributes:
        looks: how often somebody has asked how many it has.
    """

    def __init__(self, used: int, target: Any = 0.6, spill: Any = 0.7, pause: Any = 0.8, limit: int | None = 100) -> None:
        self.looks = 0
        self.used = used
        self.monitor = SimpleNamespace(get_process_memory=self.look)
        self.memory_manager = SimpleNamespace(
            memory_target_fraction=target, memory_spill_fraction=spill, memory_pause_fraction=pause, memory_limit=limit
        )

    def look(self) -> int:
        """How many bytes it has."""
        self.looks += 1
        return self.used


def wait_until(holds: Callable[[], bool]) -> None:
    """Wait for another thread, for at most half a minute."""
    deadline = time.monotonic() + 30
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(0.001)


@pytest.fixture
def watch(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[Process], cache.CacheWatch]]:
    """Makes a watch that looks every millisecond, and waits for the end of its thread."""
    monkeypatch.setattr(cache, "MEMORY_PERIOD", 0.001)
    before, made = set(threading.enumerate()), []

    def make(process: Process) -> cache.CacheWatch:
        made.append(cache.CacheWatch(process))
        return made[-1]

    yield make
    for each in made:
        each.stop()
    wait_until(lambda: not any(thread.name == "aiodev-dask-memory" for thread in set(threading.enumerate()) - before))


def keep_memory() -> int:
    """Have the allocator keep memory of an array that is gone; how many bytes it has at least."""
    memory.empty_cache("cpu")
    x = aiodev.empty(NBYTES, "uint8", "cpu")
    del x
    return memory.memory_reserved("cpu")


@pytest.mark.parametrize(
    "process",
    [Process(61), Process(71, target=False), Process(81, target=False, spill=False), Process(61, spill=False, pause=False)],
)
def test_the_cache_goes_back_where_memory_is_short(watch: Callable[..., Any], process: Process) -> None:
    """Above the lowest part of the limit from which on Dask does something about it."""
    watch(process)
    reserved = keep_memory()
    wait_until(lambda: memory.memory_reserved("cpu") <= reserved - NBYTES)


@pytest.mark.parametrize("process", [Process(60), Process(70, target=False), Process(99, False, False, False)])
def test_the_cache_stays_where_there_is_memory(watch: Callable[..., Any], process: Process) -> None:
    """It costs less than memory that is fresh from the system."""
    reserved = keep_memory()
    watch(process)
    wait_until(lambda: process.looks >= 3)
    assert memory.memory_reserved("cpu") == reserved


def test_without_a_limit_nobody_looks(watch: Callable[..., Any]) -> None:
    """A limit that comes later counts."""
    process = Process(1000, limit=None)
    reserved = keep_memory()
    watch(process)
    assert (process.looks, memory.memory_reserved("cpu")) == (0, reserved)
    process.memory_manager.memory_limit = 100
    wait_until(lambda: memory.memory_reserved("cpu") <= reserved - NBYTES)


async def test_a_worker_has_one_watch(client: Any, until: Callable[..., Any]) -> None:
    """That of the last plugin: it goes with its plugin."""
    await aiodev.dask.install(client)
    await aiodev.dask.install(client)

    async def is_one() -> bool:
        return set((await client.run(dask_tasks.threads_named, "aiodev-dask-memory")).values()) == {1}

    await until(is_one)


async def test_a_worker_is_paused_for_no_longer_than_its_arrays_live() -> None:
    """One that has computed with much memory takes the next task: what its allocator would have kept is given back."""
    import dask
    from distributed import Client, LocalCluster

    parts = {f"distributed.worker.memory.{part}": False for part in ("target", "spill", "terminate")}
    options = {"dashboard_address": ":0", "silence_logs": 50, "memory_limit": "500MB", "asynchronous": True}
    with dask.config.set(parts | {"distributed.worker.memory.pause": 0.8}):
        async with LocalCluster(n_workers=1, **options) as cluster, Client(cluster, asynchronous=True) as client:
            await aiodev.dask.install(client)
            async with asyncio.timeout(30):
                for round in range(2):
                    assert await client.submit(dask_tasks.ones_summed, 420 << 20, round) == 420 << 20
