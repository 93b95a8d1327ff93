"""Waits of a queue for another one that the device carries out: where it looks, and what becomes of them in a loss."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from aiodev._backends.cuda.executor.issue import place_of
from aiodev._backends.cuda.structs import Queue
from aiodev._backends.executor.arena import arena
from aiodev._native.fields import sizeof


@pytest.mark.parametrize(
    ("row", "target", "shadowed"),
    [
        ((0, 0), 3, False),
        ((3, 10), 2, False),
        ((3, 10), 3, True),
        ((3, 10), 10, True),
        ((3, 10), 11, False),
    ],
)
def test_a_number_is_looked_for_where_it_is_written(row: tuple[int, int], target: int, shadowed: bool) -> None:
    """To the shadow only what is in the present row. What is behind it is written to the timeline, however late we are."""
    queue = Queue(arena.allocate(sizeof(Queue)))
    queue.shadow_from.value, queue.last_shadow.value = row
    expected = queue.shadow if shadowed else queue.completed
    assert place_of.py_func(queue, target).address == expected.address


def test_a_device_that_waits_for_a_lost_one_goes_on(run: Callable[..., str]) -> None:
    """Also if it waits for what only the lost device would have written, which the host has not looked at."""
    said = run(
        """
import ctypes, struct
from aiodev._backends.cuda.structs import Queue
from aiodev._core.backend.interface import KernelSpec

def fails(i, x):
    if x[i] < 0:
        raise ValueError("negative")
    x[i] += 1

def safe(i, x):
    x[i] = i

backend.start()
calls, executor = backend.executor.driver, backend.executor
word = (ctypes.c_int64 * 1).from_address(backend.allocate_pinned(0, 8))
word[0] = 0
memory, there = backend.allocate(0, 64), backend.allocate(1, 64)
block = struct.pack("<qqq", 8, memory, 8)
fallible, sure = (backend.load(KernelSpec(f.__name__, f, 1, ("A1i8C",)), "") for f in (fails, safe))
one, other = executor.create_queue(0, 0, True)[0], executor.create_queue(1, 0, True)[0]

def hold(until):
    with calls.bound(executor.devices[0].context):
        calls.call("cuStreamWaitValue64", Queue(one).stream, ctypes.addressof(word), until, 0, doing="holding a stream")

assert executor.spin(one, executor.fill(one, memory, 64, bytes([0])), 30 * 10**9)
hold(1)
first = executor.launch(one, fallible, 8, block, 0)
hold(2)
last = executor.launch(one, sure, 8, block, 0)
word[0] = 1
assert executor.spin(one, first, 30 * 10**9)
waiting = executor.wait(other, one, last)
behind = executor.fill(other, there, 8, b"x")
print(Queue(other).issued.value == behind, executor.spin(other, waiting, 1000))
driver.inject("cuStreamWriteValue64", 1)
executor.fill(one, memory, 8, b"x")
print(executor.spin(one, last, 30 * 10**9), executor.spin(other, behind, 30 * 10**9))
word[0] = 2
"""
    )
    assert said == "True False\nTrue True\n"
