"""Allocations that look like real use: how much more is reserved than asked for, and that accounts do not drift."""

from __future__ import annotations

import importlib.util
import random
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

import aiodev
from aiodev._memory.caching import CachingAllocator


def load(name: str) -> ModuleType:
    """A module beside this one."""
    spec = importlib.util.spec_from_file_location(f"memory_{name}", Path(__file__).with_name(f"{name}.py"))
    assert spec is not None and spec.loader is not None
    if spec.name not in sys.modules:
        sys.modules[spec.name] = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(sys.modules[spec.name])
    return sys.modules[spec.name]


model, traces = load("model"), load("traces")


@pytest.mark.parametrize("name", traces.TRACES)
def test_little_more_is_reserved_than_asked_for(name: str) -> None:
    """At most 15 % at the peaks, rounding included, and nine allocations of ten take nothing from the backend."""
    memory = model.FakeMemory(1 << 40, granularity=2 << 20)
    pool = CachingAllocator(aiodev.Device("cpu"), memory, True)
    outcome = traces.replay(traces.TRACES[name](), pool, model.FakeTimeline("A"))
    assert 1 <= outcome.fragmentation <= 1.15
    assert outcome.hit_rate >= 0.88
    assert pool.totals.allocated == 0
    pool.empty_cache()
    assert memory.held == {}


def test_a_million_operations_leave_the_accounts_exact() -> None:
    """Sizes from one byte to 4 MiB, several thousand blocks alive."""
    memory = model.FakeMemory(1 << 40, granularity=2 << 20)
    pool, timeline = CachingAllocator(aiodev.Device("cpu"), memory, True), model.FakeTimeline("A")
    rng = random.Random(5)
    sizes = [int(2 ** rng.uniform(0, 22)) for _ in range(4096)]
    places = [rng.randrange(3000) for _ in range(4099)]
    held: list[Any] = [None] * 3000
    for k in range(500_000):  # each an allocation, and the free of what was there
        held[places[k % 4099]] = pool.allocate(sizes[k % 4096], timeline)
    alive = [buffer.block.size for buffer in held if buffer is not None]
    assert pool.totals.allocated == sum(alive)
    assert pool.totals.allocations - pool.totals.frees == len(alive)
    assert pool.totals.reserved == memory.nbytes <= 1.2 * pool.totals.peak_allocated
    held.clear()
    pool.empty_cache()
    assert pool.totals.allocated == pool.totals.reserved == memory.nbytes == 0
