"""Ranges: every index once, whatever the size."""

from __future__ import annotations

import time
from collections.abc import Sequence

import pytest
from pieces import MS, PATIENCE, Entry, started

from aiodev._backends.cpu.executor.executor import NativeExecutor
from aiodev._core.backend.interface import COMPLETED


@pytest.mark.parametrize("threads", [1, 2, 3])
@pytest.mark.parametrize("size", [1, 2, 63, 64, 65, 129, 1000, 4097])
@pytest.mark.parametrize("cost", [0, 10_000, MS // 100])
def test_every_index_once(threads: int, size: int, cost: int) -> None:
    """Whatever the size, and what an index is thought to cost."""
    with started(threads) as executor:
        queue, _ = executor.create_queue(0, 0, False)
        for _ in range(4):
            entry = Entry(executor, cost)
            assert executor.spin(queue, executor.launch(queue, entry.address, size, b"", 0), PATIENCE)
            assert entry.covered(size), entry.pieces


def starts_of(executor: NativeExecutor, queue: int, counters: Sequence[int], cost: int, size: int) -> list[int]:
    """Where the pieces of one range begin, in the order in which they are run, by a worker alone."""
    entry = Entry(executor, cost)
    last = executor.launch(queue, entry.address, size, b"", 0)
    while counters[COMPLETED] < last:  # not by a spin, which helps with pieces of its own size
        time.sleep(0.0001)
    assert entry.covered(size)
    return [lo for _, lo, _ in entry.pieces]


@pytest.mark.parametrize("size", [1000, 1024])
def test_short_ranges_are_run_to_and_fro(size: int) -> None:
    """From the end that was reached last; with whole pieces."""
    with started(1) as executor:
        queue, counters = executor.create_queue(0, 0, False)
        runs = [starts_of(executor, queue, counters, MS // 50_000, size) for _ in range(4)]
        assert all(len(run) > 1 for run in runs)
        assert [run == sorted(run) for run in runs] in ([True, False] * 2, [False, True] * 2)
        assert all(run == sorted(run, reverse=True) for run in runs if run != sorted(run))
        assert all(start % 64 == 0 for run in runs for start in run)


def test_long_ranges_are_run_one_way() -> None:
    """Their pieces are long, and follow one another."""
    with started(1) as executor:
        queue, counters = executor.create_queue(0, 0, False)
        runs = [starts_of(executor, queue, counters, MS // 1000, 1000) for _ in range(3)]
        assert all(len(run) > 1 and run == sorted(run) for run in runs)


def test_a_failure_ends_the_range() -> None:
    """No more pieces are handed out, and the queue goes on."""
    with started(2) as executor:
        queue, _ = executor.create_queue(0, 0, False)
        for _ in range(10):
            entry = Entry(executor, MS // 100, fails_at=500)
            assert executor.spin(queue, executor.launch(queue, entry.address, 1000, b"", 0), PATIENCE)
            assert any(lo <= 500 < hi for _, lo, hi in entry.pieces)
            executor.forgive(queue)
            entry = Entry(executor, MS // 100)
            assert executor.spin(queue, executor.launch(queue, entry.address, 1000, b"", 0), PATIENCE)
            assert entry.covered(1000)
