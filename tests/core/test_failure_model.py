"""What waits for a stream after its failure was told: one outcome, however far the device has come.

Random programs are compared with a model, too.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from failing_programs import Program

import aiodev
from aiodev import Completion, DependencyError, Event, Stream
from aiodev.testing import Latch

WAIT = 30


@pytest.fixture(params=["cpu", "sim"])
def device(request: pytest.FixtureRequest) -> Iterator[str]:
    """A device on the native executor, and one on the portable executor."""
    name = request.getfixturevalue("simulated").name if request.param == "sim" else "cpu"
    aiodev.init_blocking(name)
    yield name


def fail() -> None:
    raise OSError("failed")


def failed_and_told(device: str, passed: bool, told: bool = True) -> tuple[Stream, Latch, Completion, Event]:
    """A stream that failed, of which somebody was told; unless ``passed``, what is behind that is held by a wait.

    Also what holds it, an operation that was skipped, and an event that was recorded before anybody was told.
    """
    stream, holder = Stream(device), Stream(device)
    latch, start = Latch(holder), Latch(stream)
    failed = stream.call(fail)
    stream.wait_stream(holder)
    skipped, event = stream.call(int), stream.record_event()
    start.release()
    if passed:
        latch.release()
        while not skipped.query():
            pass
    if told:
        with pytest.raises(OSError):
            failed.synchronize_blocking(WAIT)
        assert skipped.query() is passed
    return stream, latch, skipped, event


@pytest.mark.parametrize("passed", [False, True])
@pytest.mark.parametrize("how", ["wait_stream", "record_event", "wait_event", "event.wait", "wait"])
def test_a_told_failure_is_over_for_who_waits(device: str, passed: bool, how: str) -> None:
    """For the stream, or for what did not run: what comes later runs, after all that was waited for."""
    stream, latch, skipped, event = failed_and_told(device, passed)
    other = Stream(device)
    match how:
        case "wait_stream":
            other.wait_stream(stream)
        case "record_event":
            other.wait_event(stream.record_event())
        case "wait_event":
            other.wait_event(event)
        case "event.wait":
            event.wait(other)
        case _:
            other.wait(skipped)
    done = other.call(int, 7)
    assert passed or not done.query()
    latch.release()
    assert done.synchronize_blocking(WAIT) == 7
    other.synchronize_blocking(WAIT)
    assert stream.call(int, 3).synchronize_blocking(WAIT) == 3


@pytest.mark.parametrize("passed", [False, True])
@pytest.mark.parametrize("how", ["wait_stream", "wait_event", "wait"])
def test_a_failure_that_was_not_told_reaches_who_waits(device: str, passed: bool, how: str) -> None:
    """However they wait."""
    stream, latch, skipped, event = failed_and_told(device, passed, told=False)
    other = Stream(device)
    match how:
        case "wait_stream":
            other.wait_stream(stream)
        case "wait_event":
            other.wait_event(event)
        case _:
            other.wait(skipped)
    done = other.call(int)
    latch.release()
    with pytest.raises(DependencyError):
        done.synchronize_blocking(WAIT)
    with pytest.raises(OSError):
        stream.synchronize_blocking(WAIT)


def test_a_failure_in_the_middle_of_a_wait_reaches_who_waits(device: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A failure that is learnt of between two looks at it is not taken for one that somebody was told of."""
    stream, latch, *_ = failed_and_told(device, True)
    again, other = Latch(stream), Stream(device)
    failed = stream.call(fail)
    look, looks = stream.timeline.fault_of, 0

    class Watched(type(stream.timeline)):  # type: ignore[misc]
        """Fails when it has been looked at once."""

        __slots__ = ()

        def fault_of(self, value: int) -> object:
            nonlocal looks
            looks += 1
            found = look(value)
            if looks == 1:
                again.release()
                while not failed.query():
                    pass
            return found

    monkeypatch.setattr(stream.timeline, "__class__", Watched)
    other.wait_stream(stream)
    monkeypatch.undo()
    assert looks
    with pytest.raises(DependencyError):
        other.call(int).synchronize_blocking(WAIT)
    with pytest.raises(OSError):
        failed.synchronize_blocking(WAIT)


def test_a_failure_that_is_learnt_of_during_the_wait_has_its_cause(device: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another thread looks before the one that waits knows the wait's number."""
    stream, latch, *_ = failed_and_told(device, True, told=False)
    other = Stream(device)
    timeline = other.timeline
    wait = timeline.operations.wait

    def slow_wait(queue: int, source: int, value: int) -> int:
        number = wait(queue, source, value)
        while not timeline.reached(number):
            pass
        assert timeline.fault_of(number) is not None
        return number

    monkeypatch.setattr(timeline.operations, "wait", slow_wait)
    other.wait_stream(stream)
    with pytest.raises(DependencyError) as caught:
        other.synchronize_blocking(WAIT)
    assert isinstance(caught.value.__cause__, OSError)
    with pytest.raises(OSError):
        stream.synchronize_blocking(WAIT)


def test_streams_of_another_kind_wait_so_too(device: str) -> None:
    """Where the host carries the news."""
    stream, latch, *_ = failed_and_told(device, False)
    other = Stream("cpu")
    other.wait_stream(stream)
    done = other.call(int, 7)
    latch.release()
    assert done.synchronize_blocking(WAIT) == 7


@pytest.mark.parametrize("seed", range(12))
def test_programs_whose_failures_are_told(device: str, seed: int) -> None:
    """What runs, what does not, what has run before it, and who is told."""
    Program(device, seed).run(400)
