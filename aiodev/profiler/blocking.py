"""Detection of what blocks a loop: which call held it, with its stack, taken while it did.

A timer of the loop notes that the loop runs. A thread looks at that note, several times a threshold; where it is not fresh, the
thread takes the frames of the loop's thread, which are those of whatever holds the loop. The timer comes behind all tasks that
are ready, so these looks tell who of them had the loop for how long. What holds the GIL as well is seen where it lets go of
that, which is right behind the call.
"""

from __future__ import annotations

import gc
import linecache
import logging
import math
import sys
import sysconfig
import threading
import time
import traceback
from collections import deque
from collections.abc import Callable
from itertools import accumulate, chain, islice, repeat
from operator import attrgetter
from pathlib import Path
from types import CodeType, TracebackType
from typing import Any, NoReturn

from aiodev._core import callsites
from aiodev._core.arguments import callback, message, number
from aiodev._core.at_fork import Whole
from aiodev._core.waiting.loops import running_loop
from aiodev._core.waiting.reactor import others_first
from aiodev.profiler.lag import LoopLag
from aiodev.profiler.tuning import CALLS_KEPT, LOOKS

__all__ = ["BlockingCall", "BlockingDetector", "detect_blocking"]

logger = logging.getLogger("aiodev")


class BlockingCall:
    """A stretch in which a loop could run nothing else.

    Attributes:
        duration: seconds from when the loop was last seen to run, or to run another task, until it ran again, or another one.
        task: the name of the task that ran; None for a callback, or where that is not known.
        alone: it held the loop for longer than the threshold by itself. Else several did in turn, none for as long; of these it
            was seen for the longest time, and ``duration`` is that of all.
        began_ns: when the loop was last seen to run, or to run another task, by ``time.perf_counter_ns``.

    Example:
        >>> from aiodev import profiler
        >>> async def main():
        ...     async with profiler.detect_blocking(0.02, lambda blocked: print("blocked in", blocked.stack[-1].name)):
        ...         await asyncio.sleep(0)
        ...         time.sleep(0.2)
        >>> import time
        >>> asyncio.run(main())
        blocked in main
    """

    __slots__ = ("__weakref__", "_frames", "alone", "began_ns", "duration", "task")

    def __init__(self, frames: list[Any], task: str | None, began_ns: int, ended_ns: int, alone: bool) -> None:
        self.duration = (ended_ns - began_ns) / 1e9
        self.task = task
        self.alone = alone
        self.began_ns = began_ns
        self._frames: list[_Frame] = frames

    @property
    def call(self) -> str:
        """The line that held the loop, as ``function (file:line): source``.

        It is the innermost line of the program itself: not of the standard library, an installed package or aiodev. Where there
        is none, it is the innermost of all.
        """
        frame = next((frame for frame in reversed(self._frames) if frame.is_own), self._frames[-1])
        source = frame.source()
        return f"{frame.code.co_qualname} ({frame.code.co_filename}:{frame.line})" + (f": {source}" if source else "")

    @property
    def stack(self) -> traceback.StackSummary:
        """The frames of the task or callback that held the loop, outermost first."""
        rows = [(frame.code.co_filename, frame.line, frame.code.co_qualname, frame.source()) for frame in self._frames]
        return traceback.StackSummary.from_list(rows)

    def __reduce__(self) -> NoReturn:
        """It has code of this process."""
        raise TypeError("blocking calls are not pickled or copied: each has code of its process; str() tells what it has")

    def __repr__(self) -> str:
        return f"<aiodev.profiler.BlockingCall {1e3 * self.duration:.0f} ms in {self.call}>"

    def __str__(self) -> str:
        by = "a callback" if self.task is None else f"task {self.task!r}"
        where = f"in {self.call}" if self.alone else f"in turn, longest in {self.call}"
        held = f"{'' if self.alone else ' and others'} held the event loop for {1e3 * self.duration:.0f} ms"
        return f"{by}{held} {where}\n{''.join(self.stack.format())}"


def detect_blocking(threshold: float = 0.1, report: Callable[[BlockingCall], object] | None = None) -> BlockingDetector:
    """Find out which calls hold the running loop for longer than a threshold, for as long as the block runs.

    Each is reported when the loop's timers run again, which is behind all tasks that are ready, with the stack that was seen at
    the threshold or soon after. A timer of the loop and a thread run four times a threshold for that, and who had the loop is
    known to about as much. Where none of several tasks takes as long as the threshold, but all of them together do, the one
    that was seen for the longest time is reported (:attr:`BlockingCall.alone`). On trio, tasks of the same function are one.
    Of a callback that has no Python code, asyncio's frame that calls it is all that is seen, and on uvloop nothing.

    Args:
        threshold: seconds.
        report: called with each :class:`BlockingCall`, in the loop's thread. By default ``aiodev`` logs a
            warning.

    Returns:
        an async context manager, which gives a :class:`BlockingDetector`.

    Raises:
        TypeError: ``report`` is no function, or makes coroutines.
        ValueError: ``threshold`` is not positive.
        RuntimeError: on entering, no loop of asyncio, uvloop or trio is running.

    Example:
        >>> from aiodev import profiler
        >>> async def main():
        ...     async with profiler.detect_blocking(0.02, report=lambda blocked: None) as detector:
        ...         await asyncio.sleep(0)
        ...         sum(i * i for i in range(2_000_000))  # no await: nobody else has a turn
        ...     return len(detector.calls)
        >>> asyncio.run(main())
        1
    """
    threshold = number("detect_blocking", "threshold", threshold)
    if not 0 < threshold < math.inf:
        raise ValueError(message("detect_blocking", "threshold", "a positive number of seconds", threshold))
    if report is not None:
        callback("detect_blocking", "report", report)
    return BlockingDetector(threshold, report or _log)


