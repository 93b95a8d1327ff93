"""A cluster of processes on the loopback, shared by all tests of a run; skipped where Dask is missing."""

from __future__ import annotations

import asyncio
import contextlib
import importlib.util
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest


@pytest.hookimpl(tryfirst=True)
def pytest_pycollect_makemodule(module_path: Path, parent: Any) -> None:
    """Say why nothing of this is tested where Dask is missing."""
    if importlib.util.find_spec("distributed") is None:
        pytest.skip("dask.distributed is not installed: pip install 'aiodev[dask]'", allow_module_level=True)


@pytest.fixture(scope="session")
def cluster() -> Iterator[Any]:
    """Two workers, each a process with four threads."""
    import dask
    from distributed import LocalCluster

    options = {"dashboard_address": ":0", "silence_logs": 50, "memory_limit": 0}
    profiled = {"distributed.worker.profile.enabled": sys.version_info >= (3, 12)}  # see "What goes wrong" in the docs
    with (
        dask.config.set(profiled),
        LocalCluster(n_workers=2, threads_per_worker=4, processes=True, **options) as found,
    ):
        yield found


@pytest.fixture
async def client(cluster: Any) -> AsyncIterator[Any]:
    """An asynchronous client of a cluster whose workers have their devices."""
    import dask_tasks
    from distributed import Client

    import aiodev.dask

    async with Client(cluster.scheduler_address, asynchronous=True) as found:
        await found.wait_for_workers(2, timeout=60)  # one that was killed is started again
        if not all((await found.run(dask_tasks.is_installed)).values()):
            await aiodev.dask.install(found)
        yield found


@pytest.fixture
def workers(cluster: Any) -> list[str]:
    """The addresses of the workers."""
    return sorted(cluster.scheduler.workers)


@pytest.fixture
def until() -> Callable[[Callable[[], Awaitable[bool]]], Awaitable[None]]:
    """Waits until something is so, asking again and again, for at most half a minute."""

    async def wait(holds: Callable[[], Awaitable[bool]]) -> None:
        async with asyncio.timeout(30):
            while not await holds():  # noqa: ASYNC110  (another process tells)
                await asyncio.sleep(0.01)

    return wait


@pytest.fixture(autouse=True)
def no_leftover_client() -> Iterator[None]:
    """Leave no client behind as the current one."""
    yield
    with contextlib.suppress(ImportError, ValueError):
        from distributed import default_client

        default_client()
        raise AssertionError("a client was left open")
