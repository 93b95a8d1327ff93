"""Everything at once, for as long as one likes: ``python tests/soak.py --seconds 600 --seed 1``.

Clients on several loops and in threads submit, copy, fail, cancel, withdraw, capture, differentiate, allocate and compile;
meanwhile the process forks, its compile workers are killed, and processes of their own are interrupted, have a full disk, or
end with work in flight. What comes out is compared with a sequential model, and at the end nothing is left: no memory, wait,
thread or descriptor.

Each part is a coroutine function that takes its own source of random numbers and makes one round of what it tests; rounds go on
until the time is over. A round that does not end within ``STALL`` seconds ends the process with all stacks shown.
"""

from __future__ import annotations

import argparse
import asyncio
import collections
import contextlib
import faulthandler
import gc
import logging
import os
import random
import re
import select
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
import traceback
import warnings
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

os.environ.setdefault("AIODEV_CPU_DEVICES", "2")

import anyio
import numpy as np

import aiodev
from aiodev import autograd, memory, testing
from aiodev._core.timeline.timeline import living
from aiodev._core.waiting import reactor
from aiodev._kernel.compile.service import service
from aiodev._native import code_cache

Part = Callable[[random.Random], Awaitable[None]]

STALL = 180
DEVICES = ("cpu:0", "cpu:1")
#: Descriptors that are kept for the next who waits. Besides, each compile worker has two pipes.
MOST_WAKERS = 32
#: Bytes that the library may keep from one call to the next.
KEPT = 1 << 20


@aiodev.kernel
def step(i, factor, x):
    x[i] = x[i] * factor + i


@aiodev.kernel
def refuse(i, limit, x):
    if x[i] >= limit:
        raise ValueError("beyond the limit", i)
    x[i] += 1


@aiodev.kernel
def check_limit(i, limit, x):
    if x[0] > limit[0]:
        raise ValueError("beyond the limit", i)


class Ordered(Exception):
    """What functions raise that are to fail."""


def fail() -> None:
    raise Ordered


# Parts: one round each


async def values(choose: random.Random) -> None:
    """Kernels, copies and functions on arrays of two devices, in an order that goes from stream to stream; against NumPy."""
    streams = [aiodev.Stream(device, choose.randrange(-1, 2)) for device in DEVICES for _ in range(2)]
    length = choose.choice((1, 100, 5_000, 200_000))
    hosts = [np.arange(length) + k for k in range(3)]
    arrays = [aiodev.asarray(host, device=choose.choice(DEVICES)) for host in hosts]
    last: aiodev.Completion[None] | None = None
    for _ in range(choose.randrange(1, 30)):
        own, other = choose.randrange(3), choose.randrange(3)
        x = arrays[own]
        stream = choose.choice([stream for stream in streams if stream.device == x.device])
        for array in (x, arrays[other]):
            stream.wait_stream(aiodev.current_stream(array.device))  # where it was made
        if last is not None:
            stream.wait(last)
        kind = choose.randrange(5)
        if kind == 0 and own != other:
            last = stream.copy(x, arrays[other])
            hosts[own] = hosts[other].copy()
        elif kind == 1:
            fresh = np.full(length, choose.randrange(100))
            last = stream.copy(x, fresh)
            hosts[own] = fresh.copy()  # it is read in stream order, and must not change till then
        elif kind == 2 and length > 1:
            half = length // 2
            last = step[half, stream](2, x[:half])
            hosts[own][:half] = hosts[own][:half] * 2 + np.arange(half)
        elif kind == 3:
            last = stream.call(lambda: None)
        else:
            factor = choose.randrange(5)
            last = step[length, stream](factor, x)
            hosts[own] = hosts[own] * factor + np.arange(length)
        if choose.random() < 0.1:
            await stream.synchronize()
    assert last is not None
    for x, host in zip(arrays, hosts, strict=True):
        aiodev.current_stream(x.device).wait(last)
        found = await x.numpy()
        assert (found == host).all(), (found, host)


