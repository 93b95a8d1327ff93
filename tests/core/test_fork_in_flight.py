"""What a forked child finds of work that its parent has in flight, and that this goes on in the parent."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest
from forking import run
from selection import some

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="this system cannot fork")

IN_FLIGHT = """
import asyncio

stream = aiodev.Stream("cpu")
gate = stream._gate()
blocked = threading.Event()
calling = aiodev.Stream("cpu")
called = calling.call(blocked.wait)
behind = stream.call(sum, [1, 2])
event = stream.record_event()
follower = aiodev.Stream("cpu")
follower.wait_event(event)
followed = follower.call(sum, [3, 4])


def all_is_well():
    "The parent's work goes on as if nobody had forked."
    assert not behind.query() and not followed.query() and not called.query()
    gate.open()
    blocked.set()
    assert behind.synchronize_blocking(30) == 3 and followed.synchronize_blocking(30) == 7
    assert called.synchronize_blocking(30) is True
"""


def test_work_in_flight_is_the_parents() -> None:
    """What the parent has in flight raises in the child however it is waited for, and completes in the parent."""
    run(
        IN_FLIGHT
        + """
async def ask(awaitable):
    await awaitable

def child():
    for done in (behind, followed, called):
        assert done.query()
        raises(aiodev.BadForkError, done.synchronize_blocking, 30)
        raises(aiodev.BadForkError, asyncio.run, ask(done))
    raises(aiodev.BadForkError, asyncio.run, ask(event))
    raises(aiodev.BadForkError, asyncio.run, ask(stream.synchronize()))
    use("cpu")

in_child(child)
all_is_well()
"""
    )


def test_the_parents_arrays_are_not_used() -> None:
    """Whatever the child has read or write them raises; arrays of its own are as ever, also those that replace the parent's."""
    run("""
import numpy as np
from aiodev import kernels

@aiodev.kernel
def doubled(i, x, out):
    out[i] = 2 * x[i]

def twice(x, out):
    doubled[3](x, out)
    return out

def assign(x, value):
    x[:2] = value

stream = aiodev.Stream("cpu")
x, out, known = aiodev.ones(3, device="cpu"), aiodev.zeros(3, device="cpu"), aiodev.ones(3, device="cpu")
aiodev.synchronize_blocking("cpu")
gate = stream._gate()
stream.copy(x, np.full(3, 7.0))
assert (known + 1).numpy_blocking().tolist() == twice(known, out).numpy_blocking().tolist() == [2] * 3

def child():
    own, other = aiodev.ones(3, device="cpu"), aiodev.zeros(3, device="cpu")
    for _ in range(3):
        for theirs in (x, known):
            raises(aiodev.BadForkError, theirs.numpy_blocking)
            raises(aiodev.BadForkError, lambda: theirs + 1)
            raises(aiodev.BadForkError, lambda: kernels.exp(own, out=theirs))
            raises(aiodev.BadForkError, twice, theirs, other)
            raises(aiodev.BadForkError, twice, own, theirs)
            raises(aiodev.BadForkError, theirs.copy)
            raises(aiodev.BadForkError, other.copy_from, theirs)
            raises(aiodev.BadForkError, assign, theirs, 1.0)
        assert (own + 1).numpy_blocking().tolist() == twice(own, other).numpy_blocking().tolist() == [2] * 3

in_child(child)
gate.open()
stream.synchronize_blocking(30)  # the default stream, on which one is added, does not wait for the copy by itself
assert (x + 1).numpy_blocking().tolist() == [8] * 3
""")


