"""AIODEV_DEBUG=1: wrong writes are found and told, right ones are not."""

from __future__ import annotations

import ctypes
import logging
import os
import subprocess
import sys
import threading
from typing import Any

import numpy as np
import pytest

import aiodev
from aiodev._core import journal
from aiodev._core.backend.registry import registry
from aiodev._core.timeline.timeline import Timeline
from aiodev._memory import debug, races
from aiodev._memory.allocators import BackendMemory
from aiodev._memory.debug import POISON, DebugAllocator
from aiodev.testing.latch import Latch


@pytest.fixture
def pool() -> DebugAllocator:
    """A debugging allocator over the CPU's memory."""
    return DebugAllocator(aiodev.Device("cpu"), BackendMemory(registry.handle("cpu"), 0), True)


def line() -> Timeline:
    """The timeline of the default stream."""
    return aiodev.default_stream("cpu").timeline


def test_fresh_and_freed_memory_is_poisoned(pool: DebugAllocator) -> None:
    """Not-a-number as float, -1 as integer."""
    buffer = pool.allocate(64, line())
    address = buffer.address
    assert address % 256 == 0
    assert np.isnan(np.frombuffer(ctypes.string_at(address, 64), np.float32)).all()
    ctypes.memset(address, 0, 64)
    del buffer
    pool.sweep()
    assert ctypes.string_at(address, 64) == bytes([POISON]) * 64


@pytest.mark.parametrize(("offset", "what"), [(64, "beyond the end"), (-1, "before the start")])
def test_writes_beyond_are_told_with_the_line(
    pool: DebugAllocator, caplog: pytest.LogCaptureFixture, offset: int, what: str
) -> None:
    """When the memory is freed, once."""
    buffer = pool.allocate(64, line())
    ctypes.memset(buffer.address + offset, 0, 1)
    del buffer
    with caplog.at_level(logging.ERROR, "aiodev"):
        pool.sweep()
        pool.sweep()
    assert len(caplog.records) == 1
    message = caplog.records[0].getMessage()
    assert what in message and "64 bytes" in message and __file__ in message