async def failures(choose: random.Random) -> None:
    """Behind the first that fails, nothing runs; once that was told, everything does."""
    stream, ran = aiodev.Stream("cpu", choose.randrange(-1, 2)), list[int]()
    x = aiodev.zeros(10, "int64", "cpu")
    stream.wait_stream(aiodev.current_stream("cpu"))
    gate = stream.wait_future(anyio.sleep(choose.choice((0, 0.001))))
    count = choose.randrange(1, 8)
    wrong = {number for number in range(count) if choose.random() < 0.2}
    kinds = [choose.random() < 0.5 for _ in range(count)]
    done = []
    for number in range(count):
        if kinds[number]:
            done.append(refuse[10, stream](0 if number in wrong else 1 << 60, x))
        else:
            done.append(stream.call(fail) if number in wrong else stream.call(ran.append, number))
    order = list(range(count))
    choose.shuffle(order)
    await gate
    first = min(wrong, default=count)
    for number in order:
        try:
            await done[number]
            assert number < first, number
        except Ordered:
            assert number == first and not kinds[number]
        except aiodev.DependencyError:
            assert number > first
        except aiodev.KernelError as error:
            assert number == first and kinds[number] and isinstance(error.__cause__, ValueError)
    assert ran == [number for number in range(first) if not kinds[number]]
    with contextlib.suppress(Ordered, aiodev.KernelError):
        await stream.synchronize()
    assert await stream.call(sum, [1, 2]) == 3


async def withdrawal(choose: random.Random) -> None:
    """What was withdrawn does not run, nor does what was submitted behind it."""
    stream, ran = aiodev.Stream("cpu"), list[int]()
    latch = testing.Latch(stream)
    count = choose.randrange(1, 8)
    done = [stream.call(ran.append, number) for number in range(count)]
    gone = sorted(number for number in range(count) if choose.random() < 0.3)
    assert all(done[number].cancel() for number in gone)
    behind = aiodev.Stream("cpu")
    behind.wait(done[-1])
    follower = behind.call(ran.append, count)
    latch.release()
    first = gone[0] if gone else count
    for number, completion in enumerate([*done, follower]):
        try:
            await completion
            assert number < first or first == count
        except aiodev.WithdrawnError:
            assert number in gone
        except aiodev.DependencyError:
            assert number > first and number not in gone
    assert ran == list(range(first if gone else count + 1))


async def cancellation(choose: random.Random) -> None:
    """Waiters that are cancelled stop waiting; the others hear, and the work is done."""
    stream = aiodev.Stream("cpu", maxsize=choose.choice((0, 4)))
    latch, heard = testing.Latch(stream), list[int]()
    done = stream.call(sum, [1, 2])

    async def wait(scope: anyio.CancelScope) -> None:
        with scope:
            heard.append(await done if choose.random() < 0.5 else (await stream.synchronize(), 3)[1])

    scopes = [anyio.CancelScope() for _ in range(choose.randrange(1, 20))]
    async with anyio.create_task_group() as group:
        for scope in scopes:
            group.start_soon(wait, scope)
        await anyio.sleep(choose.choice((0, 0, 0.001)))
        kept = 0
        for scope in scopes:
            if choose.random() < 0.6:
                scope.cancel()
            else:
                kept += 1
        latch.release()
    assert len(heard) >= kept and set(heard) <= {3}
    assert await done == 3


async def deadline(choose: random.Random) -> None:
    """A group that nobody waits for any more withdraws what has not begun."""
    ran = list[int]()
    with anyio.move_on_after(choose.choice((0, 0.001, 0.005))) as scope:
        async with aiodev.StreamGroup("cpu", cancel=True) as group:
            stream = group.stream()
            stream.wait_future(anyio.sleep(60))
            stream.call(ran.append, 1)
            if choose.random() < 0.5:
                await stream.synchronize()
    assert scope.cancelled_caught and not ran


leased = collections.Counter[str]()
accounts = threading.Lock()