def test_the_child_orders_nothing_after_the_parents_work() -> None:
    """A stream of the child that is to wait for a stream, an event or a completion of the parent raises."""
    run(
        IN_FLIGHT
        + """
def child():
    own = aiodev.Stream("cpu")
    for wait, point in ((own.wait_event, event), (own.wait_stream, stream), (own.wait, behind), (event.wait, own)):
        raises(aiodev.BadForkError, wait, point)
    assert own.call(sum, [1]).synchronize_blocking(30) == 1

def before_its_own_start():
    own = aiodev.Stream("cpu")
    assert not aiodev.is_initialized("cpu")
    raises(aiodev.BadForkError, own.wait_event, event)

in_child(before_its_own_start)
in_child(child)
all_is_well()
"""
    )


def test_a_gate_of_the_parent() -> None:
    """To open a gate of the parent in the child does nothing there, and nothing to the parent."""
    run(
        IN_FLIGHT
        + """
in_child(lambda: (gate.open(), use("cpu"), gate.open()))
in_child(lambda: (gate.open(ValueError("not here")), use("cpu")))
all_is_well()
"""
    )


def test_a_gate_of_the_parent_while_its_workers_held_a_lock() -> None:
    """To open it does not touch what the parent's workers left half-done."""
    run(
        IN_FLIGHT
        + """
import signal
from aiodev._backends.cpu.structs import Device
aiodev.init_blocking("cpu")
(device,) = aiodev.get_backend("cpu").executor._devices

def child():
    signal.alarm(20)
    Device(device).lock.held.value = 1  # as a worker had it at the moment of the fork
    gate.open()
    use("cpu")

in_child(child)
all_is_well()
""",
        AIODEV_EXECUTOR="native",
    )


def test_streams_of_the_parent_are_dropped() -> None:
    """The child may let go of the parent's streams, with work in flight, before and after it starts the CPU."""
    run(
        IN_FLIGHT
        + """
import gc

def child():
    names = ("stream", "gate", "calling", "called", "behind", "event", "follower", "followed")
    for name in names[:4]:
        del globals()[name]
    gc.collect()
    use("cpu")
    for name in names[4:]:
        del globals()[name]
    gc.collect()
    use("cpu")

in_child(child)
all_is_well()
"""
    )


def test_inside_a_running_loop() -> None:
    """A coroutine may fork: the child runs a loop of its own, and the parent's parked tasks are woken."""
    run(
        IN_FLIGHT
        + """
async def main():
    parked = [asyncio.ensure_future(done.__class__.synchronize(done)) for done in (behind, followed, called)]
    await asyncio.sleep(0)

    async def of_child():
        assert await aiodev.Stream("cpu").call(sum, [1, 2]) == 3

    in_child(lambda: asyncio.run(of_child()))
    gate.open()
    blocked.set()
    async with asyncio.timeout(30):
        await asyncio.gather(*parked)

asyncio.run(main())
"""
    )


def test_parent_and_child_wait_at_once() -> None:
    """Neither takes the other's wake-ups: both park thousands of times, in loops and in threads, at the same time."""
    run(
        """
        import asyncio

        async def wait_often(stream):
            async with asyncio.timeout(40):
                for _ in range(1500):
                    stream.timeline.spins = False
                    gate = stream._gate()
                    waiting = asyncio.ensure_future(stream.synchronize())
                    await asyncio.sleep(0)
                    gate.open()
                    await waiting

        def block_often():
            for _ in range(300):
                use("cpu")

        def both():
            thread = threading.Thread(target=block_often)
            thread.start()
            asyncio.run(wait_often(aiodev.Stream("cpu")))
            thread.join(40)
            assert not thread.is_alive()

        both()
        children = []
        for _ in range(2):
            child = os.fork()
            if child == 0:
                status = 1
                try:
                    both()
                    status = 0
                finally:
                    os._exit(status)
            children.append(child)
        both()
        for child in children:
            assert os.waitpid(child, 0)[1] == 0
        """
    )


