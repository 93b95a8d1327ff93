"""A loop that is over leaves nothing behind: neither itself nor descriptors."""

from __future__ import annotations

import asyncio
import gc
import os
import threading
import warnings
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import Any

import anyio
import pytest
from selection import examples

import aiodev
from aiodev import Stream
from aiodev.testing import Latch


async def park(gone: list[weakref.ref[Any]]) -> None:
    """Wait for something in the running loop, parked."""
    gone.append(weakref.ref(current_loop()))
    stream = Stream("cpu")
    held = Latch(stream)
    async with anyio.create_task_group() as group:
        group.start_soon(stream.synchronize)
        await anyio.wait_all_tasks_blocked()
        held.release()


def current_loop() -> Any:
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        import trio

        return trio.lowlevel.current_trio_token()


def run_in_a_thread_that_lives(run: Callable[[], object]) -> Callable[[], None]:
    """Call ``run`` in a thread; what comes back ends the thread."""
    ran, end = threading.Event(), threading.Event()

    def body() -> None:
        run()
        ran.set()
        end.wait()

    thread = threading.Thread(target=body)
    thread.start()
    assert ran.wait(60)

    def stop() -> None:
        end.set()
        thread.join()

    return stop


@pytest.mark.parametrize("here", [True, False])
def test_a_loop_is_gone_after_its_run(anyio_backend: tuple[str, dict[str, Any]], here: bool) -> None:
    """Also the last one of a thread."""
    backend, options = anyio_backend
    gone: list[weakref.ref[Any]] = []

    def run() -> None:
        anyio.run(park, gone, backend=backend, backend_options=options)

    stop = run() if here else run_in_a_thread_that_lives(run)
    gc.collect()  # loops refer to themselves
    assert gone[0]() is None
    if stop is not None:
        stop()


def test_a_loop_that_is_closed_with_waits_in_flight_is_gone() -> None:
    """Its reactor knows the waiters, which know the loop."""
    stream = Stream("cpu")
    held = Latch(stream)
    loop = asyncio.new_event_loop()
    task = loop.create_task(stream.synchronize())
    loop.run_until_complete(asyncio.sleep(0))
    loop.run_until_complete(asyncio.sleep(0))
    gone = weakref.ref(loop)
    loop.close()
    task._log_destroy_pending = False  # type: ignore[attr-defined]
    del loop, task
    gc.collect()
    assert gone() is None
    held.release()
    stream.synchronize_blocking(30)


@pytest.mark.parametrize("close", [True, False])
def test_loops_leave_no_descriptors(close: bool) -> None:
    """Whether they are closed or collected, which closes them; ours serve the next loop."""
    descriptors = Path("/proc/self/fd")
    if not descriptors.is_dir():
        pytest.skip("no /proc")
    aiodev.init_blocking("cpu")

    def run() -> None:
        loop = asyncio.new_event_loop()
        loop.run_until_complete(park([]))
        if close:
            loop.close()

    def count() -> int:  # other threads read a file now and then
        return min(len(os.listdir(descriptors)) for _ in range(100))

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)
        for _ in range(3):
            run()
            gc.collect()
        before = count()
        for _ in range(examples(20)):
            run()
            gc.collect()
        assert count() <= before