async def capture(choose: random.Random) -> None:
    """A graph of steps, replayed in order, again after it failed and while another waits on a second stream; against NumPy."""
    stream = aiodev.Stream(choose.choice(DEVICES))
    length = choose.choice((1, 100, 5_000))
    with stream:
        x, limit = aiodev.zeros(length, "int64"), aiodev.full(1, 1 << 40, dtype="int64")
        await stream.synchronize()
        factors = [choose.randrange(3) for _ in range(choose.randrange(1, 20))]
        async with aiodev.capture(stream) as graph:
            for factor in factors:
                step[length](factor, x)
            check_limit[1](limit, x)
    host, replays = np.zeros(length, "int64"), choose.randrange(1, 5)
    for number in range(replays):
        if number + 1 < replays and choose.random() < 0.2:  # else what it wrote would not be given
            await stream.copy(limit, np.full(1, -1))
            try:
                await graph.replay(stream)
            except aiodev.KernelError:
                await stream.copy(limit, np.full(1, 1 << 40))
            else:
                raise AssertionError(f"replay {number} did not fail")
        else:
            done = graph.replay(stream)
            if choose.random() < 0.5:
                await done
        for factor in factors:
            host = (host * factor + np.arange(length)) % (1 << 20)
    stream.wait_stream(aiodev.current_stream(stream.device))
    with stream:
        found = await x.numpy()
    assert (found % (1 << 20) == host).all(), (found, host)


async def training(choose: random.Random) -> None:
    """Gradients of a model whose branches are on two streams; against those that are known."""
    device = choose.choice(DEVICES)
    streams = aiodev.Stream(device), aiodev.Stream(device)
    length = choose.choice((1, 100, 5_000))
    host = np.arange(length) / length
    x = autograd.Variable(aiodev.asarray(host, device=device))
    made = aiodev.current_stream(device).record_event()
    parts = []
    for stream in streams:
        stream.wait_event(made)
        with stream:
            parts.append(x * x)
    streams[0].wait_stream(streams[1])
    with streams[0]:
        await (parts[0] + parts[1]).sum().backward()
        assert x.grad is not None
        found = await x.grad.numpy()
    np.testing.assert_allclose(found, 4 * host)


async def allocation(choose: random.Random) -> None:
    """Arrays of many sizes, in pools too; leases never sum up to more than there is; too much is refused."""
    device = choose.choice(DEVICES)
    total = memory.mem_get_info(device)[1]
    nbytes = int(total * choose.uniform(0.05, 0.4))
    async with memory.lease(nbytes, device):
        with accounts:
            leased[device] += nbytes
            assert leased[device] <= total
        try:
            held = collections.deque[aiodev.Array]()
            with memory.MemoryPool(device) if choose.random() < 0.2 else contextlib.nullcontext():
                for _ in range(choose.randrange(40)):
                    held.append(aiodev.full(choose.choice((1, 100, 10_000, 1_000_000)), 7, "uint8", device))
                    if choose.random() < 0.5 and held:
                        held.rotate(choose.randrange(len(held)))
                        gone = held.popleft()
                        if choose.random() < 0.3:
                            gone.free()
                for x in list(held)[:3]:
                    assert ((await x.numpy()) == 7).all()
            with contextlib.suppress(aiodev.OutOfMemoryError):
                aiodev.empty(1 << choose.randrange(45, 90), "uint8", device)
                raise AssertionError("so much memory there is not")
            if choose.random() < 0.05:
                memory.empty_cache(device)
        finally:
            with accounts:
                leased[device] -= nbytes


async def compilation(choose: random.Random) -> None:
    """Kernels that nobody has compiled before, while workers are killed."""
    number = choose.randrange(1 << 60)
    namespace: dict[str, Any] = {"__name__": __name__}
    exec(f"def fresh(i, x):\n    x[i] = i + {number}\n", namespace)
    kernel = aiodev.kernel(namespace["fresh"])
    with aiodev.Stream(choose.choice(DEVICES)):
        x = aiodev.zeros(100, "int64")
        kernel[100](x)
        assert ((await x.numpy()) == np.arange(100) + number).all()


