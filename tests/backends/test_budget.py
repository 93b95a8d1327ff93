"""How much memory the CPU hands out: what can be touched later, in groups with a limit too, and not what the system maps."""

from __future__ import annotations

import ctypes
import os
import random
import subprocess
import sys
from pathlib import Path

import pytest
from memory_group import memory_group
from quota_group import NoGroupError

from aiodev._backends.cpu import budget as module
from aiodev._backends.cpu.budget import Budget
from aiodev._backends.cpu.memory import GRANULARITY, HostMemory
from aiodev._backends.cpu.properties import available_memory

MIB = 1 << 20

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="the system does not tell what is resident")


class Machine:
    """A machine of so many bytes, of which this test takes what it touches."""

    def __init__(self, total: int) -> None:
        self.left = total
        self.looks = 0
        self.budget = Budget(self.available, lambda: None)
        self.memory = HostMemory(1 << 40, self.budget)

    def available(self) -> int:
        self.looks += 1
        return self.left

    def touch(self, address: int, nbytes: int) -> None:
        ctypes.memset(address, 1, nbytes)
        self.left -= nbytes


@pytest.mark.parametrize("size", [4096, MIB, 3 * MIB, 16 * MIB])
def test_what_is_not_touched_yet_counts(size: int) -> None:
    """Requests that each fit are granted as long as all of them fit, however small they are; what goes back counts again."""
    machine = Machine(20 * size)
    kept = [machine.memory.allocate(size) for _ in range(20)]
    with pytest.raises(MemoryError, match="0 of"):
        machine.memory.allocate(1)
    machine.touch(kept[3], size)
    with pytest.raises(MemoryError):
        machine.memory.allocate(1)
    machine.memory.deallocate(kept[7])
    machine.memory.allocate(size)
    with pytest.raises(MemoryError):
        machine.memory.allocate(1)


@pytest.mark.skipif(not GRANULARITY, reason="no ranges on this system")
def test_what_is_left_is_exact_at_random() -> None:
    """Memory of a range that is handed out, touched in part or as a whole, and taken back in pieces of other sizes."""
    choose, granules = random.Random(7), 24
    machine = Machine(16 * GRANULARITY)
    start = machine.memory.reserve(granules * GRANULARITY)
    mapped, touched = set[int](), set[int]()
    for _ in range(600):
        first = choose.randrange(granules)
        run = range(first, min(granules, first + choose.randrange(1, 6)))
        address, nbytes = start + first * GRANULARITY, len(run) * GRANULARITY
        action = choose.choice(("map", "touch", "unmap", "look"))
        if action == "map" and not mapped & set(run):
            fits = len(mapped) + len(run) <= 16
            try:
                machine.memory.map(address, nbytes)
                assert fits
                mapped |= set(run)
            except MemoryError:
                assert not fits
        elif action == "touch":
            for granule in mapped & set(run) - touched:
                machine.touch(start + granule * GRANULARITY, GRANULARITY)
                touched.add(granule)
        elif action == "unmap" and mapped >= set(run):
            machine.memory.unmap(address, nbytes)
            machine.left += len(touched & set(run)) * GRANULARITY
            mapped, touched = mapped - set(run), touched - set(run)
        elif action == "look":
            assert machine.memory.free() == (16 - len(mapped)) * GRANULARITY
    machine.memory.release(start, granules * GRANULARITY)


def test_a_piece_that_is_touched_in_part() -> None:
    """What of it is not resident still counts."""
    machine = Machine(64 * MIB)
    address = machine.memory.allocate(48 * MIB)
    page = os.sysconf("SC_PAGE_SIZE")
    for part in (0, 5 * MIB, 30 * MIB):
        ctypes.memset(address + part, 1, page)
    found = machine.memory.free()
    machine.left -= 3 * 2 * MIB  # a huge page each, at most
    assert 10 * MIB <= machine.memory.free() <= found <= 16 * MIB + 3 * 2 * MIB


def test_devices_share_what_there_is() -> None:
    """What one device was given, another one cannot have."""
    machine = Machine(8 * MIB)
    other = HostMemory(8 * MIB, machine.budget)
    other.allocate(6 * MIB)
    with pytest.raises(MemoryError):
        machine.memory.allocate(3 * MIB)
    assert (machine.memory.free(), other.free()) == (2 * MIB, 2 * MIB)


