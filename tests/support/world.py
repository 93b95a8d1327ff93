"""A program of random operations for any backend, whose outcome depends on the seed alone."""

from __future__ import annotations

import ctypes
import random
import struct
from typing import Any

from aiodev._core.backend.interface import Backend, KernelSpec

__all__ = ["World", "compare"]

SECOND = 1_000_000_000
QUEUES, WORDS = 4, 64


def _step(i: int, bad: int, x: Any) -> None:
    if bad == 1:  # at every index: where one fails, a device's other threads may have gone on, or not
        raise ValueError("bad")
    x[i] = 3 * x[i] + i


def _safe(i: int, bad: int, x: Any) -> None:
    x[i] = 5 * x[i] - bad


class World:
    """One backend's queues and memory, driven by the same random choices as another's."""

    def __init__(self, backend: Backend, seed: int) -> None:
        self.backend, self.chance = backend, random.Random(seed)
        names = {"step": _step, "safe": _safe}
        self.entries = [
            backend.load(KernelSpec(name, function, 1, ("i8", "A1i8C")), "") for name, function in names.items()
        ]
        self.queues = [backend.executor.create_queue(0, 0, False)[0] for _ in range(QUEUES)]
        self.memory = [backend.allocate(0, 16 * WORDS) for _ in range(QUEUES)]
        self.host = [(ctypes.c_int64 * WORDS)() for _ in range(QUEUES)]
        self.last = [0] * QUEUES
        for q in range(QUEUES):
            self.last[q] = backend.executor.fill(self.queues[q], self.memory[q], 2 * WORDS, struct.pack("<q", q + 1))

    def segment(self, length: int) -> tuple[Any, ...]:
        """Submit, wait for all, and give what is to be seen; then forgive."""
        gates: list[tuple[int, bool]] = []
        for _ in range(length):
            self.operation(self.chance.randrange(QUEUES), gates)
            if gates and self.chance.random() < 0.5:
                self.open(gates)
        while gates:
            self.open(gates)
        for queue, value in zip(self.queues, self.last, strict=True):
            assert self.backend.executor.spin(queue, value, 20 * SECOND), "an operation does not complete"
        numbers = {queue: q for q, queue in enumerate(self.queues)}
        faults = [
            [
                (f.first, f.last, type(f.error).__name__, f.dependency and (numbers[f.dependency[0]], f.dependency[1]))
                for f in self.backend.executor.faults(queue)
            ]
            for queue in self.queues
        ]
        for queue in self.queues:
            self.backend.executor.forgive(queue)
        return faults, [list(words) for words in self.host], [self.read(q) for q in range(QUEUES)]

    def read(self, q: int) -> list[int]:
        found = (ctypes.c_int64 * (2 * WORDS))()
        self.last[q] = self.backend.executor.copy(self.queues[q], ctypes.addressof(found), self.memory[q], 16 * WORDS)
        assert self.backend.executor.spin(self.queues[q], self.last[q], 20 * SECOND)
        return list(found)

    def open(self, gates: list[tuple[int, bool]]) -> None:
        self.backend.executor.open_gate(*gates.pop(self.chance.randrange(len(gates))))

    def operation(self, q: int, gates: list[tuple[int, bool]]) -> None:
        backend, chance, queue, memory = self.backend, self.chance, self.queues[q], self.memory[q]
        host = ctypes.addressof(self.host[q])
        kind = chance.choice(("step", "step", "step", "safe", "safe", "copy", "up", "down", "fill", "wait", "gate"))
        if kind in ("step", "safe"):
            bad = int(chance.random() < 0.1)
            block = struct.pack("<qqqq", WORDS, bad, memory, WORDS)
            self.last[q] = backend.executor.launch(queue, self.entries[kind == "safe"], WORDS, block, 0)
        elif kind == "copy":
            self.last[q] = backend.executor.copy(queue, memory + 8 * WORDS, memory, 8 * WORDS)
        elif kind == "up":
            self.last[q] = backend.executor.copy(queue, memory, host, 8 * WORDS)
        elif kind == "down":
            self.last[q] = backend.executor.copy(queue, host, memory + 8 * WORDS, 8 * WORDS)
        elif kind == "fill":
            width = chance.choice((1, 2, 4, 8, 16))
            self.last[q] = backend.executor.fill(queue, memory, 64 // width, chance.randbytes(width))
        elif kind == "wait":
            other = chance.randrange(QUEUES)
            if other != q:
                self.last[q] = backend.executor.wait(queue, self.queues[other], self.last[other])
        else:
            gate = backend.executor.create_gate()
            self.last[q] = backend.executor.gate(queue, gate)
            gates.append((gate, chance.random() < 0.15))

    def leave(self) -> None:
        for queue, address in zip(self.queues, self.memory, strict=True):
            self.backend.executor.destroy_queue(queue)
            self.backend.deallocate(0, address, 16 * WORDS)


def compare(seed: int, ours: Backend, theirs: Backend) -> None:
    """Hold one backend to another: launches that may fail, copies of all kinds, fills, waits and gates on four queues."""
    worlds = World(ours, seed), World(theirs, seed)
    failures = 0
    for length in (5, 40, 200):
        found, expected = (world.segment(length) for world in worlds)
        assert found == expected
        failures += sum(map(len, found[0]))
    assert failures > 3, "nothing failed: this shows nothing"
    for world in worlds:
        world.leave()