def test_a_fork_while_another_thread_is_parked() -> None:
    """A thread of the parent that blocks in a wait is not there in the child, and not disturbed in the parent."""
    run(
        IN_FLIGHT
        + """
results = []
threads = [threading.Thread(target=lambda: results.append(behind.synchronize_blocking(30))) for _ in range(3)]
for thread in threads:
    thread.start()
while stream.timeline.parked < 4:  # theirs, and the watcher's for the call
    os.sched_yield()
in_child(lambda: [use("cpu") for _ in range(20)])
all_is_well()
for thread in threads:
    thread.join(30)
assert results == [3, 3, 3]
"""
    )


def test_a_child_that_ends_by_itself() -> None:
    """A child that leaves through the interpreter's own end, with work of its own in flight, ends at once."""
    run(
        IN_FLIGHT
        + """
child = os.fork()
if child == 0:
    own = aiodev.Stream("cpu")
    own._gate()
    own.call(print, "never")
    aiodev.Stream("cpu").call(time.sleep, 50)
    use("cpu")
    sys.exit(7)
assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
all_is_well()
"""
    )


def test_forks_while_workers_are_busy() -> None:
    """Whatever the parent's workers are at when it forks, the child starts."""
    run(
        """
        memory = aiodev.get_backend("cpu").allocate(0, 4096)
        streams = [aiodev.Stream("cpu") for _ in range(4)]
        aiodev.init_blocking("cpu")

        def feed():
            for stream in streams:
                gate = stream._gate()
                for _ in range(500):
                    stream._fill(memory, 64, b"x")
                gate.open()

        for _ in range(20):
            feed()
            in_child(lambda: use("cpu"))
        for stream in streams:
            stream.synchronize_blocking(30)
        """
    )


PENDING = """
import tempfile
from aiodev._kernel.compile.service import Service

prepare = Service._prepare  # brings a kernel's code
may_load = threading.Event()


def hold_loads():
    "What is launched from now on waits for its code until `may_load` is set."
    Service._prepare = lambda self, loading: (may_load.wait(30), prepare(self, loading))


def threads():
    "How many there are, those included that the interpreter does not know."
    return len(os.listdir("/proc/self/task")) if sys.platform == "linux" else threading.active_count()


@aiodev.kernel
def first(i, x): x[i] += 1

@aiodev.kernel
def second(i, x): x[i] -= 1

@aiodev.kernel
def third(i, x): x[i] *= 2


class Files:
    "Files that this process writes at once, and that nobody else reads or writes."

    def __init__(self, count=6):
        self.files = [tempfile.TemporaryFile(buffering=0) for _ in range(count)]
        for file in self.files:
            file.write(b"mine")
            file.seek(1)

    def check(self):
        for file in self.files:
            assert os.lseek(file.fileno(), 0, os.SEEK_CUR) == 1, "somebody has used this descriptor"
            file.seek(0)
            content = file.read()
            assert content == b"mine", content
            file.seek(1)
"""


def test_the_files_of_a_child() -> None:
    """No thread of a child reads or writes them: what the parent was about to launch is dropped, and wakes nobody there."""
    run(
        PENDING
        + """
x = aiodev.zeros(1, device="cpu")
hold_loads()
for kernel in (first, second, third):
    kernel[1](x)  # whose code is on its way: each holds the stream by a gate

def child():
    Service._prepare = prepare
    files = Files()
    time.sleep(0.1)  # for a thread that would use them
    files.check()
    assert threads() == 1
    use("cpu")
    files.check()

for _ in range(3):
    in_child(child)
may_load.set()
assert x.numpy_blocking(30).tolist() == [0]
"""
    )


