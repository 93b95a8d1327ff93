"""Completions: points on a timeline, which every submission returns."""

from __future__ import annotations

import contextvars
from collections.abc import AsyncIterator, Callable, Generator, Iterable
from typing import Any, Generic, NoReturn, TypeVar, cast, final

from aiodev._core import arguments, callsites
from aiodev._core.backend.interface import COMPLETED, FAULTS
from aiodev._core.streams.outcome import Outcome
from aiodev._core.timeline.recording import NO_WAIT, NOT_DONE
from aiodev._core.timeline.timeline import Timeline
from aiodev._core.waiting import callbacks
from aiodev._core.waiting.arrivals import Arrivals
from aiodev._core.waiting.blocking import wait_blocking
from aiodev._core.waiting.callbacks import DoneCallback
from aiodev._core.waiting.fairness import budget
from aiodev._core.waiting.line import DONE
from aiodev._core.waiting.reactor import at_hand, goes_on, others_first, wait

__all__ = ["Completion", "as_completed"]


T = TypeVar("T")


@final
class Completion(Generic[T]):
    """A point on a timeline: done when the timeline's counter has reached ``value``.

    Frozen, hashable, equal to any other completion of the same point, and valid for as long as anybody holds it; any number of
    tasks, loops and threads may wait for the same one. Cancelling a waiter stops the waiting, never the work.

    ``await`` gives what the operation gave: what the function of :meth:`Stream.call` returned, the result of the awaitable of
    :meth:`Stream.wait_future`, None for kernels and copies. It has the methods with which an :class:`asyncio.Future` is read,
    and belongs to no loop. ``asyncio.wait``, ``gather``, ``wait_for``, ``timeout`` and ``ensure_future`` take it as any
    other awaitable, and ``asyncio.wait`` gives completions back. ``create_task`` takes coroutines only.

    Example:
        >>> import aiodev
        >>> async def main():
        ...     done = aiodev.Stream("cpu").call(sum, [1, 2, 3])
        ...     return await done
        >>> import asyncio; asyncio.run(main())
        6
    """

    # Launches fill them in themselves (`aiodev._kernel.dispatch.launch`), which costs less than `__init__`, or a tuple.
    __slots__ = ("__weakref__", "_callbacks", "_first", "_outcome", "_timeline", "_value")

    _callbacks: list[DoneCallback]  #: unset until there is one
    _first: int  #: of the operations that it stands for, where it is not ``value``: of several, or behind it if of none
    _outcome: Outcome[T] | None
    _timeline: Timeline
    _value: int

    def __init__(self, timeline: Timeline, value: int, outcome: Outcome[T] | None = None) -> None:
        self._timeline = timeline
        self._value = value
        self._outcome = outcome

    @property
    def timeline(self) -> Timeline:
        """The timeline whose counter it waits for."""
        return self._timeline

    @property
    def value(self) -> int:
        """The value that the counter has to reach."""
        return self._value

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Completion):
            return NotImplemented
        return self._timeline is other._timeline and self._value == other._value

    def __hash__(self) -> int:
        return hash((self._timeline, self._value))

    def __reduce__(self) -> NoReturn:
        """A point on a timeline of this process is not pickled."""
        raise TypeError("completions are not pickled or copied: wait here, and send what `await completion` gives")

    def query(self) -> bool:
        """Whether the operation is done (failed counts as done). One load; never blocks.

        Raises:
            CaptureError: it was captured into a graph.
        """
        timeline = self._timeline
        if timeline.counters[COMPLETED] < self._value:
            if timeline.recording is not None:
                timeline.recording.refuse(NOT_DONE)
            return False
        if timeline.needed:
            timeline.let_go()
        return True

    def cancel(self) -> bool:
        """Withdraw the operation if it has not begun; whether this call did.

        It then never runs: who waits for it gets :class:`WithdrawnError`. What has been submitted behind it, to its stream and
        to streams that wait for it, fails with :class:`DependencyError`; what is submitted to its stream from now on runs. A
        stream that waits for it fails at that wait as at any failure: what is submitted there runs once somebody was told, or
        the wait is withdrawn as well (:meth:`Stream.cancel`).

        False, and nothing happens, when it has begun, is done, was withdrawn before, or is behind one that failed. One that is
        next, behind another of its stream that is about to end, may count as begun. On CUDA what was handed to the driver has
        begun. Never blocks.

        It is done, and lets go of memory, in its turn: when what has begun before it is. A function that was to be called, and
        its arguments, are let go of at once.
        """
        first = getattr(self, "_first", self._value)
        return first <= self._value and self._timeline.withdraw(first, self._value, callsites.here())[1] > 0

    def cancelled(self) -> bool:
        """Whether the operation was withdrawn before it began.

        A function that raised ``CancelledError`` was not withdrawn; it has failed.
        """
        return self._timeline.faults.withdrawals.withdrawn(self._value)

    def done(self) -> bool:
        """As ``query``, by the name that futures have for it."""
        return self.query()

    def result(self) -> T:
        """What ``await`` gives, of an operation that is done. Never blocks.

        Raises:
            asyncio.InvalidStateError: it is not done.
            BaseException: as ``await``.
        """
        self._need_done()
        if self._timeline.counters[FAULTS]:
            self._timeline.check(self._value, getattr(self, "_first", 0))
        return cast("T", None) if self._outcome is None else self._outcome.result

    def exception(self) -> BaseException | None:
        """What ``await`` raises, of an operation that is done, or None. Never blocks; whoever asks has been told.

        Raises:
            asyncio.InvalidStateError: it is not done.

        Example:
            >>> import aiodev
            >>> async def main():
            ...     failed = aiodev.Stream("cpu").call(int, "x")
            ...     await asyncio.wait([failed])
            ...     return failed.exception()
            >>> import asyncio; asyncio.run(main())
            ValueError("invalid literal for int() with base 10: 'x'")
        """
        self._need_done()
        return self._timeline.failure(self._value, getattr(self, "_first", 0)) if self._timeline.counters[FAULTS] else None

    def _need_done(self) -> None:
        if not self.done():
            from asyncio import InvalidStateError  # which `import aiodev` alone does not need

            raise InvalidStateError(f"{self!r}: it is not done; await it first")

    def add_done_callback(
        self, fn: Callable[[Completion[T]], object], *, context: contextvars.Context | None = None
    ) -> None:
        """Call ``fn(completion)`` once the operation is done, soon if it is done already; never from in here.

        The loop that runs here now calls it, as that of an asyncio future does; where none runs, one of our threads calls it,
        and it may block there. It sees the context variables of ``context``, or of this task. What it raises goes to the loop's
        exception handler; on trio, and in a thread, it is logged. It is not called if the loop is closed before.

        Raises:
            TypeError: ``fn`` is no function, or makes coroutines, or ``context`` is no context.

        Example:
            >>> import aiodev
            >>> async def main():
            ...     told = asyncio.Event()
            ...     done = aiodev.Stream("cpu").call(sum, [1, 2, 3])
            ...     done.add_done_callback(lambda done: told.set())
            ...     await told.wait()
            ...     return done.result()
            >>> import asyncio; asyncio.run(main())
            6
        """
        arguments.callback("add_done_callback", "fn", fn, "; a task may await the completion, and then fn")
        if context is None:
            context = contextvars.copy_context()
        arguments.instance("add_done_callback", "context", context, contextvars.Context, "a contextvars.Context, or None")
        callback = DoneCallback(self, fn, context)
        with callbacks.adding:
            if hasattr(self, "_callbacks"):
                self._callbacks.append(callback)
            else:
                self._callbacks = [callback]
        callback.arrange()

    def remove_done_callback(self, fn: Callable[[Completion[T]], object]) -> int:
        """Do not call ``fn``; returns how often it had been added to this object, and not been called."""
        removed = [callback for callback in getattr(self, "_callbacks", ()) if callback.function == fn]
        for callback in removed:
            callback.cancel()
        return len(removed)

    def __await__(self) -> Generator[Any, Any, T]:
        """Wait; gives the operation's result (None for kernels and copies).

        Raises:
            KernelError: the operation is a kernel, and raised; its own exception is the cause.
            WithdrawnError: it was withdrawn.
            DependencyError: an operation that it is ordered after failed, so that it did not run.
            BaseException: what a function given to ``Stream.call`` raised, unchanged.
        """
        timeline, outcome = self._timeline, self._outcome
        counters = timeline.counters
        if counters[COMPLETED] >= self._value:  # as `at_hand`, whose call takes a quarter of such an await
            if timeline.needed:
                timeline.let_go()
            try:
                budget.tick()
            except StopIteration:
                goes = goes_on()
            else:
                goes = True
        else:
            if timeline.recording is not None:  # not in the generator, which runs when this call is over
                timeline.recording.refuse(NO_WAIT)
            goes = at_hand(timeline, self._value)
        if goes and not counters[FAULTS]:
            return DONE if outcome is None else _given(outcome)
        yields = not goes and counters[COMPLETED] >= self._value
        first = getattr(self, "_first", 0)
        waiting = wait(timeline, self._value, check=True, spun=True, first=first, yields=yields)
        return cast("Generator[Any, Any, T]", waiting) if outcome is None else _given_after(waiting, outcome)

    async def synchronize(self) -> None:
        """As ``await completion``, without the result."""
        await self

    def synchronize_blocking(self, timeout: float | None = None) -> T:
        """Block this thread until the operation is done; gives its result.

        Raises:
            TimeoutError: ``timeout`` seconds have passed.
            BaseException: as ``await`` of the completion: a :class:`KernelError`, :class:`DependencyError`, or what a called
                function raised.
        """
        wait_blocking(self._timeline, self._value, timeout)
        return self.result()

    def __repr__(self) -> str:
        state = "done" if self._timeline.reached(self._value) else "pending"
        return f"<Completion {self._value} of {self._timeline.label}, {state}>"


