"""Withdrawing: what has not begun does not run, who waits for it is told, and everybody else goes on."""

from __future__ import annotations

import asyncio
import gc
import logging
import threading
import weakref
from collections.abc import Iterator
from concurrent.futures import Future

import anyio
import numpy as np
import pytest

import aiodev
from aiodev import Completion
from aiodev.testing import Latch, SimulatedBackend

pytestmark = pytest.mark.anyio


@pytest.fixture(params=["cpu", "sim"])
def device(request: pytest.FixtureRequest) -> Iterator[str]:
    """A device on the native executor, and one on the portable executor."""
    name = request.getfixturevalue("simulated").name if request.param == "sim" else "cpu"
    aiodev.init_blocking(name)
    yield name


def note(log: list[object], what: object) -> object:
    log.append(what)
    return what


def fill(stream: aiodev.Stream, x: aiodev.Array) -> int:
    return stream._fill(x._address, x.nbytes, b"\xff")


async def outcome_of(done: aiodev.Completion) -> object:
    """What waiting for it gives: its result, or the type of what it raises."""
    try:
        return await done
    except Exception as error:
        return type(error)


async def test_a_withdrawn_operation_never_runs(device: str) -> None:
    """``cancel`` says that it could; the operation does not run, its waiter gets WithdrawnError with the place."""
    stream, log = aiodev.Stream(device), list[object]()
    with Latch(stream):
        call = stream.call(note, log, "withdrawn")
        assert call.cancel() and call.cancelled() and not call.query()
    with pytest.raises(aiodev.WithdrawnError, match=r"operation 2 of .* was withdrawn at .*test_withdrawal") as caught:
        await call
    assert caught.value.operation == call.value and repr(stream) == caught.value.stream
    assert log == [] and call.query()


async def test_what_is_ordered_after_it_fails_with_it_as_the_cause(device: str) -> None:
    """On its stream and on streams that wait for it; what is submitted after the withdrawal runs."""
    stream, follower, log = aiodev.Stream(device), aiodev.Stream(device), list[object]()
    with Latch(stream):
        ahead, call, behind = (stream.call(note, log, n) for n in range(3))
        follower.wait(call)
        other = follower.call(note, log, "other")
        assert call.cancel()
        after = stream.call(note, log, "after")
    for failed in (behind, other):
        with pytest.raises(aiodev.DependencyError) as caught:
            await failed
        assert isinstance(caught.value.__cause__, aiodev.WithdrawnError)
        assert caught.value.__cause__.operation == call.value
    assert not behind.cancelled() and not other.cancelled()
    assert [await ahead, await after, await follower.call(note, log, "again")] == log == [0, "after", "again"]


async def test_another_stream_that_waits_for_it_goes_on_when_somebody_was_told(device: str) -> None:
    """Or when its wait is withdrawn, too: until then what is submitted there, after the withdrawal as well, fails."""
    stream, told, withdrawn = (aiodev.Stream(device) for _ in range(3))
    with Latch(stream):
        call = stream.call(int)
        for follower in (told, withdrawn):
            follower.wait(call)
        assert call.cancel()
        fails = told.call(int)
        assert withdrawn.cancel() == 1
        runs = withdrawn.call(int, 3)
    assert await runs == 3
    assert await outcome_of(fails) is aiodev.DependencyError
    assert await told.call(int, 4) == 4


async def test_whoever_waits_behind_is_told_once(device: str) -> None:
    """``synchronize`` raises while nobody was told that something behind a withdrawal did not run; then no more."""
    stream = aiodev.Stream(device)
    with Latch(stream):
        call = stream.call(int)
        stream.call(int)
        call.cancel()
    with pytest.raises(aiodev.WithdrawnError):
        await stream.synchronize()
    await stream.synchronize()