def test_what_others_take_is_seen() -> None:
    """At the latest when an eighth of what was left is handed out; and at once by who asks for more than is left."""
    machine = Machine(800 * MIB)
    machine.memory.allocate(MIB)
    machine.left = 150 * MIB
    kept = []
    with pytest.raises(MemoryError):
        while True:
            kept.append(machine.memory.allocate(MIB))
    assert len(kept) < 150
    machine.left = 800 * MIB
    machine.memory.allocate(600 * MIB)


@pytest.mark.skipif(not GRANULARITY, reason="no ranges on this system")
def test_looks_are_few(monkeypatch: pytest.MonkeyPatch) -> None:
    """The system is asked a few dozen times until all is handed out, in however many pieces."""
    monkeypatch.setattr(module, "LOOK_OLD", 1 << 60)
    machine = Machine(4000 * MIB)
    start = machine.memory.reserve(5000 * MIB)
    for n in range(4000):
        assert machine.budget.take(start + n * MIB, MIB)
    assert machine.looks < 100
    assert not machine.budget.take(start + 4000 * MIB, MIB)
    machine.memory.release(start, 5000 * MIB)


def test_an_old_look_is_repeated(monkeypatch: pytest.MonkeyPatch) -> None:
    """Others may have taken memory since, though this process has hardly been given any."""
    now = 0
    monkeypatch.setattr(module, "monotonic_ns", lambda: now)
    machine = Machine(1000 * MIB)
    machine.memory.allocate(1)
    machine.memory.allocate(1)
    assert machine.looks == 1
    now += module.LOOK_OLD
    machine.memory.allocate(1)
    assert machine.looks == 2


def test_pages_that_were_only_read_are_no_memory_yet() -> None:
    """They are resident, all of them one page of zeros, until they are written to."""
    machine = Machine(64 * MIB)
    resident = 0
    machine.budget._anonymous = lambda: resident
    address = machine.memory.allocate(48 * MIB)
    assert ctypes.string_at(address, 48 * MIB).count(0) == 48 * MIB
    assert machine.memory.free() == 16 * MIB
    machine.touch(address, 48 * MIB)
    resident = 48 * MIB
    assert machine.memory.free() == 16 * MIB


def test_where_residence_is_unknown(monkeypatch: pytest.MonkeyPatch) -> None:
    """What the process has resident stands for it."""
    monkeypatch.setattr(module, "_mincore", lambda *_: -1)
    machine = Machine(64 * MIB)
    resident = 10 * MIB
    machine.budget._anonymous = lambda: resident
    machine.memory.allocate(48 * MIB)
    assert machine.memory.free() == 26 * MIB
    monkeypatch.setattr(module.sys, "platform", "darwin")
    machine.budget._anonymous = lambda: None
    assert machine.memory.free() == 16 * MIB


def test_an_allocation_in_the_midst_of_a_look() -> None:
    """As a finalizer does: it is served by what was left, and counted at the next look."""
    machine = Machine(64 * MIB)
    machine.memory.allocate(MIB)
    inner: list[int] = []

    def available() -> int:
        if not inner:
            inner.append(0)
            inner[0] = machine.memory.allocate(2 * MIB)
            machine.memory.deallocate(machine.memory.allocate(MIB))
            with pytest.raises(MemoryError):
                machine.memory.allocate(64 * MIB)
        return 64 * MIB

    machine.budget._available = available
    assert inner == [] and machine.memory.free() <= 63 * MIB
    assert machine.memory.free() == 61 * MIB


def test_a_forked_child_starts_anew() -> None:
    """What the parent was given is no business of its own device's."""
    machine = Machine(64 * MIB)
    machine.memory.allocate(48 * MIB)
    machine.budget.forget()
    assert machine.budget.left() == 64 * MIB


# Control groups