def test_guards_are_looked_at_once_they_are_there(
    pool: DebugAllocator, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another thread empties the cache while a buffer is made, of memory that had guards in other places."""
    looked = 0

    class Looking:
        """Writes memory, and has the guards of all buffers looked at before."""

        string_at, memmove = staticmethod(ctypes.string_at), staticmethod(ctypes.memmove)

        @staticmethod
        def memset(address: int, byte: int, nbytes: int) -> None:
            nonlocal looked
            looked += 1
            pool.look_at_all()
            ctypes.memset(address, byte, nbytes)

    pool.allocate(1000, line())
    pool.sweep()
    monkeypatch.setattr(debug, "ctypes", Looking)
    with caplog.at_level(logging.ERROR, "aiodev"):
        buffer = pool.allocate(900, line())
    assert looked and buffer and not caplog.records


def test_a_write_after_the_free_is_told(pool: DebugAllocator, caplog: pytest.LogCaptureFixture) -> None:
    """When the memory is handed out again."""
    buffer = pool.allocate(64, line())
    address = buffer.address
    del buffer
    pool.sweep()
    ctypes.memset(address + 5, 0, 1)
    with caplog.at_level(logging.ERROR, "aiodev"):
        again = pool.allocate(60, line())
    assert again.address == address
    assert "written to after it was freed" in caplog.text and __file__ in caplog.text


def test_memory_is_not_touched_while_work_uses_it(pool: DebugAllocator, caplog: pytest.LogCaptureFixture) -> None:
    """Nor handed out, not even to the stream that used it; then it is, and right writes leave no trace."""
    stream, sevens = aiodev.Stream("cpu"), np.full(4096, 7, np.uint8)
    buffer = pool.allocate(4096, stream.timeline)
    address = buffer.address
    with caplog.at_level(logging.ERROR, "aiodev"):
        with Latch(stream):
            value = stream._copy(address, sevens.ctypes.data, 4096)
            buffer._record_write(stream.timeline, value)
            del buffer
            other = pool.allocate(4096, stream.timeline)
            assert other.address != address
        stream.synchronize_blocking()
        again = pool.allocate(4096, stream.timeline)
        assert again.address == address
        assert ctypes.string_at(address, 4096) == bytes([POISON]) * 4096
    assert not caplog.records


def test_settling_looks_at_what_is_put_aside(pool: DebugAllocator, caplog: pytest.LogCaptureFixture) -> None:
    """A snapshot settles first: what nobody uses is not shown as in use."""
    buffer = pool.allocate(64, line())
    ctypes.memset(buffer.address + 64, 0, 1)
    block = buffer.block
    buffer._record_write(line(), line().submitted)
    del buffer
    with caplog.at_level(logging.ERROR, "aiodev"):
        pool.forget_all_done()
    assert "beyond the end" in caplog.text
    assert not block.pending() and block in block.bin.free


def test_large_and_small_pieces_are_joined_and_given_back(
    pool: DebugAllocator, caplog: pytest.LogCaptureFixture
) -> None:
    """Guards do not survive what the allocator does with free memory, and nothing is told."""
    with caplog.at_level(logging.ERROR, "aiodev"):
        for _ in range(3):
            held: list[Any] = [pool.allocate(size, line()) for size in (3 << 20, 100, 5 << 20, 1000, 2 << 20)]
            held.clear()
            whole = pool.allocate(11 << 20, line())
            del whole
            pool.empty_cache()
    assert not caplog.records
    assert pool.totals.reserved == pool.totals.allocated == 0


def test_a_race_between_streams_is_told(pool: DebugAllocator, caplog: pytest.LogCaptureFixture) -> None:
    """A write beside a read, or a read beside a write, that nothing orders; not reads side by side, nor what is ordered."""
    first, second = aiodev.Stream("cpu"), aiodev.Stream("cpu")
    buffer = pool.allocate(64, first.timeline)
    value = np.zeros(64, np.uint8)

    def use(stream: aiodev.Stream, writes: bool) -> str:
        caplog.clear()
        number = stream._copy(buffer.address, value.ctypes.data, 64)
        (buffer._record_write if writes else buffer._record_read)(stream.timeline, number)
        return caplog.text

    with caplog.at_level(logging.ERROR, "aiodev"), Latch(first):
        assert use(first, writes=True) == ""
        text = use(second, writes=False)
        assert "is read on" in text and "64 bytes" in text and text.count(__file__) >= 2 and "wait_stream" in text
        second.wait_stream(first)
        assert use(second, writes=False) == ""
        assert use(first, writes=False) == ""
        assert "is written or read on" in use(first, writes=True)  # beside the second's read
        first.wait_stream(second)
        assert use(first, writes=True) == ""
    first.synchronize_blocking()
    with caplog.at_level(logging.ERROR, "aiodev"):
        assert use(second, writes=True) == ""  # whatever it was, it is done


def test_what_ends_while_it_is_looked_at_is_no_race(
    pool: DebugAllocator, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Clocks forget what is done: a wait for it was there, or there need be none."""
    first, second = aiodev.Stream("cpu"), aiodev.Stream("cpu")
    buffer, value = pool.allocate(64, first.timeline), np.zeros(64, np.uint8)
    with caplog.at_level(logging.ERROR, "aiodev"), Latch(first) as latch:
        buffer._record_write(first.timeline, first._copy(buffer.address, value.ctypes.data, 64))

        def meanwhile(*given: Any) -> bool:
            latch.release()
            first.synchronize_blocking()
            return False

        monkeypatch.setattr(races, "follows", meanwhile)
        buffer._record_read(second.timeline, second._copy(value.ctypes.data, buffer.address, 64))
    assert not caplog.records


def test_a_called_function_may_use_what_its_stream_uses(pool: DebugAllocator, caplog: pytest.LogCaptureFixture) -> None:
    """On other streams: what is behind the call waits for the function, while that runs, too. Another stream's may not."""
    first, second = aiodev.Stream("cpu"), aiodev.Stream("cpu")
    buffer, value = pool.allocate(64, first.timeline), np.zeros(64, np.uint8)

    held, begun, waits = aiodev.Stream("cpu"), threading.Event(), False

    def use() -> None:
        own = aiodev.Stream("cpu")
        if waits:
            own.wait_stream(held)
        buffer._record_write(own.timeline, own._copy(buffer.address, value.ctypes.data, 64))
        begun.set()
        own.synchronize_blocking()

    with caplog.at_level(logging.ERROR, "aiodev"):
        with Latch(first):
            called = first.call(use)
            buffer._record_write(first.timeline, first._copy(buffer.address, value.ctypes.data, 64))
        called.synchronize_blocking(60)
        begun.clear()
        waits = True
        with Latch(held):
            called = first.call(use)
            assert begun.wait(60)
            buffer._record_write(first.timeline, first._copy(buffer.address, value.ctypes.data, 64))
            second.wait_stream(first)
            buffer._record_write(second.timeline, second._copy(buffer.address, value.ctypes.data, 64))
        waits = False
        second.synchronize_blocking(60)
        first.synchronize_blocking(60)
        assert not caplog.records
        with Latch(first):
            buffer._record_write(first.timeline, first._copy(buffer.address, value.ctypes.data, 64))
            second.call(use).synchronize_blocking(60)
        assert "nothing orders" in caplog.text


def test_a_stream_that_a_function_has_used_is_looked_at_again(pool: DebugAllocator, caplog: pytest.LogCaptureFixture) -> None:
    """What others submit to it later is no part of that call."""
    first, lasting = aiodev.Stream("cpu"), aiodev.Stream("cpu")
    buffer, value = pool.allocate(64, first.timeline), np.zeros(64, np.uint8)

    def write(stream: aiodev.Stream) -> None:
        buffer._record_write(stream.timeline, stream._copy(buffer.address, value.ctypes.data, 64))

    def use() -> None:
        write(lasting)
        lasting.synchronize_blocking()

    with caplog.at_level(logging.ERROR, "aiodev"):
        first.call(use).synchronize_blocking(60)
        assert not caplog.records
        with Latch(lasting):
            write(lasting)
            write(first)
        assert "nothing orders" in caplog.text
    aiodev.synchronize_blocking("cpu", 60)


def run_in_debug_mode(code: str) -> subprocess.CompletedProcess[str]:
    """Run a program, in a file, with AIODEV_DEBUG=1."""
    environment = {**os.environ, "AIODEV_DEBUG": "1"}
    command = [sys.executable, "-c", HEAD + code]
    return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120, check=True)


