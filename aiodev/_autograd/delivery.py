"""Gradients on their way from the nodes that make them to those that take them, and the order of streams between them.

**Rules**, for a gradient that producer P, a node's stream, makes for consumer C, a node's stream or that of a leaf's first use:

1.  The accumulation stream of an input is C where the gradient is on C's device; else P where it is on P's; else the current
    stream of its device.
2.  The first gradient of an input is kept as it is. An event is recorded on P only if C or the accumulation stream is another.
3.  A later one is added on the accumulation stream, after it waits for P, if that is another, and for what was kept, if that is
    ready on another. An event is recorded behind the sum only if C is another.
4.  Before C takes an input it waits for the event of what is ready on another stream.
5.  Behind the pass, the caller's stream waits for each stream that a leaf's gradient, or one that was asked for, is ready on.

So on one stream there is no event; from one stream to another there is one, and one wait. The rules are those of PyTorch's
engine (its pull request 157503). Nothing is summed in place: what is kept may be an array of somebody else, too.
"""

from __future__ import annotations

import threading
import weakref
from collections.abc import Iterable, Sequence
from typing import Any

from aiodev._array.array import Array
from aiodev._array.computing import kernels
from aiodev._autograd.variable import Variable, store_gradient, sum_to
from aiodev._core import context
from aiodev._core.at_fork import first_in_child
from aiodev._core.streams.current import current_stream
from aiodev._core.streams.event import Event
from aiodev._core.streams.stream import Stream
from aiodev._core.timeline.recording import Recording
from aiodev._core.timeline.timeline import Timeline

__all__ = [
    "Arrival", "StoredGradients", "StreamScope", "accumulate", "accumulate_all", "added", "fitted", "follow", "store_all",
]  # fmt: skip

#: One pass at a time stores gradients: the sum that is stored is of what was stored before.
_accumulating = threading.Lock()


class StreamScope:
    """The stream that is current while a pass runs on it; switched only where a node has another.

    Attributes:
        stream: the current one; None before the first.
    """

    __slots__ = ("_is_entered", "stream")

    def __init__(self) -> None:
        self.stream: Stream | None = context.current().stream
        self._is_entered = False

    def switch(self, stream: Stream) -> None:
        """Make a stream, and its device, current."""
        if self._is_entered:
            self._is_entered = False
            context.pop(self)
        if context.current().stream is not stream:
            context.push(self, stream.device, stream)
            self._is_entered = True
        self.stream = stream

    def leave(self) -> None:
        """Go back to what was current before."""
        if self._is_entered:
            self._is_entered = False
            context.pop(self)
        self.stream = context.current().stream


class Arrival:
    """What has come for one input so far.

    Attributes:
        gradient: the sum.
        accumulation: the stream that further ones are added on.
        ready: the stream that the sum is ready on.
        event: recorded there, if another stream takes it.
    """

    __slots__ = ("accumulation", "event", "gradient", "ready")

    def __init__(self, gradient: Any, producer: Stream, consumer: Stream) -> None:
        device = gradient.device
        if consumer.device is device:
            self.accumulation = consumer
        elif producer.device is device:
            self.accumulation = producer
        else:
            self.accumulation = current_stream(device)
        self.gradient, self.ready = gradient, producer
        self.event: Event | None = None
        if consumer is not producer or self.accumulation is not producer:
            self.event = producer.record_event()

    def add(self, gradient: Any, producer: Stream, consumer: Stream, scope: StreamScope) -> None:
        """Add a later gradient, on the accumulation stream."""
        stream = self.accumulation
        if stream is not producer:
            stream.wait_event(producer.record_event())
        if stream is not self.ready and self.event is not None:
            stream.wait_event(self.event)
        if stream is not producer:  # which is current
            scope.switch(stream)
            self.gradient = kernels.add(self.gradient, gradient)
            scope.switch(producer)
        else:
            self.gradient = kernels.add(self.gradient, gradient)
        self.ready = stream
        self.event = stream.record_event() if consumer is not stream else None

    def take(self, consumer: Stream) -> Any:
        """The sum, for work on the consumer's stream."""
        if self.ready is not consumer and self.event is not None:
            consumer.wait_event(self.event)
        return self.gradient


