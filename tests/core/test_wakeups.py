"""No wake-up is lost: 400,000 waits that park and complete at random, from several loops in several threads.

A race that loses one wake-up in 100,000 gets through with a chance of 1 in 50.
"""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap

import pytest
from selection import examples

PROGRAM = """
import asyncio, faulthandler, queue, random, sys, threading
import aiodev
from aiodev._core.backend.interface import COMPLETED

goal, loops, kinds = int(sys.argv[1]), 3, sys.argv[2].split(",")
STALL = 20  # seconds without progress after which every stack is dumped, and the process ends
parked = [0] * loops
done = [0] * loops
cancelled = [0] * loops

aiodev.init_blocking("cpu")
streams = [aiodev.Stream("cpu", priority) for priority in (-1, 0, 0, 1)]
gates = queue.SimpleQueue()


def open_gates(seed):
    "Open gates from a thread that is no loop's, some at once and some after others."
    choose, late = random.Random(seed), []
    while (gate := gates.get()) is not None:
        late.append(gate)
        choose.shuffle(late)
        while late and (choose.random() < 0.7 or gates.empty()):
            late.pop().open()
    for gate in late:
        gate.open()


async def waiter(number, completion):
    if not completion.query():
        parked[number] += 1
    await completion
    assert completion.query()
    done[number] += 1


async def client(number, seed):
    choose = random.Random(seed)
    while sum(parked) < goal:
        faulthandler.dump_traceback_later(STALL, exit=True)
        stream = choose.choice(streams)
        gate = stream._gate()
        timeline = stream.timeline
        stream._fill(0, 0, bytes(1))
        first = timeline.counters[COMPLETED] + 1
        values = [choose.randint(first, max(first, timeline.submitted)) for _ in range(choose.choice((1, 30, 300)))]
        tasks = [asyncio.ensure_future(waiter(number, aiodev.Completion(timeline, v))) for v in values]
        if choose.random() < 0.5:
            await asyncio.sleep(0)
        gates.put(gate)
        for task in tasks:
            if choose.random() < 0.05:
                task.cancel()
        for outcome in await asyncio.gather(*tasks, return_exceptions=True):
            if isinstance(outcome, asyncio.CancelledError):
                cancelled[number] += 1
            elif outcome is not None:
                raise outcome
        if choose.random() < 0.02:
            await asyncio.wait_for(stream.synchronize(), None)


def run_loop(number, kind):
    async def main():
        await asyncio.gather(*(client(number, 100 * number + n) for n in range(4)))
        from aiodev._core.waiting.reactor import current_reactor
        assert len(current_reactor().waits) == 0, "a waiter was left behind"

    if kind == "uvloop":
        import uvloop
        uvloop.run(main())
    else:
        asyncio.run(main())


opener = threading.Thread(target=open_gates, args=(7,))
opener.start()
threads = [threading.Thread(target=run_loop, args=(n, kinds[n % len(kinds)])) for n in range(loops)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
gates.put(None)
opener.join()
aiodev.synchronize_blocking("cpu", timeout=STALL)
faulthandler.cancel_dump_traceback_later()
print(sum(parked), sum(done), sum(cancelled))
"""


@pytest.mark.parametrize(
    ("executor", "loops", "waits"),
    [("native", "asyncio", 300_000), ("native", "uvloop,asyncio", 100_000), ("python", "asyncio", 60_000)],
)
def test_no_wake_up_is_lost(executor: str, loops: str, waits: int) -> None:
    """Waits that park while gates open, and tasks are cancelled, at random: each that was not cancelled returns."""
    if "uvloop" in loops:
        pytest.importorskip("uvloop")
    environment = {**os.environ, "AIODEV_EXECUTOR": executor, "AIODEV_SPIN_US": "0"}
    command = [sys.executable, "-c", textwrap.dedent(PROGRAM), str(examples(waits)), loops]
    finished = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=220, check=False)
    assert finished.returncode == 0, finished.stderr
    parked, done, cancelled = map(int, finished.stdout.split())
    assert parked >= examples(waits)
    assert done > 0.8 * examples(waits) and cancelled > 0.01 * examples(waits)
