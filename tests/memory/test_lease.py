"""Leases: admission first come, first served, on every loop."""

from __future__ import annotations

import threading

import anyio
import pytest

import aiodev
from aiodev._memory.lease import Admission
from aiodev.memory import lease, mem_get_info

pytestmark = pytest.mark.anyio


def total() -> int:
    """What the device has."""
    return mem_get_info("cpu")[1]


async def test_ten_tasks_that_need_a_third_all_finish() -> None:
    """At most three at once; nobody fails, nobody starves."""
    inside = most = done = 0

    async def work() -> None:
        nonlocal inside, most, done
        async with lease(int(0.3 * total()), "cpu"):
            inside += 1
            most = max(most, inside)
            for _ in range(3):
                await anyio.lowlevel.checkpoint()
            inside -= 1
        done += 1

    async with anyio.create_task_group() as group:
        for _ in range(10):
            group.start_soon(work)
    assert (most, done) == (3, 10)


async def test_a_lease_that_can_never_be_met_raises_at_once() -> None:
    """More than the device has."""
    with pytest.raises(aiodev.OutOfMemoryError):
        async with lease(total() + 1, "cpu"):
            raise AssertionError("not reached")


async def test_leases_are_granted_in_order() -> None:
    """A small request that would fit does not overtake a large one."""
    admission, order = Admission(), []
    await admission.acquire(8, 10)

    async def ask(nbytes: int) -> None:
        await admission.acquire(nbytes, 10)
        order.append(nbytes)
        admission.release(nbytes, 10)

    async with anyio.create_task_group() as group:
        for nbytes in (9, 2):
            group.start_soon(ask, nbytes)
            await anyio.wait_all_tasks_blocked()
        assert len(admission) == 2
        admission.release(8, 10)
    assert order == [9, 2]
    assert admission.leased == 0


async def test_cancellation_gives_the_place_back() -> None:
    """While waiting, while granted and not yet told, and inside the block."""
    admission = Admission()
    await admission.acquire(10, 10)

    for granted in (False, True):
        with anyio.CancelScope() as scope:
            async with anyio.create_task_group() as group:
                group.start_soon(admission.acquire, 5, 10)
                await anyio.wait_all_tasks_blocked()
                if granted:
                    admission.release(10, 10)
                scope.cancel()
        assert len(admission) == 0
    assert admission.leased == 0
    with anyio.CancelScope() as scope:
        async with lease(1 << 20, "cpu") as held:
            scope.cancel()
            await anyio.lowlevel.checkpoint()
    assert held._admission.leased == 0


async def test_a_cancelled_request_lets_those_behind_it_go_on() -> None:
    """The head of the queue is cancelled: the next one fits."""
    admission = Admission()
    await admission.acquire(5, 10)
    async with anyio.create_task_group() as group:
        head = anyio.CancelScope()

        async def large() -> None:
            with head:
                await admission.acquire(10, 10)

        group.start_soon(large)
        await anyio.wait_all_tasks_blocked()
        group.start_soon(admission.acquire, 5, 10)
        await anyio.wait_all_tasks_blocked()
        head.cancel()
    assert admission.leased == 10


async def test_a_lease_can_be_returned_by_another_thread() -> None:
    """Waiters of any loop in any thread are told."""
    admission = Admission()
    await admission.acquire(10, 10)
    async with anyio.create_task_group() as group:
        group.start_soon(admission.acquire, 10, 10)
        await anyio.wait_all_tasks_blocked()
        thread = threading.Thread(target=admission.release, args=(10, 10))
        thread.start()
    thread.join()
    assert admission.leased == 10
