"""Random programs of streams, waits, gates and calls on two devices, against what their order promises."""

from __future__ import annotations

import ctypes
import faulthandler
import os
import random
import subprocess
import sys
import textwrap

import aiodev
from aiodev._core.timeline.vector_clock import totals

ROUNDS = 60


class Program:
    """Submits at random, and remembers which operation must not have run before which."""

    def __init__(self, seed: int, devices: int) -> None:
        self.choose = random.Random(seed)
        self.streams = [
            aiodev.Stream(f"cpu:{n % devices}", self.choose.randint(-1, 1), reserve=n == 5) for n in range(6)
        ]
        self.cells: list[ctypes.c_int64] = []
        self.last = dict.fromkeys(self.streams, -1)  # the stamp submitted last to each stream
        self.follows: list[tuple[int, int]] = []  # (earlier, later) stamps
        self.pending: dict[aiodev.Stream, list[int]] = {stream: [] for stream in self.streams}
        self.events: list[tuple[aiodev.Event, int]] = []
        self.gates: list[object] = []

    def stamp(self, stream: aiodev.Stream) -> None:
        """Submit an operation that notes when it ran."""
        cell = ctypes.c_int64(0)
        timeline = stream.timeline
        timeline.operations.stamp(timeline.queue, ctypes.addressof(cell))
        number = len(self.cells)
        self.cells.append(cell)
        earlier = [self.last[stream], *self.pending[stream]]
        self.follows += [(before, number) for before in earlier if before >= 0]
        self.pending[stream].clear()
        self.last[stream] = number

    def step(self) -> None:
        stream, other = self.choose.sample(self.streams, 2)
        kind = self.choose.random()
        if kind < 0.45:
            self.stamp(stream)
        elif kind < 0.6:
            self.events.append((stream.record_event(), self.last[stream]))
        elif kind < 0.75 and self.events:
            event, before = self.choose.choice(self.events)
            stream.wait_event(event)
            self.pending[stream].append(before)
        elif kind < 0.87:
            stream.wait_stream(other)
            self.pending[stream].append(self.last[other])
        elif kind < 0.93:
            stream.call(int)
        elif kind < 0.97:
            self.gates.append(stream._gate())
        elif self.gates:
            self.gates.pop(self.choose.randrange(len(self.gates))).open()

    def finish(self) -> None:
        """Let everything run, and check the order."""
        for gate in self.gates:
            gate.open()
        for stream in self.streams:
            stream.synchronize_blocking(30)
        for earlier, later in self.follows:
            assert 0 < self.cells[earlier].value <= self.cells[later].value, (earlier, later)


def run(rounds: int, devices: int) -> None:
    for seed in range(rounds):
        faulthandler.dump_traceback_later(60, exit=True)
        program = Program(seed, devices)
        for _ in range(300):
            program.step()
        program.finish()
    faulthandler.cancel_dump_traceback_later()


def test_random_programs_keep_their_order() -> None:
    """Whatever waits for what, nothing runs before what it is ordered after; and some waits were elided, some not."""
    aiodev.init_blocking("cpu")
    enqueued, elided = totals.waits_enqueued, totals.waits_elided
    program = textwrap.dedent(
        f"""
        import runpy
        runpy.run_path({__file__!r})["run"]({ROUNDS}, 2)
        """
    )
    environment = {**os.environ, "AIODEV_CPU_DEVICES": "2"}
    finished = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, env=environment, timeout=120, check=False
    )
    assert finished.returncode == 0, finished.stderr
    for seed in range(ROUNDS // 4):
        single = Program(seed, 1)
        for _ in range(300):
            single.step()
        single.finish()
    assert totals.waits_enqueued > enqueued and totals.waits_elided > elided
