"""Everything at once: what several loops and threads do to shared streams at random ends, and leaves nothing behind."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest
from selection import examples

PROGRAM = """
import asyncio, contextlib, faulthandler, logging, queue, random, sys, threading
import aiodev
from aiodev._core.timeline.timeline import living
from aiodev._core.waiting.reactor import current_reactor
from aiodev._core.waiting.watcher import watcher

goal, seed = int(sys.argv[1]), int(sys.argv[2])
STALL = 20  # seconds without progress after which every stack is dumped, and the process ends
LOOPS, CLIENTS, BLOCKERS = 3, 6, 2
waits = [0] * (LOOPS + BLOCKERS)
complaints = []
gates = queue.SimpleQueue()


class Planned(Exception):
    "What gates and functions fail with."


FAILURES = (Planned, aiodev.DependencyError, aiodev.WithdrawnError, TimeoutError)


class Complaints(logging.Handler):
    "The log; failures that nobody waited for are part of the plan."

    def emit(self, record):
        if "was never retrieved" not in record.msg:
            complaints.append(self.format(record))


logging.getLogger("aiodev").addHandler(Complaints())
logging.getLogger("aiodev").propagate = False
aiodev.init_blocking("cpu")
memory = aiodev.get_backend("cpu").allocate(0, 1 << 16)
streams = [aiodev.Stream("cpu", n % 3 - 1) for n in range(8)]


def open_gates():
    choose, late = random.Random(seed), []
    while (gate := gates.get()) is not None:
        late.append(gate)
        choose.shuffle(late)
        while late and (gates.empty() or choose.random() < 0.7):
            late.pop().open(Planned("gate") if choose.random() < 0.02 else None)


def work(choose):
    if choose.random() < 0.03:
        raise Planned("function")
    return choose.random()


def submit(choose, stream):
    "Something random, and what to wait for."
    kind = choose.randrange(6)
    if kind == 0:
        gate = stream._gate()
        gates.put(gate)
        return aiodev.Completion(stream.timeline, gate.value)
    if kind == 1:
        return stream.call(work, choose)
    if kind == 2:
        stream.wait_stream(choose.choice(streams))
    if kind == 3:
        stream.wait_event(choose.choice(streams).record_event())
    size = choose.choice((1, 64, 65536))
    return aiodev.Completion(stream.timeline, stream._fill(memory, size, b"x"))


def pick(choose):
    if choose.random() < 0.02:  # the old one is dropped with whatever it has in flight
        streams[choose.randrange(len(streams))] = aiodev.Stream("cpu", choose.randrange(-1, 2))
    return choose.choice(streams)


async def wait_somehow(choose, stream, done):
    kind = choose.randrange(8)
    if kind == 0:
        await stream.synchronize()
    elif kind == 1:
        await stream.record_event()
    elif kind == 2:
        async with asyncio.timeout(choose.choice((0, 0.0001))):
            await done
    elif kind == 3:
        together = [done, *(submit(choose, pick(choose)) for _ in range(3))]
        async with contextlib.aclosing(aiodev.as_completed(together)) as arriving:
            async for one in arriving:
                assert one.query()
                if choose.random() < 0.1:
                    break
    elif kind == 4 and choose.random() < 0.05:
        await aiodev.synchronize("cpu")
    elif kind == 5 and choose.random() < 0.3:
        if done.cancel():
            try:
                await done
                raise AssertionError("a withdrawn operation succeeded")
            except aiodev.WithdrawnError:
                assert done.cancelled() and done.query()
    elif kind == 6 and choose.random() < 0.02:
        stream.cancel()
    else:
        await done
        assert done.query()


async def client(number, choose):
    while sum(waits) < goal:
        faulthandler.dump_traceback_later(STALL, exit=True)
        stream = pick(choose)
        if choose.random() < 0.7:
            stream.timeline.spins = False
        done = submit(choose, stream)
        several = [asyncio.ensure_future(wait_somehow(choose, stream, done)) for _ in range(choose.choice((1, 5, 20)))]
        for outcome in await asyncio.gather(*several, return_exceptions=True):
            if isinstance(outcome, BaseException):
                assert isinstance(outcome, FAILURES), repr(outcome)
        waits[number] += len(several)


def run_loops(number):
    choose = random.Random(seed + number)

    async def main():
        async with asyncio.TaskGroup() as group:
            for _ in range(CLIENTS):
                group.create_task(client(number, random.Random(choose.random())))
        assert len(current_reactor().waits) == 0, "a waiter was left behind"

    while sum(waits) < goal:
        asyncio.run(main())


def block(number):
    choose = random.Random(seed + number)
    while sum(waits) < goal:
        stream = pick(choose)
        done = submit(choose, stream)
        with contextlib.suppress(*FAILURES):
            choose.choice((done, stream)).synchronize_blocking(choose.choice((None, None, 0, 0.001)))
        waits[number] += 1


failures = []
threading.excepthook = lambda failed: failures.append(failed.exc_value) or sys.__excepthook__(*failed[:3])
opener = threading.Thread(target=open_gates)
opener.start()
threads = [threading.Thread(target=run_loops, args=(n,)) for n in range(LOOPS)]
threads += [threading.Thread(target=block, args=(LOOPS + n,)) for n in range(BLOCKERS)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
gates.put(None)
opener.join()
for line in living.all():
    for _ in range(2):
        with contextlib.suppress(*FAILURES):
            aiodev.Completion(line, line.submitted).synchronize_blocking(STALL)
del line
last = [stream.timeline for stream in streams]
while living.dropped:
    pass  # the watcher ends them; the watchdog is on
for _ in range(2):  # it also waits for calls that were withdrawn: a turn of its own comes after each of these
    turned = threading.Event()
    watcher.call(turned.set)
    assert turned.wait(STALL)
for line in last:
    assert line.parked == 0 and line.reached(line.submitted), line
faulthandler.cancel_dump_traceback_later()
assert not failures and not complaints, (failures, complaints[:3])
print(sum(waits))
"""


@pytest.mark.parametrize("seed", [1, 2])
@pytest.mark.parametrize(("executor", "waits"), [("native", 50_000), ("python", 20_000)])
def test_everything_at_once(executor: str, waits: int, seed: int) -> None:
    """Gates, functions, fills, order between streams, failures, cancellation, withdrawal, dropped streams: each wait ends."""
    environment = {**os.environ, "AIODEV_EXECUTOR": executor}
    command = [sys.executable, "-c", PROGRAM, str(examples(waits)), str(seed)]
    finished = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=120, check=False)
    assert finished.returncode == 0, finished.stderr
    assert int(finished.stdout) >= examples(waits)
