"""Exceptions that arrive at any moment, as Ctrl-C's do.

The interpreter looks for them where a function begins, after each call and where a loop jumps back: there they are raised here.
"""

from __future__ import annotations

import dis
import functools
import itertools
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from types import CodeType, FrameType
from typing import Any

__all__ = ["Interrupted", "interrupt", "interrupted_everywhere", "sigint_raises"]


class Interrupted(BaseException):
    """What arrives."""


@functools.cache
def moments(code: CodeType) -> frozenset[int]:
    """The instructions at which an exception may arrive."""
    instructions = list(dis.get_instructions(code))
    behind = {i.offset for before, i in itertools.pairwise(instructions) if before.opname.startswith(("CALL", "RESUME"))}
    return frozenset(behind | {i.offset for i in instructions if i.opname.startswith("JUMP_BACKWARD")})


def interrupt() -> None:
    """The exception arrives."""
    raise Interrupted


def interrupted_everywhere(
    act: Callable[[], object],
    *modules: Any,
    prepare: Callable[[], object] = lambda: None,
    arrive: Callable[[], object] = interrupt,
    least: int = 20,
) -> Iterator[int]:
    """Have ``act`` interrupted at its first moment in these modules, then at its second, until it comes to its end.

    ``prepare`` is called before each time, and ``arrive`` is what happens at that moment, of which
    there are at least ``least``. Gives, after each interrupt, how many there were.
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
                    arrive()
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
            assert count > least, "nothing was traced"
            return
        yield count


@contextmanager
def sigint_raises() -> Iterator[Callable[[], object]]:
    """Have SIGINT raise :class:`Interrupted`; gives what sends it to this thread."""

    def handle(number: int, frame: FrameType | None) -> None:
        raise Interrupted

    before = signal.signal(signal.SIGINT, handle)
    try:
        yield lambda: signal.raise_signal(signal.SIGINT)
    finally:
        signal.signal(signal.SIGINT, before)
