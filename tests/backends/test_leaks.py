"""Leak checks find what a block leaves behind, and nothing else."""

from __future__ import annotations

import os
import threading

import pytest

from aiodev.testing import LeakError, check_leaks


def test_a_clean_block_passes() -> None:
    """Threads that end and descriptors that are closed are no leak."""
    with check_leaks():
        reading, writing = os.pipe()
        thread = threading.Thread(target=lambda: None)
        thread.start()
        os.close(reading)
        os.close(writing)


def test_a_descriptor_left_open_is_a_leak() -> None:
    """The error names the descriptor and what it is."""
    with pytest.raises(LeakError, match="pipe") as caught, check_leaks():
        ends = os.pipe()
    assert len(caught.value.leaks) == 2
    for end in ends:
        os.close(end)


def test_a_thread_left_running_is_a_leak() -> None:
    """The error names the thread; one that is allowed may stay."""
    release = threading.Event()
    threads = [threading.Thread(target=release.wait, name=name) for name in ("stray", "pool-1")]
    with pytest.raises(LeakError) as caught, check_leaks(allow=("pool",), timeout=0.01):
        for thread in threads:
            thread.start()
    assert caught.value.leaks == ["thread 'stray'"]
    release.set()
    for thread in threads:
        thread.join()


def test_probes_must_not_grow() -> None:
    """A count that is higher afterwards is a leak; one that is lower is not."""
    kept = [1]
    with check_leaks(probes={"kept": lambda: len(kept)}):
        kept.clear()
    with pytest.raises(LeakError, match="kept: 2, before 0"), check_leaks(probes={"kept": lambda: len(kept)}):
        kept.extend([1, 2])