#: Writes past guards as a library does that is given an address: a kernel of its own checks bounds.
HEAD = """
import aiodev, aiodev.kernels, ctypes
from aiodev._memory.allocators import allocator_for

@aiodev.kernel
def double(i, x):
    x[i] *= 2

def overrun(x):
    ctypes.memset(x._buffer.address + x.nbytes, 0, 1)

x = aiodev.ones(8, device="cpu")
x.numpy_blocking()
"""


def test_the_setting_turns_it_on_for_the_device() -> None:
    """The whole library runs on it, and nothing is told of a right program."""
    done = run_in_debug_mode("print(type(allocator_for('cpu')).__name__, aiodev.kernels.add(x, 1.0).numpy_blocking().sum())")
    assert done.stdout.split() == ["DebugAllocator", "16.0"]
    assert done.stderr == ""


def test_what_is_written_behind_a_withdrawn_write_is_read() -> None:
    """As it is without debug mode."""
    done = run_in_debug_mode("""
from aiodev.testing import Latch
one, other = aiodev.Stream("cpu"), aiodev.Stream("cpu")
with Latch(one):
    withdrawn = double[8, one](x)
    assert withdrawn.cancel()
try:
    withdrawn.synchronize_blocking(60)
except aiodev.WithdrawnError:
    other.wait_stream(one)
    double[8, other](x)
    print(x.numpy_blocking().sum())
""")
    assert done.stdout.split() == ["16.0"]


@pytest.mark.parametrize("body", ["x[i + k] = 0.0", "helper(x, i + k)", "lang.atomic_add(x, i + k, 1.0)"])
def test_a_kernel_that_indexes_beyond_an_array_fails(body: str) -> None:
    """Bounds are checked in the body, in what it calls, and in atomics, though nobody asked for it; the line is told."""
    done = run_in_debug_mode(f"""
from aiodev import lang

def helper(x, k):
    x[k] = 0.0

@aiodev.kernel
def wrong(i, x, k):
    {body}

try:
    wrong[8](x, 1).synchronize_blocking()
except aiodev.KernelError as error:
    print(type(error.__cause__).__name__, error)
wrong[7](aiodev.ones(8, device="cpu"), 1).synchronize_blocking()
""")
    assert done.stdout.startswith("IndexError wrong:") and "out of bounds" in done.stdout
    assert done.stderr == ""


