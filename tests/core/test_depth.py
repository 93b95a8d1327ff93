"""Streams are as deep as memory allows: order and cost of a million pending operations, and many submitters."""

from __future__ import annotations

import os
import resource
import threading
from typing import Any

import numpy as np

import aiodev

MILLION = 1_000_000
#: What a pending launch of a kernel with two scalars and two arrays may take. Its native record is 128 bytes; the portable
#: executor, whose records are Python objects, takes more.
BYTES_PER_OPERATION = 150 if os.environ.get("AIODEV_EXECUTOR") != "python" else 600


@aiodev.kernel
def note(i: int, who: int, number: int, log: Any, count: Any) -> None:
    """Append ``number`` to the log."""
    n = count[0]
    log[n] = who * MILLION + number
    count[0] = n + 1


def resident_bytes() -> int:
    with open("/proc/self/statm") as statm:
        return int(statm.read().split()[1]) * resource.getpagesize()


def empty_log(length: int) -> tuple[aiodev.Array, aiodev.Array]:
    return aiodev.zeros(length, dtype=np.int64, device="cpu"), aiodev.zeros(1, dtype=np.int64, device="cpu")


def test_a_million_pending_operations_keep_their_order_and_little_memory() -> None:
    """Submitting goes on whatever the depth; the operations run in order, and their memory is bounded for each."""
    stream = aiodev.Stream("cpu")
    log, count = empty_log(MILLION)
    stream.wait_stream(aiodev.current_stream("cpu"))
    note[1, stream](0, 0, log, count).synchronize_blocking(60)  # compiled from here on
    gate = stream._gate()
    before = resident_bytes()
    for number in range(1, MILLION):
        note[1, stream](0, number, log, count)
    each = (resident_bytes() - before) / MILLION
    assert stream.qsize() == MILLION  # and the gate in place of the first
    gate.open()
    stream.synchronize_blocking(120)
    assert (log.numpy_blocking() == np.arange(MILLION)).all()
    assert each <= BYTES_PER_OPERATION


def test_eight_threads_keep_their_own_order() -> None:
    """What one thread submits to a stream runs in that thread's order, whoever else submits."""
    threads, each = 8, 5_000
    stream = aiodev.Stream("cpu")
    log, count = empty_log(threads * each)
    stream.wait_stream(aiodev.current_stream("cpu"))
    together = threading.Barrier(threads)

    def submit(who: int) -> None:
        together.wait(30)
        for number in range(each):
            note[1, stream](who, number, log, count)

    submitters = [threading.Thread(target=submit, args=(who,)) for who in range(threads)]
    for submitter in submitters:
        submitter.start()
    for submitter in submitters:
        submitter.join()
    stream.synchronize_blocking(60)
    who, number = np.divmod(log.numpy_blocking(), MILLION)
    for thread in range(threads):
        assert (number[who == thread] == np.arange(each)).all()
