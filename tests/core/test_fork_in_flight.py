"""What a forked child finds of work that its parent has in flight, and that this goes on in the parent."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest
from forking import run

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
                    stream.timeline.spin_ns = 0
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
