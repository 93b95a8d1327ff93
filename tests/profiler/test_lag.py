"""aiodev.profiler.loop_lag and detect_blocking."""

from __future__ import annotations

import asyncio
import gc
import logging
import subprocess
import sys
import threading
import time
import weakref
from types import SimpleNamespace

import anyio
import pytest

from aiodev import profiler
from aiodev.profiler import blocking, lag as lag_module

pytestmark = pytest.mark.anyio


def hold(seconds: float) -> None:
    """Hold this thread, and so its loop."""
    until = time.perf_counter() + seconds
    while time.perf_counter() < until:
        pass


async def test_lag_of_a_loop_that_is_held() -> None:
    """A beat that comes late is late by as long as the loop was held."""
    async with profiler.loop_lag() as lag:
        while not lag.beats:
            await anyio.lowlevel.checkpoint()
        count = len(lag)
        hold(0.05)
        while len(lag) == count:
            await anyio.lowlevel.checkpoint()
    assert lag.max >= 0.045
    assert 0 <= lag.percentile(0) <= lag.percentile(50) <= lag.percentile(100) == lag.max
    assert 0 < lag.mean < lag.max
    assert len(lag) == len(lag.beats)


async def test_lag_until_the_block_is_left() -> None:
    """A loop that is held until the end of the block has a beat that is late by that."""
    async with profiler.loop_lag() as lag:
        hold(0.05)
    assert lag.max >= 0.045


async def test_lag_is_not_measured_afterwards() -> None:
    """When the block is left, the timer comes no more."""
    async with profiler.loop_lag() as lag:
        await anyio.sleep(0.005)
    count = len(lag)
    await anyio.sleep(0.01)
    assert len(lag) == count


def test_stall_counts_once(monkeypatch) -> None:
    """A beat that is late delays the next one: a stall of many periods is one late beat."""
    times = iter((1_000_000, 102_000_000, 103_000_000, 104_500_000))
    monkeypatch.setattr(lag_module, "time", SimpleNamespace(perf_counter_ns=lambda: next(times)))
    lag = profiler.loop_lag(0.001)
    lag._due = 1_000_000
    for _ in range(4):
        lag.beat()
    assert [beat.lag_ns for beat in lag.beats] == [0, 100_000_000, 0, 500_000]


def test_lag_without_a_loop() -> None:
    """Without a loop there is nothing to measure."""
    lag = profiler.loop_lag()
    with pytest.raises(RuntimeError, match="no event loop"):
        lag.start()
    assert (lag.max, lag.mean, lag.percentile(99)) == (0, 0, 0)


@pytest.mark.parametrize("call", [profiler.loop_lag, profiler.detect_blocking])
@pytest.mark.parametrize("value", [0, -1, float("inf"), float("nan")])
def test_times_that_make_no_sense(call, value) -> None:
    """A period and a threshold are positive numbers."""
    with pytest.raises(ValueError, match=call.__name__):
        call(value)


def sleep_until_seen(detector: profiler.BlockingDetector) -> None:
    """Hold the loop until its stack was taken."""
    while not detector._seen or not detector._seen[-1].is_complete:
        time.sleep(0.001)


def compute_until_seen(detector: profiler.BlockingDetector) -> None:
    """Hold the loop, and the GIL, until its stack was taken."""
    while not detector._seen or not detector._seen[-1].is_complete:
        pass


async def test_blocking_call_is_named() -> None:
    """The line of the program that held the loop is named, with its stack from the task on, and for how long."""
    async with profiler.detect_blocking(0.02, lambda blocked: None) as detector:
        sleep_until_seen(detector)
    blocked = detector.calls[-1]
    assert blocked.call.startswith("sleep_until_seen (")
    assert "time.sleep(0.001)" in blocked.call or "detector._seen" in blocked.call
    assert blocked.duration >= 0.02
    assert [frame.name for frame in blocked.stack][-2:] == ["test_blocking_call_is_named", "sleep_until_seen"]
    assert all(frame.name not in ("run_forever", "_run_once", "unrolled_run") for frame in blocked.stack)
    assert "held the event loop for" in str(blocked)


