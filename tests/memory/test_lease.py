"""Leases: admission first come, first served, on every loop."""

from __future__ import annotations

import asyncio
import math
import sys
import threading

import anyio
import pytest

import aiodev
from aiodev._memory.lease import Admission
from aiodev.memory import lease, mem_get_info, set_per_process_memory_fraction

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
            while inside < 3 and inside + done < 10:  # as many as there can be meet
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
    admission, order = Admission(lambda: 10), []
    await admission.acquire(8)

    async def ask(nbytes: int) -> None:
        await admission.acquire(nbytes)
        order.append(nbytes)
        admission.release(nbytes)

    async with anyio.create_task_group() as group:
        for waiting, nbytes in enumerate((9, 2), 1):
            group.start_soon(ask, nbytes)
            while len(admission) < waiting:
                await anyio.lowlevel.checkpoint()
        admission.release(8)
    assert order == [9, 2]
    assert admission.leased == 0


async def test_cancellation_gives_the_place_back() -> None:
    """While waiting, while granted and not yet told, and inside the block."""
    admission = Admission(lambda: 10)
    await admission.acquire(10)

    for granted in (False, True):
        with anyio.CancelScope() as scope:
            async with anyio.create_task_group() as group:
                group.start_soon(admission.acquire, 5)
                await anyio.wait_all_tasks_blocked()
                if granted:
                    admission.release(10)
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
    admission = Admission(lambda: 10)
    await admission.acquire(5)
    async with anyio.create_task_group() as group:
        head = anyio.CancelScope()

        async def large() -> None:
            with head:
                await admission.acquire(10)

        group.start_soon(large)
        await anyio.wait_all_tasks_blocked()
        group.start_soon(admission.acquire, 5)
        await anyio.wait_all_tasks_blocked()
        head.cancel()
    assert admission.leased == 10


async def test_a_lease_can_be_returned_by_another_thread() -> None:
    """Waiters of any loop in any thread are told."""
    admission = Admission(lambda: 10)
    await admission.acquire(10)
    async with anyio.create_task_group() as group:
        group.start_soon(admission.acquire, 10)
        await anyio.wait_all_tasks_blocked()
        thread = threading.Thread(target=admission.release, args=(10,))
        thread.start()
    thread.join()
    assert admission.leased == 10


def test_a_lease_is_not_granted_to_a_loop_that_was_closed() -> None:
    """Nor given back when its task is collected, which had none; those behind it are granted theirs."""
    admission, loop = Admission(lambda: 10), asyncio.new_event_loop()
    admission.leased = 8
    waiting = admission.acquire(6)
    task = loop.create_task(waiting)
    loop.run_until_complete(asyncio.sleep(0))
    assert len(admission) == 1
    loop.close()
    admission.release(8)
    assert not len(admission) and admission.leased == 0
    task._log_destroy_pending = False  # type: ignore[attr-defined]
    waiting.close()
    assert admission.leased == 0


def test_who_waits_for_a_lease_at_the_end_needs_no_lock(monkeypatch: pytest.MonkeyPatch) -> None:
    """A thread that has ended with the interpreter may have it for good."""
    admission, loop = Admission(lambda: 10), asyncio.new_event_loop()
    admission.leased = 8
    waiting = admission.acquire(6)
    task = loop.create_task(waiting)
    loop.run_until_complete(asyncio.sleep(0))
    held, left = threading.Event(), threading.Event()

    def hold() -> None:
        with admission._lock:
            held.set()
            left.wait(60)

    thread = threading.Thread(target=hold)
    thread.start()
    held.wait(60)
    task._log_destroy_pending = False  # type: ignore[attr-defined]
    monkeypatch.setattr(sys, "is_finalizing", lambda: True)
    waiting.close()
    monkeypatch.undo()
    assert not left.is_set()
    left.set()
    thread.join()
    loop.close()


async def test_what_is_no_number_of_bytes_is_refused_by_name() -> None:
    """``nan`` compares with nothing: it would wait for ever, and all behind it."""
    for wrong in (math.nan, 1.5, "1"):
        with pytest.raises(TypeError, match="nbytes"):
            lease(wrong, "cpu")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="-1"):
        lease(-1, "cpu")


async def test_a_changed_limit_is_looked_at_by_those_who_wait() -> None:
    """A lower one refuses what it has made impossible, and lets those behind go on; a higher one grants."""
    whole = total()
    few, many, most = whole // 8, whole // 4, whole // 4 * 3
    granted, refused = anyio.Event(), anyio.Event()

    async def ask(nbytes: int) -> None:
        try:
            async with lease(nbytes, "cpu"):
                granted.set()
        except aiodev.OutOfMemoryError:
            refused.set()

    try:
        async with lease(many, "cpu"), anyio.create_task_group() as group:
            async with lease(whole - many, "cpu"):
                for nbytes in (most, few):
                    group.start_soon(ask, nbytes)
                    await anyio.wait_all_tasks_blocked()
                set_per_process_memory_fraction(0.5, "cpu")
                await refused.wait()
                assert not granted.is_set()
            await granted.wait()
            granted = anyio.Event()
            group.start_soon(ask, many + few)
            await anyio.wait_all_tasks_blocked()
            assert not granted.is_set()
            set_per_process_memory_fraction(1.0, "cpu")
            await granted.wait()
    finally:
        set_per_process_memory_fraction(1.0, "cpu")


async def test_a_lease_is_left_as_often_as_it_was_entered() -> None:
    """Once more is an error, and takes nothing from the account."""
    held = lease(1 << 20, "cpu")
    for _ in range(2):
        with pytest.raises(RuntimeError, match="without having been entered"):
            await held.__aexit__(None, None, None)
        async with held, held:
            assert held._admission.leased == 2 << 20
    assert held._admission.leased == 0