async def killing(choose: random.Random) -> None:
    """A compile worker dies."""
    await asyncio.sleep(choose.uniform(3, 20))
    for process in list(service.workers.processes)[:1]:
        with contextlib.suppress(OSError):
            process.kill()
            counts["compile workers killed"] += 1


async def forking(choose: random.Random) -> None:
    """A child of this process, with all that is in flight, uses the device afresh."""
    await asyncio.sleep(choose.uniform(0.5, 3))
    child = os.fork()
    if child == 0:
        status = 1
        try:
            faulthandler.dump_traceback_later(STALL, exit=True)
            assert aiodev.Stream("cpu:1").call(sum, [1, 2]).synchronize_blocking(STALL) == 3
            with aiodev.Stream("cpu:0"):
                x = aiodev.zeros(1000, "int64")
                step[1000](1, x)
                assert (x.numpy_blocking(STALL) == np.arange(1000)).all()
            status = 0
        except BaseException:
            traceback.print_exc()
        finally:
            sys.stderr.flush()
            os._exit(status)
    _, status = await asyncio.to_thread(os.waitpid, child, 0)
    assert status == 0, f"the forked child ended with {status}"


async def child_process(choose: random.Random, kind: str, **environment: str) -> tuple[subprocess.Popen[str], str]:
    command = [sys.executable, __file__, "--child", kind, "--seed", str(choose.randrange(1 << 30))]
    process = subprocess.Popen(  # noqa: ASYNC220  (it holds the loop for a moment, which is no harm here)
        command,
        env={**os.environ, **environment},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    return process, await asyncio.to_thread(process.stdout.readline)


async def ended(process: subprocess.Popen[str], kind: str) -> str:
    output, errors = await asyncio.to_thread(process.communicate, timeout=STALL)
    assert process.returncode == 0, f"{kind}: exit status {process.returncode}\n{output}{errors}"
    return output


async def interrupts(choose: random.Random) -> None:
    """A process goes on after any number of Ctrl-C."""
    process, _ = await child_process(choose, "interrupts")
    sent = 0
    while process.poll() is None and sent < 100:
        await asyncio.sleep(choose.uniform(0.001, 0.05))
        process.send_signal(signal.SIGINT)
        sent += 1
    await ended(process, "interrupts")
    counts["Ctrl-C"] += sent


async def full_disk(choose: random.Random) -> None:
    """A process whose disk is full computes all the same."""
    with tempfile.TemporaryDirectory(dir=scratch) as cache:
        await asyncio.to_thread(take_along, cache)
        process, _ = await child_process(choose, "full_disk", AIODEV_CACHE_DIR=cache)
        await ended(process, "full_disk")


def take_along(cache: str) -> None:
    """The native executor's code, which takes long to compile."""
    native = Path(code_cache.native_directory())
    if native.exists():
        shutil.copytree(native, Path(cache, native.name))


async def leaving(choose: random.Random) -> None:
    """A process ends with work in flight."""
    process, _ = await child_process(choose, "leaving")
    await ended(process, "leaving")


# Processes of their own


def interrupts_here(choose: random.Random) -> None:
    armed = False
    seen = 0

    def interrupt(*_: object) -> None:
        if armed:
            raise KeyboardInterrupt

    def is_over() -> bool:
        """Whether no interrupt is to come: a signal that said so might be lost, since an interrupt may end its handler."""
        return bool(select.select([sys.stdin], [], [], 0)[0])

    signal.signal(signal.SIGINT, interrupt)
    aiodev.init_blocking("cpu")
    print("ready", flush=True)
    x = aiodev.zeros(100_000, "int64", "cpu")
    while not is_over():
        stream = aiodev.Stream("cpu")
        try:
            armed = True
            kind = choose.randrange(4)
            if kind == 0:
                stream.call(time.sleep, 0.01).synchronize_blocking()
            elif kind == 1:
                step[100_000](1, x).synchronize_blocking()
            elif kind == 2:
                x.numpy_blocking()
            else:
                stream.wait_stream(aiodev.Stream("cpu"))
                stream.synchronize_blocking()
            armed = False
        except KeyboardInterrupt:
            armed = False
            seen += 1
        except aiodev.DependencyError as error:  # who waits next is told of a launch that was cut off as it was submitted
            armed = False
            assert "its submission was interrupted" in str(error), error
        assert aiodev.Stream("cpu").call(sum, [1, 2]).synchronize_blocking(STALL) == 3
    print(seen)


def full_disk_here(choose: random.Random) -> None:
    import resource

    warnings.simplefilter("ignore")
    aiodev.init_blocking("cpu")
    resource.setrlimit(resource.RLIMIT_FSIZE, (choose.choice((0, 100, 5000)),) * 2)
    print("ready", flush=True)
    number = choose.randrange(1 << 60)
    namespace: dict[str, Any] = {}
    exec(f"def fresh(i, x):\n    x[i] = i + {number}\n", namespace)
    x = aiodev.zeros(100, "int64", "cpu")
    aiodev.kernel(namespace["fresh"])[100](x)
    assert (x.numpy_blocking(STALL) == np.arange(100) + number).all()


def leaving_here(choose: random.Random) -> None:
    aiodev.init_blocking("cpu")
    print("ready", flush=True)
    streams = [aiodev.Stream(choose.choice(DEVICES)) for _ in range(8)]
    x = aiodev.zeros(1_000_000, "int64", "cpu:0")
    for number in range(200):
        stream = choose.choice(streams)
        if stream.device == x.device and number % 3 == 0:
            step[1_000_000, stream](1, x)
        else:
            stream.call(time.sleep, 0.001)
    if choose.random() < 0.3:
        testing.Latch(streams[0])  # which nobody ever opens


CHILDREN = {"interrupts": interrupts_here, "full_disk": full_disk_here, "leaving": leaving_here}

#: On every loop, and how many clients each has there.
EVERYWHERE: dict[Part, int] = {
    values: 2, failures: 2, withdrawal: 1, cancellation: 1, deadline: 1, capture: 1, training: 1, allocation: 2,
}  # fmt: skip
#: On one asyncio loop alone.
ONCE: list[Part] = [compilation, killing, forking, interrupts, full_disk, leaving]

counts = collections.Counter[str]()
complaints: list[str] = []
scratch = ""


class Watchdog:
    """Shows all stacks, and ends the process, when a round does not end."""

    def __init__(self) -> None:
        self._begun: dict[object, tuple[float, str]] = {}
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="watchdog", daemon=True)
        self._thread.start()

    @contextlib.contextmanager
    def watching(self, name: str) -> Iterator[None]:
        key = object()
        self._begun[key] = time.monotonic(), name
        try:
            yield
        finally:
            del self._begun[key]

    def _watch(self) -> None:
        while not self._over.wait(1):
            late = [name for begun, name in list(self._begun.values()) if time.monotonic() - begun > STALL]
            if late:
                print(f"a round does not end: {', '.join(late)}", file=sys.stderr, flush=True)
                faulthandler.dump_traceback(all_threads=True)
                os._exit(3)

    def stop(self) -> None:
        self._over.set()
        self._thread.join()