async def test_python_code_that_computes_is_named() -> None:
    """A loop in Python holds the event loop like any call, and its innermost line is named."""
    async with profiler.detect_blocking(0.02, lambda blocked: None) as detector:
        compute_until_seen(detector)
    assert detector.calls[-1].call.startswith("compute_until_seen (")


def test_a_callback_without_python_code_is_reported() -> None:
    """All that is seen of it is that asyncio calls a callback."""

    async def main() -> profiler.BlockingDetector:
        async with profiler.detect_blocking(0.02, lambda blocked: None) as detector:
            await asyncio.sleep(0.01)
            asyncio.get_running_loop().call_soon(time.sleep, 0.3)
            await asyncio.sleep(0.01)
        return detector

    blocked = max(asyncio.run(main()).calls, key=lambda blocked: blocked.duration)
    assert blocked.task is None and blocked.alone and blocked.duration >= 0.02
    assert [frame.name for frame in blocked.stack] == ["Handle._run"] and "a callback held the event loop" in str(blocked)


async def test_library_that_blocks_is_named_by_its_caller() -> None:
    """Where an installed package, the standard library or aiodev holds the loop, the program's line that called it is named."""
    async with profiler.detect_blocking(0.02, lambda blocked: None) as detector:
        seen, waits = threading.Event(), threading.Event()
        threading.Thread(target=lambda: (waits.wait(30), sleep_until_seen(detector), seen.set())).start()
        waits.set()
        seen.wait(30)
    blocked = detector.calls[-1]
    assert blocked.call.startswith("test_library_that_blocks_is_named_by_its_caller (")
    assert blocked.stack[-1].name == "Condition.wait"


async def test_who_held_the_loop_is_named_not_who_was_seen_first() -> None:
    """The timer comes behind all tasks that are ready: each that takes too long is reported, with its own time."""
    reports: list[str] = []

    async def short() -> None:
        await anyio.lowlevel.checkpoint()
        hold(0.01)

    async def long() -> None:
        await anyio.lowlevel.checkpoint()
        sleep_until_seen(detector)

    async with profiler.detect_blocking(0.1, lambda blocked: reports.append(str(blocked))) as detector:
        for _ in range(3):
            async with anyio.create_task_group() as group:
                for _ in range(5):
                    group.start_soon(short)
                group.start_soon(long)
            while detector._seen:
                await anyio.lowlevel.checkpoint()
    named = [blocked.call for blocked in detector.calls if blocked.alone]
    assert len(named) >= 3 and sum("sleep_until_seen" in call for call in named) >= 3
    assert all(blocked.alone for blocked in detector.calls if "sleep_until_seen" in blocked.call)
    assert all("and others" not in report for report in reports if "sleep_until_seen" in report)


def test_many_that_hold_it_together() -> None:
    """None of them is said to have held it for as long; the longest is named."""

    async def short() -> None:
        hold(0.03)

    async def reported() -> list[profiler.BlockingCall]:
        async with profiler.detect_blocking(0.2, lambda blocked: None) as detector:
            await asyncio.gather(*(short() for _ in range(15)))
            while detector._seen:
                await anyio.lowlevel.checkpoint()
        return [blocked for blocked in detector.calls if not blocked.alone]

    (blocked,) = next(filter(None, (asyncio.run(reported()) for _ in range(5))))  # each may be held up by the system for long
    assert blocked.duration >= 0.2 and "short" in [frame.name for frame in blocked.stack][0]
    assert "and others held the event loop for" in str(blocked)


async def test_blocking_is_logged(caplog) -> None:
    """Without a function to report to, each is a warning, with the stack."""
    with caplog.at_level(logging.WARNING, logger="aiodev"):
        async with profiler.detect_blocking(0.02) as detector:
            sleep_until_seen(detector)
    assert "in sleep_until_seen" in caplog.text


async def test_report_that_fails(caplog) -> None:
    """A function that fails is logged, and later calls are reported all the same."""
    async with profiler.detect_blocking(0.02, lambda blocked: 1 / 0) as detector:
        for _ in range(2):
            sleep_until_seen(detector)
            while detector._seen:
                await anyio.lowlevel.checkpoint()
    assert len(detector.calls) >= 2
    assert "ZeroDivisionError" in caplog.text


