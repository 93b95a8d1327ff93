"""StreamGroup: leaving its block waits for everything, and failures arrive together."""

from __future__ import annotations

import asyncio
import gc
import threading
import time
import weakref

import anyio
import pytest
from parking import when_parked

import aiodev
from aiodev.testing import Latch

pytestmark = pytest.mark.anyio


def fail(text: str) -> None:
    raise OSError(text)


@aiodev.kernel
def fail_on_device(i: int, x: list[float]) -> None:
    if x[i] < 0:
        raise ValueError("on the device")


def asyncio_only(anyio_backend_name: str) -> None:
    if anyio_backend_name != "asyncio":
        pytest.skip("such a cancellation is asyncio's")


async def test_leaving_waits_for_all_that_was_submitted() -> None:
    """After the block everything is done, on every stream of the group."""
    async with aiodev.StreamGroup("cpu") as group:
        calls = [group.stream().call(int, i) for i in range(8)]
    assert all(call.query() for call in calls)
    assert [await call for call in calls] == list(range(8))


async def test_leaving_waits_for_what_functions_submit_to_streams_that_were_idle() -> None:
    """One that leaving found idle before it waited for the stream of the function."""
    for _ in range(100):
        slept = list[aiodev.Completion[None]]()
        async with aiodev.StreamGroup("cpu") as group:
            first, second = group.stream(), group.stream()
            second.call(lambda: slept.append(first.call(time.sleep, 0.001)))  # noqa: B023  # it is waited for
        assert slept[0].query()


async def test_failures_arrive_together() -> None:
    """Two streams that fail give one ExceptionGroup, with both exceptions as they were raised."""
    with pytest.raises(BaseExceptionGroup) as caught:
        async with aiodev.StreamGroup("cpu") as group:
            group.stream().call(fail, "one")
            group.stream().call(fail, "two")
            good = group.stream().call(int, 3)
    assert sorted(str(error) for error in caught.value.exceptions) == ["one", "two"]
    assert await good == 3


async def test_failures_of_a_group_go_without_the_collector() -> None:
    """And with them the streams: else a service would have one for each request that failed between two collections."""

    class Failure(Exception):
        pass

    gone = list[weakref.ref[Failure]]()

    def fail() -> None:
        failure = Failure()
        gone.append(weakref.ref(failure))
        try:
            raise failure
        finally:
            del failure

    gc.collect()
    gc.disable()
    try:
        with pytest.raises(BaseExceptionGroup):
            async with aiodev.StreamGroup("cpu") as group:
                group.stream().call(fail)
                group.stream().call(fail)
        assert [failure() for failure in gone] == [None, None]
    finally:
        gc.enable()


async def test_the_bodys_exception_comes_with_them() -> None:
    """What the body raises is in the same group."""
    with pytest.raises(BaseExceptionGroup) as caught:
        async with aiodev.StreamGroup("cpu") as group:
            group.stream().call(fail, "stream")
            raise KeyError("body")
    assert {type(error) for error in caught.value.exceptions} == {OSError, KeyError}


async def test_a_body_that_fails_alone_raises_its_own_exception() -> None:
    """Without a failed stream the body's exception arrives as it is, after the work is done."""
    with pytest.raises(KeyError):
        async with aiodev.StreamGroup("cpu") as group:
            call = group.stream().call(int)
            raise KeyError("body")
    assert call.query()


async def test_cancelling_the_body_still_waits_for_what_runs() -> None:
    """A cancelled body leaves when the device is done, not before; cancellation then goes on."""
    with anyio.CancelScope() as scope:
        async with aiodev.StreamGroup("cpu") as group:
            stream = group.stream()
            latch = Latch(stream)
            call = stream.call(int)
            when_parked(stream, 2, latch.release)
            scope.cancel()
            await anyio.sleep_forever()
    assert scope.cancelled_caught and call.query()


async def test_failures_of_a_cancelled_group_are_logged(caplog: pytest.LogCaptureFixture) -> None:
    """Cancellation goes on as itself, to whoever asked for it and drops it; what failed meanwhile is not lost."""
    with anyio.CancelScope() as scope:
        async with aiodev.StreamGroup("cpu") as group:
            group.stream().call(fail, "meanwhile")
            scope.cancel()
            await anyio.sleep_forever()
    assert scope.cancelled_caught
    (record,) = caplog.records
    assert record.exc_info and str(record.exc_info[1]) == "meanwhile"


async def test_asyncio_timeout_while_leaving_waits_for_what_runs(anyio_backend_name: str) -> None:
    """asyncio's own deadline, which no shield keeps out, is told of when the work is over."""
    asyncio_only(anyio_backend_name)
    loop = asyncio.get_running_loop()
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(None) as deadline, aiodev.StreamGroup("cpu") as group:
            stream = group.stream()
            latch = Latch(stream)
            call = stream.call(int)
            deadline.reschedule(loop.time())
            loop.call_later(0.01, when_parked, stream, 2, latch.release)
    task = asyncio.current_task()
    assert call.query() and repr(group) == "<aiodev.StreamGroup of 0 streams>"
    assert task is not None and task.cancelling() == 0


