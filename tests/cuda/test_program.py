"""Whole programs on ``cuda``: the public interface over the backend on the stand-in."""

from __future__ import annotations

from collections.abc import Callable

Run = Callable[..., str]


def test_arrays_kernels_and_results(run: Run) -> None:
    """Arrays go there and come back, kernels run, and the default device stays what it was asked to be.

    The host touches no device memory meanwhile, which the stand-in has where the host can reach it.
    """
    said = run(
        """
import numpy as np

@aiodev.kernel
def saxpy(i, a, x, y, out):
    out[i] = a * x[i] + y[i]

async def main():
    async with aiodev.device("cuda:1"):
        x, y = aiodev.asarray(np.arange(1000, dtype="f4")), aiodev.ones(1000, dtype="f4")
        out = aiodev.empty(1000, dtype="f4")
        done = saxpy[1000](2.0, x, y, out)
        await done
        assert out.device == aiodev.Device("cuda:1")
        assert (await out.numpy() == 2 * np.arange(1000, dtype="f4") + 1).all()
        assert (await out[::3].numpy() == (2 * np.arange(1000, dtype="f4") + 1)[::3]).all()
    print("done")

asyncio.run(main())
""",
        STANDIN_GUARD="1",
    )
    assert said == "done\n"


def test_streams_events_and_calls(run: Run) -> None:
    """Order across streams, a function in stream order, a stream that waits for a future, timing."""
    said = run(
        """
import numpy as np, threading

async def main():
    first, second = aiodev.Stream("cuda:0"), aiodev.Stream("cuda:1")
    seen = []
    with aiodev.testing.Latch(first):
        first.call(seen.append, 1)
        second.wait_event(first.record_event())
        second.call(seen.append, 2)
        assert not first.query() and seen == []
    await second.synchronize()
    assert seen == [1, 2]
    future = asyncio.get_running_loop().create_future()
    first.wait_future(future)
    third = first.call(lambda: threading.current_thread() is threading.main_thread())
    assert not third.query()
    future.set_result(None)
    assert await third is False
    begin, end = aiodev.Event(enable_timing=True), aiodev.Event(enable_timing=True)
    begin.record(first)
    first.call(lambda: None)
    end.record(first)
    await end
    assert begin.elapsed_time(end) >= 0
    print("done")

import aiodev.testing
asyncio.run(main())
"""
    )
    assert said == "done\n"


def test_failures_reach_their_waiters(run: Run) -> None:
    """A kernel's exception, what is behind it, and work after it was told."""
    said = run(
        """
import numpy as np

@aiodev.kernel
def reject(i, bad, x):
    if i == bad:
        raise ValueError("bad row", 3)
    x[i] = 1

async def main():
    stream = aiodev.Stream("cuda:0")
    with aiodev.device("cuda:0"):
        x = aiodev.zeros(10, dtype="i8")
    failed = reject[10, stream](4, x)
    behind = reject[10, stream](-1, x)
    try:
        await failed
    except aiodev.KernelError as error:
        assert error.__cause__.args == ("bad row", 3), error
        assert "test" in str(error.submitted_at) or "string" in str(error.submitted_at), error.submitted_at
    try:
        await behind
    except aiodev.DependencyError as error:
        assert isinstance(error.__cause__, aiodev.KernelError)
    await reject[10, stream](-1, x)
    assert (await x.numpy()).tolist() == [1] * 10
    print("done")

asyncio.run(main())
"""
    )
    assert said == "done\n"


def test_a_lost_device_raises_on_an_idle_loop(run: Run) -> None:
    """A task that waits on a loop with nothing else to do is told of the loss, and so is every later one."""
    said = run(
        """
async def main():
    stream = aiodev.Stream("cuda:0")
    await stream.call(lambda: None)
    with aiodev.device("cuda:0"):
        x = aiodev.empty(1 << 20, dtype="u1")
        await aiodev.synchronize()
        driver.latency(3600)
        y = aiodev.zeros(1 << 20, dtype="u1")
    waiting = asyncio.ensure_future(aiodev.synchronize("cuda:0"))
    await asyncio.sleep(0.05)  # until the loop is idle and all threads wait
    assert not waiting.done()
    begin = asyncio.get_running_loop().time()
    driver.lose()
    for attempt in (waiting, aiodev.default_stream("cuda:0").call(lambda: None)):
        try:
            await attempt
        except aiodev.DeviceLostError as error:
            assert "cuda:0" in str(error)
        except aiodev.DependencyError as error:
            assert isinstance(error.__cause__, aiodev.DeviceLostError), error
        else:
            raise AssertionError("nothing was raised")
    assert asyncio.get_running_loop().time() - begin < 5
    print("done")

asyncio.run(main())
"""
    )
    assert said == "done\n"


