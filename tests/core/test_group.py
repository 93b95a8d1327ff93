"""StreamGroup: leaving its block waits for everything, and failures arrive together."""

from __future__ import annotations

import anyio
import pytest
from parking import when_parked

import aiodev
from aiodev.testing import Latch

pytestmark = pytest.mark.anyio


def fail(text: str) -> None:
    raise OSError(text)


async def test_leaving_waits_for_all_that_was_submitted() -> None:
    """After the block everything is done, on every stream of the group."""
    async with aiodev.StreamGroup("cpu") as group:
        calls = [group.stream().call(int, i) for i in range(8)]
    assert all(call.query() for call in calls)
    assert [await call for call in calls] == list(range(8))


async def test_failures_arrive_together() -> None:
    """Two streams that fail give one ExceptionGroup, with both exceptions as they were raised."""
    with pytest.raises(BaseExceptionGroup) as caught:
        async with aiodev.StreamGroup("cpu") as group:
            group.stream().call(fail, "one")
            group.stream().call(fail, "two")
            good = group.stream().call(int, 3)
    assert sorted(str(error) for error in caught.value.exceptions) == ["one", "two"]
    assert await good == 3


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
