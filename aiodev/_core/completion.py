"""What every submission returns: a point on a timeline."""

from __future__ import annotations

from collections.abc import AsyncIterator, Generator, Iterable
from typing import Any, NamedTuple, NoReturn, cast

from aiodev._core import sites
from aiodev._core.backend import COMPLETED, FAULTS
from aiodev._core.blocking import wait_blocking
from aiodev._core.reactor import at_hand, wait, wait_any
from aiodev._core.timeline import Timeline

__all__ = ["Completion", "as_completed"]


class Completion(NamedTuple):
    """A point on a timeline: done when the timeline's counter has reached ``value``.

    Frozen, hashable, and valid for as long as anybody holds it; any number of tasks, loops and threads may wait for the same
    one. Cancelling a waiter stops the waiting, never the work.

    Example:
        >>> import aiodev
        >>> async def main():
        ...     done = aiodev.Stream("cpu").call(sum, [1, 2, 3])
        ...     return await done
        >>> import asyncio; asyncio.run(main())
        6
    """

    timeline: Timeline
    value: int

    def __reduce__(self) -> NoReturn:
        """A point on a timeline of this process is not pickled."""
        raise TypeError("completions are not pickled or copied: wait here, and send what `await completion` gives")

    def query(self) -> bool:
        """Whether the operation is done (failed counts as done). One load; never blocks, never raises."""
        return self.timeline.counters[COMPLETED] >= self.value

    def cancel(self) -> bool:
        """Withdraw the operation if it has not begun; whether this call did.

        It then never runs: who waits for it gets :class:`WithdrawnError`. What has been submitted behind it, to its stream and
        to streams that wait for it, fails with :class:`DependencyError`; what is submitted from now on runs. False, and nothing
        happens, when it has begun, is done, or was withdrawn before. One that is next, behind another of its stream that is
        about to end, may count as begun. On CUDA what was handed to the driver has begun. Never blocks.

        It is done, and lets go of memory, in its turn: when what has begun before it is. A function that was to be called, and
        its arguments, are let go of at once.
        """
        return self.timeline.withdraw(self._first(), self.value, sites.here())[1] > 0

    def cancelled(self) -> bool:
        """Whether the operation was withdrawn."""
        return self.timeline.faults.withdrawals.withdrawn(self.value)

    def _first(self) -> int:
        """The first of the operations that this stands for."""
        return self.value

    def __await__(self) -> Generator[Any, Any, Any]:
        """Wait; gives the operation's result (None for kernels and copies).

        Raises:
            KernelError: the operation is a kernel, and raised; its own exception is the cause.
            WithdrawnError: it was withdrawn.
            DependencyError: an operation that it is ordered after failed, so that it did not run.
            BaseException: what a function given to ``Stream.call`` raised, unchanged.
        """
        timeline, value = self
        if at_hand(timeline, value) and not timeline.counters[FAULTS]:
            return DONE
        return wait(timeline, value, check=True, spun=True)

    async def synchronize(self) -> None:
        """As ``await completion``, without the result."""
        await self

    def synchronize_blocking(self, timeout: float | None = None) -> Any:
        """Block this thread until the operation is done; gives its result.

        Raises:
            TimeoutError: ``timeout`` seconds have passed.
            BaseException: as ``await`` of the completion: a :class:`KernelError`, :class:`DependencyError`, or what a called
                function raised.
        """
        wait_blocking(self.timeline, self.value, timeout)
        self.timeline.check(self.value)
        return None

    def __repr__(self) -> str:
        state = "done" if self.query() else "pending"
        return f"<Completion {self.value} of {self.timeline.label}, {state}>"


#: Awaiting something done: an exhausted iterator, which stays exhausted whoever shares it.
DONE = cast("Generator[Any, Any, Any]", iter(()))
next(DONE, None)


class Point(Completion):
    """The completion of what was submitted before, and of no operation of its own, which could be withdrawn."""

    def cancel(self) -> bool:
        """False: there is nothing to withdraw."""
        return False


class Several(Completion):
    """The completion of several operations in a row: it takes all of them along, or none."""

    first: int

    def _first(self) -> int:
        return self.first


class Outcome:
    """Where the result of a called function goes."""

    __slots__ = ("result",)

    def __init__(self) -> None:
        self.result: Any = None


class Result(Completion):
    """The completion of an operation that has a result."""

    outcome: Outcome

    def __await__(self) -> Generator[Any, Any, Any]:
        yield from wait(self.timeline, self.value, check=True)
        return self.outcome.result

    def synchronize_blocking(self, timeout: float | None = None) -> Any:
        super().synchronize_blocking(timeout)
        return self.outcome.result


async def as_completed(completions: Iterable[Completion]) -> AsyncIterator[Completion]:
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
    waiting: dict[Timeline, list[Completion]] = {}
    for completion in completions:
        if not isinstance(completion, Completion):
            raise TypeError(f"as_completed: expected completions, as every submission returns one, got {completion!r}")
        waiting.setdefault(completion.timeline, []).append(completion)
    for line in waiting.values():
        line.sort(key=_value, reverse=True)
    while waiting:
        for timeline in list(waiting):
            line = waiting[timeline]
            while line and line[-1].query():
                yield line.pop()
            if not line:
                del waiting[timeline]
        if waiting:
            await _Any([(line[-1].timeline, line[-1].value) for line in waiting.values()])


def _value(completion: Completion) -> int:
    return completion.value


class _Any:
    """Wait for the first of several points."""

    def __init__(self, points: list[tuple[Timeline, int]]) -> None:
        self._points = points

    def __await__(self) -> Generator[Any, Any, None]:
        return wait_any(self._points)


class Reached:
    """Wait until an operation is done, whatever became of it; ``spun`` when spinning for it was in vain."""

    def __init__(self, timeline: Timeline, value: int, spun: bool = False) -> None:
        self._timeline, self._value, self._spun = timeline, value, spun

    def __await__(self) -> Generator[Any, Any, None]:
        return wait(self._timeline, self._value, spun=self._spun)
