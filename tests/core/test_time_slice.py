"""Who asks for short slices, and who is left alone. New threads have those of the system, whatever who started them has."""

from __future__ import annotations

import asyncio
import os
import subprocess
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

import pytest
from pieces import started

import aiodev
from aiodev._core import time_slice as slices
from aiodev._core.child_process import command
from aiodev._core.config import Settings
from aiodev._core.time_slice import shorten_time_slice, time_slice

T = TypeVar("T")
SHORT = 150_000


@pytest.fixture(autouse=True)
def asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever AIODEV_SLICE_US says here."""
    monkeypatch.setattr(slices, "settings", Settings(slice_us=SHORT // 1000))
    if in_thread(time_slice) <= SHORT:
        pytest.skip("this system has no slices of threads, or shorter ones (sched_getattr)")


def in_thread(function: Callable[[], T]) -> T:
    """What a function gives in a new thread."""
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(function).result(60)


def run_loop() -> None:
    """Wait for a device in a loop."""

    async def main() -> None:
        await aiodev.Stream("cpu").call(time.sleep, 0.01)

    asyncio.run(main())


def test_a_loop_that_waits_for_a_device_asks() -> None:
    """With its first wait, and what its thread starts has the slices of the system again."""
    left_alone = in_thread(time_slice)

    def look() -> tuple[int, int, int, int]:
        before = time_slice()
        run_loop()
        started = in_thread(time_slice)
        child = subprocess.run(
            command("from aiodev._core.time_slice import time_slice; print(time_slice())"), capture_output=True, timeout=60
        )
        return before, time_slice(), started, int(child.stdout)

    assert in_thread(look) == (left_alone, SHORT, left_alone, left_alone)


def test_a_loop_without_a_device_does_not() -> None:
    assert in_thread(lambda: (asyncio.run(asyncio.sleep(0)), time_slice())[1]) == in_thread(time_slice)


def test_workers_ask() -> None:
    """All of them, and the reserve."""
    with started(2, reserve=1) as executor:
        assert len(executor._workers) == 3
        deadline = time.monotonic() + 60
        while not all(worker.thread and time_slice(worker.thread) == SHORT for worker in executor._workers):
            assert time.monotonic() < deadline
            time.sleep(0.001)


@pytest.mark.parametrize("slice_us", [0, 100_000])
def test_no_slice_gets_longer(slice_us: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """0 asks for nothing; and what is short already stays."""
    monkeypatch.setattr(slices, "settings", Settings(slice_us=slice_us))
    assert in_thread(lambda: (shorten_time_slice(), time_slice())[1]) == in_thread(time_slice)


@pytest.mark.parametrize("given", ["niceness", "policy"])
def test_threads_with_precedence_are_left_alone(given: str) -> None:
    """Those whose niceness is negative, and those of other policies."""

    def look() -> bool:
        if given == "niceness":
            os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), -1)
        else:
            os.sched_setscheduler(0, os.SCHED_BATCH, os.sched_param(0))
        before = slices._read()
        shorten_time_slice()
        return before is not None and slices._read() == before

    try:
        assert in_thread(look)
    except PermissionError:
        pytest.skip("this user may not give precedence")


def test_a_nice_thread_stays_as_nice() -> None:
    def look() -> tuple[int, int]:
        thread = threading.get_native_id()
        os.setpriority(os.PRIO_PROCESS, thread, 3)
        shorten_time_slice()
        return os.getpriority(os.PRIO_PROCESS, thread), time_slice()

    assert in_thread(look) == (3, SHORT)


def test_a_refusal_is_nobody_elses_matter(monkeypatch: pytest.MonkeyPatch) -> None:
    """A system that knows of no such call, or forbids it."""
    monkeypatch.setattr(slices, "_SET", 100_000)
    assert in_thread(lambda: (shorten_time_slice(), time_slice())[1]) == in_thread(time_slice)
    monkeypatch.setattr(slices, "_GET", 100_000)
    assert in_thread(lambda: (shorten_time_slice(), time_slice())[1]) == 0
    monkeypatch.setattr(slices, "_GET", 0)
    assert in_thread(lambda: (shorten_time_slice(), time_slice())[1]) == 0