async def test_loop_that_waits_holds_nothing() -> None:
    """However long its thread has had no core: what it does in its selector is no call of the program."""
    loops_thread = threading.get_ident()

    def looks_idle() -> bool:
        until = time.monotonic() + 30
        while time.monotonic() < until:
            if not blocking._frames_inside_loop(loops_thread):
                return True
        return False

    assert await anyio.to_thread.run_sync(looks_idle)


async def test_report_that_is_no_function() -> None:
    """What is to be reported to must be callable."""
    with pytest.raises(TypeError, match="report"):
        profiler.detect_blocking(1, report=3)


FRAMES_AND_GARBAGE = """
import faulthandler, gc, os, sys, threading, time

from aiodev.profiler import blocking

faulthandler.dump_traceback_later(30, exit=True)
stack_of = {stack_of}
null = os.open(os.devnull, os.O_WRONLY)

class Garbage:
    def __init__(self):
        self.cycle = self

    def __del__(self):
        os.write(null, b"1")  # without the GIL

def look():
    while not is_over.is_set():
        Garbage()
        stack_of(0)

is_over = threading.Event()
gc.set_threshold(5)
threads = [threading.Thread(target=look) for _ in range(3)]
for thread in threads:
    thread.start()
until = time.monotonic() + 1
while time.monotonic() < until:
    started = threading.Thread(target=Garbage)
    started.start()
    started.join()
is_over.set()
for thread in threads:
    thread.join()
assert gc.isenabled()
print("over")
"""


def test_frames_are_taken_while_finalizers_let_go_of_the_gil() -> None:
    """And while threads start; in a process of its own, since CPython 3.11 by itself hangs there within a moment."""
    program = FRAMES_AND_GARBAGE.format(stack_of="blocking._stack_of")
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=50, check=False)
    assert done.stdout == "over\n", done.stderr


def test_taken_frames_are_let_go() -> None:
    """At once, not by a later collection: they have the arrays of all threads."""
    held, is_over, begun = [], threading.Event(), threading.Event()

    def work() -> None:
        value = set[int]()
        held.append(weakref.ref(value))
        begun.set()
        is_over.wait(30)

    thread = threading.Thread(target=work)
    gc.disable()
    try:
        thread.start()
        begun.wait(30)
        assert any(code is work.__code__ for code, _, _ in blocking._stack_of(thread.ident or 0))
        is_over.set()
        thread.join()
        assert held[0]() is None
    finally:
        gc.enable()


def test_a_frame_between_two_lines_has_a_place() -> None:
    """CPython says None there: the function's first line is told, and the detector goes on."""
    code = test_a_frame_between_two_lines_has_a_place.__code__
    assert "def test_a_frame_between" in blocking._Frame(code, None, __name__).source()


def test_a_stack_is_of_one_moment() -> None:
    """However often the threads take turns, each row's caller is the one it had: nobody goes on while they are read."""
    begun, is_over = threading.Event(), threading.Event()

    def even(depth: int) -> None:
        if depth:
            odd(depth - 1)

    def odd(depth: int) -> None:
        if depth:
            even(depth - 1)

    def work() -> None:
        begun.set()
        while not is_over.is_set():
            even(40)

    def seen() -> int:
        """How many calls were under way."""
        names = [code.co_name for code, _, _ in blocking._stack_of(thread.ident or 0) if code in mine]
        assert names[-1:] == ["work"]
        calls = names[-2::-1]
        assert calls == ["even", "odd"] * (len(calls) // 2) + ["even"] * (len(calls) % 2)
        return len(calls)

    mine = {function.__code__ for function in (even, odd, work)}
    thread = threading.Thread(target=work)
    thread.start()
    assert begun.wait(30)
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        deepest = max(seen() for _ in range(3000))
    finally:
        sys.setswitchinterval(interval)
        is_over.set()
        thread.join()
    assert deepest > 1