def _log(blocked: BlockingCall) -> None:
    logger.warning("%s", blocked)


class BlockingDetector:
    """Looks for what holds a loop; what :func:`detect_blocking` gives.

    Attributes:
        threshold: seconds that are too long.
        calls: what held the loop so far, at most the last thousand.

    Example:
        >>> from aiodev import profiler
        >>> async def main():
        ...     async with profiler.detect_blocking(5.0) as detector:
        ...         await asyncio.sleep(0.01)
        ...     return detector
        >>> asyncio.run(main())
        <aiodev.profiler.BlockingDetector, 0 calls of more than 5000 ms>
    """

    def __init__(self, threshold: float, report: Callable[[BlockingCall], object]) -> None:
        self.threshold = threshold
        self.calls: deque[BlockingCall] = deque(maxlen=CALLS_KEPT)
        self._report = report
        self._timer = _Pulse(threshold / LOOKS, self._beat)
        self._looking = threading.Condition()
        self._seen: list[_Stretch] = []
        self._beat_ns = 0
        self._thread_id = 0
        self._loop: Any = None
        self._stopped = True

    async def __aenter__(self) -> BlockingDetector:
        await others_first
        self._loop = running_loop()
        self._thread_id = threading.get_ident()
        self._beat_ns = time.perf_counter_ns()
        self._timer.start()
        self._stopped = False
        threading.Thread(target=self._look, name="aiodev-blocking", daemon=True).start()
        with self._looking:  # that took as long as the thread had no core, which is nobody's doing
            self._beat_ns, self._seen = time.perf_counter_ns(), []
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        with self._looking:
            self._stopped = True
            self._looking.notify()
        self._timer.stop()
        self._beat()

    def __reduce__(self) -> NoReturn:
        """It looks at a loop."""
        raise TypeError("detectors are not pickled or copied: each looks at its loop; make another")

    def __repr__(self) -> str:
        return f"<aiodev.profiler.BlockingDetector, {len(self.calls)} calls of more than {1e3 * self.threshold:g} ms>"

    def _beat(self) -> None:
        """The loop runs."""
        now = time.perf_counter_ns()
        with self._looking:
            began, self._beat_ns = self._beat_ns, now
            seen, self._seen = self._seen, []
        if not seen or now - began < self._threshold_ns:
            return
        for blocked in self._blocking(seen, now):
            self.calls.append(blocked)
            try:
                self._report(blocked)
            except Exception:  # the timer goes on
                logger.exception("detect_blocking: %r, to which blocking calls are reported, failed", self._report)

    def _blocking(self, seen: list[_Stretch], now: int) -> list[BlockingCall]:
        """Who took too long of those that had the loop until ``now``; or, if it is all of them together, the longest."""
        seen[-1].end(now)
        calls = [stretch.call(*stretch.span_ns, alone=True) for stretch in seen if stretch.duration_ns >= self._threshold_ns]
        whole = seen[0].span_ns[0], seen[-1].span_ns[1]
        if not calls and whole[1] - whole[0] >= self._threshold_ns:
            calls.append(max(seen, key=lambda stretch: stretch.duration_ns).call(*whole, alone=False))
        return calls

    @property
    def _threshold_ns(self) -> int:
        return int(1e9 * self.threshold)

    def _look(self) -> None:
        pause = self.threshold / LOOKS
        while not self._stopped:
            with self._looking:
                self._looking.wait(pause)
                now = time.perf_counter_ns()
                if self._stopped or now - self._beat_ns < 1e9 * pause:
                    continue
                frames = _frames_inside_loop(self._thread_id)
                if not frames:  # the loop is idle, and its thread has had no core; or it is between two
                    if self._seen:
                        self._seen[-1].end(now)
                    else:
                        self._beat_ns = now
                    continue
                task = self._task()
                if not self._seen:
                    self._seen.append(_Stretch(task, frames, self._beat_ns))
                elif not self._seen[-1].goes_on(task, frames):
                    self._seen[-1].end(now)
                    self._seen.append(_Stretch(task, frames, now))
                self._seen[-1].take(frames, now - self._threshold_ns)
            for frame in frames:  # files are read here, not in the loop's thread
                frame.source()

    def _task(self) -> Any:
        """The task that runs, if that is known."""
        if self._loop is None:
            return None
        try:
            return sys.modules["asyncio"].current_task(self._loop)
        except RuntimeError:  # tasks came and went meanwhile
            return None