async def test_withdrawing_all_needs_nobody_to_be_told(device: str) -> None:
    """Where nothing but what was withdrawn does not run, ``synchronize`` has nothing to say."""
    stream = aiodev.Stream(device)
    with Latch(stream):
        calls = [stream.call(int) for _ in range(3)]
        assert stream.cancel() == 4, "the latch is withdrawn, too"
    await stream.synchronize()
    assert [await outcome_of(call) for call in calls] == [aiodev.WithdrawnError] * 3


async def test_what_has_begun_is_not_withdrawn(device: str) -> None:
    """A function that runs, something done, and something withdrawn by others: ``cancel`` is False and changes nothing."""
    stream, entered, release = aiodev.Stream(device), threading.Event(), threading.Event()

    def run() -> str:
        entered.set()
        release.wait()
        return "ran"

    done = stream.call(str)
    await done
    running, behind = stream.call(run), stream.call(int)
    await anyio.to_thread.run_sync(entered.wait)
    assert [done.cancel(), running.cancel(), behind.cancel(), behind.cancel()] == [False, False, True, False]
    assert stream.cancel() == 0
    release.set()
    assert await running == "ran" and await outcome_of(behind) is aiodev.WithdrawnError
    assert not running.cancelled() and not done.cancelled()


async def test_what_is_withdrawn_behind_another_takes_nothing_new_along(device: str) -> None:
    """What was submitted since the first was withdrawn runs."""
    stream, log = aiodev.Stream(device), list[object]()
    with Latch(stream):
        call, behind, last = (stream.call(note, log, n) for n in range(3))
        assert call.cancel()
        after = stream.call(note, log, "after")
        assert behind.cancel() and behind.cancelled() and not behind.cancel() and not last.cancelled()
    assert await outcome_of(behind) is aiodev.WithdrawnError
    assert await outcome_of(last) is aiodev.DependencyError
    assert await after == "after" and log == ["after"]


