"""Exceptions that arrive at any moment, as Ctrl-C's do, and waits inside signal handlers.

The interpreter looks for them where a function begins, after each call and where a loop jumps back: there they are raised here.
"""

from __future__ import annotations

import dis
import functools
import itertools
import os
import select
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from types import CodeType, FrameType, SimpleNamespace
from typing import Any

import pytest

from aiodev._core import blocking, waitset
from aiodev._core.backend import COMPLETED, COUNTER_WORDS
from aiodev._core.blocking import wait_all_blocking
from aiodev._core.waitset import WaitSet

_poll = select.poll


class Interrupted(BaseException):
    """What arrives."""


class Promptly:
    """A backend whose work is done as soon as somebody waits for it; it writes a descriptor once between two collections.

    Attributes:
        prompt: else work is done when ``finish`` is called.
    """

    def __init__(self) -> None:
        self.prompt = True
        self.fired: dict[int, list[int]] = {}
        self.armed: list[tuple[int, int]] = []
        self.lines: dict[int, Any] = {}
        self.events: dict[int, int] = {}

    def line(self) -> Any:
        """A timeline of which nothing is done."""
        queue = len(self.lines) + 1
        operations = SimpleNamespace(spin=lambda *_: False, help=lambda *_: False)
        line = SimpleNamespace(
            entry=SimpleNamespace(backend=self),
            queue=queue,
            counters=[0] * COUNTER_WORDS,
            parked=0,
            parked_at=0,
            deferred=False,
            needed=(),
            spin_ns=0,
            spin_doubts=0,
            quick_waits=0,
            operations=operations,
        )
        line.reached = lambda value: line.counters[COMPLETED] >= value
        self.lines[queue] = line
        return line

    def create_waker(self, descriptor: int) -> int:
        self.events[descriptor] = descriptor
        return descriptor

    def arm(self, queue: int, value: int, waker: int) -> bool:
        if self.lines[queue].counters[COMPLETED] >= value:
            return False
        self.armed.append((queue, waker))
        if self.prompt:
            self.finish(queue, value)
        return True

    def finish(self, queue: int, value: int) -> None:
        """Complete operations up to ``value``."""
        self.lines[queue].counters[COMPLETED] = value
        for armed, waker in self.armed:
            if armed == queue:
                fired = self.fired.setdefault(waker, [])
                if not fired:  # else the descriptor has been written since it was collected last
                    os.write(waker, (1).to_bytes(8, "little"))
                fired.append(queue)
        self.armed = [(armed, waker) for armed, waker in self.armed if armed != queue]

    def collect(self, waker: int) -> list[int]:
        return self.fired.pop(waker, [])


class Poll:
    """A poll object of which nobody asks in vain: with that backend, whoever has to sleep would sleep for ever."""

    def __init__(self) -> None:
        self._poll = _poll()

    def register(self, descriptor: int, events: int) -> None:
        self._poll.register(descriptor, events)

    def poll(self, timeout: float | None) -> list[tuple[int, int]]:
        found = self._poll.poll(0)
        assert found, "nothing would wake this thread"
        return found


