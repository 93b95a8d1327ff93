"""Detects the event loop of this thread, without importing asyncio or trio."""

from __future__ import annotations

import sys
from threading import get_ident
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from asyncio import AbstractEventLoop
    from collections.abc import Callable


def running_loop() -> AbstractEventLoop | None:
    """The asyncio (or uvloop) loop that runs in this thread, or None.

    Where asyncio was not imported, none does. Its native part is asked, which is whole as soon as it can be found. A loop
    that hosts a trio run in guest mode does not run while trio's tasks do.
    """
    native = sys.modules.get("_asyncio")
    loop: AbstractEventLoop | None = None if native is None else native._get_running_loop()
    if loop is not None and "trio" in sys.modules and _is_host(loop):
        return None
    return loop


def _is_host(loop: AbstractEventLoop) -> bool:
    """Whether a task of trio runs in a callback of this loop; if one of the loop's own tasks does, trio is outside."""
    asyncio, trio = sys.modules.get("asyncio"), sys.modules["trio"]
    if asyncio is None or asyncio.current_task(loop) is not None:
        return False
    try:
        return bool(trio.lowlevel.in_trio_task())
    except AttributeError:  # it is being imported
        return False


def loop_runs_here() -> bool:
    """Whether an event loop runs in this thread: asyncio's, uvloop's or trio's."""
    return running_loop() is not None or trio_token() is not None


def trio_token() -> Any:
    """What stands for the trio loop that runs in this thread, or None."""
    trio = sys.modules.get("trio")
    if trio is None:
        return None
    try:
        return trio.lowlevel.current_trio_token()
    except RuntimeError:
        return None


def task_namer() -> Callable[[], str | None]:
    """A function that gives the name of the task that runs in this thread, or None: of asyncio, uvloop or trio.

    It is called at each submission that is profiled, and to ask for the running loop can cost a call of the system. So it
    remembers each thread's, which is another one only if no task of that runs; and at hand that of the thread that asked last.
    """
    loops: dict[int, tuple[int, Callable[[Any], Any], AbstractEventLoop | None]] = {}
    nobody: tuple[int, Callable[[Any], Any], AbstractEventLoop | None] = (0, lambda _: None, None)
    last = nobody

    def name() -> str | None:
        thread, current, loop = last
        task = current(loop) if get_ident() == thread else None
        return look() if task is None else task.get_name()

    def look() -> str | None:
        nonlocal last
        thread = get_ident()
        last = loops.get(thread, nobody)
        task = last[1](last[2])
        if task is None:
            loop = running_loop()
            if loop is None:
                return _trio_task()
            last = loops[thread] = thread, sys.modules["asyncio"].current_task, loop
            task = last[1](loop)
        return None if task is None else str(task.get_name())

    return name


def _trio_task() -> str | None:
    trio = sys.modules.get("trio")
    if trio is None:
        return None
    try:
        return str(trio.lowlevel.current_task().name)
    except RuntimeError:
        return None