def died_twice(error: BaseException | None) -> bool:
    """Whether a kernel was not compiled because two workers were killed that were to compile it."""
    if isinstance(error, aiodev.CompileError) and "died, twice" in str(error):
        return True
    return error is not None and died_twice(error.__cause__)


async def rounds(part: Part, seed: int, until: float, watchdog: Watchdog) -> None:
    choose = random.Random(f"{part.__name__} {seed}")
    while time.monotonic() < until and not complaints:
        state = choose.getstate()
        try:
            with watchdog.watching(part.__name__):
                await part(choose)
        except Exception as error:
            if died_twice(error):
                counts["kernels whose workers were killed twice"] += 1
                continue
            complaints.append(f"{part.__name__}, seed {seed}, round {counts[part.__name__]}:\n{traceback.format_exc()}")
            choose.setstate(state)
            return
        counts[part.__name__] += 1
        await anyio.sleep(0.002)  # no part has the loop for itself


def run_loop(number: int, backend: str, seed: int, until: float, watchdog: Watchdog) -> None:
    async def main() -> None:
        async with anyio.create_task_group() as group:
            for part, clients in EVERYWHERE.items():
                for client in range(clients):
                    group.start_soon(rounds, part, 1000 * seed + 100 * number + client, until, watchdog)
            for part in ONCE if number == 0 else ():
                group.start_soon(rounds, part, seed, until, watchdog)

    try:
        anyio.run(main, backend=backend)
    except BaseException:
        complaints.append(traceback.format_exc())