class _Stretch:
    """The looks, one behind the other, that saw the same task, or the same callback.

    Attributes:
        is_complete: it has lasted for as long as the threshold, and the stack of then is kept.
    """

    def __init__(self, task: Any, frames: list[_Frame], began_ns: int) -> None:
        self.is_complete = False
        self._task = task  # held until the loop runs, so that no other one has its place in memory
        self._frames = frames
        self._began_ns, self._ended_ns = began_ns, 0

    def goes_on(self, task: Any, frames: list[_Frame]) -> bool:
        """Whether it is seen again."""
        return not self._ended_ns and task is self._task and frames[0].code is self._frames[0].code

    def take(self, frames: list[_Frame], enough_ns: int) -> None:
        """Keep what was seen last, until it was seen for long enough: what began by then, at ``enough_ns`` at the latest."""
        if not self.is_complete:
            self._frames, self.is_complete = frames, self._began_ns <= enough_ns

    def end(self, now: int) -> None:
        """It was not seen any more; the first such look counts."""
        self._ended_ns = self._ended_ns or now

    @property
    def span_ns(self) -> tuple[int, int]:
        """From when to when, once it is over."""
        return self._began_ns, self._ended_ns

    @property
    def duration_ns(self) -> int:
        """How long it was, once it is over."""
        return self._ended_ns - self._began_ns

    def call(self, began_ns: int, ended_ns: int, *, alone: bool) -> BlockingCall:
        """What is told of it."""
        name = None if self._task is None else str(self._task.get_name())
        return BlockingCall(self._frames, name, began_ns, ended_ns, alone)


class _Pulse(LoopLag):
    """A timer of any loop, for its callback alone."""

    def __init__(self, period: float, callback: Callable[[], object]) -> None:
        super().__init__(period)
        self._callback = callback

    def beat(self) -> None:
        self._callback()


class _Frame:
    """What is kept of a frame: not the values of its variables."""

    __slots__ = ("code", "is_own", "line")

    def __init__(self, code: CodeType, line: int | None, module: str) -> None:
        self.code = code
        self.line = line or code.co_firstlineno  # between two lines it is None
        library = code.co_filename.startswith(_LIBRARIES) or module.partition(".")[0] == "aiodev"
        self.is_own = not (library or callsites.is_library(module))

    def source(self) -> str:
        """The line itself."""
        return linecache.getline(self.code.co_filename, self.line).strip()


#: Held where frames are taken with the collector off, so that nobody turns it on meanwhile, or is forked with it off.
_uncollected = Whole()


def _stack_of(thread_id: int) -> list[tuple[CodeType, int | None, dict[str, Any]]]:
    """The code, line and globals of what a thread executes, innermost first; nothing where it has ended.

    All of it is read in one piece, by iterators of C that let nobody else have the GIL: the thread would go on, and CPython
    3.11 has given objects that are no frames to who followed ``f_back`` meanwhile.

    Before 3.12 the collector may run in there, while CPython's list of threads is locked. A finalizer that lets go of the GIL
    stops the process for good then: who gets it and starts a thread waits for the list, and holds the GIL (CPython's issue
    106883). It is kept off in later versions, too, for it would let go of the GIL.
    """
    innermost = islice(map(dict.get, iter(sys._current_frames, None), repeat(thread_id)), 1)
    follow: Callable[[Any, Any], Any] = getattr
    outwards = accumulate(chain(innermost, repeat("f_back")), follow)
    rows: list[tuple[CodeType, int | None, dict[str, Any]]] = []
    with _uncollected:
        is_on = gc.isenabled()
        gc.disable()
        try:
            rows.extend(map(attrgetter("f_code", "f_lineno", "f_globals"), outwards))
        except AttributeError:  # of the None that is behind the outermost
            pass
        finally:
            if is_on:
                gc.enable()
    return rows


def _frames_inside_loop(thread_id: int) -> list[_Frame]:
    """The frames of what a loop runs, outermost first; none if it only waits."""
    frames: list[_Frame] = []
    for code, line, variables in _stack_of(thread_id):
        module = variables.get("__name__", "")
        if module in _LOOPS:
            if not frames and code is _handle_code():  # a callback that is C
                frames.append(_Frame(code, line, module))
            return frames[::-1]
        if module not in _SELECTORS:
            frames.append(_Frame(code, line, module))
    return []


def _handle_code() -> CodeType | None:
    """Of the method by which asyncio runs callbacks."""
    asyncio = sys.modules.get("asyncio")
    code: CodeType | None = None if asyncio is None else asyncio.Handle._run.__code__
    return code


#: Modules whose frames are the loops' own.
_LOOPS = {"asyncio.base_events", "asyncio.events", "asyncio.runners", "trio._core._run", "uvloop"}
#: Modules in which a loop waits for its descriptors.
_SELECTORS = {"selectors", "trio._core._io_epoll", "trio._core._io_kqueue", "trio._core._io_windows"}
#: Where code is that is nobody's own.
_LIBRARIES = "<frozen ", *(
    str(Path(path).resolve()) + "/"
    for path in {sysconfig.get_path(name) for name in ("stdlib", "platstdlib", "purelib", "platlib")} if path
)  # fmt: skip