@pytest.mark.parametrize(
    "end",
    [
        pytest.param("del x; print('now', file=__import__('sys').stderr)", id="let go"),
        pytest.param("aiodev.memory.empty_cache('cpu'); print('now', file=__import__('sys').stderr)", id="cache emptied"),
        pytest.param("", id="exit"),
    ],
)
def test_broken_guards_are_told_with_the_last_kernel(end: str) -> None:
    """Once, when the buffer is let go, when the cache is emptied, else at exit; with the launch's line."""
    done = run_in_debug_mode(f"double[8](x).synchronize_blocking()\noverrun(x)\n{end}")
    line = HEAD.count("\n") + 1
    assert done.stderr.count("something wrote beyond the end of memory of 64 bytes") == 1
    assert f"last used by kernel double, submitted at <string>:{line}" in done.stderr
    if end:
        assert done.stderr.rstrip().endswith("now")


def test_work_has_a_moment_to_finish_at_exit() -> None:
    """What a stream writes after the program's last line is found."""
    done = run_in_debug_mode("""
import atexit, threading
ending = threading.Event()
stream = aiodev.Stream("cpu")
stream.call(lambda: (ending.wait(), overrun(x)))
x.record_stream(stream)
atexit.register(ending.set)  # the last to be registered is the first to run
""")
    assert "something wrote beyond the end" in done.stderr


def test_the_last_copy_is_named(pool: DebugAllocator, caplog: pytest.LogCaptureFixture) -> None:
    """As long as the journal has it; what the memory had before is not the buffer's."""
    stream, zeros = aiodev.Stream("cpu"), np.zeros(64, np.uint8)
    journal.attach(stream)
    buffer = pool.allocate(64, stream.timeline)
    buffer._record_write(stream.timeline, stream._copy(buffer.address, zeros.ctypes.data, 64))
    stream.synchronize_blocking()
    del buffer
    again = pool.allocate(64, stream.timeline)
    ctypes.memset(again.address - 1, 0, 1)
    with caplog.at_level(logging.ERROR, "aiodev"):
        del again
    assert "last used by nothing that was submitted" in caplog.text
    caplog.clear()
    buffer = pool.allocate(64, stream.timeline)
    buffer._record_write(stream.timeline, stream._copy(buffer.address, zeros.ctypes.data, 64))
    ctypes.memset(buffer.address + 64, 0, 1)
    stream.synchronize_blocking()
    with caplog.at_level(logging.ERROR, "aiodev"):
        del buffer
    assert "last used by a copy, submitted at" in caplog.text and __file__ in caplog.text