def soak(seconds: float, seed: int) -> None:
    """Run all parts, and see that nothing is left."""
    watchdog = Watchdog()

    def bytes_in_use() -> int:
        for _ in range(3):
            gc.collect()
            for device in DEVICES:
                with contextlib.suppress(Ordered, aiodev.AiodevError):
                    aiodev.synchronize_blocking(device, STALL)
        return max(0, sum(memory.memory_allocated(device) for device in DEVICES) - KEPT)

    def short(backend: str, number: int) -> None:
        """What is made once, such as threads and cached kernels, is made before it is counted."""
        run_loop(number, backend, seed + 1, time.monotonic() + 2, watchdog)

    short("asyncio", 1)
    probes = {
        "bytes in use": bytes_in_use,
        "bytes leased": lambda: sum(leased.values()),
        "waits": lambda: sum(len(known.waits) for known in reactor._thread.all),
        "dropped timelines": lambda: len(living.dropped),
    }
    until = time.monotonic() + seconds
    loops = [(0, "asyncio"), (1, "asyncio")]
    with contextlib.suppress(ImportError):
        import trio  # noqa: F401

        loops.append((2, "trio"))
    try:
        with testing.check_leaks(probes=probes, allow=("aiodev-", "watchdog", "asyncio_"), timeout=30):
            threads = [threading.Thread(target=run_loop, args=(*loop, seed, until, watchdog)) for loop in loops]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
    except testing.LeakError as error:
        wakers = [leak for leak in error.leaks if "eventfd" in leak]
        pipes = [leak for leak in error.leaks if "pipe:" in leak]
        if len(wakers) > MOST_WAKERS or len(pipes) > 2 * service.workers.size or len(wakers) + len(pipes) < len(error.leaks):
            complaints.append(str(error))
    watchdog.stop()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--parts", default="", help="a pattern of the names of parts: run these alone")
    parser.add_argument("--child", choices=CHILDREN, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.child:
        faulthandler.dump_traceback_later(STALL, exit=True)
        CHILDREN[arguments.child](random.Random(arguments.seed))
        return 0
    global scratch
    for part in [*EVERYWHERE, *ONCE]:
        if not re.search(arguments.parts, part.__name__):
            EVERYWHERE.pop(part, None)
            ONCE[:] = [other for other in ONCE if other is not part]
    faulthandler.enable()
    logging.disable(logging.ERROR)  # failures that nobody was told of are a part of it
    warnings.simplefilter("ignore", DeprecationWarning)  # Python's, of forks beside threads
    with tempfile.TemporaryDirectory() as scratch:
        begun = time.monotonic()
        soak(arguments.seconds, arguments.seed)
    rounds_made = ", ".join(f"{number:,} {what}" for what, number in sorted(counts.items()))
    print(f"{time.monotonic() - begun:.0f} s, seed {arguments.seed}: {rounds_made}")
    print("\n".join(complaints))
    return 1 if complaints else 0


if __name__ == "__main__":
    raise SystemExit(main())