def several(timeline: Timeline, first: int, last: int) -> Completion[None]:
    """The completion of consecutive operations; cancelling it withdraws all of them, or none."""
    completion: Completion[None] = Completion(timeline, last)
    completion._first = first
    return completion


def point(timeline: Timeline, value: int) -> Completion[None]:
    """A completion of what was submitted before, without an operation of its own that could be withdrawn."""
    return several(timeline, value + 1, value)


def _given(outcome: Outcome[T]) -> Generator[Any, Any, T]:
    """Nothing to wait for, and the result."""
    return outcome.result
    yield


def _given_after(waiting: Generator[Any, Any, None], outcome: Outcome[T]) -> Generator[Any, Any, T]:
    yield from waiting
    return outcome.result


async def as_completed(completions: Iterable[Completion[T]]) -> AsyncIterator[Completion[T]]:
    """The completions, each as soon as it is done, failed ones too.

    Awaiting what comes out does not wait; it raises what the operation raised. Leaving the loop early stops the waiting and
    leaks nothing, if the iterator is closed (``contextlib.aclosing``) or exhausted.

    Raises:
        TypeError: there is something else among them; at the first step.

    Example:
        >>> import aiodev
        >>> async def main():
        ...     streams = [aiodev.Stream("cpu") for _ in range(3)]
        ...     calls = [s.call(abs, -i) for i, s in enumerate(streams)]
        ...     return sorted([await done async for done in aiodev.as_completed(calls)])
        >>> import asyncio; asyncio.run(main())
        [0, 1, 2]
    """
    lines: dict[Timeline, list[Completion[T]]] = {}
    expected = "completions, as every submission returns one"
    for completion in arguments.items("as_completed", "completions", completions, expected):
        if not isinstance(completion, Completion):
            raise arguments.refusal("as_completed", "completions", expected, completion)
        lines.setdefault(completion.timeline, []).append(completion)
    if not lines:
        await others_first
    arrivals: Arrivals[list[Completion[T]]] = Arrivals()
    for line in lines.values():
        line.sort(key=_value, reverse=True)
    arrivals.arrived.extend(lines.values())
    del lines  # a stream whose last one has come may go
    try:
        while arrivals:
            if not arrivals.arrived:
                await arrivals
            line = arrivals.arrived.popleft()
            while line and line[-1].query():
                await others_first
                yield line.pop()
            if line:
                arrivals.expect(line[-1].timeline, line[-1].value, line)
    finally:
        arrivals.leave()


def _value(completion: Completion[Any]) -> int:
    return completion.value


class Reached:
    """Wait until an operation is done, failed or not. ``spun`` says that a spin for it was in vain."""

    def __init__(self, timeline: Timeline, value: int, spun: bool = False) -> None:
        self._timeline, self._value, self._spun = timeline, value, spun

    def __await__(self) -> Generator[Any, Any, None]:
        return wait(self._timeline, self._value, spun=self._spun)