@pytest.mark.parametrize("cancel", [False, True])
@pytest.mark.parametrize("body", ["ends", "waits", "raises"])
async def test_a_task_that_is_cancelled_twice_waits_for_what_runs(
    cancel: bool, body: str, anyio_backend_name: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Each ``task.cancel()`` arrives while the block is being left; it goes on afterwards, and what failed is logged."""
    asyncio_only(anyio_backend_name)
    leaving = asyncio.Event()
    entered, release = threading.Event(), threading.Event()

    def run() -> None:
        entered.set()
        release.wait()
        raise OSError("meanwhile")

    async def work() -> None:
        async with aiodev.StreamGroup("cpu", cancel=cancel) as group:
            group.stream().call(run)
            await asyncio.to_thread(entered.wait)
            leaving.set()
            if body == "waits":
                await asyncio.sleep(3600)
            if body == "raises":
                raise KeyError("body")

    task = asyncio.create_task(work())
    await leaving.wait()
    for _ in range(2):
        await anyio.wait_all_tasks_blocked()
        task.cancel()
    await anyio.wait_all_tasks_blocked()
    assert not task.done() and task.cancelling() == 2
    release.set()
    with pytest.raises(asyncio.CancelledError):
        await task
    (record,) = caplog.records
    assert record.exc_info and str(record.exc_info[1]) == "meanwhile"


async def test_kernels_that_fail_under_a_cancellation_are_logged(
    anyio_backend_name: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Of every stream, when a deadline of asyncio comes while the block is being left."""
    asyncio_only(anyio_backend_name)
    loop = asyncio.get_running_loop()
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(None) as deadline, aiodev.StreamGroup("cpu") as group:
            x = aiodev.full(1, -1.0, device="cpu")
            latches = []
            for _ in range(2):
                stream = group.stream()
                latches.append(Latch(stream))
                fail_on_device[1, stream](x)
            deadline.reschedule(loop.time())
            for latch in latches:
                loop.call_later(0.01, latch.release)
    assert [type(record.exc_info[1]) for record in caplog.records if record.exc_info] == [aiodev.KernelError] * 2


@pytest.mark.parametrize("cancel", [False, True])
async def test_leaving_waits_for_what_is_submitted_meanwhile(cancel: bool) -> None:
    """A called function may submit to streams of the group, and so may what it submits."""
    seen: list[int] = []
    submitted: list[aiodev.Completion[None]] = []

    def submit(n: int) -> None:
        waiting.wait()
        seen.append(n)
        if n < 6:
            submitted.append(streams[n % 2].call(submit, n + 1))

    waiting = threading.Event()
    async with aiodev.StreamGroup("cpu", cancel=cancel) as group:
        streams = [group.stream(), group.stream()]
        streams[1].call(submit, 0)
        when_parked(streams[1], 1, waiting.set)
    assert seen == list(range(7)) and all(call.query() for call in submitted)


async def test_what_is_submitted_while_a_group_withdraws_is_withdrawn() -> None:
    """Unless it has begun by then: what a function submits that had begun. The body's exception arrives alone."""
    entered, release = threading.Event(), threading.Event()
    late: list[aiodev.Completion[int]] = []

    def run() -> None:
        entered.set()
        release.wait()
        late.extend(stream.call(int) for stream in (running, held))

    with pytest.raises(KeyError):
        async with aiodev.StreamGroup("cpu", cancel=True) as group:
            running, held = group.stream(), group.stream()
            running.call(run)
            early = running.call(int)
            held.wait_event(running.record_event())
            await anyio.to_thread.run_sync(entered.wait)
            when_parked(running, 2, release.set)
            raise KeyError("body")
    assert early.cancelled() and len(late) == 2 and all(call.cancelled() or call.query() for call in late)


async def test_a_group_gives_streams_inside_its_block_only() -> None:
    """Before and after the block there is nobody to wait for them."""
    group = aiodev.StreamGroup("cpu")
    with pytest.raises(RuntimeError, match="inside"):
        group.stream()
    async with group:
        pass
    with pytest.raises(RuntimeError, match="inside"):
        group.stream()


async def test_what_completes_is_completions() -> None:
    """Anything else is named, and not an attribute that it lacks."""
    with pytest.raises(TypeError, match="expected completions.* got int 1"):
        await anext(aiodev.as_completed([1]))


async def test_completions_come_in_the_order_in_which_they_are_done() -> None:
    """as_completed yields each completion once, as soon as it is done, failed ones too."""
    first, second, third = (aiodev.Stream("cpu") for _ in range(3))
    latches = [Latch(first), Latch(second)]
    calls = {first.call(int, 1): 1, second.call(int, 2): 2, third.call(fail, "three"): 3}
    seen = []
    async for done in aiodev.as_completed(calls):
        seen.append(calls[done])
        assert done.query()
        if latches:
            latches.pop().release()
    assert seen == [3, 2, 1]