async def test_what_is_behind_a_failure_is_not_withdrawn(device: str) -> None:
    """Whoever was told of that goes on, though what is dead holds the stream still."""
    source, stream, log = aiodev.Stream(device), aiodev.Stream(device), list[object]()
    with Latch(source):
        failing = stream.call(lambda: 1 // 0)
        stream.wait_stream(source)
        behind = stream.call(note, log, "behind")
        with pytest.raises(ZeroDivisionError):
            await failing
        after = stream.call(note, log, "after")
        assert not behind.cancel() and not behind.cancelled()
    assert await outcome_of(behind) is aiodev.DependencyError
    assert await after == "after" and log == ["after"]


async def test_withdrawing_all_takes_along_what_is_behind(device: str) -> None:
    """A stream's ``cancel`` withdraws what would not run anyway, so that nobody has to be told; and a group's does."""
    stream = aiodev.Stream(device)
    with Latch(stream):
        call, behind = stream.call(int), stream.call(int)
        assert call.cancel() and stream.cancel() == 2 and behind.cancelled(), "the latch and what is behind"
    await stream.synchronize()
    with pytest.raises(KeyError):
        async with aiodev.StreamGroup(device, cancel=True) as group:
            stream = group.stream()
            stream.wait_future(never := Future[None]())
            call, behind = stream.call(int), stream.call(int)
            assert call.cancel()
            raise KeyError("body")
    assert [await outcome_of(done) for done in (call, behind)] == [aiodev.WithdrawnError] * 2 and not never.done()


async def test_copies_fills_and_kernels() -> None:
    """Whatever runs on the device can be withdrawn, also a launch whose code is still on its way."""

    @aiodev.kernel
    def double(i: int, x: np.ndarray) -> None:
        x[i] *= 2

    stream = aiodev.Stream("cpu")
    with stream:
        x = aiodev.asarray(np.arange(4.0))
        await stream.synchronize()
        with Latch(stream):
            withdrawn = [double[4](x), stream.copy(x, np.zeros(4)), Completion(stream.timeline, fill(stream, x))]
            assert all(done.cancel() for done in withdrawn)
        await double[4](x)
    assert [await outcome_of(done) for done in withdrawn] == [aiodev.WithdrawnError] * 3
    assert (await x.numpy()).tolist() == [0, 2, 4, 6]


async def test_an_array_that_was_not_written_is_not_read() -> None:
    """Reading an array whose contents were withdrawn raises, however late."""
    stream = aiodev.Stream("cpu")
    with stream:
        x = aiodev.zeros(4)
        await stream.synchronize()
        with Latch(stream):
            done = stream.copy(x, np.ones(4))
            done.cancel()
        await outcome_of(done)
    for _ in range(2):
        with pytest.raises(aiodev.WithdrawnError):
            await x.numpy()


async def test_an_array_is_written_anew_beside_a_withdrawn_write() -> None:
    """A withdrawn write is none of those that later ones are beside: what is written behind all of them is read."""
    first, other, last = (aiodev.Stream("cpu") for _ in range(3))
    x = aiodev.zeros(4, device="cpu")
    await aiodev.synchronize("cpu")
    with Latch(first):
        first.copy(x[:2], np.ones(2))
        with Latch(other):
            done = other.copy(x[2:], np.ones(2))
            assert done.cancel()
        assert await outcome_of(done) is aiodev.WithdrawnError
        last.wait_stream(first)
        last.wait_stream(other)
        last.copy(x, np.full(4, 2.0))
    assert await x.tolist() == [2.0] * 4


async def test_a_copy_in_pieces_is_withdrawn_as_a_whole() -> None:
    """One completion for several operations takes all of them along."""
    stream = aiodev.Stream("cpu")
    with stream:
        x = aiodev.zeros((2, 8))
        await stream.synchronize()
        with Latch(stream):
            done = stream.copy(x[:, :4], np.ones((2, 4)))
            assert stream.qsize() == 3 and done.cancel()
        assert await outcome_of(done) is aiodev.WithdrawnError
        await stream.copy(y := np.ones((2, 8)), x)
    assert not y.any()


async def test_points_are_not_operations(device: str) -> None:
    """What an event's wait and an empty copy return stands for what others submitted, which it does not withdraw."""
    stream = aiodev.Stream(device)
    with Latch(stream):
        call = stream.call(int, 3)
        event = stream.record_event()
        assert not event.wait(aiodev.Stream(device)).cancel()
        assert not stream.copy(aiodev.zeros(0, device=device), np.zeros(0)).cancel()
    assert await call == 3


async def test_a_withdrawn_wait_for_the_host_holds_nothing(device: str) -> None:
    """The stream goes on without the future, which is its owner's: it is not cancelled, and may end later."""
    stream, future = aiodev.Stream(device), Future[None]()
    waiting = stream.wait_future(future)
    assert waiting.cancel()
    assert await stream.call(int, 5) == 5
    assert await outcome_of(waiting) is aiodev.WithdrawnError
    assert not future.cancelled()
    future.set_result(None)


async def test_what_holds_a_stream_has_not_begun(device: str) -> None:
    """Not while a worker looks whether it has to wait, either: it can be withdrawn at any time."""
    streams, other, future = [aiodev.Stream(device) for _ in range(8)], aiodev.Stream(device), Future[None]()
    with Latch(other):
        event = other.record_event()
        for round in range(400):
            stream = streams[round % 8]
            if round % 2:
                held = stream.wait_future(future)
            else:
                stream.wait_event(event)
                held = stream.call(int, 5)
            for _ in range(round % 50):
                pass
            assert held.cancel(), round
            assert stream.cancel() <= 1, round


async def test_a_withdrawn_coroutine_is_cancelled(device: str) -> None:
    """A coroutine that was given to ``wait_future`` is nobody else's, so it ends with the operation."""
    stream, ended, begun = aiodev.Stream(device), anyio.Event(), anyio.Event()

    async def wait() -> None:
        try:
            begun.set()
            await anyio.sleep_forever()
        finally:
            ended.set()

    waiting = stream.wait_future(wait())
    await begun.wait()
    assert stream.cancel() == 1
    await ended.wait()
    assert await outcome_of(waiting) is aiodev.WithdrawnError


async def test_a_withdrawn_call_lets_go_at_once(device: str) -> None:
    """The function and its arguments are gone before the operation is passed, also behind one that runs."""
    stream = aiodev.Stream(device)

    class Large:
        pass

    with Latch(stream):
        large = Large()
        gone = weakref.ref(large)
        call = stream.call(id, large)
        del large
        assert gone() is not None and call.cancel()
        gc.collect()
        assert gone() is None and not call.query()
    await stream.synchronize()


async def test_a_withdrawal_is_not_logged(device: str, caplog: pytest.LogCaptureFixture) -> None:
    """Nobody waits for what was withdrawn, nor for what waited for it elsewhere: somebody asked for that."""
    stream, follower = aiodev.Stream(device), aiodev.Stream(device)
    with Latch(stream):
        call = stream.call(int)
        stream.call(int)
        follower.wait(call)
        follower.call(int)
        call.cancel()
    await stream.aclose()
    await follower.aclose()
    assert [record for record in caplog.records if record.levelno >= logging.ERROR] == []


async def test_waiting_for_what_was_withdrawn_fails_whenever(device: str) -> None:
    """A stream that waits for a withdrawn operation fails, whether that was passed or not, or is known to be followed."""
    stream, follower = aiodev.Stream(device), aiodev.Stream(device)
    latch = Latch(stream)
    call = stream.call(int)
    call.cancel()
    after = stream.call(int)
    follower.wait(after)
    for _ in range(2):
        follower.wait(call)
        failed = follower.call(int)
        latch.release()
        assert await outcome_of(failed) is aiodev.DependencyError
        await stream.synchronize()


async def test_who_is_ordered_after_the_rest_does_not_fail(device: str) -> None:
    """``wait_stream`` and events made after a withdrawal are about what is to run, and still keep its order."""
    stream, follower, log = aiodev.Stream(device), aiodev.Stream(device), list[object]()
    with Latch(stream):
        stream.call(note, log, "first")
        stream.call(note, log, "withdrawn").cancel()
        if device == "cpu":
            follower.wait_stream(stream)
        else:
            follower.wait_event(stream.record_event())
        call = follower.call(note, log, "second")
    assert await call == "second" and log == ["first", "second"]


async def test_a_wait_that_failed_unseen_is_not_relied_on() -> None:
    """A wait behind a failure, or a withdrawn one, keeps its order only: later waits for the same stream are enqueued."""
    for withdraw in (False, True):
        source, follower = aiodev.Stream("cpu"), aiodev.Stream("cpu")
        with Latch(source):
            failing, last = source.call(lambda: 1 // 0), source.call(int)
            first = follower.call(int) if withdraw else follower.call(lambda: 1 // 0)
            await outcome_of(first)
            follower.wait(last)
            behind = follower.call(int)
            if withdraw:
                assert follower.cancel() == 2
            else:
                follower.timeline.error_of(behind.value)
            follower.wait(failing)
            call = follower.call(int)
        with pytest.raises(aiodev.DependencyError):
            await call


async def test_operations_before_the_backend_starts(simulated: SimulatedBackend) -> None:
    """What was submitted to a backend that has not started can be withdrawn, and never reaches it."""
    held, start = threading.Event(), simulated.start
    simulated.start = lambda: held.wait(30) and start()
    stream, log = aiodev.Stream(simulated.name), list[object]()
    calls = [stream.call(note, log, n) for n in range(4)]
    assert calls[1].cancel() and calls[3].cancel() and not calls[1].cancel()
    kept = stream.call(note, log, "kept")
    assert stream.timeline.deferred
    held.set()
    expected = [0, aiodev.WithdrawnError, aiodev.DependencyError, aiodev.WithdrawnError, "kept"]
    assert [await outcome_of(call) for call in (*calls, kept)] == expected
    assert log == [0, "kept"]


async def test_each_of_many_withdrawals_is_remembered(device: str) -> None:
    """Every second of 2,000 operations, in any order: each waiter gets what became of its own."""
    stream = aiodev.Stream(device)
    calls = []
    with Latch(stream):
        for n in range(500):
            calls.append(stream.call(int, n))
            assert stream.call(int).cancel()
        assert len(stream.timeline.faults.withdrawals.known.withdrawn) == 500
    assert [await call for call in calls] == list(range(500))
    await stream.synchronize()


# Groups


async def test_a_group_that_is_cancelled_withdraws(device: str) -> None:
    """Left by a cancellation, it waits for what has begun and for nothing else."""
    log = list[object]()
    release, entered = threading.Event(), threading.Event()

    def run() -> None:
        entered.set()
        release.wait()
        log.append("began")

    with anyio.CancelScope() as scope:
        async with aiodev.StreamGroup(device, cancel=True) as group:
            stream, held = group.stream(), group.stream()
            held.wait_future(never := Future[None]())
            running = stream.call(run)
            calls = [stream.call(note, log, "no"), held.call(note, log, "no")]
            await anyio.to_thread.run_sync(entered.wait)
            threading.Timer(0.01, release.set).start()
            scope.cancel()
            await anyio.sleep_forever()
    assert scope.cancelled_caught and running.query()
    assert [await outcome_of(call) for call in calls] == [aiodev.WithdrawnError] * 2
    assert log == ["began"] and not never.done()


async def test_a_group_that_fails_withdraws(device: str) -> None:
    """The body's exception arrives alone: what it withdrew is no failure."""
    with pytest.raises(KeyError):
        async with aiodev.StreamGroup(device, cancel=True) as group:
            stream = group.stream()
            stream.wait_future(never := Future[None]())
            call = stream.call(int)
            raise KeyError("body")
    assert call.cancelled() and not never.done()


async def test_a_group_that_is_left_in_peace_withdraws_nothing(device: str) -> None:
    """Without an exception it waits for everything, as without ``cancel``."""
    async with aiodev.StreamGroup(device, cancel=True) as group:
        calls = [group.stream().call(int, n) for n in range(5)]
    assert [call.query() for call in calls] == [True] * 5


async def test_a_deadline_while_leaving_withdraws(device: str) -> None:
    """A body that submits and ends is waited for at the end of the block: the deadline comes there."""
    with anyio.CancelScope() as scope:
        async with aiodev.StreamGroup(device, cancel=True) as group:
            stream = group.stream()
            stream.wait_future(never := Future[None]())
            call = stream.call(int)
            scope.deadline = anyio.current_time() + 0.01  # nothing is awaited from here to the end of the block
    assert scope.cancelled_caught and call.cancelled() and not never.done()


async def test_asyncio_timeout_while_leaving_withdraws(device: str, anyio_backend_name: str) -> None:
    """asyncio's own deadline, which no shield keeps out: what has begun is waited for all the same."""
    if anyio_backend_name != "asyncio":
        pytest.skip("asyncio.timeout is for asyncio")
    entered, release = threading.Event(), threading.Event()

    def run() -> None:
        entered.set()
        release.wait()

    loop = asyncio.get_running_loop()
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(None) as deadline, aiodev.StreamGroup(device, cancel=True) as group:
            stream = group.stream()
            running, call = stream.call(run), stream.call(int)
            await asyncio.to_thread(entered.wait)
            deadline.reschedule(loop.time())
            loop.call_later(0.01, release.set)
    assert running.query() and call.cancelled()


async def test_without_cancel_a_group_computes_on(device: str) -> None:
    """A group that was not told to withdraw does not."""
    with pytest.raises(KeyError):
        async with aiodev.StreamGroup(device) as group:
            call = group.stream().call(int, 3)
            raise KeyError("body")
    assert await call == 3