def fitted(gradient: Any, form: Any) -> Any:
    """A gradient in the shape and dtype of what it is the gradient of.

    Raises:
        ValueError: it cannot be one of such an array.
    """
    own = gradient._form
    if own.shape == form.shape and own.dtype == form.dtype and own.device is form.device:
        return gradient
    if own.device is not form.device:
        raise ValueError(f"a gradient on {own.device} is none of an operand on {form.device}")
    if own.shape != form.shape:
        gradient = sum_to(gradient, form.shape)
    if own.dtype == form.dtype:
        return gradient
    if own.dtype.kind == "c" and form.dtype.kind != "c":  # what a real number cannot follow
        gradient = kernels.real(gradient)
    return gradient if gradient.dtype == form.dtype else kernels.astype(gradient, form.dtype)


def follow(stream: Stream, points: Iterable[tuple[Timeline, int]]) -> None:
    """Order a stream after operations of others.

    Raises:
        CaptureError: one is captured, and not with this stream.
    """
    timeline = stream.timeline
    for other, value in points:
        if other is not timeline:
            if other.recording is not None and other.recording is not timeline.recording:
                other.recording.refuse("what is not captured cannot follow captured work")
            timeline.join(other, value, other.clock_at(value))


def accumulate(leaf: Variable, gradient: Any, stream: Stream, recording: Recording | None = None) -> None:
    """Add to the gradient that a leaf has, on the current stream; in place where that is captured, and was there before."""
    with _accumulating:
        before = leaf._grad
        total = added(before, gradient, stream, recording)
        if total is not before:
            store_gradient(leaf, total)


def accumulate_all(leaves: Sequence[Variable], gradients: Sequence[Any], stream: Stream) -> None:
    """Add the gradients of several leaves to what they have, None for what has no gradient, while nothing is captured."""
    with _accumulating:
        for leaf, gradient in zip(leaves, gradients, strict=True):
            if leaf._grad is None:
                leaf._grad = gradient
            elif gradient is not None:
                store_gradient(leaf, added(leaf._grad, gradient, stream))


def added(before: Array | None, gradient: Any, stream: Stream, recording: Recording | None = None) -> Any:
    """The sum of what a leaf has and a gradient, on the current stream; see :func:`accumulate`."""
    if before is None:
        return gradient
    if recording is not None and not recording.made(before._buffer):
        before._buffer.join_uses(stream.timeline)
        kernels.add(before, gradient, out=before)
        return before
    if before._buffer._writer is not stream.timeline:
        follow(stream, before._buffer.contents())
    return kernels.add(before, gradient)


def store_all(sums: Sequence[tuple[Variable, Array | None, Any]]) -> list[int]:
    """Store sums, each with the leaf and what that had when the sum was made, if all of them still have that.

    Gives the places of those that have something else by now; nothing is stored if there is one.
    """
    with _accumulating:
        changed = [place for place, (leaf, before, _) in enumerate(sums) if leaf._grad is not before]
        if not changed:
            for leaf, before, total in sums:
                if total is not before:
                    store_gradient(leaf, total)
    return changed


class StoredGradients:
    """The gradients that a capture leaves leaves with, and so does each of its replays.

    A leaf that replays add to in place keeps what it has. Captures do not keep leaves.
    """

    def __init__(self, leaves: Iterable[Variable], recording: Recording) -> None:
        self._made: list[tuple[weakref.ref[Variable], Array | None]] = []
        self._before: list[tuple[weakref.ref[Variable], Array | None]] = []
        for leaf in leaves:
            gradient = leaf._grad
            made = gradient is None or recording.made(gradient._buffer)
            (self._made if made else self._before).append((weakref.ref(leaf), gradient))

    def check(self) -> None:
        """See that leaves have the gradients that replays add to.

        Raises:
            RuntimeError: one has another, or none.
        """
        for reference, gradient in self._before:
            leaf = reference()
            if leaf is not None and leaf._grad is not gradient:
                raise RuntimeError(
                    f"replay: a leaf of the shape {leaf.shape} had a gradient at the capture, which replays "
                    "add to in place, and has another one now, or none; zero_grad(set_to_none=False) sets it to 0 where it is"
                )

    def apply(self) -> None:
        """Store the others."""
        with _accumulating:
            for reference, gradient in self._made:
                leaf = reference()
                if leaf is not None:
                    leaf._grad = gradient


def _forget_after_fork() -> None:
    global _accumulating
    _accumulating = threading.Lock()  # another thread of the parent may have held it


first_in_child(_forget_after_fork)