def test_what_was_local_to_the_parents_threads() -> None:
    """The interpreter drops it in the child ahead of every callback; no gate is opened for that, and nobody is woken."""
    run(
        PENDING
        + """
import concurrent.futures
aiodev.init_blocking("cpu")
executor = aiodev.get_backend("cpu").executor
local, ready, over = threading.local(), threading.Event(), threading.Event()
waiting = aiodev.Stream("cpu")
told = []

def keep():
    local.stream = aiodev.Stream("cpu")
    local.gates = [local.stream._gate() for _ in range(3)]
    local.future = concurrent.futures.Future()
    waiting.wait_future(local.future)  # which fails if that is dropped before it is done
    ready.set()
    assert over.wait(30)

thread = threading.Thread(target=keep)
thread.start()
assert ready.wait(30)
open_gate = executor.open_gate
executor.open_gate = lambda gate, failed: (told.append(gate), open_gate(gate, failed))

def child():
    files = Files()
    time.sleep(0.1)
    files.check()
    assert not told and threads() == 1
    use("cpu")
    files.check()

in_child(child)
over.set()
thread.join()
raises(aiodev.DependencyError, waiting.synchronize_blocking, 30)
assert told
"""
    )


def test_a_pool_that_another_thread_is_at_work_on() -> None:
    """A child may drop a pool of the parent whose lock is held: its memory is not given back there."""
    run(
        """
        import gc, signal
        pool = aiodev.memory.MemoryPool("cpu")
        with pool:
            x = aiodev.zeros(1 << 22, "uint8", "cpu")
        x.numpy_blocking(30)
        holding, over = threading.Event(), threading.Event()

        def hold(lock=pool._allocator.slow_path.lock):
            with lock:
                holding.set()
                assert over.wait(30)

        def child():
            global pool, x
            signal.alarm(20)
            del pool, x
            gc.collect()
            assert aiodev.ones(1 << 22, "uint8", "cpu").numpy_blocking(30).all()

        thread = threading.Thread(target=hold)
        thread.start()
        assert holding.wait(30)
        in_child(child)
        over.set()
        thread.join()
        """
    )