@pytest.mark.parametrize("version", [1, 2])
def test_limits_of_groups(version: int, tmp_path: Path) -> None:
    """The least of what is left in the group and those above it, and on the machine; file cache that can go is not used."""
    own, top = tmp_path / "proc" / "self", tmp_path / "sys" / "fs" / "cgroup"
    group = top / "a" / "b"
    for directory in (own, group):
        directory.mkdir(parents=True)
    (tmp_path / "proc" / "meminfo").write_text(f"MemTotal: {64 << 20} kB\nMemAvailable: {32 << 20} kB\n")
    (own / "cgroup").write_text("0::/a/b\n" if version == 2 else "3:memory:/a/b\n")
    kind = "cgroup2 cgroup2 rw" if version == 2 else "cgroup cgroup rw,memory"
    (own / "mountinfo").write_text(f"25 30 0:26 / /sys/fs/cgroup rw - {kind}\n")
    names = ("memory.max", "memory.current") if version == 2 else ("memory.limit_in_bytes", "memory.usage_in_bytes")
    none = "max" if version == 2 else str((1 << 63) - 4096)

    def write(directory: Path, limit: str, used: int) -> None:
        for name, text in zip(names, (limit, str(used)), strict=True):
            (directory / name).write_text(text + "\n")

    write(top, none, 30 << 30)
    write(top / "a", none, 30 << 30)
    write(group, none, 20 << 30)
    assert available_memory(tmp_path) == 32 << 30  # nothing is spared where nothing is limited
    write(group, str(512 * MIB), 100 * MIB)
    assert available_memory(tmp_path) == (512 - 64 - 2 - 100) * MIB
    (group / "memory.stat").write_text(f"anon 1\ninactive_file {40 * MIB}\n")
    assert available_memory(tmp_path) == (512 - 64 - 2 - 60) * MIB
    write(top / "a", str(16 << 30), 13 << 30)
    assert available_memory(tmp_path) == (512 - 64 - 2 - 60) * MIB
    write(group, str(8 << 30), 1 << 30)
    assert available_memory(tmp_path) == (3 << 30) - (256 + 64) * MIB
    write(group, str(64 * MIB), 100 * MIB)
    assert available_memory(tmp_path) == 0


_PROGRAM = """
import asyncio, os, sys
import aiodev

if sys.argv[1]:
    with open(sys.argv[1], "w") as file:
        file.write(str(os.getpid()))
total, freed = 0, []
device = aiodev.Device("cpu")

@aiodev.kernel
def fill(i, x, value):
    x[i] = value

def computed(n, dtype):
    x = aiodev.empty(n, dtype)
    fill[n](x, 3)
    return x

def hook(device, nbytes):
    freed.append(nbytes)

async def fill_up(make, nbytes, awaited, most):
    kept = []
    async with aiodev.Stream(device) as stream:
        try:
            while sum(x.nbytes for x in kept) < most:
                kept.append(make(nbytes, dtype="uint8"))
                if awaited:
                    await stream.synchronize()
        except aiodev.OutOfMemoryError:
            pass
        for x in kept:
            fill[x.size](x, 1)
        await stream.synchronize()
    return sum(x.nbytes for x in kept)

async def main():
    aiodev.memory.on_out_of_memory(hook)
    cases = [
        (aiodev.zeros, 1 << 20, True), (aiodev.ones, 1 << 20, False), (aiodev.empty, 4 << 20, True),
        (computed, 4 << 20, False), (computed, 16 << 20, True), (aiodev.zeros, 16 << 20, False),
        (aiodev.empty, 1 << 20, False), (aiodev.ones, 64 << 20, True), (aiodev.empty, 64 << 20, False),
    ]
    most = 1 << 40 if sys.argv[1] else 1 << 20
    for make, nbytes, awaited in cases:
        print(await fill_up(make, nbytes, awaited, most) >> 20, len(freed), flush=True)

asyncio.run(main())
"""


def test_a_group_with_a_limit() -> None:
    """Programs that keep arrays get OutOfMemoryError, hooks before it, and all that they have can be written to."""
    command = [sys.executable, "-c", _PROGRAM]
    try:
        with memory_group(600 * MIB) as group:
            subprocess.run([*command, ""], check=True, capture_output=True, timeout=120)  # compiles
            done = subprocess.run(
                [*command, str(group / "cgroup.procs")], check=False, capture_output=True, text=True, timeout=120
            )
    except NoGroupError as error:
        pytest.skip(str(error))
    assert done.returncode == 0, done.stdout + done.stderr
    found = [line.split() for line in done.stdout.splitlines()]
    assert [int(calls) for _, calls in found] == [*range(1, 10)]
    assert all(300 < int(mib) < 530 for mib, _ in found), found
