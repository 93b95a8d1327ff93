"""Failures that come from other streams, over long ways and in turns."""

from __future__ import annotations

import pytest

from aiodev import DependencyError, Stream
from aiodev._core.streams.completion import Completion
from aiodev._core.timeline import faults


def last_of(stream: Stream) -> Completion:
    """The operation submitted last."""
    return Completion(stream.timeline, stream.timeline.submitted)


def settle(stream: Stream) -> None:
    """Wait for the stream, whatever became of it, without being told."""
    stream._gate().open()
    while not stream.query():
        pass


def test_a_failure_at_the_head_of_a_long_chain() -> None:
    """Two thousand streams that each wait for the one before: the last one's waiter gets the first one's failure."""
    streams = [Stream("cpu") for _ in range(2000)]
    gate = streams[0]._gate()
    for ahead, behind in zip(streams, streams[1:], strict=False):
        behind.wait_stream(ahead)
    gate.open(ValueError("the first"))
    with pytest.raises(DependencyError) as caught:
        last_of(streams[-1]).synchronize_blocking(60)
    assert str(caught.value.__cause__) == "the first"
    for stream in streams:
        faults.tell(stream.timeline, stream.timeline.fault_of(1))  # or each is logged, and the device has them to tell of


def test_streams_that_fail_each_other_in_turn() -> None:
    """Faults that nobody has looked at yet, and that come from each other's stream in turn, are told apart."""
    left, right = Stream("cpu"), Stream("cpu")
    points = []
    for turn in range(3):
        for here, there in ((left, right), (right, left)):
            gate = here._gate()
            there.wait_stream(here)
            points.append((last_of(here), last_of(there), f"{here is left} {turn}"))
            gate.open(ValueError(points[-1][2]))
            settle(there)
            for stream in (here, there):  # runs again, though nobody was told
                stream.timeline.handle.backend.executor.forgive(stream.timeline.queue)
    for failed, behind, message in points:
        with pytest.raises(ValueError, match=message):
            failed.synchronize_blocking(30)
        with pytest.raises(DependencyError) as caught:
            behind.synchronize_blocking(30)
        assert str(caught.value.__cause__) == message


def test_a_wait_that_is_submitted_while_the_source_of_a_failure_is_looked_for() -> None:
    """Threads that submit waits, or find them over, do not keep one that looks from finding it."""
    stream, ahead = Stream("cpu"), Stream("cpu")

    class Another:
        @property
        def queue(self) -> int:
            stream.timeline._kept.append((0, ahead.timeline))
            return -1

    gate = ahead._gate()
    stream.timeline._kept.append((0, Another()))  # type: ignore[arg-type]
    stream.wait_stream(ahead)
    assert stream.timeline.kept_timeline(ahead.timeline.queue) is ahead.timeline
    gate.open()
    stream.synchronize_blocking(60)