RANDOM = """
import asyncio, concurrent.futures, gc, random, signal, warnings
warnings.simplefilter("ignore", DeprecationWarning)  # Python's, from 3.12 on, of forks beside threads
choose = random.Random(int(sys.argv[1]))
kept, waiters, done = [], [], []
future = concurrent.futures.Future()
x = aiodev.zeros(1 << 14, device="cpu")  # by an operation, as not what the host writes itself
calls = choose.random() < 0.4  # which start the parent's watcher


def submit(stream):
    return stream.call(sum, [1, 2]) if calls else choose.choice([first, second, third])[4, stream](x)


def launch():
    "First launches: their code is on its way."
    if choose.random() < 0.8:
        hold_loads()
    for kernel in choose.sample([first, second, third], choose.randint(2, 3)):
        if choose.random() < 0.5:
            stream = aiodev.Stream("cpu")
            kept.append((stream, kernel[4, stream](x)))
        else:
            done.append(kernel[4](x))


def hold():
    "Streams whose work is held by a gate, or by a future."
    stream = aiodev.Stream("cpu")
    if choose.random() < 0.5:
        kept.append((stream, stream._gate()))
    else:
        stream.wait_future(future)
    kept.append((stream, submit(stream)))


def drop():
    "Streams that nobody holds any more, with work in flight."
    stream = aiodev.Stream("cpu")
    stream.wait_future(future)
    submit(stream)


def park():
    "A thread that is parked, and keeps things that are local to it."
    stream = aiodev.Stream("cpu")
    stream.wait_future(future)
    local, ready = threading.local(), threading.Event()

    def wait(call=submit(stream)):
        local.stream = aiodev.Stream("cpu")
        local.gate = local.stream._gate()
        local.call = submit(local.stream)
        ready.set()
        done.append(call)
        call.synchronize_blocking(60)

    thread = threading.Thread(target=wait, daemon=True)
    thread.start()
    assert ready.wait(30)
    waiters.append(thread)


def call():
    "A function that runs, or is done."
    kept.append((aiodev.Stream("cpu"), aiodev.Stream("cpu").call(time.sleep, choose.random() / 100)))


def start():
    aiodev.init_blocking("cpu")


def pool():
    pool = aiodev.memory.MemoryPool("cpu")
    with pool:
        kept.append((aiodev.Stream("cpu"), pool, aiodev.ones(1 << 16, device="cpu")))


async def in_a_loop():
    async with aiodev.Stream("cpu") as stream:
        y = aiodev.ones(4, device="cpu")
        third[4](y)
        assert (await y.numpy()).tolist() == [2] * 4 and await stream.call(sum, [1]) == 1


def child(seed):
    signal.alarm(60)  # all three may have to compile, and so to start a worker each
    Service._prepare = prepare
    choose = random.Random(seed)
    files = Files(8)
    if choose.random() < 0.5:
        del kept[::2], done[:]
        gc.collect()
    for stream, *_ in kept:
        raises(aiodev.BadForkError, stream.call, sum, [1])
    for step in choose.sample(range(4), 4):
        if step == 0:
            use("cpu")
        elif step == 1:
            y = aiodev.zeros(4, device="cpu")
            first[4](y)
            assert y.numpy_blocking(30).tolist() == [1] * 4
        elif step == 2:
            own = concurrent.futures.Future()
            stream = aiodev.Stream("cpu")
            stream.wait_future(own)
            call = stream.call(sum, [4])
            own.set_result(None)
            assert call.synchronize_blocking(30) == 4
        else:
            future.cancel()
            asyncio.run(in_a_loop())
    raises(aiodev.BadForkError, x.numpy_blocking, 30)
    files.check()


def fork(seed):
    pid = os.fork()
    if pid:
        return pid
    status = 1
    try:
        child(seed)
        status = 0
    except BaseException:
        sys.excepthook(*sys.exc_info())
    finally:
        sys.stderr.flush()
        os._exit(status)


for step in choose.choices([launch, hold, drop, park, start, pool, call], [4, 2, 1, 2, 1, 1, calls], k=choose.randint(1, 6)):
    step()
children = [fork(choose.random()) for _ in range(3)]
statuses = [os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) for pid in children]
assert statuses == [0] * 3, statuses
may_load.set()
future.set_result(None)
for entry in kept:
    if hasattr(entry[1], "open"):
        entry[1].open()
for entry in kept:
    entry[0].synchronize_blocking(60)
for thread in waiters:
    thread.join(60)
    assert not thread.is_alive()
for completion in done:
    completion.synchronize_blocking(60)
"""


@pytest.mark.parametrize("seed", some(range(40), 4))
def test_forks_at_random(seed: int) -> None:
    """Whatever the parent is at, its children keep their files to themselves, work, and end; so does the parent."""
    assert run(PENDING + RANDOM, str(seed)) == ""


def test_the_portable_executor_starts_afresh() -> None:
    """Its threads and locks are made anew in the child, too, with work in flight."""
    run(IN_FLIGHT + "in_child(lambda: use('cpu'))\nall_is_well()", AIODEV_EXECUTOR="python")


@pytest.mark.parametrize("method", ["fork", "forkserver", "spawn"])
def test_multiprocessing_with_work_in_flight(tmp_path: Path, method: str) -> None:
    """A process made while a stream of the parent is held does its own work, and the parent's goes on."""
    program = tmp_path / "program.py"
    program.write_text(
        textwrap.dedent(
            f"""
            import multiprocessing, sys
            import aiodev

            def work():
                sys.exit(aiodev.Stream("cpu").call(sum, [20, 22]).synchronize_blocking(30))

            if __name__ == "__main__":
                stream = aiodev.Stream("cpu")
                gate = stream._gate()
                done = stream.call(sum, [1, 2])
                aiodev.init_blocking("cpu")
                child = multiprocessing.get_context({method!r}).Process(target=work)
                child.start()
                child.join(40)
                assert child.exitcode == 42, child.exitcode
                gate.open()
                assert done.synchronize_blocking(30) == 3
            """
        )
    )
    done = subprocess.run([sys.executable, program], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