RACES = """
import asyncio, aiodev, sys
from aiodev.testing import SimulatedBackend

aiodev.register_backend("sim", SimulatedBackend)

@aiodev.kernel
def put(i, x):
    x[i] = 1.0

@aiodev.kernel
def get(i, x, out):
    out[i] = x[i]

async def main():
    await aiodev.init(DEVICE)
    aiodev.set_device(DEVICE)
    x = aiodev.ones(8, device=DEVICE)
    for _ in range(3):  # the quick way through launches is not taken at once
        put[8](x)
        await get[8](x, x)
    for number, program in enumerate(PROGRAMS):
        first, second, third, fourth = (aiodev.Stream(DEVICE) for _ in range(4))
        with first:
            x, y = aiodev.zeros(8), aiodev.zeros(8)
        await aiodev.synchronize(DEVICE)
        print("program", number, file=sys.stderr, flush=True)
        gates = first._gate(), fourth._gate()  # no latches: what waits for the program keeps nobody out
        names = dict(globals(), **locals())
        exec("async def run():" + program, names)
        task = await names["run"]()
        for gate in gates:
            gate.open()
        await aiodev.synchronize(DEVICE)

asyncio.run(main())
"""
#: Programs that order their uses; but for two that write different parts, which a buffer does not know.
ORDERED = {
    "a completion whose stream has waited for others since": """
    put[8, first](x)
    second.wait_stream(first)
    done = put[8, second](y)
    second.wait_stream(fourth)
    third.wait(done)
    put[8, third](x)""",
    "a completion before another that is known already": """
    put[8, first](x)
    second.wait_stream(first)
    done = put[8, second](y)
    later = put[8, second](y)
    second.wait_stream(fourth)
    third.wait(later)
    third.wait(done)
    put[8, third](x)""",
    "a completion as a future": """
    put[8, first](x)
    second.wait_future(put[8, first](y))
    put[8, second](x)""",
    "a read that keeps its writers out": """
    put[4, first](x[:4])
    put[4, fourth](x[4:])
    task = asyncio.ensure_future(x.numpy())
    await asyncio.sleep(0)
    put[4, first](x[:4])
    put[4, fourth](x[4:])
    return task""",
    "a read that keeps out the stream that it was called on": """
    put[4, first](x[:4])
    put[4, fourth](x[4:])
    third.wait_stream(first)
    third.wait_stream(fourth)
    with third:
        task = asyncio.ensure_future(x.numpy())
    await asyncio.sleep(0)
    put[8, third](x)
    return task""",
    "a capture, in which nothing runs": """
    put[8, first](x)
    async with aiodev.capture(second) as graph:
        put[8](x)
        get[8](x, y)
    second.wait_stream(first)
    graph.replay(second)
    third.wait_stream(second)
    put[8, third](x)""",
}
UNORDERED = {
    "a replay beside what was captured before": """
    async with aiodev.capture(second) as graph:
        put[8](x)
    put[8, first](x)
    graph.replay(second)""",
    "a write again beside a read": """
    put[8, first](x)
    second.wait_stream(first)
    get[8, second](x, y)
    put[8, first](x)""",
    "a read again beside a write": """
    put[8, first](x)
    second.wait_stream(first)
    get[8, second](x, y)
    first.wait_stream(second)
    put[8, first](x)
    get[8, second](x, y)""",
    "a write beside the first of two": """
    put[4, first](x[:4])
    put[4, fourth](x[4:])
    third.wait_stream(fourth)
    put[8, third](x)""",
    "a read beside the first of two": """
    put[4, first](x[:4])
    put[4, fourth](x[4:])
    third.wait_stream(fourth)
    get[8, third](x, y)""",
}


@pytest.fixture(scope="module", params=["cpu", "sim"])
def reports(request: pytest.FixtureRequest) -> dict[str, int]:
    """How many races each program is told of, also on a device whose memory the host cannot touch; all run in one process."""
    code = f"DEVICE, PROGRAMS = {request.param!r}, {[*ORDERED.values(), *UNORDERED.values()]!r}\n{RACES}"
    environment = {**os.environ, "AIODEV_DEBUG": "1"}
    found = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, timeout=120)
    assert found.returncode == 0, found.stderr
    _, *texts = found.stderr.split("program ")
    return {name: text.count("nothing orders") for name, text in zip((*ORDERED, *UNORDERED), texts, strict=True)}


@pytest.mark.parametrize("name", ORDERED)
def test_programs_that_order_their_uses_are_told_of_no_race(name: str, reports: dict[str, int]) -> None:
    """Whichever way the order came: by completions, futures, or what reads do."""
    tiles = {"a read that keeps its writers out": 2, "a read that keeps out the stream that it was called on": 1}
    assert reports[name] == tiles.get(name, 0)  # of writers of different parts, before and after the read


@pytest.mark.parametrize("name", UNORDERED)
def test_every_use_is_looked_at(name: str, reports: dict[str, int]) -> None:
    """That of a stream that used the array last is, too, and every writer that is not done counts."""
    assert reports[name] == 1 + ("two" in name)


def test_no_launch_passes_by_unseen(pool: DebugAllocator) -> None:
    """A launch that finds its own timeline in a buffer notes its use by itself, so there is none to find."""
    stream = aiodev.Stream("cpu")
    buffer = pool.allocate(64, stream.timeline)
    for use in (buffer._record_write, buffer._record_read, buffer.record_foreign, lambda *_: buffer.check()):
        assert buffer._writer is not stream.timeline and buffer._reader is not stream.timeline
        stream.call(int).synchronize_blocking()
        use(stream.timeline, stream.timeline.submitted)
    assert buffer._writer is not stream.timeline and buffer._reader is not stream.timeline
    assert buffer.written_by(stream.timeline) == 3