@pytest.fixture(autouse=True)
def own_places(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Descriptors and places of the test's own; threads sleep at once."""
    monkeypatch.setattr(waitset, "_descriptors", [])
    monkeypatch.setattr(blocking, "_thread", blocking._Thread())
    monkeypatch.setattr(blocking, "may_wait_awake", lambda: False)
    monkeypatch.setattr(select, "poll", Poll)
    yield


@functools.cache
def moments(code: CodeType) -> frozenset[int]:
    """The instructions at which an exception may arrive."""
    instructions = list(dis.get_instructions(code))
    behind = {i.offset for before, i in itertools.pairwise(instructions) if before.opname.startswith(("CALL", "RESUME"))}
    return frozenset(behind | {i.offset for i in instructions if i.opname.startswith("JUMP_BACKWARD")})


def interrupted_everywhere(
    act: Callable[[], object], *modules: Any, prepare: Callable[[], object] = lambda: None
) -> Iterator[int]:
    """Have ``act`` interrupted at its first moment in these modules, then at its second, until it comes to its end.

    ``prepare`` is called before each time. Gives, after each interrupt, how many there were.
    """
    files = {module.__file__ for module in modules}
    for count in itertools.count(1):
        left, arrived = count, False

        def trace(frame: FrameType, event: str, argument: object) -> Any:
            nonlocal left, arrived
            if frame.f_code.co_filename not in files:
                return None
            frame.f_trace_opcodes = True
            if event == "opcode" and not arrived and frame.f_lasti in moments(frame.f_code):
                left -= 1
                if left == 0:
                    arrived = True
                    raise Interrupted
            return trace

        prepare()
        before = sys.gettrace()
        sys.settrace(trace)
        try:
            with suppress(Interrupted):
                act()
        finally:
            sys.settrace(before)
        if not arrived:
            assert count > 20  # else nothing was traced
            return
        yield count


def test_after_an_interrupt_anywhere_the_next_wait_works() -> None:
    """However a blocking wait was torn, the thread's next wait is woken, and nothing waits on the timelines any more."""
    backend = Promptly()
    line = backend.line()

    def act() -> None:
        wait_all_blocking([(line, line.counters[COMPLETED] + 1)], None)

    for _ in interrupted_everywhere(act, blocking, waitset):
        for waited in (line, backend.line()):
            wait_all_blocking([(waited, waited.counters[COMPLETED] + 1)], None)


def test_after_an_interrupted_collection_nobody_is_forgotten() -> None:
    """A loop's wait set whose ``collect`` was torn anywhere is readable again, and then names every waiter that is due."""
    backend = Promptly()
    backend.prompt = False
    waits: WaitSet[tuple[int, int]] = WaitSet()
    lines = [backend.line() for _ in range(2)]
    wanted: set[tuple[int, int]] = set()

    def prepare() -> None:
        wanted.clear()
        for line in lines:
            done = line.counters[COMPLETED]
            for value in (done + 1, done + 2, done + 4):
                assert waits.add(line, value, (line.queue, value))
            wanted.update({(line.queue, done + 1), (line.queue, done + 2)})
            backend.finish(line.queue, done + 2)

    for _ in interrupted_everywhere(waits.collect, waitset, prepare=prepare):
        assert select.select([waits.descriptor.read_end], [], [], 0)[0]
        assert wanted <= set(waits.collect())
        for line in lines:  # the rest is armed
            backend.finish(line.queue, line.counters[COMPLETED] + 2)
        rest = {(line.queue, line.counters[COMPLETED]) for line in lines}
        assert rest <= set(waits.collect()) and len(waits) == 0
        assert all(line.parked == 0 for line in lines)


def test_a_signal_handler_may_wait_while_its_thread_does() -> None:
    """The wait that it interrupts is woken nevertheless."""
    backend = Promptly()
    outer, inner = backend.line(), backend.line()

    def handler(number: int, frame: FrameType | None) -> None:
        backend.finish(outer.queue, 1)
        wait_all_blocking([(inner, 1)], None)

    backend.prompt = False
    arm = backend.arm

    def arm_and_interrupt(queue: int, value: int, waker: int) -> bool:
        parked = arm(queue, value, waker)
        backend.prompt = True
        if queue == outer.queue and parked:
            signal.raise_signal(signal.SIGUSR1)
        return parked

    backend.arm = arm_and_interrupt  # type: ignore[method-assign]
    before = signal.signal(signal.SIGUSR1, handler)
    try:
        wait_all_blocking([(outer, 1)], None)
    finally:
        signal.signal(signal.SIGUSR1, before)
    assert outer.counters[COMPLETED] == inner.counters[COMPLETED] == 1


def test_who_is_interrupted_leaves_a_descriptor_that_wakes_its_next_owner() -> None:
    """What had fired for the one who was interrupted would else keep the waker silent."""
    backend = Promptly()
    backend.prompt = False
    line = backend.line()
    torn: list[WaitSet[str]] = []

    def prepare() -> None:
        torn[:] = [WaitSet()]
        value = line.counters[COMPLETED] + 1
        assert torn[0].add(line, value, "torn")
        backend.finish(line.queue, value)

    for _ in interrupted_everywhere(lambda: torn[0].collect(), waitset, prepare=prepare):
        torn[0].recycle()
        waits: WaitSet[str] = WaitSet()
        assert waits.descriptor is torn[0].descriptor
        waits.collect()
        value = line.counters[COMPLETED] + 1
        assert waits.add(line, value, "next")
        backend.finish(line.queue, value)
        assert select.select([waits.descriptor.read_end], [], [], 0)[0] and waits.collect() == ["next"]
        waits.recycle()