def test_forked_children_are_told(run: Run) -> None:
    """Counting devices does not stand in the way of a fork; a started driver does, and says so."""
    said = run(
        """
import os
assert aiodev.device_count("cuda") == 2
if os.fork() == 0:
    asyncio.run(aiodev.init("cuda"))
    os._exit(0)
assert os.waitstatus_to_exitcode(os.wait()[1]) == 0
asyncio.run(aiodev.init("cuda"))
if os.fork() == 0:
    try:
        aiodev.Stream("cuda:0")
    except aiodev.BadForkError:
        os._exit(0)
    os._exit(1)
assert os.waitstatus_to_exitcode(os.wait()[1]) == 0
print("done")
"""
    )
    assert said == "done\n"


def test_a_forked_child_touches_no_page_locked_memory(run: Run) -> None:
    """It is not there: counters are let go of before anything that a timeline keeps is, whose end looks at other counters."""
    said = run(
        """
import os

class Ending:
    def __init__(self, other):
        self.other = other
    def __del__(self):
        self.other.query()

async def main():
    await aiodev.init("cuda")
    one, other = streams = [aiodev.Stream("cuda:0") for _ in range(2)]
    driver.latency(0.2)
    for stream in streams:
        x = aiodev.empty(1000, "i8", "cuda:0")
        value = stream.copy(x, x).value
        stream.timeline.keep(value, Ending(other if stream is one else one))
    child = os.fork()
    if child == 0:
        try:
            await streams[0].synchronize()
        except aiodev.BadForkError:
            os._exit(0)
        os._exit(1)
    print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
    driver.latency(0)
    await aiodev.synchronize("cuda:0")

asyncio.run(main())
"""
    )
    assert said == "0\n"


def test_a_forked_child_never_calls_the_driver(run: Run) -> None:
    """Whose locks other threads of the parent may have held: not for what is dropped there, and not when the child ends."""
    said = run(
        """
import gc, os

@aiodev.kernel
def add_to(i, x, y):
    y[i] += x[i]

async def main():
    async with aiodev.device("cuda"):
        x, y, left = aiodev.ones(4), aiodev.zeros(4), aiodev.ones(1, "int64")
        add_to[4](x, y)
        await aiodev.synchronize()
        stream, kept = aiodev.Stream(), []
        for blocks in range(2):
            async with aiodev.capture(stream) as graph:
                add_to[4](x, y)
                if blocks:
                    with graph.if_(left):
                        add_to[4](x, y)
            for _ in range(3):
                await graph.replay(stream)
            kept.append(graph)
        kept += [aiodev.memory.empty_pinned(4), aiodev.Stream(reserve=True), aiodev.empty(10_000_000), stream.record_event()]
        driver.latency(0.2)
        kept.append(kept[0].replay(stream))
        faulthandler.cancel_dump_traceback_later()  # whose thread a child, when it ends, would wait for
        child = os.fork()
        if child == 0:
            del graph, kept[:]
            gc.collect()
            try:
                await y.numpy()
            except aiodev.BadForkError:
                sys.exit(7)
        print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))

asyncio.run(main())
"""
    )
    assert said == "7\n"


def test_small_results_come_by_way_of_page_locked_memory(run: Run) -> None:
    """Without the thread that stages copies; they are ordinary arrays, the page-locked memory is used again, views too."""
    said = run(
        """
import numpy as np

@aiodev.kernel
def increment(i, x):
    x[i] += 1

async def main():
    x = aiodev.asarray(np.arange(100), device="cuda")
    await aiodev.synchronize("cuda")
    waited, kept = driver.count("cuEventSynchronize"), []
    for turn in range(1, 20):
        with aiodev.Stream("cuda"):
            increment[100](x)
            kept.append(await x.numpy())
        assert (kept[-1] == np.arange(100) + turn).all() and kept[-1].flags.writeable
        assert (await x[::-3].numpy() == (np.arange(100) + turn)[::-3]).all()
    assert (kept[0] == np.arange(100) + 1).all()
    print(driver.count("cuEventSynchronize") - waited, aiodev.memory.host_memory_stats("cuda"))
    reading = asyncio.ensure_future(x.numpy())
    await asyncio.sleep(0)
    reading.cancel()
    await asyncio.wait([reading])
    await aiodev.synchronize("cuda")
    driver.inject("cuMemHostAlloc", 2)
    aiodev.memory.empty_cache("cuda")
    print((await x.numpy())[0])
asyncio.run(main())
"""
    )
    assert said == "0 {'allocated_bytes.current': 0, 'reserved_bytes.current': 4096}\n19\n"


def test_programs_whose_failures_are_told(run: Run) -> None:
    """What runs behind a failure that was told does not depend on how far the device has come."""
    said = run(
        """
import logging
from failing_programs import Program
logging.disable(logging.CRITICAL)
aiodev.init_blocking("cuda")
for seed in range(10):
    Program("cuda", seed).run(200)
print("done")
"""
    )
    assert said == "done\n"
